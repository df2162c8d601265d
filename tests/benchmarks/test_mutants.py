"""Changes of the code are drawn alike for a seed, tried in a copy, and reported as the tests see them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.rows import read_rows
from benchmarks.mutants import report
from benchmarks.mutants.tree import Tree

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "mutants.md"
CODE = '''"""Arithmetic."""

LIMIT = 7


def double(number: int | None) -> int:
    """Twice a number."""
    if number is None:
        raise ValueError("a number " + "is missing")
    return min(number * 2, LIMIT)


def count_down(number: int) -> int:
    while number > 0:
        number -= 1
    return number


def never_tested(number: int) -> int:
    return number + 1
'''
TESTS = """
import pytest
from lmpolicy.text.arithmetic import count_down, double


def test_double() -> None:
    assert double(3) == 6
    assert double(4) == 7
    with pytest.raises(ValueError):
        double(None)


def test_count_down() -> None:
    assert count_down(2) == 0
"""
WITHOUT_HEAVY_IMPORTS = """
import sys
import hypothesis, pytest
from benchmarks.mutants import __main__ as mutants
mutants.import_heavy = lambda: None
mutants.SPARE = 2
"""
SHORT_CODE = """
def double(number):
    return number + number


def never_tested(number):
    return number if number else 0
"""
SHORT_TESTS = """
from lmpolicy.text import arithmetic


def test_double() -> None:
    assert arithmetic.double(3) == 6
"""
TEST = "tests/text/test_arithmetic.py"
BY_HAND = """
from pathlib import Path
from types import SimpleNamespace
from benchmarks.mutants.reach import Reach
from benchmarks.mutants.tree import Tree
project, folder = map(Path, sys.argv[1:])
tree = Tree(project, folder / "tree")
file, test = "lmpolicy/text/arithmetic.py", "tests/text/test_arithmetic.py"
code = (project / file).read_text()
names = {"double": range(6, 11), "count_down": range(13, 17)}
tests = {f"{test}::test_{name}": lines for name, lines in names.items()}
lines = {line: {name} for name, ran in tests.items() for line in ran}
reach = Reach(dict.fromkeys(tests, 0.01), {file: lines})
for old, new, where in [
    ("number * 2", "number * 3", [10]),
    ("number * 2", "2 * number", [10]),
    ("number + 1", "number + 2", [20]),
    ("-= 1", "-= 0", [16]),
    ("LIMIT = 7", "LIMIT = 8", [0]),
    ("def double", "def", [6]),
    ("    return min", "    import os; os._exit(3)\\n    return min", [10]),
]:
    mutant = SimpleNamespace(file=file, place=SimpleNamespace(lines=where), code=code.replace(old, new))
    found = mutants.try_mutant(tree, reach, mutant, 60.0, folder / "log")
    print(found["outcome"], found["tests"], found["test"].partition("::")[2])
    assert (tree.folder / file).read_text() == code
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one module and its tests."""
    files = {
        "lmpolicy/__init__.py": "",
        "lmpolicy/text/__init__.py": "",
        "lmpolicy/text/arithmetic.py": CODE,
        "setup.cfg": "[tool:pytest]\nmarkers =\n    slow: takes minutes\n",
        "tests/text/test_arithmetic.py": TESTS,
    }
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "project"


def run(code: str, *arguments: object) -> str:
    """What a process prints that has imported nothing of this project."""
    command = [sys.executable, "-c", WITHOUT_HEAVY_IMPORTS + code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}


# Changes that are tried


def test_outcomes(project: Path, tmp_path: Path) -> None:
    before = files_in(project)
    assert run(BY_HAND, project, tmp_path).splitlines() == [
        "killed 2 test_double",
        "survived 2 ",
        "survived 2 ",  # no test runs that line: those of the module are tried
        "timeout 2 ",
        "killed 2 test_double",
        "killed 2 ",  # the module cannot be imported
        "killed 2 ",  # the process died
    ]
    assert files_in(project) == before


def test_the_project_is_never_changed(project: Path, tmp_path: Path) -> None:
    """Not even while a change is tried, so that nothing is left of it however the run ends."""
    tree, before = Tree(project, tmp_path / "tree"), files_in(project)
    file = "lmpolicy/text/arithmetic.py"
    meanwhile = []
    with contextlib.suppress(KeyboardInterrupt), tree.changed(file, "pass\n"):
        meanwhile += [(tree.folder / file).read_text(), files_in(project)]
        raise KeyboardInterrupt
    assert meanwhile == ["pass\n", before]
    assert files_in(project) == before
    assert files_in(tree.folder) == before


def test_a_change_of_the_same_size_counts(project: Path, tmp_path: Path) -> None:
    """Compiled code is told apart by its second and its size alone."""
    tree = Tree(project, tmp_path / "tree")
    file = "lmpolicy/text/arithmetic.py"
    ask = [sys.executable, "-c", "from lmpolicy.text.arithmetic import LIMIT; print(LIMIT)"]
    found = []
    for limit in (8, 9):
        with tree.changed(file, CODE.replace("LIMIT = 7", f"LIMIT = {limit}")):
            found.append(subprocess.run(ask, cwd=tree.folder, capture_output=True, text=True, check=True).stdout)
    found.append(subprocess.run(ask, cwd=tree.folder, capture_output=True, text=True, check=True).stdout)
    assert found == ["8\n", "9\n", "7\n"]


# Changes that are drawn


def test_a_whole_run(project: Path, tmp_path: Path) -> None:
    pytest.importorskip("mutmut", reason="make mutants installs it")
    (project / "lmpolicy/text/arithmetic.py").write_text(SHORT_CODE)
    test = project / "tests/text/test_arithmetic.py"
    test.write_text(SHORT_TESTS)
    output = tmp_path / "rows.csv"
    arguments = ("--project", project, "--output", output, "--size", 1000)
    printed = run("mutants.main(sys.argv[1:])", *arguments)
    kept, always = "return number if number else 0", "return number if (number) or True else 0"
    never = "return number if (number) and False else 0"
    rows = {(row["before"], row["after"]): row for row in read_rows(output)}
    assert rows["return number + number", "return number - number"]["outcome"] == "killed"
    assert rows["return number + number", "return number - number"]["test"] == f"{TEST}::test_double"
    assert rows[kept, "return number if number else 1"]["outcome"] == "survived"
    assert len(rows) == 3  # one change of the conditional expression
    assert f"    {kept}\n -> return number if number else 1" in printed
    assert run("mutants.main(sys.argv[1:])", *arguments) == ""  # nothing is done twice

    test.write_text(
        SHORT_TESTS + "\n\ndef test_more():\n    assert list(map(arithmetic.never_tested, (0, 1))) == [0, 1]\n"
    )
    run("mutants.main(sys.argv[1:])", *arguments, "--again", "survived")
    rows = {(row["before"], row["after"]): row for row in read_rows(output)}
    seen = rows[kept, "return number if number else 1"]
    assert (seen["first"], seen["outcome"], seen["test"]) == ("survived", "killed", f"{TEST}::test_more")
    (other,) = (rows[pair] for pair in rows if pair in {(kept, always), (kept, never)})
    assert other["outcome"] == ("survived" if other["after"] == always else "killed")  # equivalent, or not
    control = run("mutants.main(sys.argv[1:])", *arguments, "--control")
    assert control == "2 tests on the unchanged code: done, failed: none\n"


def drawn(project: Path, size: int, seed: int) -> list[tuple[str, str]]:
    from benchmarks.mutants.sampling import draw

    return [(mutant.before, mutant.after) for mutant in draw(project, ["lmpolicy/text/arithmetic.py"], size, seed)]


def test_a_seed_draws_the_same_changes(project: Path) -> None:
    pytest.importorskip("mutmut", reason="make mutants installs it")
    found = drawn(project, size=6, seed=0)
    assert len(set(found)) == 6
    assert found == drawn(project, size=6, seed=0)
    assert found[:3] == drawn(project, size=3, seed=0)
    assert found != drawn(project, size=6, seed=1)


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("x = 1", True),
        ("@cache\ndef f():\n    return 1", True),  # which mutmut alone leaves out
        ('"""1"""', False),
        ("def f(x: Literal[1]): ...", False),
        ("@cache(size=1)\ndef f(): ...", False),
        ("raise ValueError('no', 1)", False),
        ("log.warning('%s', 1)", False),
        ("warnings.warn('text')", False),
        ("from a import b", False),
        ("if TYPE_CHECKING:\n    x = 1", False),
        ("__all__ = ['a']", False),
        ("Rows = Sequence['int'] | None", False),
        ("ROWS = a | b", True),
        ("x = cast('int', y)", False),
        ("x = y", False),  # only to None
        ("f(x)", False),  # only to None
        ("f(x, y)", True),
        ("isinstance(x, y)", False),
        ("f(strict=True)", False),
        ("x = None", True),
        ("x = y.lower()", True),
    ],
)
def test_what_is_changed(code: str, changed: bool) -> None:
    pytest.importorskip("mutmut", reason="make mutants installs it")
    from benchmarks.mutants.changes import Source

    assert bool(Source(code + "\n").places) is changed


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("x = 1", [0]),
        ("class C:\n    x = 1", [0]),
        ("def f():\n    return (\n        1\n    )", [2, 3, 4]),
        ("def f(x=1):\n    y = x\n    return y", [2, 3]),
        ("def f():\n    if x == 1:\n        return y", [2]),
        ("def f():\n    return lambda x=1: x", [2]),
    ],
)
def test_lines_that_a_test_must_run(code: str, lines: list[int]) -> None:
    pytest.importorskip("mutmut", reason="make mutants installs it")
    from benchmarks.mutants.changes import Source

    found: list[Any] = [place.lines for place in Source(code + "\n").places]
    assert found
    assert all(one == lines for one in found)


# The docs


def test_docs_show_the_rows() -> None:
    assert report.as_table(read_rows(report.RESULTS)) in DOCS.read_text()


def test_nearly_every_change_is_seen() -> None:
    rows = read_rows(report.RESULTS)
    assert rows
    unseen = [row for row in rows if row["outcome"] == "survived" and not row["reason"]]
    assert len(unseen) <= len(rows) // 20
    assert not [row for row in rows if row["outcome"] != "survived" and row["reason"]]  # equivalent, yet seen
