"""What is run: a training for each world, model and seed, and a test on each condition."""

from __future__ import annotations

import datetime
import shutil
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from benchmarks.common.settings import Changes, changed, label_of
from benchmarks.generalisation.worlds import WORDINGS, WORLDS, Condition, settings_of, training_env
from lmpolicy import Checkpoints, Demonstrations, Hyperparameters, LMActorCriticPolicy, resume, save, warm_start
from lmpolicy.comparison.evaluating import evaluate
from lmpolicy.comparison.fingerprints import OF_ENV, describe, describe_model, short_hash
from lmpolicy.comparison.machine import processor
from lmpolicy.envs.babyai_bot import babyai_bot
from lmpolicy.training.checkpoints.checkpoints import CHECKPOINTS, newest_checkpoint
from lmpolicy.training.random_play import RandomPlay

RANDOM = "random"
"""Random play, which stands beside the models."""
MODELS = {RANDOM: None, "bundled": None, "smollm2": "smollm2-135m-instruct"}
"""Names of :mod:`lmpolicy.models`; ``None`` is the bundled LM."""
EPOCHS, VALIDATION = 4, 0.05
"""Of cloning."""
COPIES, TEST_SEED, SEEDS = 50, 5_000_000, 1_000
TRAINED = "trained.zip"
"""File of a model that has learnt, in the folder of its training."""
KEY = ("world", "condition", "model", "seed")
FIELDS = (
    *KEY,
    "env_steps",
    "success",
    "mean_length",
    "sampled_success",
    "sampled_mean_length",
    "episodes",
    "test_seconds",
    "threads",
    "processor",
    "torch",
    "date",
    "settings",
)


@dataclass(frozen=True)
class Training:
    """A model that learns a world with a seed."""

    world: str
    model: str
    seed: int
    steps: int | None = None
    """Env steps; default: those of the named settings."""
    device: str = "cpu"
    changes: Changes = ()
    """Settings in place of the named ones."""
    cloned: int = 0
    """Episodes of BabyAI's bot that it is cloned from in place of PPO; 0: it learns by PPO."""

    @property
    def name(self) -> str:
        """Its model in the file: with the settings that are in place of the named ones."""
        how = [f"cloned from {self.cloned} episodes"] if self.cloned else []
        return ", ".join([self.model, *how, *map(label_of, self.changes)])

    @property
    def settings(self) -> Hyperparameters:
        """What is trained on, and how: the named settings of the world, as they suit the model."""
        found = self.settings_on(WORLDS[self.world][1][0])
        return replace(found, total_timesteps=self.steps or found.total_timesteps)

    def settings_on(self, condition: Condition) -> Hyperparameters:
        """The same for another condition.

        :param condition: what the world is like.
        """
        found, name = settings_of(self.world, condition), MODELS[self.model]
        return changed(found if name is None else found.for_model(name), dict(self.changes))

    @property
    def digest(self) -> str:
        """A few characters that change with whatever decides about what is learnt."""
        if self.model == RANDOM:
            return ""
        what: list[Any] = [describe(self.settings), describe_model(self.settings.model, False)]
        if self.world in WORDINGS:
            what.append(describe(WORDINGS[self.world]))
        if self.cloned:
            what.append(self.cloned)
        return short_hash(tuple(what))

    def folder(self, runs: Path) -> Path:
        """Where checkpoints are, and then what was learnt.

        :param runs: folder of all trainings.
        """
        return runs / f"{self.world}_{self.model}_{self.seed}_{self.digest}"

    def learn(self, runs: Path) -> OnPolicyAlgorithm:
        """Train, or go on with a training that was interrupted; what is complete is loaded.

        :param runs: folder of all trainings.
        """
        folder = self.folder(runs)
        if (folder / TRAINED).exists():
            return PPO.load(folder / TRAINED, device=self.device)
        env = training_env(self.world, self.settings, self.seed)
        model = self._clone(env) if self.cloned else self._train(env, folder)
        env.close()
        folder.mkdir(parents=True, exist_ok=True)
        save(model, folder / TRAINED)
        if not self.cloned:
            shutil.rmtree(folder / CHECKPOINTS)
        return model

    def _train(self, env: VecEnv, folder: Path) -> OnPolicyAlgorithm:
        """Learn by PPO, with a checkpoint of each rollout."""
        settings = self.settings
        callbacks = [*settings.callbacks(), Checkpoints(folder)]
        if newest_checkpoint(folder) is None:
            model: OnPolicyAlgorithm = PPO(LMActorCriticPolicy, env, seed=self.seed, device=self.device, **settings.ppo)
            return model.learn(settings.total_timesteps, callback=callbacks)
        model = resume(folder, env, callbacks, self.device)
        print(f"{self.world} {self.model} seed {self.seed}: goes on from {model.num_timesteps:,} env steps")
        if (left := settings.total_timesteps - model.num_timesteps) > 0:
            model.learn(left, callback=callbacks, reset_num_timesteps=False)
        return model

    def _clone(self, env: VecEnv) -> OnPolicyAlgorithm:
        """Learn what BabyAI's bot does; it plays with the words of the training."""
        settings = self.settings
        played_in = settings.put_into_words(settings.make(), settings.wrapper_arguments)
        played = Demonstrations.from_player(played_in, babyai_bot(played_in), self.cloned, self.seed)
        model = PPO(LMActorCriticPolicy, env, seed=self.seed, device=self.device, **settings.ppo)
        warm_start(model, played, EPOCHS, validation=VALIDATION, critic=False, seed=self.seed)
        model.num_timesteps = len(played)  # of the bot
        return model


@dataclass(frozen=True)
class Cell:
    """A test of a training on a condition: a row of the file."""

    training: Training
    condition: Condition
    episodes: int

    @property
    def key(self) -> dict[str, str]:
        """What tells its row from others."""
        values = self.training.world, self.condition.name, self.training.name, str(self.training.seed)
        return dict(zip(KEY, values, strict=True))

    @property
    def digest(self) -> str:
        """A few characters that change with whatever decides about the result."""
        settings = self.training.settings_on(self.condition)
        env = describe([getattr(settings, name) for name in (*OF_ENV, "training_wrapper")])
        return short_hash((self.training.digest, self.condition.name, env, self.episodes, COPIES))

    def test(self, model: OnPolicyAlgorithm | None) -> dict[str, Any]:
        """Play the condition with the most likely actions and with sampled ones, or at random; return a row.

        :param model: what was learnt; ``None``: random play.
        """
        begin, seed = time.perf_counter(), TEST_SEED + SEEDS * self.training.seed
        # Rewards and words as they are, but with the draw of missions, which for an evaluation is no help.
        settings = replace(self.training.settings_on(self.condition), normalize_reward=False)
        env = settings.make_env(seed, min(COPIES, self.episodes), word_dropout=0)
        player = RandomPlay(env, self.training.seed) if model is None else model
        play = partial(evaluate, player, env, self.episodes, success=True, seed=seed)
        sampled = play(sampled=True)
        likely = sampled if model is None else play(sampled=False)
        env.close()
        return {
            **self.key,
            "env_steps": 0 if model is None else model.num_timesteps,
            "success": likely["mean_return"],
            "mean_length": likely["mean_length"],
            "sampled_success": sampled["mean_return"],
            "sampled_mean_length": sampled["mean_length"],
            "episodes": likely["episodes"],
            "test_seconds": f"{time.perf_counter() - begin:.0f}",
            "threads": torch.get_num_threads(),
            "processor": processor(None if model is None else model.device),
            "torch": torch.__version__,
            "date": datetime.date.today().isoformat(),
            "settings": self.digest,
        }
