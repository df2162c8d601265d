"""Find out which tests run which line, file of tests by file, and keep it until a test or the package changes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.mutants import testing
from benchmarks.mutants.forks import in_child
from benchmarks.mutants.tree import Tree, digest

IMPORTING = 0
"""Stands for a line that runs when its module is imported, whatever the test."""
FORKED = {
    f"lmpolicy/lm/{name}.py": {"tests/training/test_distributed.py", "tests/lm/test_spread.py"}
    for name in ("processes", "spread", "worker")
}
"""Files that run in processes of their own, where no line is noted down, and the files of tests that start these."""
SECONDS = 600
"""CPU time after which a file of tests is given up."""


@dataclass(frozen=True)
class Reach:
    """Which tests run which line of the package.

    :param seconds: CPU time of each test that passes.
    :param lines: tests by file and line. Names without ``::`` are files of tests, of which a fixture ran the line.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[int, set[str]]]

    def tests(self, file: str, lines: Sequence[int], budget: float) -> tuple[list[str], int]:
        """Return the tests that may see a change, and how many are left out because of their time.

        Files of tests that are named after the file are always among them: its tables of constants are read when it is
        imported, which no test is seen to do.

        The order is that of files of tests, those with the cheapest tests first.

        :param file: the file that is changed.
        :param lines: lines of which a test must run one, or ``[IMPORTING]``: then of any test that runs the file.
        :param budget: CPU seconds for all of them together.
        """
        reached = self.lines.get(file, {})
        numbers = reached if list(lines) == [IMPORTING] else lines
        found = {test for number in numbers for test in reached.get(number, ())} | FORKED.get(file, set())
        stem = Path(file).stem
        found |= {test.partition("::")[0] for test in self.seconds if f"test_{stem}" in test}
        tests = {test for test in self.seconds if test in found or test.partition("::")[0] in found}
        files = testing.by_file(sorted(tests, key=lambda test: self.seconds[test]))
        mean = {name: sum(map(self.seconds.__getitem__, ours)) / len(ours) for name, ours in files.items()}
        order = sorted(files, key=lambda name: (f"test_{stem}" not in name, mean[name]))
        kept, spent = [], 0.0
        for test in (test for name in order for test in files[name]):
            spent += self.seconds[test]
            if spent <= budget:
                kept.append(test)
        return kept, len(tests) - len(kept)


def find_reach(tree: Tree, sources: Sequence[str], files: Iterable[str], kept: Path, log: Path) -> Reach:
    """Run every file of tests once, or take what an earlier run found.

    :param tree: copy of the project.
    :param sources: files that are changed.
    :param files: files of tests.
    :param kept: folder where the findings are kept.
    :param log: file for what pytest prints.
    """
    kept.mkdir(parents=True, exist_ok=True)
    code = [*tree.folder.glob("lmpolicy/**/*.py"), *tree.folder.glob("envs/*.py")]
    helpers = [*tree.folder.glob("tests/helpers/*.py"), *tree.folder.glob("tests/conftest.py")]
    reach = Reach({}, {source: {} for source in sources})
    for file in files:
        path = kept / f"{Path(file).stem}-{digest(tree.folder, [*code, *helpers, tree.folder / file])}.json"
        if not path.exists():
            how, found = in_child(partial(_record, tree.folder, sources, file), SECONDS, log)
            found = found if how == "done" else {"seconds": {}, "lines": {}, "failed": [f"{file}: {how}"]}
            path.write_text(json.dumps(found))
            print(f"{file}: {len(found['seconds'])} tests", *found["failed"], flush=True)
        _add(reach, file, json.loads(path.read_text()))
    return reach


def _record(folder: Path, sources: Sequence[str], file: str) -> dict[str, Any]:
    recorder = testing.Recorder(folder, sources)
    testing.run(folder, [file], recorder)
    return {"seconds": recorder.seconds, "lines": recorder.lines(), "failed": recorder.failed}


def _add(reach: Reach, file: str, found: dict[str, Any]) -> None:
    """Add what one file of tests reaches. Tests that fail without any change are of no use."""
    failed = set(found["failed"])
    reach.seconds.update({test: spent for test, spent in found["seconds"].items() if test not in failed})
    for source, by_line in found["lines"].items():
        for line, tests in by_line.items():
            ours = {file if test == "setup" else test for test in tests}
            reach.lines[source].setdefault(int(line), set()).update(ours - failed)
