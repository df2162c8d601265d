"""Read the curves of a run from what the logger of Stable-Baselines3 wrote."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lmpolicy.files import whole_lines

MOST_POINTS = 600
"""Number of points of a curve that are kept; a screen shows no more."""
STEPS = "time/total_timesteps"
EVENTS, TABLE = "events.out.tfevents.*", "progress.csv"


@dataclass(frozen=True)
class Curve:
    """Hold the values of one number over a training."""

    steps: tuple[int, ...]
    """Env steps of the training, over all envs."""
    values: tuple[float, ...]
    """Finite values."""


def read_curves(folder: Path) -> dict[str, Curve]:
    """Read all numbers that a run logged.

    ``progress.csv`` and TensorBoard's files are read together, because a run may be resumed with another logger. Where
    both have a value of the same step, that of TensorBoard counts.

    :param folder: folder of the run. The files may be in any folder in it, but only in one.
    :return: curves by their names in the log; empty if nothing was logged.
    :raises ValueError: if there are logs of several trainings; the message names them.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for pattern, read in ((TABLE, _read_table), (EVENTS, _read_events)):
        places = sorted({path.parent for path in folder.rglob(pattern)})
        if len(places) > 1:
            names = ", ".join(str(place) for place in places[:6])
            raise ValueError(f"{folder} has logs of {len(places)} trainings: name one of {names}")
        for name, points in (read(places[0]) if places else {}).items():
            found.setdefault(name, []).extend(points)
    return {name: _curve(points) for name, points in sorted(found.items()) if points}


def _read_events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read TensorBoard's files of a folder."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={SCALARS: 0})  # 0: all of them
    events.Reload()
    # By time: files are read by name, and names of files of the same second need not be in order.
    found = {name: sorted(events.Scalars(name), key=lambda one: one.wall_time) for name in events.Tags()[SCALARS]}
    return {name: [(one.step, one.value) for one in points] for name, points in found.items()}


def _read_table(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read ``progress.csv``, without a last line that a killed program did not finish."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in csv.DictReader(io.StringIO(whole_lines(folder / TABLE), newline="")):
        step = _number(row.get(STEPS))
        if step is None:
            continue
        for name, text in row.items():
            value = _number(text)
            if value is not None and name is not None and name != STEPS:
                found.setdefault(name, []).append((int(step), value))
    return found


def _number(text: object) -> float | None:
    """Read a cell; ``None`` if it is empty or no finite number."""
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _curve(points: Iterable[tuple[int, float]]) -> Curve:
    """Make a curve of points. Where a step was logged twice, because a run was resumed, the last value counts."""
    kept = sorted({step: value for step, value in points if math.isfinite(value)}.items())
    if len(kept) > MOST_POINTS:
        places = [round(place * (len(kept) - 1) / (MOST_POINTS - 1)) for place in range(MOST_POINTS)]
        kept = [kept[place] for place in places]
    return Curve(tuple(step for step, _ in kept), tuple(value for _, value in kept))
