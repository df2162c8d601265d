"""Make a small language model for one's own envs from random play in them.

    python -m lmpolicy.pretraining --env my_package/MyEnv-v0 --output my-model
    python -m lmpolicy.pretraining --env MyEnv-v0 --task my_module:MyTask --wordings phrasings.json --output my-model
    python -m lmpolicy.pretraining --env my_package/MyEnv-v0 --base bundled --output my-model   # more of the same
    python -m lmpolicy.pretraining --bundled                                                    # rebuild the bundled LM

It plays at random, writes down what happens in the task's words and in other phrasings, trains a tokenizer and a model
on it (about ten minutes on two cores for one env), and saves both in the format of Transformers, with a model card.
Then policy_kwargs=dict(model="my-model") starts from it.

After an interruption, the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium as gym

from lmpolicy.bundled import BUNDLED
from lmpolicy.pretraining.asked import asked_mixture, make
from lmpolicy.pretraining.bundled_mixture import bundled_mixture
from lmpolicy.pretraining.making import BUNDLED_SIZE, Size


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    :param argv: arguments; by default those of the program.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lmpolicy.pretraining",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--env", nargs="+", metavar="ID", help="Gymnasium ids; package/Name-v0 imports the package")
    what.add_argument("--bundled", action="store_true", help="rebuild the bundled LM")
    parser.add_argument("--output", type=Path, help="folder to write")
    parser.add_argument("--task", metavar="MODULE:CLASS", help="how the envs read as text")
    parser.add_argument("--wordings", type=Path, help='JSON file of phrasings: [["push", "shove"], ...]')
    parser.add_argument("--action-bins", type=int, default=3, help="values per dimension of continuous actions")
    parser.add_argument("--base", help='folder of a model to train further; "bundled" is the bundled LM')
    for field in fields(Size):
        kind = float if field.name == "rate" else int
        parser.add_argument(f"--{field.name}", type=kind, help=f"default: {field.default:g}, for one env")
    parser.add_argument("--threads", type=int, help="of torch; default: all cores")
    parser.add_argument("--device", default="cpu", help="where to train")
    arguments = parser.parse_args(argv)
    if arguments.output is None and not arguments.bundled:
        parser.error("--output: name the folder that the model is written to")
    try:
        arguments.mixture = _mixture(arguments)
    except (ImportError, AttributeError, TypeError, ValueError, OSError, gym.error.Error) as error:
        parser.error(str(error))
    arguments.command = f"python -m lmpolicy.pretraining {shlex.join(sys.argv[1:] if argv is None else argv)}"
    return arguments


def _mixture(arguments: argparse.Namespace) -> Any:
    if arguments.bundled:
        return bundled_mixture()
    return asked_mixture(arguments.env, arguments.task, arguments.wordings, arguments.action_bins)


def main(argv: list[str] | None = None) -> None:
    """Make a model and save it.

    :param argv: arguments; by default those of the program.
    """
    arguments = parse(argv)
    folder = arguments.output or BUNDLED
    reading = make(
        arguments.mixture,
        folder,
        {field.name: getattr(arguments, field.name) for field in fields(Size)},
        base=arguments.base,
        usual=BUNDLED_SIZE if arguments.bundled else None,
        threads=arguments.threads,
        device=arguments.device,
        command=arguments.command,
        **({"card": None} if arguments.bundled else {}),
    )
    print(f"{folder}: {reading.tokens:,} tokens read, of {sum(reading.steps.values()):,} env steps of random play")


if __name__ == "__main__":
    main()
