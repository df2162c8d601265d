"""Train a language model on an env: ``lmpolicy train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lmpolicy.cli.options import Changes, Device, EnvArguments, Json, Model, Steps, Task, env_ids

OptionalEnv = Annotated[
    str | None, typer.Argument(metavar="ENV", help="Gymnasium id.", autocompletion=env_ids, show_default=False)
]
Seed = Annotated[int | None, typer.Option(help="Seed of envs, model and training.", show_default="0")]
Copies = Annotated[int | None, typer.Option(help="Copies of the env.", show_default="of the named settings")]
Generate = Annotated[int | None, typer.Option(metavar="N", help="Let the model write its answers, of up to N tokens.")]
Adapter = Annotated[str | None, typer.Option(help="LoRA adapter of PEFT to start from: folder or hub id.")]
Played = Annotated[Path | None, typer.Option(help="File of played turns that the model learns from first.")]
Settings = Annotated[Path | None, typer.Option(help="settings.yaml of a run to repeat, or your own.")]
Resume = Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with the run in this folder.")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="CPU threads.", show_default="one for the bundled model, those of PyTorch for others"),
]
Output = Annotated[Path | None, typer.Option(help="Folder of numbered runs.", show_default="runs/ENV")]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write files for TensorBoard.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the settings, and train nothing.")]


def train(
    env: OptionalEnv = None,
    model: Model = None,
    task: Task = None,
    seed: Seed = None,
    steps: Steps = None,
    n_envs: Copies = None,
    generate: Generate = None,
    env_arg: EnvArguments = None,
    changes: Changes = None,
    adapter: Adapter = None,
    demonstrations: Played = None,
    settings: Settings = None,
    resume: Resume = None,
    output: Output = None,
    device: Device = None,
    threads: Threads = None,
    tensorboard: TensorBoard = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Train a language model on ENV by PPO, into a new folder.

    Ctrl-C ends the training early and keeps what was learnt; --resume goes on.
    """
    from lmpolicy.cli.choosing import Given, choose
    from lmpolicy.cli.told import tell
    from lmpolicy.cli.training import go_on, settings_of, start
    from lmpolicy.cli.values import read_yaml

    given = Given(env, model, task, seed, steps, n_envs, generate, env_arg or (), changes or ())
    given = given.starting_from(adapter, demonstrations, settings, device, threads, output)
    chosen = choose(given) if resume is None else settings_of(resume, given)
    if dry_run:
        if json:
            tell(read_yaml(str(chosen)), "", json)
        else:
            print(chosen, end="")
        return
    result = start(chosen, output, tensorboard) if resume is None else go_on(resume, chosen, tensorboard)
    tell(result.facts, str(result), json)
    if result.interrupted:
        raise typer.Exit(130)
