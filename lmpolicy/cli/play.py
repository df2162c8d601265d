"""Play an env in words: ``lmpolicy play``."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from lmpolicy.cli.options import Device, EnvArguments, Json, Task, env_ids


def play(
    env: Annotated[
        str, typer.Argument(metavar="ENV|RUN", help="Gymnasium id, or the folder of a run.", autocompletion=env_ids)
    ],
    by: Annotated[
        str | None,
        typer.Option(
            help="person, random, bot (of BabyAI), a folder of a run, a function module:name, or a language model.",
            show_default="person; of a run, its model",
        ),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Episodes.", show_default="1; a person's: until Ctrl-D")
    ] = (None),
    output: Annotated[Path | None, typer.Option(help="File to write the turns to, as demonstrations.")] = None,
    append: Annotated[bool, typer.Option("--append", help="Add the episodes to those of the file.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there already.")] = False,
    seed: Annotated[
        int,
        typer.Option(min=0, help="Seed of the first episode and its draws; the others have those after it."),
    ] = 0,
    sampled: Annotated[bool, typer.Option("--sampled", help="Let a model sample instead of taking the likeliest.")] = (
        False
    ),
    task: Task = None,
    env_arg: EnvArguments = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Play ENV in words: you at the terminal, a bot, or a model.

    The turns are written to --output, from which lmpolicy train ENV --demonstrations learns.
    """
    from lmpolicy.cli.kept_episodes import KeptEpisodes
    from lmpolicy.cli.playing import PERSON, find_player, play_episodes, settings_for, summary
    from lmpolicy.cli.told import tell

    if output is None and (append or overwrite):
        raise ValueError("--append and --overwrite are for a file of turns: name it by --output FILE")
    file = None if output is None else KeptEpisodes.at(output, append=append, overwrite=overwrite)
    path = None if file is None else file.path
    settings, run = settings_for(env, task, env_arg or (), by)
    words = settings.make_one()
    by_person = by == PERSON or (by is None and run is None)
    count = episodes or (1_000_000 if by_person else 1)
    with redirect_stdout(sys.stderr) if json else nullcontext():  # the output is the JSON alone
        player = find_player(by or (PERSON if run is None else str(run)), settings, words, device, seed)
        played = play_episodes(player, words, count, seed, file, deterministic=not sampled, quiet=json or by_person)
    tell(summary(played, path), f"{played!r}" + (f" in {path}" if path is not None and len(played) else ""), json)
