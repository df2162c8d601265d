"""Make a small language model for one's own envs: ``lmpolicy pretrain``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lmpolicy.cli.options import Json, Task, env_ids


def pretrain(
    envs: Annotated[
        list[str], typer.Argument(metavar="ENV...", help="Gymnasium ids.", autocompletion=env_ids, show_default=False)
    ],
    output: Annotated[Path, typer.Option(help="Folder to write.", show_default=False)],
    task: Task = None,
    wordings: Annotated[
        Path | None, typer.Option(help='JSON file of other phrasings: [["push", "shove"], ...].')
    ] = None,
    action_bins: Annotated[int, typer.Option(min=2, help="Values per dimension of continuous actions.")] = 3,
    base: Annotated[str | None, typer.Option(help="Folder of a model to train further, or bundled.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimizer steps.", show_default="1500")] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Tokens of a step.", show_default="4096")] = None,
    rate: Annotated[float | None, typer.Option(help="Largest learning rate.", show_default="0.004")] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1, help="Tokens of the tokenizer.", show_default="1024")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Texts it is made from.", show_default="10000")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Hidden size.", show_default="128")] = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Layers.", show_default="3")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Attention heads.", show_default="4")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads.", show_default="all cores")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps.")] = "cpu",
    json: Json = False,
) -> None:
    """Make a small language model that has read about ENV, from random play: about ten minutes on two cores.

    lmpolicy train ENV --model FOLDER then starts from it. After an interruption, the same command goes on.
    """
    import shlex
    from dataclasses import replace

    import torch

    from lmpolicy.bundled import BUNDLED
    from lmpolicy.cli.runs import check_device
    from lmpolicy.cli.told import tell
    from lmpolicy.pretraining.making import MORE, Size
    from lmpolicy.pretraining.making import pretrain as make
    from lmpolicy.pretraining.own_mixture import own_mixture, read_wordings
    from lmpolicy.training.task_lookup import find_task

    check_device(device)
    mixture = own_mixture(
        envs,
        None if task is None else find_task(task),
        wordings=read_wordings(wordings) if wordings else (),
        action_bins=action_bins,
    )
    given: dict[str, Any] = {"steps": steps, "tokens": tokens, "rate": rate, "vocabulary": vocabulary}
    given |= {"sample": sample, "width": width, "layers": layers, "heads": heads}
    size = replace(Size() if base is None else MORE, **{k: value for k, value in given.items() if value is not None})
    if threads is not None:
        torch.set_num_threads(threads)
    command = shlex.join(["lmpolicy", *sys.argv[1:]])
    reading = make(mixture, output, size, base=BUNDLED if base == "bundled" else base, command=command, device=device)
    played = sum(reading.steps.values())
    facts = {"folder": str(output), "tokens": reading.tokens, "env_steps_of_random_play": played}
    tell(facts, f"{output}: {reading.tokens:,} tokens read, of {played:,} env steps of random play", json)
