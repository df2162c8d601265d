"""Keep what a cell has learnt, with what its envs need to show the same again."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from lmpolicy.comparison.classic_envs import ClassicEnvs, Words
from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.methods import WORDS, EnvFacts, Method
from lmpolicy.comparison.preparing import Prepared
from lmpolicy.files import whole_file
from lmpolicy.training.checkpoints.saving import save

SCALING, READING = ".vecnormalize.pkl", ".words.pkl"
"""Endings of the files beside a model: statistics of the scaling, and how words are read."""


def keep(prepared: Prepared, path: Path) -> None:
    """Save what was learnt, and beside it what its envs need.

    :param prepared: what has learnt.
    :param path: file of the model.
    """
    assert prepared.model is not None
    if isinstance(prepared.training, VecNormalize):
        _write(prepared.training, path.with_suffix(SCALING))
    if prepared.words is not None:
        encoder = replace(prepared.words.encoder, _known=OrderedDict())
        _write(replace(prepared.words, encoder=encoder), path.with_suffix(READING))
    save(prepared.model, path)


def forget(path: Path) -> None:
    """Remove what was kept of an earlier run of a cell, if anything was.

    :param path: file of the model.
    """
    for one in (path, path.with_suffix(SCALING), path.with_suffix(READING)):
        one.unlink(missing_ok=True)


def kept_env(experiment: Experiment, facts: EnvFacts, name: str, seed: int, path: Path, training: bool) -> VecEnv:
    """Make the envs of a model that is kept.

    :param experiment: what is compared.
    :param facts: what the env says of itself.
    :param name: name of the method.
    :param seed: seed of its training.
    :param path: file of the model.
    :param training: whether they are those of the training.
    :raises FileNotFoundError: if what they need is not there; the message says what to do.
    """
    method = Method.of(name)
    if method.is_lm:
        env = method.settings(experiment).make_env(seed) if training else experiment.words(seed)
    else:
        words: Words | None = _read(path.with_suffix(READING)) if method.base == WORDS else None
        env = ClassicEnvs.of(experiment, method, seed, facts, words).make(training=training)
    if not isinstance(env, VecNormalize):
        return env
    scaled: VecNormalize = _read(path.with_suffix(SCALING))
    scaled.set_venv(env.venv)
    scaled.training, scaled.norm_reward = env.training, env.norm_reward
    return scaled


def _write(what: Any, path: Path) -> None:
    with whole_file(path) as file:
        pickle.dump(what, file)


def _read(path: Path) -> Any:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is not there, without which the envs of the model cannot be made: earlier versions kept the model "
            "alone. Delete the rows of its cell in runs.csv, and compare(..., keep_models=True) runs it again"
        )
    with path.open("rb") as file:
        return pickle.load(file)
