"""Run one cell of a comparison: a method, trained and evaluated with one seed."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch as th
from stable_baselines3 import PPO

from lmpolicy.comparison.evaluating import GridEvaluation, evaluate
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.fingerprints import fingerprint
from lmpolicy.comparison.keeping import keep
from lmpolicy.comparison.machine import processor
from lmpolicy.comparison.methods import EnvFacts, Method
from lmpolicy.comparison.preparing import Prepared, prepare
from lmpolicy.comparison.stopwatch import Spent
from lmpolicy.files import whole_file
from lmpolicy.training.checkpoints.checkpoints import Checkpoints, newest_checkpoint
from lmpolicy.training.checkpoints.resuming import resume

FIELDS = (
    "env",
    "method",
    "seed",
    "env_steps",
    "played",
    "pretraining_steps",
    "train_seconds",
    "cpu_seconds",
    "episodes",
    "sampled",
    "mean_return",
    "std_return",
    "mean_length",
    "mean_tokens",
    "threads",
    "processor",
    "torch",
    "date",
    "settings",
)
"""Columns of the runs. ``env_steps`` is an entry of the grid, the same for all methods; ``played`` are the env steps
that were taken when the method was measured there, which may be a few more; at the end of the training, those of whole
rollouts. ``cpu_seconds`` are those of the processor that the training took. ``mean_tokens`` are those of a written
answer; empty where phrases are chosen."""
Row = dict[str, str]
EVALUATION = "evaluation.json"
"""File with the last evaluation of a training that is kept, in its folder."""


@dataclass(frozen=True)
class Cell:
    """Say which method is trained with which seed."""

    experiment: Experiment
    method: Method
    seed: int
    facts: EnvFacts
    unfinished: Path | None = None
    """Folder in which trainings of language models are kept until they are complete. None: they are not kept."""
    models: Path | None = None
    """Folder for what was learnt. None: it is not kept."""
    free_threads: int = 1
    """CPU threads that nothing else needs while the cell runs."""

    def __str__(self) -> str:
        return f"{self.experiment.name} {self.method.name} seed {self.seed}"

    @property
    def key(self) -> tuple[str, int]:
        """Return what tells the cell from others of its comparison."""
        return self.method.name, self.seed

    @property
    def threads(self) -> int:
        """Return how many CPU threads compute.

        Small networks, and the bundled LM, gain nothing from more than one.
        """
        has_own_model = self.method.is_lm and self.experiment.settings.model is not None
        return self.free_threads if has_own_model else 1

    @property
    def settings(self) -> str:
        """Return a few characters that change with whatever decides about the results."""
        return fingerprint(self.experiment, self.method, self.facts)

    @property
    def kept(self) -> Path | None:
        """Return the folder of the training, whose checkpoints it goes on from; ``None`` if it is not kept."""
        if self.unfinished is None or not (self.method.is_lm and self.method.learns):
            return None
        return self.unfinished / f"{self.method.name}-{self.seed}-{self.settings}"


def model_file(folder: Path, method: str, seed: int) -> Path:
    """Return the file with what a cell has learnt.

    :param folder: of the models.
    :param method: name of the method.
    :param seed: of the training.
    """
    return folder / f"{method}-{seed}.zip"


def run(cell: Cell, tell: Callable[[str], None] = print) -> list[Row]:
    """Train and evaluate.

    :param cell: what is run.
    :param tell: takes a line for each evaluation.
    :return: two rows for each entry of the grid: with the most likely and with sampled actions. What does not learn
        has one entry, and random play has no most likely action.
    """
    th.set_num_threads(cell.threads)
    prepared = prepare(cell.experiment, cell.method, cell.seed, cell.facts, cell.kept)
    with prepared.stack:
        rows = _Rows(cell, prepared, tell)
        if prepared.model is None or not cell.method.learns:
            rows.measure(0, 0, Spent())
            return rows.found
        steps = cell.method.steps(cell.experiment)
        along = GridEvaluation(cell.experiment.grid(steps)[:-1], rows.measure, rows.found)
        model = _learn(cell, prepared, along, steps, tell)
        rows.measure(steps, model.num_timesteps, along.spent())
        if cell.models is not None and not cell.method.has_random_weights:  # whose base model is gone afterwards
            keep(prepared, model_file(cell.models, *cell.key))
        return rows.found


def _learn(cell: Cell, prepared: Prepared, along: GridEvaluation, steps: int, tell: Callable[[str], None]) -> PPO:
    """Train, from the newest checkpoint on if there is one; return the learner."""
    assert prepared.model is not None
    callbacks = [*prepared.callbacks, along]
    if cell.kept is None:
        return prepared.model.learn(steps, callback=callbacks)
    callbacks.append(Checkpoints(cell.kept))
    if newest_checkpoint(cell.kept) is None:
        return prepared.model.learn(steps, callback=callbacks)
    assert prepared.training is not None
    model = resume(cell.kept, prepared.training, callbacks, cell.experiment.device)
    assert isinstance(model, PPO)
    prepared.model = prepared.player = model
    tell(f"{cell}: goes on from {model.num_timesteps:,} env steps")
    left = steps - model.num_timesteps
    return model.learn(left, callback=callbacks, reset_num_timesteps=False) if left > 0 else model


class _Rows:
    """Measure a method, and keep the rows.

    :param cell: what is measured.
    :param prepared: what it learns with.
    :param tell: takes a line for each evaluation.
    """

    def __init__(self, cell: Cell, prepared: Prepared, tell: Callable[[str], None]) -> None:
        self.cell, self.prepared, self.tell = cell, prepared, tell
        self.found: list[Row] = []
        self._file = None if cell.kept is None else cell.kept / EVALUATION
        self._updates, self._last = self._read()
        read = prepared.pretraining_steps
        self._labels = {
            "env": cell.experiment.name,
            "method": cell.method.name,
            "seed": str(cell.seed),
            "pretraining_steps": "" if read is None else str(read),
            "threads": str(th.get_num_threads()),
            "processor": processor(None if prepared.model is None else prepared.model.device),
            "torch": str(th.__version__),
            "date": datetime.date.today().isoformat(),
            "settings": cell.settings,
        }

    def measure(self, steps: int, played: int, spent: Spent) -> None:
        """Evaluate with the most likely and with sampled actions.

        A policy that was not updated since the last evaluation is not evaluated again: it would play the same episodes.
        This holds for one that a checkpoint was taken of, and that was evaluated before the program was killed, too.

        :param steps: entry of the grid.
        :param played: env steps that were taken.
        :param spent: time of training.
        """
        model = self.prepared.model
        updates = 0 if model is None else int(model._n_updates)
        if updates != self._updates or self.prepared.is_scaled:
            self._last, self._updates = self._evaluate(), updates
            self._write()
        numbers: dict[str, Any] = {"env_steps": str(steps), "played": str(played)}
        numbers |= {"train_seconds": f"{spent.seconds:.1f}", "cpu_seconds": f"{spent.cpu_seconds:.1f}"}
        self.found += [{**self._labels, **numbers, **one} for one in self._last]
        returns = ", ".join(
            f"{one['mean_return']} {'sampled' if one['sampled'] == '1' else 'most likely'}" for one in self._last
        )
        self.tell(f"{self.cell}: {steps:,} env steps, {spent.seconds:.0f} s, return {returns}")

    def _read(self) -> tuple[int, list[dict[str, str]]]:
        """Return what is kept of the last evaluation, and after how many updates it was.

        No checkpoint is older than the policy of that evaluation: each policy is kept before it plays, and the first
        one is made from the seed.
        """
        if self._file is None or not self._file.exists():
            return -1, []
        kept = json.loads(self._file.read_text(encoding="utf-8"))
        return kept["updates"], kept["numbers"]

    def _write(self) -> None:
        if self._file is not None:
            with whole_file(self._file) as file:
                file.write(json.dumps({"updates": self._updates, "numbers": self._last}).encode())

    def _evaluate(self) -> list[dict[str, str]]:
        experiment = self.cell.experiment
        self.prepared.share_statistics()
        either = (False, True) if self.prepared.model is not None else (True,)
        return [
            evaluate(
                self.prepared.player,
                self.prepared.evaluation,
                experiment.episodes,
                sampled,
                experiment.success,
                experiment.evaluation_seed(self.cell.seed),
            )
            for sampled in either
        ]
