"""Read the options that scripts which train have in common."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Sequence
from pathlib import Path

import torch as th

NEEDS = ("rich", "tqdm")
"""What the progress bar of Stable-Baselines3 is made with."""


def check_device(device: str) -> str:
    """Refuse a device that does not work here.

    Stable-Baselines3 would quietly take the CPU in its place.

    :param device: name of the device, e.g. ``"cuda:1"``; ``"auto"`` always works.
    :return: the name.
    :raises ValueError: if it does not work; the message says why, and speaks of the option ``--device``.
    """
    try:
        if device != "auto":
            th.zeros(1, device=device)
    except (AssertionError, RuntimeError) as error:
        raise ValueError(f"--device {device} does not work here: {str(error).splitlines()[0]}") from None
    return device


def usual_threads(model: str | None) -> int:
    """Return how many CPU threads suit a language model.

    The bundled one computes with one: several wait for each other at every operation, for long where another program
    takes a core. Other models, and all if the variable ``OMP_NUM_THREADS`` is set, keep the number of PyTorch.

    :param model: name, hub id or folder; ``None``: the bundled one.
    """
    return 1 if model is None and not os.environ.get("OMP_NUM_THREADS") else th.get_num_threads()


class ScriptOptions(argparse.ArgumentParser):
    """Read the options that scripts which train have in common: ``--help`` lists them.

    A script adds its own with ``add_argument``. The bundled language model computes with one CPU thread, unless the
    variable ``OMP_NUM_THREADS`` is set, since several wait for each other at every operation; ``--threads`` sets
    another number. Other models keep the number of PyTorch.

    Example:
        >>> from lmpolicy import ScriptOptions
        >>> options = ScriptOptions("Learn to balance a pole.", output="runs/pole", steps=20_480, episodes=20)
        >>> args = options.read(["--steps", "4096"])
        >>> args.steps, args.episodes, args.output.name
        (4096, 20, 'pole')

    :param text: docstring of the script; its first line is shown by ``--help``.
    :param output: folder of numbered runs.
    :param steps: env steps of the training unless ``--steps`` is given.
    :param episodes: episodes of an evaluation unless ``--episodes`` is given.
    :param needs: modules of the extra ``examples`` without which the script does not work. Default: those of the
        progress bar of Stable-Baselines3.
    """

    def __init__(self, text: str, *, output: str, steps: int, episodes: int, needs: Sequence[str] = NEEDS) -> None:
        first = text.partition("\n")[0]
        super().__init__(description=first, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        self._needs = tuple(needs)
        self.add_argument(
            "--model", help="name, hub id, folder or *.gguf file of a language model; None: the bundled one"
        )
        self.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
        self.add_argument(
            "--threads", type=int, help="CPU threads; None: one for the bundled model, those of PyTorch for others"
        )
        self.add_argument("--steps", type=int, default=steps, help="env steps of training")
        self.add_argument("--episodes", type=int, default=episodes, help="episodes per evaluation")
        self.add_argument("--seed", type=int, default=0, help="seed of envs, model and training")
        self.add_argument("--output", type=Path, default=Path(output), help="folder of numbered runs")
        self.add_argument("--resume", type=Path, metavar="RUN", help="go on with the run in this folder")

    def read(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """Read the command line, refuse what does not work, and set the number of CPU threads.

        :param argv: arguments; by default those of the program.
        :raises SystemExit: after ``--help``, and for wrong arguments or missing modules; a message says what to do.
        """
        args = self.parse_args(argv)
        if args.threads is None:
            args.threads = usual_threads(args.model)
        for name in ("steps", "episodes", "threads"):
            if getattr(args, name) < 1:
                self.error(f"--{name} is 1 or more; got {getattr(args, name)}")
        if args.seed < 0:
            self.error(f"--seed is 0 or more; got {args.seed}")
        try:
            check_device(args.device)
        except ValueError as error:
            self.error(str(error))
        for module in self._needs:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise SystemExit(f'{error}; this script needs: pip install "lmpolicy[examples]"') from None
        th.set_num_threads(args.threads)
        return args
