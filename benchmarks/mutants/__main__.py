"""Change the code at one point at a time, and see whether a test fails.

    python -m benchmarks.mutants                          # 150 changes, about an hour; goes on where it stopped
    python -m benchmarks.mutants --size 50 --seed 2
    python -m benchmarks.mutants --again survived --more  # those that no test saw, with new tests and with more
    python -m benchmarks.mutants --control                # the tests that failed must pass on the unchanged code
    python -m benchmarks.mutants --table                  # what the docs show

The changes are those of mutmut (``make mutants`` installs it), drawn at random from ``lmpolicy/lm``, ``lmpolicy/text``
and ``lmpolicy/policy.py``. For each, the tests that run the changed line are run in a process of its own, in a copy of
the project, until one fails.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common.rows import read_rows
from benchmarks.mutants import report, testing
from benchmarks.mutants.forks import import_heavy, in_child

ROOT = Path(__file__).parents[2]
SOURCES = ("lmpolicy/lm/*.py", "lmpolicy/text/*.py", "lmpolicy/policy.py")
TESTS = (
    "tests/text/test_*.py",
    "tests/lm/test_[!mruq]*.py",
    "tests/lm/test_m[!e]*.py",
    "tests/lm/test_re[!a]*.py",
    "tests/lm/test_ro*.py",
    "tests/test_policy_settings.py",
    "tests/test_policy_[acw]*.py",
    "tests/test_wrapper*.py",
)
"""Files of tests of the sources."""
MORE = (
    "tests/lm/test_[mqu]*.py",
    "tests/test_*.py",
    "tests/envs/test_*.py",
    "tests/training/**/test_*.py",
)
"""Files of tests that run the sources along with much else, and take longer."""
NO_TESTS = ("tests/test_layout.py", "tests/test_modules.py", "tests/test_packaging.py")
"""They read files, build packages and run scripts."""
SPARE = 30
"""CPU seconds that any tests may take, however short they are when nothing is changed."""
FIRST_FILES = 2
"""Number of files of tests that are run before all others are looked at."""
BUDGET = 60.0
"""CPU seconds that the tests of one change may take when nothing is changed."""


def files_of(patterns: tuple[str, ...], root: Path) -> list[str]:
    """Return the files that match, as paths within the project."""
    found = [str(path.relative_to(root)) for pattern in patterns for path in sorted(root.glob(pattern))]
    return [file for file in dict.fromkeys(found) if file not in NO_TESTS]


def try_mutant(tree: Any, reach: Any, mutant: Any, budget: float, log: Path) -> dict[str, Any]:
    """Run the tests that may see a change.

    :return: outcome, the test that failed, CPU seconds, and numbers of tests.
    """
    tests, left = reach.tests(mutant.file, mutant.place.lines, budget)
    files = list(testing.by_file(tests).values())
    found: dict[str, Any] = {"tests": len(tests), "left": left, "seconds": 0.0, "test": "", "outcome": "survived"}
    with tree.changed(mutant.file, mutant.code):
        for part in (files[:FIRST_FILES], files[FIRST_FILES:]):  # to import all files takes longer than most tests do
            names = [test for file in part for test in file]
            limit = SPARE + 4 * sum(reach.seconds[test] for test in names)
            how, result = in_child(partial(run_until_failure, tree.folder, names), limit, log) if names else ("", None)
            if how in ("timeout", "died"):
                return {**found, "outcome": "timeout" if how == "timeout" else "killed", "seconds": limit, "test": how}
            if result is not None:
                found["seconds"] = round(found["seconds"] + result[1], 2)
                if result[0]:
                    return {**found, "outcome": "killed", "test": result[0]}
    return found


def run_until_failure(folder: Path, tests: list[str]) -> tuple[str, float]:
    """Return the first test that fails, empty if none does, and the CPU seconds that it took."""
    start = time.process_time()
    selection = testing.Selection(tests)
    status = testing.run(folder, list(testing.by_file(tests)), selection, ["-x"])
    if status not in testing.NONE_FAILED and not selection.failed:
        raise RuntimeError(f"pytest ended with status {status}, and no test failed")
    return next(iter(selection.failed), ""), round(time.process_time() - start, 2)


def main(argv: list[str] | None = None) -> None:
    """Try changes, and write a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=150, help="number of changes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=BUDGET, help="CPU seconds of tests for each (%(default)s)")
    parser.add_argument("--first", action="store_true", help="with --again: the tests are still those of the first run")
    parser.add_argument("--again", choices=report.OUTCOMES, help="only rows with this outcome and no reason")
    parser.add_argument("--more", action="store_true", help="also run tests that take longer")
    parser.add_argument("--control", action="store_true", help="run the tests that failed on the unchanged code")
    parser.add_argument("--project", type=Path, default=ROOT, help="folder whose code is changed, in a copy")
    parser.add_argument("--output", type=Path, default=report.RESULTS)
    parser.add_argument("--table", action="store_true", help="print the tables of the docs, and try nothing")
    args = parser.parse_args(argv)
    if args.table:
        print(report.as_table(read_rows(args.output)))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that the copy is removed
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        _run(args, Path(folder))


def _run(args: argparse.Namespace, folder: Path) -> None:
    from benchmarks.mutants.reach import find_reach
    from benchmarks.mutants.sampling import draw
    from benchmarks.mutants.tree import Tree

    import_heavy()
    kept = args.project / "runs" / "mutants"  # what is found out about the tests
    kept.mkdir(parents=True, exist_ok=True)
    log = kept / "last.log"
    tree = Tree(args.project, folder / "tree")
    sources = files_of(SOURCES, tree.folder)
    tests = files_of((*TESTS, *MORE) if args.more else TESTS, tree.folder)
    reach = find_reach(tree, sources, tests, kept / "reach", log)
    rows = read_rows(args.output)
    if args.control:
        tests = sorted({row["test"] for row in rows if row["test"] in reach.seconds})
        how, result = in_child(partial(run_until_failure, tree.folder, tests), 3600, log)
        print(f"{len(tests)} tests on the unchanged code: {how}, failed: {result[0] or 'none'}" if result else how)
        return
    machine = in_child(machine_name, 600, log)[1]
    for mutant in draw(tree.folder, sources, args.size, args.seed):
        key = report.key(args.seed, mutant)
        known = next((row for row in rows if report.key_of(row) == key), None)
        if known is not None and (known["outcome"] != args.again or known["reason"]):
            continue
        found = try_mutant(tree, reach, mutant, args.budget, log)
        earlier = None if args.first else known
        row = report.as_row(args.seed, mutant, found, earlier, machine)
        rows = [row if one is known else one for one in rows] if known is not None else [*rows, row]
        report.write(args.output, rows)
        print(row["outcome"], f"{mutant.file}:{mutant.place.line}", row["seconds"], row["test"], flush=True)
        if row["outcome"] == "survived":
            print(f"    {mutant.before}\n -> {mutant.after}", flush=True)


def machine_name() -> str:
    """Name the processor, in a process of its own: this one must not import what the changed copy brings."""
    from lmpolicy.comparison.machine import processor

    return processor()


if __name__ == "__main__":
    main()
