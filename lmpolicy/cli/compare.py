"""Compare a language model with classic learners on an env: ``lmpolicy compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmpolicy.cli.options import Changes, Env, EnvArguments, Json, Model, Steps, Task

Seeds = Annotated[str, typer.Option(help="Seeds: 100, 100-107, or 100,105.")]
Methods = Annotated[
    str | None, typer.Option(help="Names with commas, e.g. lm,classic-raw.", show_default="what suits the env")
]
Episodes = Annotated[int, typer.Option(help="Episodes of an evaluation.")]
Every = Annotated[int | None, typer.Option(help="Env steps between evaluations.", show_default="a tenth")]
Processes = Annotated[int | None, typer.Option(help="Trainings side by side.", show_default="number of cores")]
Keep = Annotated[bool, typer.Option("--keep-models", help="Save what each training has learnt, in models/.")]
Checkpoints = Annotated[
    bool, typer.Option("--checkpoints", help="Let long trainings go on from their last rollout after an interruption.")
]
Output = Annotated[
    Path | None, typer.Option(help="Folder to write; the same command goes on there.", show_default="comparison/ENV")
]


def compare(
    env: Env,
    task: Task = None,
    seeds: Seeds = "100-107",
    methods: Methods = None,
    steps: Steps = None,
    episodes: Episodes = 100,
    every: Every = None,
    model: Model = None,
    env_arg: EnvArguments = None,
    changes: Changes = None,
    processes: Processes = None,
    checkpoints: Checkpoints = False,
    keep_models: Keep = False,
    output: Output = None,
    json: Json = False,
) -> None:
    """Train and evaluate a language model and classic PPO on ENV with several seeds; write a table and curves."""
    from dataclasses import replace

    from lmpolicy.cli.choosing import Given, choose
    from lmpolicy.cli.comparing import importable, read_seeds, show_cells
    from lmpolicy.cli.told import tell
    from lmpolicy.comparison.comparing import compare as run

    chosen = choose(Given(env=env, model=model, task=task, steps=steps, env_args=env_arg or (), changes=changes or ()))
    settings = replace(chosen.hyperparameters, env_id=importable(env))
    folder = output or Path("comparison") / env.rpartition(":")[2].replace("/", "-")
    with show_cells(folder) as progress:
        found = run(
            settings,
            seeds=read_seeds(seeds),
            methods=None if methods is None else [name.strip() for name in methods.split(",") if name.strip()],
            folder=folder,
            processes=processes,
            checkpoints=checkpoints,
            keep_models=keep_models,
            every=every,
            episodes=episodes,
            policy=chosen.policy,
            name=env,
            progress=progress,
        )
    facts = {"env": env, "folder": str(folder), "threshold": found.threshold, "summary": list(found.summary)}
    curves = f"Curves are in {found.curves}, all" if found.curves.exists() else "All"
    tell(facts, f"{found}\n\n{curves} numbers are in {folder}.", json)
