"""Make a small language model for one's own envs: ``lmpolicy pretrain``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from lmpolicy.cli.options import Json, Task, env_ids

Envs = Annotated[
    list[str], typer.Argument(metavar="ENV...", help="Gymnasium ids.", autocompletion=env_ids, show_default=False)
]
Output = Annotated[Path, typer.Option(help="Folder to write.", show_default=False)]
Wordings = Annotated[Path | None, typer.Option(help='JSON file of other phrasings: [["push", "shove"], ...].')]
Bins = Annotated[int, typer.Option(min=2, help="Values per dimension of continuous actions.")]
Base = Annotated[str | None, typer.Option(help="Folder of a model to train further, or bundled.")]
Optimizing = Annotated[int | None, typer.Option(min=1, help="Optimizer steps.", show_default="1500; with --base 1000")]
Tokens = Annotated[int | None, typer.Option(min=1, help="Tokens of a step.", show_default="4096")]
Rate = Annotated[float | None, typer.Option(help="Largest learning rate.", show_default="0.004; with --base 0.001")]
Vocabulary = Annotated[int | None, typer.Option(min=1, help="Tokens of the tokenizer.", show_default="1024")]
Sample = Annotated[int | None, typer.Option(min=1, help="Texts it is made from.", show_default="10000")]
Width = Annotated[int | None, typer.Option(min=1, help="Hidden size.", show_default="128")]
Layers = Annotated[int | None, typer.Option(min=1, help="Layers.", show_default="3")]
Heads = Annotated[int | None, typer.Option(min=1, help="Attention heads.", show_default="4")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads.", show_default="all cores")]


def pretrain(
    envs: Envs,
    output: Output,
    task: Task = None,
    wordings: Wordings = None,
    action_bins: Bins = 3,
    base: Base = None,
    steps: Optimizing = None,
    tokens: Tokens = None,
    rate: Rate = None,
    vocabulary: Vocabulary = None,
    sample: Sample = None,
    width: Width = None,
    layers: Layers = None,
    heads: Heads = None,
    threads: Threads = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, mps.")] = "cpu",
    json: Json = False,
) -> None:
    """Make a small language model that has read about ENV, from random play: about ten minutes on two cores.

    lmpolicy train ENV --model FOLDER then starts from it. After an interruption, the same command goes on.
    """
    from lmpolicy.cli.told import tell
    from lmpolicy.pretraining.asked import asked_mixture, make

    size = {"steps": steps, "tokens": tokens, "rate": rate, "vocabulary": vocabulary, "sample": sample}
    size |= {"width": width, "layers": layers, "heads": heads}
    mixture = asked_mixture(envs, task, wordings, action_bins)
    command = shlex.join(["lmpolicy", *sys.argv[1:]])
    reading = make(mixture, output, size, base=base, threads=threads, device=device, command=command)
    played = sum(reading.steps.values())
    facts = {"folder": str(output), "tokens": reading.tokens, "env_steps_of_random_play": played}
    tell(facts, f"{output}: {reading.tokens:,} tokens read, of {played:,} env steps of random play", json)
