"""Read what there is to show of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lmpolicy.report.curves import Curve, read_curves
from lmpolicy.report.episodes import FILE, Episodes, read_turn_lines
from lmpolicy.training.turns import Turn

PROMPTS = "prompts.jsonl"
"""Name of the file of what a policy said to the same prompts."""
Shown = str | Path | Episodes
"""What a page shows: the folder of a run, a file of episodes, or episodes."""


@dataclass(frozen=True)
class Run:
    """Hold what there is to show of a run."""

    name: str
    """Name on the page."""
    curves: Mapping[str, Curve] = field(default_factory=dict)
    """Numbers that were logged, by their names in the log."""
    episodes: Sequence[Sequence[Turn]] = ()
    """Turns of each episode; the episodes in the order of the training."""
    prompts: Sequence[Sequence[Turn]] = ()
    """What was said to each of the same prompts, in the order of the training."""


def read_runs(runs: Shown | Sequence[Shown] | Mapping[str, Shown]) -> list[Run]:
    """Read what a page shows.

    :param runs: as for :func:`lmpolicy.write_report`.
    :raises TypeError: if a run is neither a path nor episodes.
    :raises FileNotFoundError: if there is no such folder or file.
    :raises ValueError: if there is nothing to show; the message says how a run records something.
    """
    if not isinstance(runs, str | Path | Sequence | Mapping):
        raise TypeError(f"name the folder of a run, several, or a dict of names and folders; got {runs!r}")
    if isinstance(runs, Mapping):
        found = [_read(one, name) for name, one in runs.items()]
    else:
        several = [runs] if isinstance(runs, str | Path | Episodes) else list(runs)
        found = [_read(one, None) for one in several]
        if len({run.name for run in found}) < len(found):
            found = [
                Run(f"{number}: {one.name}", one.curves, one.episodes, one.prompts)
                for number, one in enumerate(found, 1)
            ]
    if not found:
        raise ValueError("there is no run to show: name the folder of at least one")
    return found


def _read(shown: Shown, name: str | None) -> Run:
    if isinstance(shown, Episodes):
        return Run(name or "episodes", episodes=list(shown))
    if not isinstance(shown, str | Path):
        raise TypeError(f"a run is a folder, a file of episodes, or Episodes; got {type(shown).__name__}")
    path = Path(shown)
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: name the folder of a run, or a file of episodes")
    name = name or _name(path)
    if path.is_file():
        run = Run(name, episodes=list(Episodes.from_jsonl(path)))
        if not run.episodes:
            raise ValueError(
                f"{path} has no episodes: write some with lmpolicy.record_episodes(model, env, 3, folder), or name the "
                "folder of a run"
            )
        return run
    episodes = [turns for file in sorted(path.rglob(FILE)) for turns in Episodes.from_jsonl(file)]
    episodes.sort(key=lambda turns: turns[0].env_step)
    prompts = [one for file in sorted(path.rglob(PROMPTS)) for one in _same_prompts(file)]
    run = Run(name, read_curves(path), episodes, prompts)
    if not run.curves and not run.episodes:
        raise ValueError(
            f"{path} has no log and no episodes. Train with tensorboard_log= and callback=lmpolicy.WatchLearning(), or "
            "write episodes there with lmpolicy.record_episodes(model, env, 3, folder)"
        )
    return run


def _name(path: Path) -> str:
    """Return the name of a run: that of its folder, with the folder around it where it is only a number."""
    path = path.resolve()
    parts = [path.parent.name, path.name] if path.stem.isdecimal() or path.is_file() else [path.name]
    return "/".join(part for part in parts if part)


def _same_prompts(file: Path) -> list[list[Turn]]:
    """Return what was said to each prompt; of a step that was written twice, the last.

    A training that goes on with another :class:`~lmpolicy.WatchLearning` has chosen other prompts.
    """
    found: dict[tuple[int, str], dict[int, Turn]] = {}
    for turn in read_turn_lines(file):
        if turn.turn is None:
            raise ValueError(f"{file} is not what WatchLearning writes: a line has no number of the prompt, 'turn'")
        found.setdefault((turn.turn, repr(turn.messages)), {})[turn.env_step] = turn
    order = sorted(found, key=lambda which: which[0])  # stable: those of a number as they came
    return [[found[which][step] for step in sorted(found[which])] for which in order]
