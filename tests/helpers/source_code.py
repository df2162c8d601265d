"""Read the project's own source code as data: who imports whom, and how long functions are.

No module is imported for it.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {"lmpolicy": "lmpolicy", "envs": "lmpolicy.envs", "benchmarks": "benchmarks", "examples": "examples"}
"""Folders of source code, and the name that each is imported by."""
OWN = frozenset({"lmpolicy", "envs", "benchmarks", "examples", "tests", "helpers"})
"""First parts of names of the project's modules. ``helpers`` are the helpers of the tests."""
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
Sources = Mapping[str, str]
"""Source code by module name."""


@dataclass(frozen=True)
class Import:
    """One name that a module imports."""

    target: str
    """Full name with all dots. ``from a.b import c`` is ``a.b.c``, whether ``c`` is a module or a name in a module."""
    line: int
    """Line of the import."""
    when: str
    """``"module"``: when the module is imported. ``"function"``: later. ``"typing"``: never, because it is for types
    only."""


def lies_in(module: str, package: str) -> bool:
    """Return whether a module is a package, or part of it."""
    return module == package or module.startswith(f"{package}.")


def read_sources(root: Path = ROOT) -> dict[str, str]:
    """Return the source code of all modules of the project, without the tests."""
    return {
        module_name(path.relative_to(root / folder), package): path.read_text(encoding="utf-8")
        for folder, package in PACKAGES.items()
        for path in sorted((root / folder).rglob("*.py"))
    }


def module_name(path: Path, package: str) -> str:
    """Return the name of the module in a file, whose path is relative to the folder of its package."""
    parts = [package, *path.with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(module: str, sources: Sources) -> list[Import]:
    """Return what a module imports, wherever in its code the import stands.

    :param module: name of a module of ``sources``.
    :param sources: all modules; relative names in ``module`` are looked up there.
    """
    is_package = any(name != module and lies_in(name, module) for name in sources)
    package = module if is_package else module.rpartition(".")[0]
    return list(_imports_in(ast.parse(sources[module]).body, package, "module"))


def _imports_in(statements: Iterable[ast.AST], package: str, when: str) -> Iterator[Import]:
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, when) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield from (Import(f"{start}.{alias.name}", node.lineno, when) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports_in(node.body, package, "typing")
            yield from _imports_in(node.orelse, package, when)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _imports_in(ast.iter_child_nodes(node), package, "function" if when == "module" else when)
        else:
            yield from _imports_in(ast.iter_child_nodes(node), package, when)


def resolve(target: str, importer: str, sources: Sources) -> str | None:
    """Return the module of the project that an import leads to, or None if it leads out of the project.

    :param target: full name that is imported, see :class:`Import`.
    :param importer: module that imports. A script finds the modules beside it without the name of their folder.
    :param sources: all modules.
    """
    first = target.split(".")[0]
    beside = f"{importer.rpartition('.')[0]}.{first}"
    if first not in OWN and (beside not in sources or lies_in(importer, "lmpolicy")):
        return None
    parts = (target if first in OWN else beside + target.removeprefix(first)).split(".")
    known = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((module for module in known if module in sources), target)


def own_imports(module: str, sources: Sources) -> list[tuple[str, Import]]:
    """Return the imports of a module that stay within the project, each with the module that it leads to."""
    found = [(resolve(one.target, module, sources), one) for one in imports_of(module, sources)]
    return [(target, one) for target, one in found if target is not None and target != module]


def find_circle(sources: Sources) -> list[str]:
    """Return modules that import each other in a circle, the first one again at the end; empty if there are none."""
    graph = {module: {target for target, _ in own_imports(module, sources)} for module in sources}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def function_lengths(source: str) -> dict[str, int]:
    """Count the lines of code of every function and method, without docstrings, comments and blank lines.

    :param source: source code of one module.
    :return: numbers of lines by name, methods as ``Class.method``. A function within a function counts for both.
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    lengths: dict[str, int] = {}
    _measure(ast.parse(source), "", lines - _docstring_lines(source), lengths)
    return lengths


def _measure(parent: ast.AST, prefix: str, code: set[int], lengths: dict[str, int]) -> None:
    for node in ast.iter_child_nodes(parent):
        name = prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}."
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lengths[name[:-1]] = len(code & set(range(node.lineno, node.end_lineno + 1)))
        _measure(node, name, code, lengths)


def _docstring_lines(source: str) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node):
            docstring = node.body[0]
            assert docstring.end_lineno is not None
            found |= set(range(docstring.lineno, docstring.end_lineno + 1))
    return found
