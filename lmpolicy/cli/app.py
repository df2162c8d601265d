"""Put the commands together, and say what is wrong without a traceback."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import typer
from typer.core import TyperGroup

from lmpolicy import __version__
from lmpolicy.cli.compare import compare
from lmpolicy.cli.evaluate import evaluate
from lmpolicy.cli.explain import explain
from lmpolicy.cli.export import export
from lmpolicy.cli.models import models
from lmpolicy.cli.play import play
from lmpolicy.cli.pretrain import pretrain
from lmpolicy.cli.report import report
from lmpolicy.cli.train import train
from lmpolicy.starting import clean_up_from_now_on

EXPECTED = (ValueError, TypeError, OSError, ImportError, RuntimeError, FloatingPointError, gym.error.Error)
"""Errors whose message says what to do."""


class Commands(TyperGroup):
    """Print errors as one message."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command.

        :param ctx: what was typed.
        """
        try:
            clean_up_from_now_on()
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("stopped by Ctrl-C", file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # such as that of "| head"; typer ends the program without a word
            raise
        except EXPECTED as error:
            # Errors of typer, such as an unknown option, are told by typer; typer.Exit is a RuntimeError, too.
            if ctx.params["debug"] or type(error).__module__.partition(".")[0] in ("typer", "click"):
                raise
            print(f"Error: {error}{_place(error)}", file=sys.stderr)
            raise typer.Exit(1) from None


def _place(error: BaseException) -> str:
    """Say where an error comes from that code of the user raised, whose message may say little."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    path = Path(last.filename)
    roots = [Path(__file__).parents[1], *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))]
    if not path.is_file() or any(path.is_relative_to(root) for root in roots):
        return ""
    return f"\n{type(error).__name__} in {path}, line {last.lineno}; lmpolicy --debug ... shows how it came there"


app = typer.Typer(
    name="lmpolicy",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"lmpolicy {__version__}")
        raise typer.Exit


@app.callback()
def begin(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = (
        False
    ),
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the code an error comes from.")] = False,
) -> None:
    """Fine-tune a language model on any Gymnasium environment.

    A run is a folder with its settings, checkpoints and recorded episodes. ENV is a Gymnasium id; of
    my_package/MyEnv-v0, the package is imported. COMMAND --help says more.
    """


for command in (train, evaluate, report, play, explain, compare, pretrain, export, models):
    app.command()(command)


def run(argv: Sequence[str] | None) -> None:
    """Run a command, and end the program.

    :param argv: arguments; by default those of the program.
    """
    folder = os.getcwd()
    if folder not in sys.path:  # so that packages and tasks of one's own are found, as with python -m
        sys.path.insert(0, folder)
    with warnings.catch_warnings():
        # Stable-Baselines3 asks every env for pictures, also one that has none.
        warnings.filterwarnings("ignore", message=".*render_mode='rgb_array' that is not in the possible")
        app(None if argv is None else list(argv), prog_name="lmpolicy")
