"""What the benchmark measures: a cell for each task and way of playing it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.learning.tasks import BY_NAME, Task, lm_settings
from lmpolicy import Hyperparameters, models

RANDOM, BUNDLED, CHOOSE, WRITE = "random", "bundled", "choose", "write"
WAYS = (RANDOM, BUNDLED, CHOOSE, WRITE)
NORMALIZATIONS = ("sum", "token", "word")
RANDOM_EPISODES = 100
KEY = ("task", "model", "way", "score_normalization", "sampled", "episodes", "max_new_tokens")
"""What tells a row of the file from the others."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A task, and how many episodes of it are affordable."""

    task: Task
    chosen: int
    """Episodes by choosing. Prompts that come again cost nothing."""
    written: int
    """Episodes by writing. Sampled answers to prompts that come again are written again."""
    in_points: bool = False
    """Whether the table tells the return of a task whose success is counted elsewhere, because there is none."""


def _level(name: str, env_id: str) -> Task:
    return Task(name, env_id, {}, random=0, best=1, threshold=1, success=True)


TRIALS = {
    trial.task.name: trial
    for trial in (
        Trial(BY_NAME["blackjack"], 200, 100),
        Trial(BY_NAME["cartpole"], 10, 5),
        Trial(_level("babyai-openreddoor", "BabyAI-OpenRedDoor-v0"), 8, 3),
        Trial(BY_NAME["babyai-redball"], 8, 3),
        Trial(BY_NAME["babyai-goobj"], 8, 3),
        Trial(BY_NAME["frozenlake"], 100, 20),
        Trial(BY_NAME["frozenlake-slippery"], 100, 20),
        Trial(BY_NAME["textworld-coins"], 8, 3),
        Trial(BY_NAME["textworld-house"], 8, 3, in_points=True),
        Trial(BY_NAME["babyai-golocal"], 6, 3),
        Trial(_level("babyai-pickuploc", "BabyAI-PickupLoc-v0"), 6, 3),
        Trial(BY_NAME["cliffwalking"], 20, 3),
        Trial(BY_NAME["taxi"], 20, 3),
        Trial(BY_NAME["minigrid-doorkey"], 6, 2),
        Trial(BY_NAME["minigrid-empty"], 20, 2),
        Trial(BY_NAME["mountaincar"], 3, 2),
        Trial(BY_NAME["acrobot"], 2, 2),
    )
}
"""From cheap to costly, as sampled answers are: many steps cost more than many episodes side by side."""


@dataclass(frozen=True)
class Cell:
    """One row of the file."""

    trial: Trial
    way: str
    model: str
    normalization: str = ""
    sampled: bool = True
    episodes: int = 0
    tokens: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        """What tells a row from the others."""
        tokens = str(self.tokens or "")
        name = self.trial.task.name
        return name, self.model, self.way, self.normalization, str(int(self.sampled)), str(self.episodes), tokens

    @property
    def settings(self) -> Hyperparameters:
        """Named settings of the task, with those of the model."""
        task = self.trial.task
        settings = lm_settings(task)
        settings = replace(settings, env_kwargs={**settings.env_kwargs, **task.test_kwargs})
        return settings.for_model(self.model) if self.way in (CHOOSE, WRITE) else settings


def cells(args: argparse.Namespace) -> Iterator[Cell]:
    """All that is to be measured, what costs least first.

    :param args: of the command line.
    """
    trials = [TRIALS[name] for name in TRIALS if name in args.tasks]

    def episodes(count: int) -> int:
        return min(count, args.episodes or count)

    for trial in trials:
        if RANDOM in args.ways:
            yield Cell(trial, RANDOM, "", episodes=episodes(max(RANDOM_EPISODES, trial.chosen)))
        if BUNDLED in args.ways:
            settings = lm_settings(trial.task)
            known = models.find(settings.model)
            assert known is not None
            for sampled in (False, True):
                normalization = settings.score_normalization
                yield Cell(trial, BUNDLED, known.name, normalization, sampled, episodes(trial.chosen))
    for trial in trials if CHOOSE in args.ways else ():
        for sampled in (False, True):
            for normalization in NORMALIZATIONS:
                yield Cell(trial, CHOOSE, args.model, normalization, sampled, episodes(trial.chosen))
    for trial in trials if WRITE in args.ways else ():
        for sampled in (False, True):
            yield Cell(trial, WRITE, args.model, "", sampled, episodes(trial.written), args.tokens)
