"""What is learnt between two updates is no part of them: of their weight, their log and their statistics."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import prompt as prompt_of
from helpers.policy_tools import changed, corridor, ppo, weights
from helpers.resuming import Kill, Killed, assert_same, state
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import lmpolicy
from lmpolicy import Checkpoints, ReferenceSchedule, SelfImitation
from lmpolicy.lm.value_head import Moments
from lmpolicy.text.spaces import utf8
from lmpolicy.training.imitation.cloning import Rows, clone_epoch, own_rate
from lmpolicy.training.watching.gradient_norms import GradientNorms


def held(llama: str, **reference: Any) -> PPO:
    reference = {"reference": {"beta": 0.2, **reference}}
    return ppo(llama, make_vec_env(corridor, 2, seed=0), reference, learning_rate=1e-2)


def listed(folder: Path, order: tuple[int, ...]) -> list[BaseCallback]:
    callbacks = [Checkpoints(folder), SelfImitation(steps=2, batch_size=8), ReferenceSchedule(0.8, 0.0)]
    return [callbacks[place] for place in order]


@pytest.fixture(scope="module")
def first(llama: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, th.Tensor]:
    """Weights after a training with the callbacks in one of their orders."""
    return weights(held(llama).learn(80, listed(tmp_path_factory.mktemp("first"), (0, 1, 2))))


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_a_scheduled_weight_is_that_of_the_update_before(
    llama: str, tmp_path: Path, first: dict[str, th.Tensor], order: tuple[int, ...]
) -> None:
    """In any order of the callbacks, also where the training is killed and resumed."""
    whole = held(llama).learn(80, listed(tmp_path / "whole", order))
    for name, weight in weights(whole).items():  # a checkpoint forgets scores, which rounds otherwise
        th.testing.assert_close(weight, first[name], atol=1e-4, rtol=0, msg=name)
    with pytest.raises(Killed):
        held(llama).learn(80, [*listed(tmp_path, order), Kill(55)])
    callbacks = listed(tmp_path, order)
    model = lmpolicy.resume(tmp_path, make_vec_env(corridor, 2, seed=0), callbacks, device="cpu")
    assert model.num_timesteps == 48
    assert_same(state(model.learn(80 - 48, callbacks, reset_num_timesteps=False)), state(whole))


class Betas(BaseCallback):
    """Keeps the weight of the reference in each rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.found.append(self.model.policy.reference.beta)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_weight_is_adapted_once_in_an_update(llama: str, tmp_path: Path, order: tuple[int, ...]) -> None:
    note = Betas()
    held(llama, beta=1.0, target=100.0).learn(80, [*listed(tmp_path, order), note])
    assert note.found == [1.0, 0.5, 0.25, 0.125, 0.0625]


def trained(llama: str) -> tuple[PPO, Rows]:
    """A learner after an update, and a row that it may clone."""
    model = held(llama).learn(16)
    prompt = prompt_of("row 1", ("left", "right"))
    return model, Rows([utf8(prompt.to_json())], np.array([1]), np.ones(1, np.float32), np.full(1, np.nan, np.float32))


def test_what_is_logged_of_an_update_leaves_other_steps_out(llama: str) -> None:
    model, rows = trained(llama)
    before, logged = weights(model), model.policy.reference.statistics()
    assert logged
    norms = GradientNorms(model.policy)
    with own_rate(model.policy, 0.01):
        clone_epoch(model, rows, 1, np.random.default_rng(0))
    assert changed(before, weights(model))
    assert (norms.means(), model.policy.reference.statistics()) == ({}, logged)
    clone_epoch(model, rows, 1, np.random.default_rng(0))
    assert set(norms.means()) == {"policy"}
    assert model.policy.reference.statistics() != logged


def test_where_no_return_is_known_the_statistics_of_the_critic_stay(llama: str) -> None:
    model, rows = trained(llama)
    head = model.policy.backbone.value_head
    before = {name: one.clone() for name, one in head.named_buffers()}
    assert before["count"] > 0
    with own_rate(model.policy, 0.01):
        clone_epoch(model, rows, 1, np.random.default_rng(0))
        assert all(th.equal(one, before[name]) for name, one in head.named_buffers())
        known = Rows(rows.keys, rows.actions, rows.weights, np.ones(1, np.float32))
        clone_epoch(model, known, 1, np.random.default_rng(0))
    assert head.count == before["count"] + 1


def test_other_processes_count_as_the_first_does(llama: str) -> None:
    head = ppo(llama, corridor()).policy.backbone.value_head
    seen = Moments(3, th.ones_like(head.mean), th.ones_like(head.mean))
    with head.uncounted():
        head.add_seen(seen)
    head.update_statistics()
    assert head.count == 0
    head.add_seen(seen)
    head.update_statistics()
    assert head.count == 3
