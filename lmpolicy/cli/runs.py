"""Find the folder of a run, and load its model."""

from __future__ import annotations

import json
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from lmpolicy.cli.run_settings import FILE, RunSettings
from lmpolicy.files import check_archive, numbered
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.training.checkpoints.checkpoints import CHECKPOINTS, MODEL, newest_checkpoint
from lmpolicy.training.checkpoints.safe_loading import load
from lmpolicy.training.settings.script_options import check_device
from lmpolicy.training.settings.task_lookup import near

UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, TypeError)
"""Errors of a file that was cut off or damaged, or is none of a model."""


@dataclass(frozen=True)
class Run:
    """Hold where a run is, and how it is trained."""

    folder: Path
    """Folder with settings, checkpoints and recorded episodes."""
    settings: RunSettings
    """What its file says."""

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Read the settings of a run.

        :param folder: folder of the run.
        :raises FileNotFoundError: if it is no run; the message names runs that there are.
        """
        if not (folder / FILE).is_file():
            raise FileNotFoundError(_no_run(folder))
        return cls(folder, RunSettings.read(folder / FILE))

    @property
    def model_file(self) -> Path | None:
        """Return the file that is furthest on, of the finished model and the newest checkpoint."""
        newest = newest_checkpoint(self.folder)
        files = [self.folder / MODEL, *([] if newest is None else [newest / MODEL])]
        return max((file for file in files if file.is_file()), key=_steps, default=None)

    @property
    def env_steps(self) -> int | None:
        """Return the env steps of the newest checkpoint; ``None`` if there is none yet.

        :raises ValueError: if its file cannot be read; the message says what to do.
        """
        newest = newest_checkpoint(self.folder)
        return None if newest is None else _steps(newest / MODEL)

    def load(self, device: str | None = None) -> OnPolicyAlgorithm:
        """Load the model, and compute with the threads of the run.

        :param device: device. Default: that of the settings.
        :raises FileNotFoundError: if the run has none yet; the message says how to train it.
        """
        file = self.model_file
        if file is None:
            raise FileNotFoundError(f"{self.folder} has no model yet: lmpolicy train --resume {self.folder} trains it")
        self.settings.use_threads()
        name = self.settings.ppo["policy_kwargs"].get("model")
        return load(file, model=name, device=check_device(device or self.settings.device))

    def policy(self) -> LMActorCriticPolicy:
        """Load the policy, on the CPU."""
        policy = self.load("cpu").policy
        assert isinstance(policy, LMActorCriticPolicy)
        return policy


def _steps(file: Path) -> int:
    """Return the env steps of a model in a file."""
    try:
        return _read_steps(file)
    except UNREADABLE as error:
        raise ValueError(f"{file} cannot be read: {error}. {instead_of(file)}") from error


def _read_steps(file: Path) -> int:
    with zipfile.ZipFile(file) as archive:
        check_archive(archive)
        return int(json.loads(archive.read("data"))["num_timesteps"])


def instead_of(file: Path) -> str:
    """Say what to do where the file of a model, or a file beside that of a checkpoint, cannot be read.

    :param file: file of the model.
    """
    is_checkpoint = file.parent.parent.name == CHECKPOINTS
    run, unwanted = (file.parent.parent.parent, file.parent) if is_checkpoint else (file.parent, file)
    for place in reversed(numbered(run / CHECKPOINTS).values()):
        if place == unwanted:
            continue
        with suppress(OSError, *UNREADABLE):
            return f"Delete {unwanted}: {place} can be read, and has {_read_steps(place / MODEL):,} env steps"
    return f"No checkpoint of {run} can be read: lmpolicy train --settings {run / FILE} trains anew"


def _no_run(folder: Path) -> str:
    """Say that a folder is no run, and which are."""
    inside = [str(run) for run in numbered(folder).values() if (run / FILE).is_file()]
    if inside:
        return f"{folder} is no run, but these in it are: {', '.join(inside)}"
    if folder.exists():
        return f"{folder} is no run, for it has no {FILE}: lmpolicy train ENV makes one"
    known = [str(file.parent) for file in sorted(Path("runs").glob(f"**/{FILE}"))]
    hint = near(str(folder), known)
    return f"there is no folder {folder}{hint}{'' if hint.endswith('?') else '.'} lmpolicy train ENV makes a run"
