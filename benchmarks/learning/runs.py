"""A run: a method that learns a task with a seed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.learning.classic import GRID, TUNED, UNTUNED, Classic
from benchmarks.learning.digests import digest
from benchmarks.learning.results import Rows, read_runs, task_file
from benchmarks.learning.tasks import CLASSIC, LM, LM_ALONE, RANDOM, UNTRAINED, Task, lm_settings
from lmpolicy.training.named_settings import Hyperparameters


@dataclass(frozen=True)
class Run:
    """A method that learns a task with a seed: what is run, skipped or repeated as a whole."""

    task: Task
    method: str
    seed: int
    folder: Path
    steps: int | None = None
    """Env steps of training; default: those of the LM settings, for every method."""
    episodes: int | None = None
    """Per evaluation; default: those of the task."""
    threads: int = 1
    model: str | None = None
    device: str = "auto"

    def __str__(self) -> str:
        return f"{self.task.name} {self.method} seed {self.seed}"

    @property
    def settings(self) -> Hyperparameters:
        """Of the LM; the env and the help are those of the other methods, too."""
        settings = lm_settings(self.task)
        settings = replace(settings, total_timesteps=self.steps or settings.total_timesteps)
        return replace(settings, training_wrapper=None) if self.method in (LM_ALONE, CLASSIC) else settings

    @property
    def classic(self) -> Classic:
        """Settings of classic PPO."""
        return GRID if self.task.is_grid else TUNED.get(self.task.env_id, UNTUNED)

    @property
    def is_lm(self) -> bool:
        """Whether a language model learns."""
        return self.method in (LM, LM_ALONE)

    @property
    def in_words(self) -> bool:
        """Whether what plays is given the env in words, with the actions that are legal there."""
        return self.is_lm or (self.method == RANDOM and self.task.success)

    @property
    def helped(self) -> bool:
        """Whether training has a help that evaluations do not have."""
        return self.method not in UNTRAINED and self.settings.training_wrapper is not None

    @property
    def evaluation_episodes(self) -> int:
        """Episodes of an evaluation."""
        return self.episodes or self.task.episodes

    @property
    def evaluation_copies(self) -> int:
        """Envs side by side in an evaluation."""
        return min(self.task.copies, self.evaluation_episodes)

    @property
    def torch_threads(self) -> int:
        """Threads of torch: the tiny network of classic PPO only gets slower with several."""
        return self.threads if self.is_lm else 1

    @property
    def path(self) -> Path:
        """The file that has the rows of the complete run, among those of other runs on the task."""
        return task_file(self.folder, self.task.name)

    @property
    def part(self) -> Path:
        """Where the rows are until the run is complete."""
        return self.folder / f"{self.task.name}_{self.method}_{self.seed}.part"

    def rows(self) -> Rows:
        """The rows of the complete run; none if it is not complete."""
        return read_runs(self.path).get((self.method, self.seed), [])

    @property
    def options(self) -> str:
        """What the command that repeats this run has besides task, method and seed."""
        wanted = {"--steps": self.steps, "--episodes": self.episodes}
        if self.is_lm:
            wanted |= {"--threads": self.threads, "--model": self.model}
            wanted |= {"--device": None if self.device == "auto" else self.device}
        return shlex.join(str(part) for option in wanted.items() if option[1] is not None for part in option)

    @property
    def digest(self) -> str:
        """Return the digest of the settings, see :func:`benchmarks.learning.digests.digest`.

        It is a few characters that change with whatever decides about the results.
        """
        return digest(self)

    def is_complete(self) -> bool:
        """Whether there is nothing to do.

        :raises SystemExit: if it was run with other settings: mixing both would make the report wrong.
        """
        rows = self.rows()
        if not rows:
            return False
        if rows[0]["settings"] != self.digest:
            raise SystemExit(
                f"{self} in {self.path} was made with other settings (its options: {rows[0]['options'] or 'none'}). "
                "Delete its rows to run it again, or name another folder with --output"
            )
        return True
