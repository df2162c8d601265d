"""Advantages of each env with a discount, a lambda and a scale of its own: equal to SB3's, one env at a time."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.policy_tools import changed, ppo, weights
from helpers.resuming import Kill, Killed
from numpy.typing import NDArray
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv

import lmpolicy
from lmpolicy import (
    Checkpoints,
    CriticWarmup,
    LMActorCriticPolicy,
    PerEnvAdvantages,
    SelfImitation,
    TextObservationWrapper,
    make_multi_env,
)
from lmpolicy.training.per_env_advantages import whole_returns

LAKE, CARDS = "FrozenLake-v1", "Blackjack-v1"
COPIES = {LAKE: slice(0, 3), CARDS: slice(3, 5)}
OWN = {LAKE: {"gamma": 0.5, "gae_lambda": 0.9}, CARDS: {"gamma": 1.0, "divide_by_std": True}}


def envs(seed: int = 0) -> VecEnv:
    return make_multi_env({LAKE: 3, CARDS: 2}, seed)


def learner(model: str, env: VecEnv, own: Any, **options: Any) -> PPO:
    arguments = {"n_steps": 16, "batch_size": 40, "gamma": 0.9, "gae_lambda": 0.8, "normalize_advantage": False}
    kwargs = {"rollout_buffer_class": PerEnvAdvantages, "rollout_buffer_kwargs": {"own": own}}
    return ppo(model, env, **{**arguments, **kwargs, **options})


def filled(buffer: RolloutBuffer) -> tuple[th.Tensor, NDArray[np.bool_]]:
    """Fill a buffer with random numbers, and return what it is completed with."""
    rng = np.random.default_rng(0)
    buffer.reset()
    for name in ("rewards", "values", "episode_starts"):
        shape = (buffer.buffer_size, buffer.n_envs)
        random = rng.random(shape) < 0.2 if name == "episode_starts" else rng.normal(size=shape)
        setattr(buffer, name, random.astype(np.float32))
    return th.as_tensor(rng.normal(size=buffer.n_envs).astype(np.float32)), rng.random(buffer.n_envs) < 0.5


def completed(buffer: RolloutBuffer) -> tuple[NDArray[Any], NDArray[Any]]:
    buffer.compute_returns_and_advantage(*filled(buffer))
    return buffer.advantages, buffer.returns


def naive(model: PPO, gamma: float, gae_lambda: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """SB3's own buffer, which has one discount and one lambda for all."""
    spaces = model.observation_space, model.action_space
    return completed(RolloutBuffer(16, *spaces, "cpu", gamma=gamma, gae_lambda=gae_lambda, n_envs=5))


def test_without_settings_of_their_own_all_is_as_in_sb3(llama: str) -> None:
    model = learner(llama, envs(), {})
    for found, wanted in zip(completed(model.rollout_buffer), naive(model, 0.9, 0.8), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_each_env_has_the_advantages_and_returns_that_it_has_with_its_settings_for_all(llama: str) -> None:
    model = learner(llama, envs(), OWN)
    advantages, returns = completed(model.rollout_buffer)
    lake, of_lake = naive(model, 0.5, 0.9)
    cards, of_cards = naive(model, 1.0, 0.8)
    np.testing.assert_allclose(advantages[:, COPIES[LAKE]], lake[:, COPIES[LAKE]], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(returns[:, COPIES[LAKE]], of_lake[:, COPIES[LAKE]], rtol=1e-5, atol=1e-6)
    divided = cards[:, COPIES[CARDS]] / cards[:, COPIES[CARDS]].std()
    np.testing.assert_allclose(advantages[:, COPIES[CARDS]], divided, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(returns[:, COPIES[CARDS]], of_cards[:, COPIES[CARDS]], rtol=1e-5, atol=1e-6)
    assert (model.rollout_buffer.gamma, model.rollout_buffer.gae_lambda) == (0.9, 0.8)


def test_a_warm_up_of_the_critic_has_whole_returns_of_each_env(llama: str) -> None:
    model = learner(llama, envs(), {CARDS: {"gamma": 0.5, "gae_lambda": 0.0}})
    with whole_returns(model.rollout_buffer):
        _, returns = completed(model.rollout_buffer)
    for name, gamma in ((LAKE, 0.9), (CARDS, 0.5)):
        wanted = naive(model, gamma, 1.0)[1][:, COPIES[name]]
        np.testing.assert_allclose(returns[:, COPIES[name]], wanted, rtol=1e-5, atol=1e-6)
    buffer: Any = model.rollout_buffer
    assert (buffer.gae_lambda, buffer.own) == (0.8, {CARDS: {"gamma": 0.5, "gae_lambda": 0.0}})
    seen = []

    class Note(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            ends, values = buffer.episode_starts[1:], buffer.values
            one_step = buffer.rewards[:-1] + 0.5 * values[1:] * (1 - ends)
            seen.append(np.allclose(buffer.returns[:-1, COPIES[CARDS]], one_step[:, COPIES[CARDS]], atol=1e-5))

    model.learn(3 * 80, [CriticWarmup(1), Note()])
    assert seen == [False, True, True]


def test_each_env_has_its_discount_where_its_own_episodes_are_learnt(llama: str) -> None:
    unscaled = make_multi_env({LAKE: 3, CARDS: 2}, 0, normalize_reward=False)
    model = learner(llama, unscaled, {LAKE: {"gamma": 0.5}})
    buffer: Any = model.rollout_buffer
    np.testing.assert_allclose(buffer.gammas(), [0.5, 0.5, 0.5, 0.9, 0.9])
    callback = SelfImitation(every=1)
    model.learn(160, callback)
    for episode in callback.best.episodes():
        rows = callback._rows([episode])
        np.testing.assert_allclose(rows.returns, episode.returns(0.5 if episode.kind == LAKE else 0.9), rtol=1e-5)
    assert {episode.kind for episode in callback.best.episodes()} == {LAKE, CARDS}


def test_advantages_that_are_all_equal_stay(llama: str) -> None:
    """Divided by their spread of 0, they would be infinite, or nothing but rounding."""
    buffer = learner(llama, envs(), {CARDS: {"divide_by_std": True}}).rollout_buffer
    last, dones = filled(buffer)
    buffer.rewards[:], buffer.values[:], buffer.episode_starts[:] = 0.5, 0.0, 1.0
    buffer.compute_returns_and_advantage(th.zeros_like(last), np.ones_like(dones))
    np.testing.assert_array_equal(buffer.advantages, np.full((16, 5), 0.5, dtype=np.float32))


def test_what_ppo_learns_is_what_the_advantages_say(llama: str) -> None:
    """The weights after an update equal those after one with advantages that a callback writes, one env at a time."""

    class Naive(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer, values = self.model.rollout_buffer, self.locals["values"]  # type: ignore[attr-defined]
            whole = {}
            for name, gamma, gae_lambda in ((LAKE, 0.5, 0.9), (CARDS, 1.0, 0.8)):
                buffer.gamma, buffer.gae_lambda = gamma, gae_lambda
                buffer.compute_returns_and_advantage(values, self.locals["dones"])
                whole[name] = buffer.advantages.copy(), buffer.returns.copy()
            for name, columns in COPIES.items():
                buffer.advantages[:, columns], buffer.returns[:, columns] = (one[:, columns] for one in whole[name])
            buffer.advantages[:, COPIES[CARDS]] /= buffer.advantages[:, COPIES[CARDS]].std()

    # Adam would make leaps of the rounding of gradients that are 0.
    options = {"policy_kwargs": {"optimizer_class": th.optim.SGD, "optimizer_kwargs": {}}, "learning_rate": 0.1}
    fast = learner(llama, envs(), OWN, **options)
    before = weights(fast)
    slow = learner(llama, envs(), None, rollout_buffer_class=RolloutBuffer, rollout_buffer_kwargs={}, **options)
    for model, callback in ((fast, None), (slow, Naive())):
        set_random_seed(0)  # the same draws
        model.learn(80, callback=callback)
    assert changed(before, weights(slow))
    for name, value in weights(slow).items():
        th.testing.assert_close(weights(fast)[name], value, rtol=1e-4, atol=1e-6, msg=name)


def test_the_spread_of_each_env_is_in_the_log(llama: str, tmp_path: Path) -> None:
    model = learner(llama, envs(), OWN)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(80)
    header = (tmp_path / "progress.csv").read_text().splitlines()[0].split(",")
    assert {f"rollout/advantage_std/{name}" for name in COPIES} <= {*header}


def test_other_envs_later_are_told_apart_anew(llama: str) -> None:
    model = learner(llama, envs(), OWN)
    model.set_env(make_multi_env({CARDS: 3, LAKE: 2}, 0))
    assert model.rollout_buffer.env_ids() == [CARDS] * 3 + [LAKE] * 2  # type: ignore[attr-defined]


def test_a2c_takes_it_too(llama: str) -> None:
    kwargs = {"rollout_buffer_class": PerEnvAdvantages, "rollout_buffer_kwargs": {"own": OWN}}
    A2C(LMActorCriticPolicy, envs(), n_steps=4, policy_kwargs={"model": llama}, device="cpu", **kwargs).learn(40)


def test_files_keep_it(llama: str, tmp_path: Path) -> None:
    model = learner(llama, envs(), OWN)
    model.learn(80)
    path = lmpolicy.save(model, tmp_path / "model")
    for loaded in (PPO.load(path, env=envs()), lmpolicy.load(path, env=envs(), model=llama), PPO.load(path)):
        buffer = loaded.rollout_buffer
        assert isinstance(buffer, PerEnvAdvantages)
        assert buffer.own == OWN
    assert pickle.loads(pickle.dumps(model.rollout_buffer)).env_ids() == []


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["deepcopy", "pickle"]
)
def test_a_copied_learner_keeps_it(llama: str, copied: Callable[[PPO], PPO]) -> None:
    model = learner(llama, envs(), OWN)
    model.learn(80)
    other = copied(model)
    assert isinstance(other.rollout_buffer, PerEnvAdvantages)
    assert other.rollout_buffer.learner is other
    for one in (model, other):
        set_random_seed(1)
        one.learn(80, reset_num_timesteps=False)
    np.testing.assert_array_equal(other.rollout_buffer.advantages, model.rollout_buffer.advantages)
    assert not changed(weights(model), weights(other))


def test_a_buffer_is_copied_without_its_learner(llama: str) -> None:
    """The envs of a learner may be no ones that can be copied."""
    model = learner(llama, envs(), OWN)
    vars(model)["cannot_be_copied"] = (one for one in ())
    copied = copy.deepcopy(model.rollout_buffer)
    assert isinstance(copied, PerEnvAdvantages)
    assert (copied.own, copied.learner, copied.env_ids()) == (OWN, None, [])


def test_a_killed_training_goes_on_as_if_nothing_had_been(llama: str, tmp_path: Path) -> None:
    straight = learner(llama, envs(), OWN)
    straight.learn(240)
    with pytest.raises(Killed):
        learner(llama, envs(), OWN).learn(240, callback=[Checkpoints(tmp_path), Kill(170)])
    resumed = lmpolicy.resume(tmp_path, envs(), [])
    resumed.learn(240 - resumed.num_timesteps, reset_num_timesteps=False)
    for name, value in weights(straight).items():
        th.testing.assert_close(weights(resumed)[name], value, msg=name)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ({"FrozenLake": {"gamma": 0.5}}, "is no env of this learner: did you mean 'FrozenLake-v1'"),
        ({"Pong": {"gamma": 0.5}}, "there are 'FrozenLake-v1', 'Blackjack-v1'"),
        ({LAKE: {"gama": 0.5}}, "did you mean 'gamma'"),
        ({LAKE: {"ent_coef": 0.5}}, "there are gamma, gae_lambda, divide_by_std"),
        ({LAKE: {"gamma": 1.5}}, "from 0 to 1, got 1.5"),
        ({LAKE: {"gae_lambda": True}}, "from 0 to 1, got True"),
        ({LAKE: {"divide_by_std": 1}}, "True or False, got 1"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_training(llama: str, own: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        learner(llama, envs(), own)


def test_envs_without_names_are_refused(llama: str) -> None:
    env = make_vec_env(LAKE, 5, wrapper_class=TextObservationWrapper)
    with pytest.raises(ValueError, match=r"make them by lmpolicy\.make_multi_env"):
        learner(llama, env, OWN)
