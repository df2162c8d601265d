"""Run tests of a copy of the project within this process: for once, since it imports the copy's modules."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.mutants.forks import ENVIRONMENT

OPTIONS = ("-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib --strict-markers -m 'not slow'")
NONE_FAILED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
OWN = ("lmpolicy", "helpers", "tests", "conftest")
"""First parts of names of modules that must come from the copy."""


def run(folder: Path, files: Iterable[str], plugin: object, options: Sequence[str] = ()) -> int:
    """Run the tests of some files, and return pytest's exit status.

    :param folder: the copy of the project.
    :param files: test files within it.
    :param plugin: a plugin of pytest.
    :param options: more options of pytest.
    :raises RuntimeError: if a module of the project was imported from elsewhere.
    """
    loaded = sorted(name for name in sys.modules if name.split(".")[0] in OWN)
    if loaded:
        raise RuntimeError(f"imported before the copy could be: {', '.join(loaded)}")
    os.chdir(folder)
    os.environ |= {**ENVIRONMENT, "PYTHONPATH": str(folder)}
    sys.path[:0] = [str(folder), str(folder / "tests")]
    status = int(pytest.main([*OPTIONS, *options, *files], plugins=[plugin]))
    package = sys.modules.get("lmpolicy")
    if package is not None and not str(package.__file__).startswith(str(folder)):
        raise RuntimeError(f"lmpolicy was imported from {package.__file__}, not from {folder}")
    return status


class Recorder:
    """Note which lines each test runs, how long it takes, and whether it passes.

    :param folder: the copy of the project.
    :param sources: files whose lines count.
    """

    def __init__(self, folder: Path, sources: Sequence[str]) -> None:
        import coverage

        self.folder, self.sources = folder, sources
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self._coverage = coverage.Coverage(
            data_file=None, config_file=False, include=[str(folder / source) for source in sources]
        )

    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        self._coverage.switch_context("setup")
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._coverage.switch_context(item.nodeid)
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = round(time.process_time() - start, 4)
            self._coverage.switch_context("setup")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        if report.skipped:
            self.seconds.pop(report.nodeid, None)

    def lines(self) -> dict[str, dict[int, list[str]]]:
        """Tests by file and line. ``"setup"`` stands for a fixture, which may be of several tests."""
        data = self._coverage.get_data()
        found: dict[str, dict[int, list[str]]] = {}
        for source in self.sources:
            by_line = data.contexts_by_lineno(str(self.folder / source))
            found[source] = {line: sorted(filter(None, contexts)) for line, contexts in by_line.items()}
        return found


class Selection:
    """Run some tests of the collected ones, in a given order, until one fails.

    :param tests: names of tests, first those to run first.
    """

    def __init__(self, tests: Sequence[str]) -> None:
        self.order = {test: number for number, test in enumerate(tests)}
        self.failed: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order), key=lambda item: self.order[item.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(f"{report.nodeid} (collected)")


def by_file(tests: Iterable[str]) -> dict[str, list[str]]:
    """Tests by the file that each is in, in the order of the first of each."""
    found: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        found[test.partition("::")[0]].append(test)
    return dict(found)
