"""Draw the learning curves of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from lmpolicy.comparison.measures import interquartile_mean, interval
from lmpolicy.comparison.methods import BUDGET, HELP, RANDOM
from lmpolicy.comparison.summary import Group
from lmpolicy.comparison.table import colour_of
from lmpolicy.files import whole_file

LINEAR = 10
"""Where axes are logarithmic, returns nearer to zero than this are drawn as they are."""
WIDE = 20
"""Axes are logarithmic where the worst return is below zero by so many times what the best is away from it."""


def save_curves(groups: Sequence[Group], path: Path, title: str, best: float | None = None) -> None:
    """Draw the learning curves: left with the most likely actions, right with sampled ones.

    :param groups: all methods.
    :param path: PNG file to write.
    :param title: what stands above.
    :param best: best possible mean return, if it is known.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # draw to a file; no window is needed
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 5), layout="constrained", sharey=True)
    for axes, sampled in zip(panels, (False, True), strict=True):
        draw_curves(axes, groups, sampled, best)
        axes.set_title("sampled actions" if sampled else "most likely actions", loc="left", fontsize=11)
        axes.set_xlabel("env steps")
    panels[0].set_ylabel("mean return of an evaluation")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    add_legend(figure, panels)
    with whole_file(path) as file:
        figure.savefig(file, dpi=110, format="png")
    plt.close(figure)


def draw_curves(
    axes: Any,
    groups: Sequence[Group],
    sampled: bool,
    best: float | None = None,
    colours: Mapping[str, str] | None = None,
) -> None:
    """Draw the interquartile mean over seeds of every method, with its 95 % bootstrap interval.

    :param axes: axes of matplotlib.
    :param groups: all methods.
    :param sampled: whether with sampled actions.
    :param best: best possible mean return, if it is known.
    :param colours: colours of methods with names of one's own.
    """
    from matplotlib import ticker

    own = dict(colours or {})
    if spans_magnitudes(_returns(groups)):
        axes.set_yscale("symlog", linthresh=LINEAR)  # before the data, to which its limits are fitted
    for group in groups:
        if not _has_curve(group):
            continue
        curve, colour = group.curve(sampled), own.get(group.method, colour_of(group.method))
        means = [interquartile_mean(values) for values in curve.values()]
        style = (0, (4, 1.5)) if HELP in group.method else "-"
        axes.plot(list(curve), means, ls=style, lw=1.8, marker="o", ms=3, color=colour, label=group.method)
        bands = [interval(values) for values in curve.values()]
        if all(bands):
            low, high = zip(*[band for band in bands if band], strict=True)
            axes.fill_between(list(curve), low, high, alpha=0.15, lw=0, color=colour)
    for group in groups:
        if not group.learns:
            axes.axhline(
                interquartile_mean(group.finals(sampled)),
                color=own.get(group.method, _colour_of_line(group)),
                ls="--",
                lw=1.2,
                label=group.method,
            )
    threshold = groups[0].threshold if groups else None
    if threshold is not None:
        axes.axhline(threshold, color="0.55", ls="-.", lw=1.2, label="threshold")
    if best is not None:
        axes.axhline(best, color="0.15", ls=":", lw=1.6, label="best possible")
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda steps, _: f"{steps / 1000:g}k" if steps else "0"))
    axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def spans_magnitudes(returns: Iterable[float]) -> bool:
    """Return whether returns differ so much that a linear axis would show only the worst.

    :param returns: mean returns of evaluations.
    """
    found = list(returns)
    return bool(found) and -min(found) >= WIDE * max(abs(max(found)), LINEAR)


def add_legend(figure: Any, panels: Sequence[Any]) -> None:
    """Put one legend below the panels, where it covers nothing.

    :param figure: figure of matplotlib.
    :param panels: its axes.
    """
    from matplotlib.patches import Patch

    found: dict[str, Any] = {}
    for axes in panels:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(text, handle)
    if any(axes.collections for axes in panels):
        found["band: 95 % bootstrap interval"] = Patch(color="0.5", alpha=0.3, lw=0)
    if found:
        figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=4, frameon=False)


def _has_curve(group: Group) -> bool:
    return group.learns and BUDGET not in group.method  # a curve fifty times as long would hide the others


def _returns(groups: Sequence[Group]) -> Iterator[float]:
    """Yield what is drawn of both ways to act, so that both are drawn alike."""
    for group in groups:
        for sampled in (False, True):
            if _has_curve(group):
                yield from chain.from_iterable(group.curve(sampled).values())
            elif not group.learns:
                yield from group.finals(sampled)


def _colour_of_line(group: Group) -> str:
    return "#c0392b" if group.method == RANDOM else colour_of(group.method)
