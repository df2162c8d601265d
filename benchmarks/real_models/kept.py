"""What a training of ``python -m benchmarks.real_models`` has learnt, and kept."""

from argparse import ArgumentParser
from pathlib import Path


def require_training(parser: ArgumentParser, path: Path, task: str) -> None:
    """End the program with the remedy if a model is not there.

    :param parser: of the command line, which tells it.
    :param path: of the model.
    :param task: its task.
    """
    if not path.exists():
        parser.error(f"{path} is not there: train it first with python -m benchmarks.real_models --tasks {task}")
