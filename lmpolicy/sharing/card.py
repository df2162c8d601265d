"""Write the page that the Hugging Face hub shows about a trained policy."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lmpolicy.models import find
from lmpolicy.models.resolving import can_be_on_hub
from lmpolicy.training.turns import Turn


@dataclass(frozen=True)
class Played:
    """Hold what the policy was measured by."""

    env_id: str
    """Id of the env, or the name of its class."""
    env_kwargs: Mapping[str, Any]
    """Arguments of ``gymnasium.make`` that are others than the env is registered with."""
    wrapper_kwargs: Mapping[str, Any]
    """Arguments of :class:`~lmpolicy.TextObservationWrapper` that are others than by default, without the task."""
    returns: Sequence[float]
    """Sum of the env's own rewards in each episode."""
    deterministic: bool
    """Whether the most likely actions were taken."""
    first: Sequence[Turn]
    """Turns of the first episode."""

    @property
    def mean(self) -> float:
        """Return the mean return."""
        return statistics.fmean(self.returns)

    @property
    def spread(self) -> float:
        """Return the standard deviation of the returns."""
        return statistics.pstdev(self.returns)


def card(repo_id: str, facts: Mapping[str, Any], played: Played, base: str | None, files: Sequence[str]) -> str:
    """Write the page in Markdown, with the metadata that the hub reads.

    :param repo_id: name of the repository.
    :param facts: rows of a table about the training.
    :param played: what the policy was measured by.
    :param base: base model, as the policy was given it.
    :param files: names of the files that lie beside the page.
    """
    kind = "the most likely actions" if played.deterministic else "sampled actions"
    rows = "\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items() if value not in (None, ""))
    given = "" if find(base) else f", model={json.dumps(public_name(base))}"
    replay = "\n![an episode](replay.png)\n" if "replay.png" in files else ""
    return f"""{_metadata(facts["learner"], played, base)}
# {repo_id.partition("/")[2]}

A language model that was trained by reinforcement learning to act in words in **{_plain(played.env_id)}**, with
lmpolicy and the unmodified {facts["learner"]} of Stable-Baselines3.

Mean return of {len(played.returns)} episodes with {kind}: **{played.mean:.2f} +/- {played.spread:.2f}**
(mean and standard deviation).
{replay}
## Use it

```python
import gymnasium as gym
import lmpolicy

env = {_env_source(played)}
model = lmpolicy.load_from_hub("{repo_id}", env{given})  # runs nothing that is in the file
print(lmpolicy.record_episodes(model, env, 3).returns)
```

{_files(files)}

## What it reads, and what it does

{_turn(played.first[0])}

## How it was trained

| | |
|---|---|
{rows}
"""


def public_name(model: str | None) -> str:
    """Return the name of a base model, without folders of this machine.

    :param model: name, hub id or folder, as the policy was given it; ``None`` is the bundled LM.
    """
    known = find(model)
    if known is not None:
        return known.hub_id or known.name
    return str(model) if is_hub_id(model) else Path(str(model)).name


def is_hub_id(model: str | None) -> bool:
    """Return whether a base model can be on the hub.

    :param model: as for :func:`public_name`.
    """
    known = find(model)
    if known is not None:
        return known.hub_id is not None
    return can_be_on_hub(str(model))


def _metadata(learner: str, played: Played, base: str | None) -> str:
    """Return the head of the page. JSON is YAML, whatever the texts hold."""
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": played.env_id, "type": played.env_id},
        "metrics": [
            {"type": "mean_reward", "name": "mean_reward", "value": f"{played.mean:.2f} +/- {played.spread:.2f}"}
        ],
    }
    tags = ["lmpolicy", played.env_id, "reinforcement-learning", "deep-reinforcement-learning", "stable-baselines3"]
    data: dict[str, Any] = {"library_name": "stable-baselines3", "tags": tags}
    data |= {"base_model": public_name(base)} if is_hub_id(base) else {}
    data["model-index"] = [{"name": learner, "results": [result]}]
    return "---\n" + "".join(f"{name}: {json.dumps(value)}\n" for name, value in data.items()) + "---\n"


def _env_source(played: Played) -> str:
    """Return the code that makes the env, as far as it can be told."""
    if re.fullmatch(r"[\w./:-]+-v\d+", played.env_id):
        own, outer = (
            "".join(f", {name}={value!r}" for name, value in given.items())
            for given in (played.env_kwargs, played.wrapper_kwargs)
        )
        return f'lmpolicy.TextObservationWrapper(gym.make("{played.env_id}"{own}){outer})'
    return "lmpolicy.TextObservationWrapper(...)  # the env that it was trained on"


def _files(names: Sequence[str]) -> str:
    """Return a list of what lies beside the page."""
    meanings = {
        "model.zip": "weights, optimizer and settings, without the base model",
        "adapter": "the adapter alone, as PEFT reads it",
        "episodes.jsonl": "the episodes that were measured, turn by turn",
        "report.html": "the same to look at: download it and open it in a browser",
        "results.json": "the numbers",
        "replay.png": "the first episode as the env draws it",
    }
    return "\n".join(f"- `{name}`: {meanings[name]}" for name in names if name in meanings)


def _turn(turn: Turn) -> str:
    """Show a turn as lines that are set in, so that no text can end them."""
    lines = [line for one in turn.messages for line in f"[{one['role']}] {one['content']}".splitlines()]
    shares = [f"{share:.3f}  {phrase}" for phrase, share in turn.probabilities.items() if share is not None]
    done = [f"says: {turn.answer}"] if turn.answer is not None else []
    done += [f"does: {turn.action}"] if turn.action is not None else []
    return "\n".join(f"    {line}" for line in [*lines, "", *shares, *done])


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _plain(text: str) -> str:
    """Keep a name from being read as Markdown or HTML."""
    return re.sub(r"([\\`*_<>\[\]])", r"\\\1", text)
