"""Say how good the model of a run is: ``lmpolicy evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from lmpolicy.cli.options import Device, Json, RunFolder

COPIES = 10
"""Number of envs side by side."""


def evaluate(
    run: RunFolder,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of each line of the table.")] = 100,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed.", show_default="1000 above that of the run")] = None,
    record: Annotated[int, typer.Option(min=0, help="Episodes to record for lmpolicy report.")] = 3,
    device: Device = None,
    json: Json = False,
) -> None:
    """Play episodes with the model of a run, and compare it with random play.

    The rewards are the env's own. Where the model writes numbers or text, random play draws any action of the env.
    """
    from lmpolicy.cli.runs import Run
    from lmpolicy.cli.told import table, tell

    found = Run.open(run)
    model = found.load(device)
    first = found.settings.seed + 1000 if seed is None else seed
    rows = _measure(found, model, episodes, first)
    recorded = _record(found, model, record, first)
    facts = {"run": str(run), "env": found.settings.env_id, "env_steps": model.num_timesteps, "episodes": episodes}
    facts |= {"recorded": recorded, "players": rows}
    cells = [(name, _shown(one), f"{one['mean_length']:.1f}") for name, one in rows.items()]
    head = (f"{found.settings.env_id}, {_counted(episodes)}", "mean return", "length")
    tell(facts, table(head, cells), json)
    if recorded is not None and not json:
        print(f"{_counted(record)} in {recorded}; lmpolicy report {run} shows them")


def _counted(episodes: int) -> str:
    return f"{episodes} episode{'' if episodes == 1 else 's'}"


def _measure(run: Any, model: Any, episodes: int, seed: int) -> dict[str, dict[str, float | None]]:
    """Return what random play and the model get."""
    from lmpolicy.cli.at_random import at_random
    from lmpolicy.comparison.evaluating import evaluate as play

    copies = min(episodes, COPIES)
    env = run.settings.make_env(training=False, n_envs=copies)
    random, plain = at_random(run.settings, copies, seed)
    found = {
        "random play": play(random, plain, episodes, sampled=True, seed=seed),
        "most likely action": play(model, env, episodes, sampled=False, seed=seed),
        "sampled action": play(model, env, episodes, sampled=True, seed=seed),
    }
    return {
        name: {
            "mean_return": float(one["mean_return"]),
            "error": standard_error(float(one["std_return"]), int(one["episodes"])),
            "mean_length": float(one["mean_length"]),
        }
        for name, one in found.items()
    }


def standard_error(spread: float, episodes: int) -> float | None:
    """Return the standard error of a mean return, by the sample's standard deviation.

    :param spread: standard deviation of the returns around their own mean, as ``numpy.std`` computes it.
    :param episodes: number of episodes.
    :return: ``None`` for one episode, which says nothing about the spread of returns.
    """
    return spread / (episodes - 1) ** 0.5 if episodes > 1 else None


def _shown(one: Mapping[str, float | None]) -> str:
    """Return a mean return with its error, where the error is known."""
    error = one["error"]
    return f"{one['mean_return']:.2f}" + ("" if error is None else f" ± {error:.2f}")


def _record(run: Any, model: Any, episodes: int, seed: int) -> str | None:
    """Record some episodes, with pictures where the env draws any; what goes wrong there does not lose the table."""
    if not episodes:
        return None
    from lmpolicy.cli.shown import shown_env
    from lmpolicy.cli.told import messages, named_error
    from lmpolicy.report.recording import record_episodes

    folder = run.folder / "evaluation"
    try:
        env = shown_env(run.settings)
        folder.mkdir(exist_ok=True)
        record_episodes(model, env, episodes, folder, seed=seed)
    except Exception as error:
        messages().print(f"No episodes are recorded: {named_error(error)}")
        return None
    return str(folder / "episodes.jsonl")
