"""Show what the model of a run would do, and how sure it is: ``lmpolicy explain``."""

from __future__ import annotations

from typing import Annotated

import typer

from lmpolicy.cli.options import Device, Json, RunFolder


def explain(
    run: RunFolder,
    turns: Annotated[int, typer.Option(min=1, help="Turns of an episode to show.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the episode.")] = 0,
    device: Device = None,
    json: Json = False,
) -> None:
    """Show what the model reads at the beginning of an episode, and the probability of each legal phrase."""
    from dataclasses import asdict

    from lmpolicy.cli.runs import Run
    from lmpolicy.cli.told import tell
    from lmpolicy.report.explaining import explain as look

    found = Run.open(run)
    model, env = found.load(device), found.settings.make_one()
    shown = []
    observation, _ = env.reset(seed=seed)
    for _ in range(turns):
        shown.append(look(model, observation))
        action, _ = model.predict(observation, deterministic=True)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break
    tell({"run": str(run), "turns": [asdict(one) for one in shown]}, "\n\n".join(map(str, shown)), json)
