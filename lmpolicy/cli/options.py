"""Hold the arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import gymnasium as gym
import typer

from lmpolicy import envs
from lmpolicy.models import named_models


def env_ids(incomplete: str) -> Iterable[str]:
    """Complete the id of an env.

    :param incomplete: what was typed.
    """
    return (one for one in sorted(gym.registry) if one.casefold().startswith(incomplete.casefold()))


def model_names(incomplete: str) -> Iterable[str]:
    """Complete the name of a model.

    :param incomplete: what was typed.
    """
    return (one.name for one in named_models() if one.name.startswith(incomplete.casefold()))


def task_names(incomplete: str) -> Iterable[str]:
    """Complete the name of a task.

    :param incomplete: what was typed.
    """
    return (one for one in envs.__all__ if one[0].isupper() and one.startswith(incomplete) and not one.isupper())


Env = Annotated[str, typer.Argument(metavar="ENV", help="Gymnasium id, e.g. CartPole-v1.", autocompletion=env_ids)]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.", show_default=False)]
Task = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:CLASS",
        help="How the env reads as text: a task of your own, one of lmpolicy.envs, or generic.",
        autocompletion=task_names,
    ),
]
EnvArguments = Annotated[
    list[str] | None, typer.Option("--env-arg", "-e", metavar="NAME=VALUE", help="Argument of the env; repeatable.")
]
Model = Annotated[
    str | None,
    typer.Option(
        help="Name, hub id, folder or *.gguf file of a language model.",
        autocompletion=model_names,
        show_default="the bundled one",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(help="Env steps of training, rounded up to whole rollouts.", show_default="of the named settings"),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="Change a setting, e.g. learning_rate=1e-4 or history=2; repeatable. lmpolicy train ENV --dry-run lists "
        "them.",
    ),
]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, mps.", show_default="auto")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for a script.")]
