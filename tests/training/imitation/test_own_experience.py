"""Callbacks that learn from the agent's own episodes: what they learn, and when."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.lm_tools import gradients, largest_difference, make_policy, naive_batch
from helpers.lm_tools import prompt as prompt_of
from helpers.played import rising
from helpers.policy_tools import changed, corridor, ppo, weights
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecNormalize

import lmpolicy
from lmpolicy import Checkpoints, ExpertIteration, LMActorCriticPolicy, SelfImitation
from lmpolicy.text.spaces import utf8
from lmpolicy.training.imitation.cloning import Rows
from lmpolicy.training.imitation.own_experience import self_imitation_loss

# What is learnt


def test_the_loss_of_self_imitation_is_that_of_the_paper(llama: str) -> None:
    policy = make_policy(llama, score_normalization="token")
    policy.set_training_mode(True)
    prompts = [prompt_of("row 1"), prompt_of("row 22", ("stay",)), prompt_of("row 333", ("hit", "stick", "up"))]
    chances, values = naive_batch(policy, prompts, "token")
    offsets = th.tensor([2.0, -1.0, 0.5])
    returns, actions = values.detach() + offsets, np.array([1, 0, 2])
    ones = np.ones(3, dtype=np.float32)
    rows = Rows([utf8(one.to_json()) for one in prompts], actions, ones, returns.numpy())
    loss, advantage = self_imitation_loss(policy, rows, 0.25)
    naive = th.zeros(())
    for k in (0, 2):  # where the return is above the value
        above = returns[k] - values[k]
        naive = naive - chances[k].log_softmax(-1)[actions[k]] * above.detach() + 0.25 * above**2 / 2
    th.testing.assert_close(loss, naive / 3, rtol=1e-5, atol=1e-6)
    assert float(advantage) == pytest.approx(2.5 / 3, abs=1e-5)
    mine = gradients(policy, loss)
    assert largest_difference(mine, gradients(policy, naive / 3)) < 1e-5
    assert max(float(one.abs().max()) for one in mine.values()) > 0.01


class Watch(BaseCallback):
    """Keeps the weights at the beginning of each rollout, before and after the callback in between."""

    def __init__(self, place: list[dict[str, Any]]) -> None:
        super().__init__()
        self.place = place

    def _on_rollout_start(self) -> None:
        self.place.append(weights(self.model))

    def _on_step(self) -> bool:
        return True


def test_expert_iteration_clones_between_update_and_rollout(llama: str) -> None:
    before: list[Any] = []
    after: list[Any] = []
    callback = ExpertIteration(every=2, share=1.0)
    model = ppo(llama, make_vec_env(rising, 2, seed=0), n_steps=10, batch_size=10)
    model.learn(100, [Watch(before), callback, Watch(after)])
    cloned = [bool(changed(one, two)) for one, two in zip(before, after, strict=True)]
    assert cloned == [False, False, True, False, True]
    assert not any("value_head" in name for one, two in zip(before, after, strict=True) for name in changed(one, two))
    assert [group["lr"] for group in model.policy.optimizer.param_groups] == [3e-4] * 2


def test_ratios_of_the_learner_stay_one(llama: str, tmp_path: Path) -> None:
    # With one epoch of one minibatch, PPO compares the policy with itself, whatever was cloned before the rollout.
    model = ppo(llama, make_vec_env(rising, 2, seed=0), n_steps=10, batch_size=20, n_epochs=1, learning_rate=1e-2)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(100, [ExpertIteration(every=1, share=1.0), SelfImitation()])
    rows = list(csv.DictReader((tmp_path / "progress.csv").open()))
    found = [float(row["train/approx_kl"]) for row in rows if row["train/approx_kl"]]
    assert found
    assert max(map(abs, found)) < 1e-6
    assert any(row["expert_iteration/loss"] for row in rows)
    assert any(row["self_imitation/loss"] for row in rows)
    assert all(float(row["self_imitation/advantage"]) >= 0 for row in rows if row["self_imitation/advantage"])


def test_alone_the_actor_learns_from_its_best_episodes_only(llama: str) -> None:
    before: list[Any] = []
    after: list[Any] = []
    callback = ExpertIteration(every=3, share=0.5, alone=True)
    model = ppo(llama, make_vec_env(rising, 2, seed=0), n_steps=10, batch_size=10)
    model.learn(80, [Watch(before), callback, Watch(after)])
    for one, two in itertools.pairwise(before[:3]):
        names = changed(one, two)
        assert names
        assert all("value_head" in name for name in names)
    assert any("lora" in name for name in changed(before[3], after[3]))
    assert not model.policy.critic_only


def test_good_episodes_are_learnt(llama: str) -> None:
    model = ppo(llama, make_vec_env(corridor, 4, seed=0), n_steps=24, batch_size=96, learning_rate=5e-3)
    row = th.from_numpy(corridor().reset()[0][None])
    env = corridor()
    env.reset()
    row = th.from_numpy(env.step("right")[0][None])  # cell 1
    start = model.policy.get_distribution(row).distribution.probs[0, 1].item()
    model.learn(8 * 96, ExpertIteration(every=1, share=0.3, epochs=3, alone=True, batch_size=32))
    assert model.policy.get_distribution(row).distribution.probs[0, 1].item() > max(0.8, start)


def test_self_imitation_learns_what_was_better_than_expected(llama: str) -> None:
    options = {"n_steps": 24, "batch_size": 96, "n_epochs": 1, "gamma": 0.5, "learning_rate": 1e-6}
    model = ppo(llama, make_vec_env(corridor, 4, seed=0), **options)
    callback = SelfImitation(steps=15, batch_size=32, learning_rate=5e-3)
    env = corridor()
    env.reset()
    row = th.from_numpy(env.step("right")[0][None])  # cell 1
    start = model.policy.get_distribution(row).distribution.probs[0, 1].item()
    model.learn(5 * 96, callback)
    assert model.policy.get_distribution(row).distribution.probs[0, 1].item() > start + 0.3
    assert callback.best.episodes()[-1].total == 1


def test_a2c_may_have_them(llama: str) -> None:
    policy_kwargs = {"model": llama, "lora": {"r": 4}}
    model = A2C(LMActorCriticPolicy, make_vec_env(rising, 2, seed=0), policy_kwargs=policy_kwargs, device="cpu", seed=0)
    callbacks = [ExpertIteration(every=2, share=1.0), SelfImitation(steps=1)]
    model.learn(60, callbacks)  # type: ignore[arg-type]
    assert callbacks[1].best.episodes()


def test_several_envs_are_compared_each_with_its_like() -> None:
    venv = lmpolicy.make_multi_env({"FrozenLake-v1": 2, "Blackjack-v1": 2}, 0)
    model = ppo("lmpolicy/bundled", venv, n_steps=16, batch_size=64, n_epochs=1)
    callback = SelfImitation(steps=1)
    model.learn(64, callback)
    assert set(callback.best.kinds) <= {"FrozenLake-v1", "Blackjack-v1"}
    assert "Blackjack-v1" in callback.best.kinds
    assert all(one.total in (-1, 0, 1) for one in callback.best.kinds["Blackjack-v1"]), "as the env gives them"


def test_at_the_end_of_a_schedule_nothing_is_learnt(llama: str) -> None:
    model = ppo(llama, make_vec_env(rising, 2, seed=0), learning_rate=LinearSchedule(1e-3, 0.0, 1.0))
    callback = ExpertIteration(every=1, share=1.0)
    before: list[Any] = []
    model.learn(48, [callback, Watch(before)])
    assert not callback._due


# Killed and resumed


@pytest.mark.parametrize("first", [True, False])
def test_a_resumed_training_goes_on_with_the_episodes(llama: str, tmp_path: Path, first: bool) -> None:
    class Killed(BaseException):
        pass

    class Kill(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps >= 60:
                raise Killed
            return True

    def callbacks(folder: str) -> list[BaseCallback]:
        own: list[BaseCallback] = [ExpertIteration(every=2, share=0.5), SelfImitation(steps=2, batch_size=8)]
        checkpoints = Checkpoints(tmp_path / folder)
        return [checkpoints, *own] if first else [*own, checkpoints]

    def make() -> Any:
        return VecNormalize(make_vec_env(corridor, 2, seed=0), norm_obs=False)

    whole = ppo(llama, make(), n_steps=11, batch_size=11).learn(110, callbacks("whole"))
    with pytest.raises(Killed):
        ppo(llama, make(), n_steps=11, batch_size=11).learn(110, [*callbacks("killed"), Kill()])
    again = callbacks("killed")
    model = lmpolicy.resume(tmp_path / "killed", make(), again, device="cpu")
    model.learn(110 - model.num_timesteps, again, reset_num_timesteps=False)
    assert model.num_timesteps == whole.num_timesteps
    assert not changed(weights(whole), weights(model))


# What is refused


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ExpertIteration(every=0), "every must be a positive integer"),
        (lambda: ExpertIteration(share=0), "share is the share of episodes"),
        (lambda: ExpertIteration(share=1.5), "share is the share of episodes"),
        (lambda: ExpertIteration(share=True), "share is the share of episodes"),
        (lambda: ExpertIteration(min_return=float("nan")), "min_return is the lowest return"),
        (lambda: ExpertIteration(epochs=0), "epochs must be a positive integer"),
        (lambda: ExpertIteration(batch_size=0), "batch_size must be a positive integer"),
        (lambda: ExpertIteration(max_turns=-1), "max_turns must be a positive integer"),
        (lambda: ExpertIteration(learning_rate=0), "learning_rate must be above 0"),
        (lambda: SelfImitation(steps=0), "steps must be a positive integer"),
        (lambda: SelfImitation(steps=True), "steps must be a positive integer"),
        (lambda: SelfImitation(value_coef=-1), "value_coef must be 0 or more"),
        (lambda: SelfImitation(learning_rate=float("inf")), "learning_rate must be above 0"),
    ],
)
def test_numbers_out_of_range_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("kind", [ExpertIteration, SelfImitation])
def test_a_frozen_model_is_refused_before_training(llama: str, kind: Any) -> None:
    model = ppo(llama, corridor(), {"lora": "frozen"})
    with pytest.raises(ValueError, match=f"{kind.__name__} trains the language model, which is frozen"):
        model.learn(8, kind())
    assert model.num_timesteps == 0


def test_other_policies_are_refused() -> None:
    from stable_baselines3 import PPO

    with pytest.raises(TypeError, match="SelfImitation is for LMActorCriticPolicy"):
        PPO("MlpPolicy", gym.make("CartPole-v1"), n_steps=8, batch_size=8, device="cpu").learn(8, SelfImitation())
