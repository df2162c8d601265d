"""Runs made by hand, to be shown on a page: episodes with every kind of turn, and texts that try to break out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lmpolicy.training.turns import Turn, write_turns

HOSTILE = (
    "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    "<!-- <script> ]]> {{ 7*7 }} ${window.hacked = 1} \u2028\u202e\x00\ud800"
    '" onclick="window.hacked = 1" <style>body { display: none }</style>'
)
"""A text that would run or hide something, were it not escaped."""


def turn(place: int, **known: Any) -> Turn:
    """The turn of an episode of the recorded kind; anything may be said otherwise."""
    values: dict[str, Any] = {
        "env_step": 0,
        "env": 0,
        "messages": [{"role": "system", "content": "Play."}, {"role": "user", "content": f"state {place}"}],
        "probabilities": {"left": 0.25, "right": 0.75},
        "action": "right",
        "env_reward": 1.0,
        "value": 2.0 - place,
        "episode": 0,
        "turn": place,
        "greedy": True,
    }
    return Turn(**{**values, **known})


def episode(length: int, number: int = 0, **known: Any) -> list[Turn]:
    """An episode of equal turns."""
    return [turn(place, episode=number, **known) for place in range(length)]


def write_run(folder: Path, episodes: list[list[Turn]], curves: dict[str, list[float]] | None = None) -> Path:
    """A folder as a training leaves it: a log in progress.csv, episodes, and what was said to the same prompts."""
    folder.mkdir(parents=True, exist_ok=True)
    for turns in episodes:
        write_turns(folder / "episodes.jsonl", turns)
    said = [
        turn(number, env_step=step, episode=None, env_reward=None, probabilities={"left": 1 - share, "right": share})
        for step, share in ((0, 0.5), (1000, 0.75), (2000, 1.0))
        for number in range(2)
    ]
    write_turns(folder / "prompts.jsonl", said)
    columns = {"rollout/ep_rew_mean": [1.0, 2.0, 3.0], "lm/entropy": [0.7, 0.6, 0.1], **(curves or {})}
    lines = [",".join(["time/total_timesteps", *columns])]
    for place in range(3):
        lines.append(",".join([str(1000 * (place + 1)), *(str(values[place]) for values in columns.values())]))
    (folder / "progress.csv").write_text("\n".join(lines) + "\n")
    return folder


def data_of(page: str) -> dict[str, Any]:
    """What a page holds, as JSON."""
    start = page.index('type="application/json">') + len('type="application/json">')
    return json.loads(page[start : page.index("</script>", start)])
