"""Train a language model on an env: ``lmpolicy train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmpolicy.cli.options import Device, EnvArguments, Json, Task, env_ids, model_names


def train(
    env: Annotated[
        str | None, typer.Argument(metavar="ENV", help="Gymnasium id.", autocompletion=env_ids, show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Name, hub id, folder or *.gguf file of a language model.",
            autocompletion=model_names,
            show_default="the bundled one",
        ),
    ] = None,
    task: Task = None,
    seed: Annotated[int | None, typer.Option(help="Seed of envs, model and training.", show_default="0")] = None,
    steps: Annotated[int | None, typer.Option(help="Env steps.", show_default="of the named settings")] = None,
    n_envs: Annotated[int | None, typer.Option(help="Copies of the env.", show_default="of the named settings")] = None,
    generate: Annotated[
        int | None, typer.Option(metavar="N", help="Let the model write its answers, of up to N tokens.")
    ] = None,
    env_arg: EnvArguments = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="NAME=VALUE",
            help="Change a setting, e.g. learning_rate=1e-4 or history=2; repeatable. --dry-run lists them.",
        ),
    ] = None,
    adapter: Annotated[str | None, typer.Option(help="LoRA adapter of PEFT to start from: folder or hub id.")] = None,
    demonstrations: Annotated[
        Path | None, typer.Option(help="File of played turns that the model learns from first.")
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="settings.yaml of a run to repeat, or your own.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with the run in this folder.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of numbered runs.", show_default="runs/ENV")] = None,
    device: Device = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write files for TensorBoard.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the settings, and train nothing.")] = False,
    json: Json = False,
) -> None:
    """Train a language model on ENV by PPO, into a new folder.

    Ctrl-C ends the training early and keeps what was learnt; --resume goes on.
    """
    from lmpolicy.cli.choosing import Given, choose
    from lmpolicy.cli.told import tell
    from lmpolicy.cli.training import go_on, start

    given = Given(
        env=env,
        model=model,
        task=task,
        seed=seed,
        steps=steps,
        n_envs=n_envs,
        generate=generate,
        env_args=env_arg or (),
        changes=set_ or (),
        adapter=adapter,
        demonstrations=demonstrations,
        settings=settings,
        device=device,
    )
    if resume is not None:
        result = go_on(resume, given, tensorboard)
    else:
        chosen = choose(given)
        if dry_run:
            print(chosen, end="")
            return
        result = start(chosen, output, tensorboard)
    tell(result.facts, str(result), json)
    if result.interrupted:
        raise typer.Exit(130)
