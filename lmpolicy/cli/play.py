"""Play an env in words: ``lmpolicy play``."""

from __future__ import annotations

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
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first episode; the others have those after it.")] = 0,
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
    from lmpolicy.cli.playing import PERSON, find_player, play_episodes, settings_for, summary
    from lmpolicy.cli.told import tell

    settings, run = settings_for(env, task, env_arg or ())
    words = settings.make_one()
    player = find_player(by or (PERSON if run is None else str(run)), settings, words, device)
    by_person = by == PERSON or (by is None and run is None)
    count = episodes or (1_000_000 if by_person else 1)
    played = play_episodes(player, words, count, seed, output, deterministic=not sampled, quiet=json or by_person)
    tell(summary(played, output), f"{played!r}" + (f" in {output}" if output is not None and len(played) else ""), json)
