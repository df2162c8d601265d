"""Write the table of a comparison, in Markdown and in HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence

from lmpolicy.comparison.methods import (
    BUDGET,
    BUDGET_MEANING,
    HELP,
    HELP_MEANING,
    LANGUAGE_MODELS,
    MEANING,
    RAW,
    WORDS,
    Method,
)

Line = dict[str, str]
COLUMNS = (
    "method",
    "seeds",
    "env steps before",
    "env steps",
    "return",
    "return, sampled",
    "reached",
    "reached, sampled",
    "stays",
    "stays, sampled",
    "mean over training",
    "mean over training, sampled",
    "minutes",
)
LEGEND = """\
Return: interquartile mean over seeds of the mean return of the last evaluation, with its 95 % bootstrap interval; with
the most likely actions, and with actions that are sampled from the policy. Reached: env steps at the first evaluation
whose mean return is at the threshold or above, median over seeds, and how many seeds reached it. Stays: env steps at
the first evaluation from which on all later evaluations are there. Mean over training: area under the learning curve,
divided by its env steps. All methods are evaluated at the same env steps, from the same seeds, without shaped or scaled
rewards. Env steps before: steps of this env that were played before the training, to pretrain the language model or to
learn the words. Minutes: of training, without evaluations, median over seeds; where some ran on a processor and others
on a GPU, of those on a processor."""


def cells_of(summary: Sequence[Line]) -> list[tuple[str, ...]]:
    """Return the table, its head first.

    :param summary: lines of :meth:`Group.summarize`.
    """
    return [COLUMNS, *(_line(one) for one in summary)]


def _line(one: Line) -> tuple[str, ...]:
    learns = bool(one.get("area"))
    before = one["pretraining_steps"]
    return (
        one["method"],
        one["seeds"],
        thousands(before) if before else "not known",
        thousands(one["env_steps"]) if learns else "",
        _with_interval(one, ""),
        _with_interval(one, "sampled_"),
        *(_with_seeds(one, f"{kind}{name}", f"{kind}{seeds}") for name, seeds, kind in _STEPS),
        short(one.get("area", "")),
        short(one.get("sampled_area", "")),
        one["train_minutes"],
    )


_STEPS = [
    (name, seeds, kind)
    for name, seeds in (("reached", "seeds_reached"), ("stays", "seeds_staying"))
    for kind in ("", "sampled_")
]


def markdown(cells: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown.

    :param cells: lines of equal length, the head first.
    """
    head, *lines = cells
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def to_html(cells: Sequence[Sequence[str]], caption: str) -> str:
    """Write a table in HTML.

    :param cells: lines of equal length, the head first.
    :param caption: what stands above it.
    """

    def line(tag: str, texts: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

    head, *lines = cells
    body = "".join(line("td", one) for one in lines)
    top = f"<caption>{html.escape(caption)}</caption><thead>{line('th', head)}</thead>"
    return f"<table>{top}<tbody>{body}</tbody></table>"


def meanings(methods: Sequence[str]) -> str:
    """Say in a list what each method is.

    :param methods: names of methods.
    """
    bases = dict.fromkeys(Method.of(name).base for name in methods)
    lines = [f"- {base}: {MEANING.get(base, 'a player that was given')}." for base in bases]
    lines += [f"- {HELP_MEANING}."] if any(HELP in name for name in methods) else []
    lines += [f"- {BUDGET_MEANING}."] if any(BUDGET in name for name in methods) else []
    return "\n".join(lines)


def short(number: str) -> str:
    """Write a number with three digits behind the point, or one where it is large.

    :param number: a number, or nothing.
    """
    if not number:
        return ""
    value = float(number)
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def thousands(number: str) -> str:
    """Write an integer in groups of three digits.

    :param number: an integer, or any other text, which stays as it is.
    """
    return f"{int(number):,}".replace(",", " ") if number.isdigit() else number


def _with_interval(one: Line, kind: str) -> str:
    mean, low = short(one[f"{kind}final"]), one.get(f"{kind}final_low", "")
    return f"{mean} ({short(low)} to {short(one[f'{kind}final_high'])})" if low else mean


def _with_seeds(one: Line, name: str, seeds: str) -> str:
    found = one.get(name, "")
    return f"{thousands(found)} ({one[seeds]} of {one['seeds']})" if found else ""


def colour_of(method: str) -> str:
    """Return the colour of a method in figures, which is the same in all of them.

    :param method: name of the method.
    """
    base = Method.of(method).base
    shades = {
        **dict(zip(LANGUAGE_MODELS, ("#1f5fa8", "#35a7a0", "#7a52a8", "#6b7a8f"), strict=True)),
        RAW: "#d9730d",
        WORDS: "#b0305c",
    }
    return shades.get(base, "#555555")
