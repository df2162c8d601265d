"""Tell the code of own functions and classes apart, so that results of what was edited are not taken for its own."""

from __future__ import annotations

import ast
import dis
import hashlib
import inspect
import sys
import sysconfig
import textwrap
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

PLAIN = (bool, int, float, str, type(None))
"""Types of values that are told by their ``repr``."""
HELD = ("fget", "__func__", "func", "__wrapped__")
"""Where properties and the like hold their function."""
MADE = ("__annotate__", "__annotate_func__")
"""Functions that Python makes of annotations."""


def own_code(value: Any) -> str | None:
    """Return a few characters that change with the code of a function or a class.

    Own functions and classes that it names count, too, and variables that a function has taken from around it; of a
    class, its methods and its own bases. Comments, docstrings and how lines are broken change nothing. Global variables
    do not count.

    :param value: function or class.
    :return: None for what is of an installed package or of this one, whose version tells.
    """
    told: dict[int, Any] = {}
    _read(value, told)
    return hashlib.sha1(repr(list(told.values())).encode()).hexdigest()[:8] if told else None


def _read(value: Any, told: dict[int, Any]) -> None:
    """Note the code of a function or a class, and of what it names.

    :param value: of any type; what is no own function or class is passed over.
    :param told: what was read, by the object's number.
    """
    value = getattr(value, "__func__", value)
    if id(value) in told:
        return
    if isinstance(value, type):
        for base in value.__mro__:
            if id(base) not in told and _is_own(base.__module__):
                told[id(base)] = None
                members = [(name, _member(name, member, told)) for name, member in sorted(vars(base).items())]
                told[id(base)] = [one for one in members if one[1] is not None]  # Python adds some as it copies
    elif isinstance(value, FunctionType) and _is_own(value.__module__):
        told[id(value)] = None
        told[id(value)] = _function(value, told)


def _member(name: str, member: Any, told: dict[int, Any]) -> Any:
    """Return what tells a member of a class."""
    function = next((found for name in HELD if (found := getattr(member, name, None)) is not None), member)
    if isinstance(function, FunctionType):
        return None if name in MADE else _function(function, told)
    return None if name.startswith("__") else _value(function, told)


def _function(function: FunctionType, told: dict[int, Any]) -> list[Any]:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    around = [(name, _value(_contents(cell), told)) for name, cell in cells.items()]
    for name in _names(function.__code__):
        _read(function.__globals__.get(name), told)
    return [_text(function), *around]


def _value(value: Any, told: dict[int, Any]) -> Any:
    """Return what tells a constant; what is no plain value tells nothing, but own code in it is read."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, list | tuple):
        return [_value(one, told) for one in value]
    if isinstance(value, dict):
        return [(repr(key), _value(one, told)) for key, one in value.items() if isinstance(key, PLAIN)]
    _read(value, told)
    return None


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is not bound yet
        return None


def _names(code: CodeType) -> list[str]:
    """Return the global names that code reads, and that of functions within it."""
    found = [str(one.argval) for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return list(dict.fromkeys((*found, *inner)))


def _text(function: FunctionType) -> str:
    """Return the code of a function: as it was written, or where that is not known, as it was compiled."""
    try:
        tree = _lambda(function) if function.__name__ == "<lambda>" else _definition(function)
    except (OSError, TypeError, SyntaxError):
        tree = None
    return _compiled(function.__code__) if tree is None else ast.unparse(tree)


def _definition(function: FunctionType) -> ast.AST:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _lambda(function: FunctionType) -> ast.AST | None:
    """Find what a lambda computes in its file; None if it is not there."""
    lines, _ = inspect.findsource(function)
    places = [(line, column) for line, _, column, _ in function.__code__.co_positions() if line and column]
    bodies = [node.body for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.Lambda)]
    around = [body for body in bodies if places and _start(body) <= places[0] < _end(body)]
    return max(around, key=_start, default=None)


def _start(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _compiled(code: CodeType) -> str:
    constants = [_compiled(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return repr((code.co_code, code.co_names, constants))


def _is_own(module: str) -> bool:
    """Whether a module is neither installed nor of this package and what its results were made with."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if module in sys.builtin_module_names:
        return False
    if file is None:
        return module == "__main__"  # at a prompt, or in a notebook
    path = Path(file).resolve()
    return not any(path.is_relative_to(one) for one in _known_folders())


@cache
def _known_folders() -> tuple[Path, ...]:
    """Return the folders of what is installed, and of this package and what its results were made with."""
    here = Path(__file__).resolve().parents[1]
    installed = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(one.resolve() for one in (here, here.parent / "envs", here.parent / "benchmarks", *installed))
