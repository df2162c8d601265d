"""Buffers of group advantages: returns of groups, critics, files, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lotteries import lotteries
from helpers.policy_tools import corridor, ppo, weights
from helpers.resuming import Kill, Killed
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

import lmpolicy
from lmpolicy import (
    Checkpoints,
    CriticWarmup,
    EpisodeGroups,
    GroupAdvantages,
    GuardWarning,
    LMActorCriticPolicy,
)
from lmpolicy.training.groups.episode_groups import groups_around


def grouped(model: str, baseline: str, env: VecEnv, **options: Any) -> PPO:
    arguments = {"vf_coef": 0.5 if baseline == "mixture" else 0.0, "n_steps": 16, "normalize_advantage": False}
    kwargs = {"baseline": baseline, **options.pop("rollout_buffer_kwargs", {})}
    arguments |= {"rollout_buffer_class": GroupAdvantages, "rollout_buffer_kwargs": kwargs, **options}
    return ppo(model, env, **arguments)


def test_rewards_that_a_callback_changes_count(llama: str) -> None:
    """In the step, or at the end of the rollout."""

    class Half(BaseCallback):
        def _on_step(self) -> bool:
            self.locals["rewards"] *= 0.5
            return True

        def _on_rollout_end(self) -> None:
            buffer = self.locals["rollout_buffer"]
            before = buffer.advantages.copy()
            buffer.rewards *= 0.5
            buffer.compute_returns_and_advantage(self.locals["values"], self.locals["dones"])
            np.testing.assert_allclose(buffer.advantages, before * 0.5, atol=1e-6)
            assert before.any()
            groups = groups_around(self.training_env)
            assert groups is not None
            assert all(0 <= one < 0.5 for episode in groups.current for one in episode.rewards)

    grouped(llama, "rloo", EpisodeGroups(lotteries(), 4, 0)).learn(64, callback=Half())


class KeepEpisodes(BaseCallback):
    """Keeps what the learner was told: rewards before Stable-Baselines3 changes them, ends, and group members."""

    def __init__(self) -> None:
        super().__init__()
        self.rewards: list[np.ndarray] = []
        self.dones: list[np.ndarray] = []
        self.episodes: list[list[Any]] = []

    def _on_step(self) -> bool:
        groups = groups_around(self.training_env)
        assert groups is not None
        self.rewards.append(self.locals["rewards"].copy())
        self.dones.append(self.locals["dones"].copy())
        self.episodes.append(groups.stepped)
        return True


def test_returns_of_groups_are_those_of_the_env(llama: str) -> None:
    """Neither rollout boundaries nor time limits change them, even with a critic that says something."""
    model = grouped(llama, "rloo", EpisodeGroups(lotteries(), 4, 0), n_steps=7, batch_size=14, gamma=0.9)
    head = model.policy.backbone.value_head.mlp[-1]
    th.nn.init.constant_(head.bias, 3.0)
    seen = KeepEpisodes()
    model.learn(4 * 7 * 4, callback=seen)
    rewards = {}
    for episodes, earned in zip(seen.episodes, seen.rewards, strict=True):
        for episode, one in zip(episodes, earned, strict=True):
            rewards.setdefault(episode, []).append(float(one))
    assert any(len(one) == 5 for one in rewards.values())  # cut off
    for episode, earned in rewards.items():
        assert episode.rewards == pytest.approx(earned, abs=1e-5)
    buffer = model.rollout_buffer
    advantages = buffer.advantages.reshape(4, 7).T  # the update has flattened it, copy by copy
    for step, episodes in enumerate(seen.episodes[-7:]):
        for env, episode in enumerate(episodes):
            others = [rewards[one] for one in episode.peers if one.ended and one is not episode]
            if episode.ended and others:
                total = [sum(0.9**age * one for age, one in enumerate(earned)) for earned in others]
                own = sum(0.9**age * one for age, one in enumerate(rewards[episode]))
                assert advantages[step, env] == pytest.approx(own - sum(total) / len(total), abs=1e-4)


class Stop(BaseCallback):
    """Ends a training in the middle of a rollout; the learner drops the step that it is at."""

    def _on_step(self) -> bool:
        return self.n_calls < 12


def test_a_training_that_was_broken_off_goes_on_with_the_rewards_of_the_env(llama: str) -> None:
    model = grouped(llama, "rloo", EpisodeGroups(lotteries(), 4, 0), n_steps=16, batch_size=32)
    first, then = KeepEpisodes(), KeepEpisodes()
    model.learn(64, callback=[first, Stop()])
    model.learn(64, callback=then, reset_num_timesteps=False)
    rewards: dict[Any, list[float]] = {}
    for seen in (first, then):
        for episodes, earned in zip(seen.episodes, seen.rewards, strict=True):
            for episode, one in zip(episodes, earned, strict=True):
                rewards.setdefault(episode, []).append(float(one))
    dropped = set(first.episodes[-1])
    known = [episode for episode in rewards if episode not in dropped]
    assert any(episode.ended for episodes in first.episodes[:-1] for episode in episodes)
    for episode in known:
        assert episode.is_known
        assert episode.rewards == pytest.approx(rewards[episode], abs=1e-5)
    assert dropped
    advantages = model.rollout_buffer.advantages.reshape(4, 16).T
    compared = 0
    for step, episodes in enumerate(then.episodes):
        for env, episode in enumerate(episodes):
            peers = [one for one in episode.peers if one.ended and one is not episode and one not in dropped]
            if episode in dropped or not peers:
                assert advantages[step, env] == 0
            elif episode.ended:
                compared += 1
                own, *others = (
                    sum(model.gamma**age * one for age, one in enumerate(rewards[each])) for each in [episode, *peers]
                )
                assert advantages[step, env] == pytest.approx(own - sum(others) / len(others), abs=1e-4)
    assert compared


@pytest.mark.parametrize("baseline", ["rloo", "grpo", "leave-one-out"])
@pytest.mark.parametrize("value_gradient", [True, False])
def test_without_a_critic_the_value_head_stays(llama: str, baseline: str, value_gradient: bool) -> None:
    env = EpisodeGroups(lotteries(), 4, 0)
    model = grouped(llama, baseline, env, policy_kwargs={"value_gradient": value_gradient})
    before = weights(model)
    model.learn(128)
    after = weights(model)
    changed = {name for name in before if not th.equal(before[name], after[name])}
    assert changed
    assert not any("value_head" in name for name in changed)
    assert not model.rollout_buffer.values.any()


def test_the_mixture_trains_the_critic(llama: str) -> None:
    model = grouped(llama, "mixture", lotteries())
    before = weights(model)
    model.learn(128, callback=CriticWarmup(1))
    after = weights(model)
    assert any("value_head" in name for name in before if not th.equal(before[name], after[name]))


class KeepPrompts(BaseCallback):
    """Keeps whether the prompts after the last step were found among those of the rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[bool] = []
        self.shares: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.locals["rollout_buffer"]
        self.shares.append(self.logger.name_to_value["rollout/compared_share"])
        prompts, last = buffer._prompts()
        for number, row in zip(last, self.locals["new_obs"], strict=True):
            rows = buffer.observations[prompts == number]
            self.found.append(len(rows) > 0 and bool((rows == row).all()))


def test_prompts_need_no_groups_and_find_the_last_observation(llama: str) -> None:
    """The corridor has four cells, so every prompt after a rollout was seen in it."""
    model = grouped(llama, "leave-one-out", make_vec_env(corridor, 4, seed=0), n_steps=32)
    seen = KeepPrompts()
    model.learn(256, callback=seen)
    assert seen.found == [True] * 8
    assert seen.shares == [1.0] * 2
    assert model.rollout_buffer.advantages.any()


def test_saved_and_loaded(llama: str, tmp_path: Path) -> None:
    """The arguments are in the checkpoint, also where nothing is unpickled."""
    model = grouped(llama, "grpo", EpisodeGroups(lotteries(), 4, 0), rollout_buffer_kwargs={"divide_by_std": False})
    model.learn(64)
    copied = pickle.loads(pickle.dumps(model.rollout_buffer))
    assert copied.learner is None
    np.testing.assert_array_equal(copied.advantages, model.rollout_buffer.advantages)
    path = lmpolicy.save(model, tmp_path / "model")
    env = EpisodeGroups(lotteries(), 4, 0)
    for loaded in (PPO.load(path, env, device="cpu"), lmpolicy.load(path, env, model=llama, device="cpu")):
        buffer = loaded.rollout_buffer
        assert isinstance(buffer, GroupAdvantages)
        assert (buffer.baseline, buffer.divide_by_std) == ("grpo", False)
        loaded.learn(64)
    alone = PPO.load(path, device="cpu")  # to predict, no groups are needed
    alone.set_env(lotteries())
    with pytest.raises(ValueError, match=r"lmpolicy\.EpisodeGroups"):
        alone.learn(64)


@pytest.mark.parametrize("baseline", ["rloo", "leave-one-out"])
def test_a_resumed_run_ends_like_one_that_was_not_interrupted(llama: str, tmp_path: Path, baseline: str) -> None:
    """With running episodes, their returns so far and the seeds of their groups."""

    def make_env() -> VecEnv:
        return EpisodeGroups(VecNormalize(lotteries(), norm_obs=False), 4)

    arguments = {"n_steps": 7, "batch_size": 14}
    whole = grouped(llama, baseline, make_env(), **arguments)
    whole.learn(140, callback=Checkpoints(tmp_path / "whole"))
    with pytest.raises(Killed):
        grouped(llama, baseline, make_env(), **arguments).learn(
            140, callback=[Checkpoints(tmp_path / "half"), Kill(80)]
        )
    callback = Checkpoints(tmp_path / "half")
    resumed = lmpolicy.resume(tmp_path / "half", make_env(), callback, device="cpu")
    assert 0 < resumed.num_timesteps < 80
    resumed.learn(140 - resumed.num_timesteps, callback, reset_num_timesteps=False)
    first, second = (groups_around(model.get_env()) for model in (whole, resumed))
    assert [one.seed for one in first.current] == [one.seed for one in second.current]
    assert [one.rewards for one in first.current] == [one.rewards for one in second.current]
    before, after = weights(whole), weights(resumed)
    assert all(th.equal(before[name], after[name]) for name in before)


def refused(model: str, error: type[Exception], told: str, learner: Any = PPO, **options: Any) -> None:
    options = {"env": lotteries(), "vf_coef": 0.0, **options}
    with pytest.raises(error, match=told):
        learner(
            LMActorCriticPolicy,
            policy_kwargs={"model": model},
            rollout_buffer_class=GroupAdvantages,
            device="cpu",
            **options,
        )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"baseline": "gae"}, "'rloo', 'grpo', 'leave-one-out', 'mixture', got 'gae'"),
        ({"baseline": "rloo"}, r"lmpolicy\.EpisodeGroups\(env, group_size=\.\.\.\)"),
        ({"baseline": "grpo"}, "baseline='leave-one-out', which needs no groups"),
        ({"baseline": "mixture"}, "pass vf_coef=0.5, or baseline='leave-one-out'"),
        ({"baseline": "rloo", "kappa": 2.0}, "leave it out with baseline='rloo'"),
        ({"baseline": "mixture", "kappa": 0}, "above 0, got 0; baseline='leave-one-out'"),
        ({"unfinished": "drop"}, "'baseline', 'zero', got 'drop'"),
        ({"divide_by_std": "yes"}, "True or False, got 'yes'"),
    ],
)
def test_wrong_arguments_are_refused_at_construction(llama: str, arguments: dict[str, Any], told: str) -> None:
    refused(llama, ValueError, told, rollout_buffer_kwargs=arguments)


def test_other_learners_are_refused(llama: str) -> None:
    refused(llama, TypeError, "use PPO", learner=A2C)
    maskable = pytest.importorskip("sb3_contrib").MaskablePPO
    refused(llama, TypeError, "PPO", learner=maskable)


def test_a_warm_up_of_no_critic_is_refused(llama: str) -> None:
    model = grouped(llama, "rloo", EpisodeGroups(lotteries(), 4, 0))
    with pytest.raises(ValueError, match="critic_warmup=0 in named settings"):
        model.learn(64, callback=CriticWarmup(1))


def test_a_critic_that_is_not_trained_any_more_is_told(llama: str) -> None:
    model = grouped(llama, "leave-one-out", lotteries())
    th.nn.init.constant_(model.policy.backbone.value_head.mlp[-1].bias, 3.0)
    with pytest.warns(GuardWarning, match="baseline='mixture' with vf_coef above 0") as caught:
        model.learn(192)
    assert len([one for one in caught if "vf_coef=0" in str(one.message)]) == 1
