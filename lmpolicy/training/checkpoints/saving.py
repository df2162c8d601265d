"""Save a model so that its file is never half written."""

from __future__ import annotations

from pathlib import Path

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy

from lmpolicy.files import claim_number, whole_file


def save(model: BaseAlgorithm | BasePolicy, path: str | Path) -> Path:
    """Save a learner or a policy in the format of SB3, in a file that is written whole.

    ``model.save(path)`` of SB3 opens the file itself for writing. If the program is killed then, or the disk is full,
    the file is unreadable and the old one is gone. Here, the bytes go to a temporary file in the same folder. It takes
    the place of the old one when all of it is on the disk.

    Example:
        >>> lmpolicy.save(model, "blackjack")  # doctest: +SKIP
        PosixPath('blackjack.zip')

    :param model: learner or policy. What is saved is what its own ``save`` writes.
    :param path: file to write. For a learner, ``.zip`` is appended if the name has no ending, as in SB3.
    :return: the file that was written.
    """
    path = Path(path)
    if isinstance(model, BaseAlgorithm) and not path.suffix:
        path = path.with_name(f"{path.name}.zip")
    with whole_file(path) as file:
        model.save(file)  # type: ignore[arg-type]
    return path


def new_run(folder: str | Path) -> Path:
    """Make a numbered folder for a run, so that no run overwrites another.

    Example:
        >>> lmpolicy.new_run("runs/cartpole")  # doctest: +SKIP
        PosixPath('runs/cartpole/1')

    :param folder: folder of all runs of a kind. It is made if it does not exist.
    :return: a new empty folder in it. No two programs are given the same one.
    """
    return claim_number(folder)
