"""Which line a phrase or a run is drawn with: its key shows the same, in whichever run's pane it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lmpolicy.report

CSS = (Path(lmpolicy.report.__file__).parent / "page.css").read_text(encoding="utf-8")
RULE = re.compile(r"([^{}@]+)\{([^{}]*)\}")
Elements = list[str]
"""Elements from the outermost to the styled one, each as ``tag.class.class``."""


def parts_of(element: str) -> set[str]:
    tag, *classes = element.split(".")
    return {*([tag] if tag else []), *(f".{one}" for one in classes)}


def matches(selector: str, path: Elements) -> bool:
    """Say whether a selector of tags, classes and child combinators is one of the last element of a path."""
    *outer, last = selector.replace(">", " > ").split()
    if not path or not parts_of(last) <= parts_of(path[-1]):
        return False
    if not outer:
        return True
    if outer[-1] == ">":
        return matches(" ".join(outer[:-1]), path[:-1])
    return any(matches(" ".join(outer), path[:end]) for end in range(1, len(path)))


def styled(name: str, path: Elements) -> str:
    """Return a property of the last element of a path, by the most specific rule, and of those the last one."""
    found = []
    for order, (selectors, body) in enumerate(RULE.findall(CSS)):
        values = dict(re.findall(r"([\w-]+):\s*([^;]+)", body))
        for selector in selectors.split(","):
            if name in values and re.fullmatch(r"[\w.>\s-]+", selector) and matches(selector.strip(), path):
                weight = selector.count("."), len(re.findall(r"(?<![.\w-])[a-z]", selector))
                found.append((weight, order, values[name]))
    return max(found, default=((0, 0), 0, "none"))[2]


def colour(path: Elements, *names: str) -> str:
    """Return the colour variable that a property, or a shorthand of it, takes."""
    text = " ".join(styled(name, path) for name in names)
    return re.findall(r"--(run\d)", text)[0]


@pytest.mark.parametrize("run", range(4))
def test_phrases_have_lines_of_their_own_in_the_pane_of_every_run(run: int) -> None:
    inside = ["body", "main", "section", "div.panes.two", f"article.pane.run{run}", "div.turn", "div", "div.over"]
    curves = [[*inside, "figure", "svg", f"path.curve.run{order}"] for order in range(4)]
    keys = [[*inside, "ul.keys", f"li.run{order}", "span.swatch"] for order in range(4)]
    names = [f"run{order}" for order in range(4)]
    assert [colour(one, "stroke") for one in curves] == names
    assert [colour(one, "border-color", "border-top") for one in keys] == names
    assert len({styled("stroke-dasharray", one) for one in curves}) == 4
    assert len({styled("border-top-style", one) for one in keys}) == 4


@pytest.mark.parametrize("run", range(4))
def test_a_run_has_the_same_line_everywhere(run: int) -> None:
    name = f"run{run}"
    heading = ["body", "main", "section", "div.panes.two", f"article.pane.{name}", "h3", "span.swatch"]
    key = ["body", "main", "section", "ul.keys", f"li.{name}", "span.swatch"]
    curve = ["body", "main", "section", "div.charts", "figure", "svg", f"path.curve.{name}"]
    assert colour(heading, "border-color", "border-top") == colour(key, "border-color", "border-top") == name
    assert styled("border-top-style", heading) == styled("border-top-style", key)
    assert colour(curve, "stroke") == name
