"""List the changes of a source file, with the operators of mutmut.

mutmut's own walk through a file is not used: it leaves out every decorated function, because it keeps all mutants of a
function beside the original, which decorators do not allow. Here, each mutant is a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

from benchmarks.mutants.reach import IMPORTING

MESSAGES = frozenset({"log", "logger", "logging", "warnings"})
"""What is called to tell people something."""
TYPING = frozenset({"cast", "TypeVar"})
"""Functions that say something about types and do nothing."""
CHECKS = frozenset({"strict", "encoding", "stacklevel"})
"""Keyword arguments that change nothing unless something else is wrong."""


@dataclass(frozen=True)
class Place:
    """A place in a source file that one operator can change."""

    operator: str
    """Name of the operator, such as ``"number"``."""
    line: int
    column: int
    lines: Sequence[int]
    """Lines of the statement: a test that runs none of them cannot see the change. ``[IMPORTING]`` if it is run by the
    import of its module."""
    node: cst.CSTNode = field(repr=False, compare=False)
    changed: Sequence[cst.CSTNode] = field(repr=False, compare=False)
    """What may stand there instead."""


class Source:
    """The code of one file, and all that can be changed in it.

    :param code: source code of a module.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        self._wrapper = MetadataWrapper(cst.parse_module(code))

    @cached_property
    def places(self) -> list[Place]:
        """All places, in the order of the code."""
        finder = _Finder(self._wrapper.resolve(PositionProvider))
        self._wrapper.module.visit(finder)
        return finder.places

    def with_change(self, place: Place, number: int) -> str:
        """Return the code with one change.

        :param place: one of :attr:`places`.
        :param number: index of one of the place's changes.
        """
        changed = self._wrapper.module.deep_replace(place.node, place.changed[number])
        assert isinstance(changed, cst.Module)
        return changed.code


class _Finder(cst.CSTVisitor):
    """Collect places, and walk past what :func:`is_left_out`."""

    def __init__(self, positions: object) -> None:
        super().__init__()
        self.places: list[Place] = []
        self._positions = positions
        self._above: list[cst.CSTNode] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if is_left_out(node, self._above):
            return False
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                self._add(operator.__name__.removeprefix("operator_"), node, list(operator(node)))
        self._above.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self._above and self._above[-1] is original_node:
            self._above.pop()

    def _add(self, operator: str, node: cst.CSTNode, changed: list[cst.CSTNode]) -> None:
        changed = [one for one in changed if not _means_nothing(node, one)]
        position = self._position(node)
        if changed and position is not None:
            start = position.start
            self.places.append(Place(operator, start.line, start.column, self._lines(position), node, changed))

    def _position(self, node: cst.CSTNode) -> CodeRange | None:
        return self._positions.get(node)  # type: ignore[attr-defined]

    def _lines(self, position: CodeRange) -> list[int]:
        functions = [one for one in self._above if isinstance(one, cst.FunctionDef)]
        if not functions:
            return [IMPORTING]
        inner = self._above[self._above.index(functions[-1]) :]
        if any(isinstance(one, cst.Parameters) for one in inner) and not any(
            isinstance(one, cst.Lambda) for one in inner
        ):
            return list(self._span(functions[-1].body))
        statements = [one for one in inner if isinstance(one, cst.SimpleStatementLine)]
        if statements:
            return list(self._span(statements[-1]))
        headers = [one for one in inner if isinstance(one, cst.BaseCompoundStatement)]
        first = self._span(headers[-1]).start
        return sorted({first, *range(position.start.line, position.end.line + 1)})

    def _span(self, node: cst.CSTNode) -> range:
        position = self._position(node)
        assert position is not None
        return range(position.start.line, position.end.line + 1)


def is_left_out(node: cst.CSTNode, above: Sequence[cst.CSTNode]) -> bool:
    """Whether a change within a node would mean nothing, because no behaviour depends on it.

    :param node: any node of a file.
    :param above: the nodes around it, from the outermost.
    """
    match node:
        case cst.Annotation() | cst.Decorator() | cst.Import() | cst.ImportFrom() | cst.Raise():
            return True
        case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):  # docstrings
            return True
        case cst.If(test=cst.Name(value="TYPE_CHECKING")):
            return True
        case cst.Call(func=cst.Attribute(value=cst.Name(value=name))) if name in MESSAGES:
            return True
        case cst.Call(func=cst.Name(value=name)) if name in TYPING:
            return True
        case cst.Arg(keyword=cst.Name(value=name)) if name in CHECKS:
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
            is_type = not any(isinstance(one, cst.FunctionDef | cst.ClassDef) for one in above) and _is_type(
                name, value
            )
            return name == "__all__" or is_type or is_left_out(value, above)
    return False


def _is_type(name: str, value: cst.CSTNode) -> bool:
    """Whether an assignment only gives a type a name."""
    return (
        name[0].isupper() and not name.isupper() and isinstance(value, cst.Subscript | cst.BinaryOperation | cst.Name)
    )


def _means_nothing(node: cst.CSTNode, changed: cst.CSTNode) -> bool:
    """Whether a change puts None for a value, drops one of :data:`CHECKS`, or asks ``isinstance`` for nothing.

    Nearly all of these raise an error at once, which every test sees that runs the line.
    """
    match node, changed:
        case (cst.Assign() | cst.AnnAssign(), cst.Assign(value=value) | cst.AnnAssign(value=value)):
            return isinstance(value, cst.Name)
        case cst.Call(func=cst.Name(value="isinstance")), _:
            return True
        case cst.Call(), cst.Call():
            dropped = {*_keywords(node)} - {*_keywords(changed)}
            return _nones(changed) > _nones(node) or bool(dropped & CHECKS)
    return False


def _keywords(call: cst.Call) -> list[str]:
    return [one.keyword.value for one in call.args if one.keyword is not None]


def _nones(call: cst.Call) -> int:
    return sum(isinstance(one.value, cst.Name) and one.value.value == "None" for one in call.args)


def changed_lines(before: str, after: str) -> tuple[str, str]:
    """Return the lines that differ between two codes, joined and stripped."""
    old, new = before.splitlines(), after.splitlines()
    while old and new and old[0] == new[0]:
        old, new = old[1:], new[1:]
    while old and new and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    return " ".join(line.strip() for line in old), " ".join(line.strip() for line in new)
