"""A critic that learns first, and coefficients that change with progress: of the entropy bonus and of a reference."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TransformReward
from helpers.policy_tools import cart_pole, changed, corridor, ppo, weights
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule

from lmpolicy import CriticWarmup, EntropySchedule, Reference, ReferenceSchedule


class Note(BaseCallback):
    """Keeps what a callback changed: weights after each rollout, and returns of the buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[dict[str, Any]] = []
        self.returns: list[np.ndarray] = []
        self.rewards: list[np.ndarray] = []
        self.starts: list[np.ndarray] = []

    def _on_rollout_start(self) -> None:
        self.weights.append(weights(self.model))

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        assert isinstance(self.model, PPO)
        self.returns.append(self.model.rollout_buffer.returns.copy())
        self.rewards.append(self.model.rollout_buffer.rewards.copy())
        self.starts.append(self.model.rollout_buffer.episode_starts.copy())


def test_warm_up_trains_the_critic_alone_and_then_both(llama: str) -> None:
    model, note = ppo(llama, make_vec_env(cart_pole, 2)), Note()
    model.learn(3 * 16, callback=[CriticWarmup(2), note])
    snapshots = [*note.weights, weights(model)]
    for before, after in itertools.pairwise(snapshots[:3]):
        names = changed(before, after)
        assert names
        assert all("value_head" in name for name in names)
    assert any("lora" in name for name in changed(snapshots[2], snapshots[3]))


def rising_rewards() -> gym.Env:
    """A corridor whose episodes end after 8 steps at the latest, with other rewards at every step."""
    rewards = itertools.count(1)
    return TransformReward(corridor(), lambda reward: float(reward) + next(rewards) % 7)


def monte_carlo(rewards: np.ndarray, starts: np.ndarray, gamma: float) -> list[float]:
    """Discounted sums of rewards until each episode ends, of the steps whose episode ends within the rollout."""
    ends = [step for step in range(len(rewards)) if starts[step] and step > 0]
    returns = []
    for step in range(ends[-1]):
        end = min(end for end in ends if end > step)
        returns.append(sum(gamma ** (later - step) * rewards[later] for later in range(step, end)))
    return returns


def test_warm_up_targets_are_monte_carlo_returns(llama: str) -> None:
    model, note = (
        ppo(llama, make_vec_env(rising_rewards, 1), gamma=0.5, gae_lambda=0.3, n_steps=24, batch_size=24),
        Note(),
    )
    model.learn(48, callback=[CriticWarmup(1), note])
    warm_up, after = zip(note.rewards, note.starts, note.returns, strict=True)
    rewards, starts, returns = (one.flatten() for one in warm_up)
    expected = monte_carlo(rewards, starts, gamma=0.5)
    assert len(set(expected)) > 8, "targets that differ"
    np.testing.assert_allclose(returns[: len(expected)], expected, rtol=1e-5)
    # Later targets are those of GAE with the learner's lambda, which trusts the critic after one step.
    rewards, starts, returns = (one.flatten() for one in after)
    expected = monte_carlo(rewards, starts, gamma=0.5)
    assert np.abs(returns[: len(expected)] - expected).max() > 0.1
    assert model.rollout_buffer.gae_lambda == 0.3


def test_a_trained_model_is_not_warmed_up_again(llama: str) -> None:
    model = ppo(llama, make_vec_env(cart_pole, 2))
    model.learn(16)
    before = weights(model)
    model.learn(16, callback=CriticWarmup(1), reset_num_timesteps=False)
    assert any("lora" in name for name in changed(before, weights(model)))


def test_the_actor_learns_again_after_an_interrupted_warm_up(llama: str) -> None:
    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return self.num_timesteps < 20

    model = ppo(llama, make_vec_env(cart_pole, 2))
    model.learn(64, callback=[CriticWarmup(4), Stop()])
    before = weights(model)
    model.learn(16, reset_num_timesteps=False)
    assert any("lora" in name for name in changed(before, weights(model)))


@pytest.mark.parametrize("rollouts", [0, -1, 1.5, True])
def test_warm_up_refuses(rollouts: Any) -> None:
    with pytest.raises(ValueError, match="positive number of rollouts"):
        CriticWarmup(rollouts)


def test_warm_up_is_for_language_models() -> None:
    with pytest.raises(TypeError, match="LMActorCriticPolicy"):
        PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8).learn(8, callback=CriticWarmup(1))


class Failing(BaseCallback):
    """Raises an error at an env step, or when a rollout is complete."""

    def __init__(self, at: int, rollout_end: bool = False) -> None:
        super().__init__()
        self.at, self.rollout_end = at, rollout_end

    def _on_step(self) -> bool:
        return self._fail(not self.rollout_end)

    def _on_rollout_end(self) -> None:
        self._fail(self.rollout_end)

    def _fail(self, here: bool) -> bool:
        if here and self.num_timesteps >= self.at:
            raise RuntimeError("an error")
        return True


@pytest.mark.parametrize("place", ["first rollout", "second rollout", "between rollout and update", "update"])
def test_the_actor_learns_again_after_an_error_in_the_warm_up(
    llama: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    model = ppo(llama, make_vec_env(cart_pole, 2))
    failing = Failing({"first rollout": 4, "second rollout": 20}.get(place, 16), place == "between rollout and update")
    callbacks = [CriticWarmup(4), *([] if place == "update" else [failing])]
    with monkeypatch.context() as patch:
        if place == "update":
            failing.num_timesteps = 99
            patch.setattr(model.policy.optimizer, "step", lambda: failing._fail(True))
        with pytest.raises(RuntimeError, match="an error"):
            model.learn(64, callback=callbacks)
    if place.endswith("rollout"):
        assert not model.policy.critic_only
    before = weights(model)
    model.learn(16, reset_num_timesteps=False)
    assert any("lora" in name for name in changed(before, weights(model)))
    assert not model.policy.critic_only


class Coefficients(BaseCallback):
    """Notes entropy coefficient and learning rate of every optimizer step."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[float, float]] = []

    def _on_training_start(self) -> None:
        groups = self.model.policy.optimizer.param_groups
        self.handle = self.model.policy.optimizer.register_step_post_hook(
            lambda *_: self.found.append((self.model.ent_coef, groups[0]["lr"]))  # type: ignore[attr-defined]
        )

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.handle.remove()


def test_entropy_schedule_follows_the_learning_rate(llama: str) -> None:
    rate = LinearSchedule(0.4, 0.0, end_fraction=1.0)
    model = ppo(llama, make_vec_env(corridor, 2), ent_coef=7.0, learning_rate=rate, batch_size=16, n_epochs=1)
    schedule = EntropySchedule(0.4, 0.0)
    for _ in range(2):  # a second training begins anew
        note = Coefficients()
        model.learn(4 * 16, callback=[schedule, note])
        coefficients, rates = zip(*note.found, strict=True)
        assert coefficients == pytest.approx([0.3, 0.2, 0.1, 0.0])
        assert rates == pytest.approx(coefficients)
        assert model.ent_coef == 7.0
    note = Coefficients()
    model.learn(4 * 16, callback=[schedule, note], reset_num_timesteps=False)  # the second half of the progress
    assert [one[0] for one in note.found] == pytest.approx([0.15, 0.1, 0.05, 0.0])


@pytest.mark.parametrize("rollout_end", [False, True])
def test_entropy_schedule_leaves_the_coefficient_after_an_error(llama: str, rollout_end: bool) -> None:
    model, schedule = ppo(llama, make_vec_env(corridor, 2), ent_coef=7.0), EntropySchedule(0.4, 0.0)
    with pytest.raises(RuntimeError, match="an error"):
        model.learn(64, callback=[schedule, Failing(20, rollout_end)])
    if not rollout_end:
        assert model.ent_coef == 7.0
    model.learn(16, callback=schedule)
    assert model.ent_coef == 7.0


def test_a_rollout_beyond_the_end_has_the_last_coefficient(llama: str) -> None:
    model, note = ppo(llama, make_vec_env(corridor, 2), batch_size=16, n_epochs=1), Coefficients()
    model.learn(20, callback=[EntropySchedule(0.4, 0.1), note])
    assert [one[0] for one in note.found] == pytest.approx([0.16, 0.1])


class Betas(BaseCallback):
    """Keeps the weight of the reference in each update, and what the log is told of the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []
        self.acting: list[float] = []
        self.logged: list[float] = []

    def _on_rollout_start(self) -> None:
        self.acting.append(self.model.policy.reference.beta)
        if "train/reference_beta" in self.logger.name_to_value:
            self.logged.append(self.logger.name_to_value["train/reference_beta"])

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.found.append(self.model.policy.reference.beta)


def with_reference(model: str, **reference: Any) -> PPO:
    """A learner that a reference holds."""
    reference = {"reference": Reference(**reference)}
    return ppo(model, make_vec_env(corridor, 2), reference, batch_size=16, n_epochs=1, learning_rate=0.01)


def test_the_weight_of_a_reference_follows_the_learning_rate(llama: str) -> None:
    model, schedule = with_reference(llama, beta=7.0), ReferenceSchedule(0.4, 0.0)
    for _ in range(2):  # a second training begins anew
        note = Betas()
        model.learn(4 * 16, callback=[schedule, note])
        assert note.found == pytest.approx([0.3, 0.2, 0.1, 0.0])
        assert note.acting == [7.0] * 4
        assert note.logged == pytest.approx([0.3, 0.2, 0.1])
        assert model.policy.reference.beta == 7.0


@pytest.mark.parametrize("beta", [0.0, 0.1, 1000.0])
def test_a_scheduled_weight_is_that_of_a_reference_with_it(llama: str, beta: float) -> None:
    """A schedule that stays at a weight trains what a reference with this weight trains."""
    model = with_reference(llama, beta=0.3).learn(4 * 16, callback=ReferenceSchedule(beta, beta))
    same, other = with_reference(llama, beta=beta).learn(4 * 16), with_reference(llama, beta=0.3).learn(4 * 16)
    assert not changed(weights(model), weights(same))
    assert changed(weights(model), weights(other))


def test_what_a_schedule_of_the_reference_refuses(llama: str) -> None:
    for start, end in ((-0.1, 0.0), (0.1, -0.1), (0.1, "none")):
        with pytest.raises(ValueError, match="beta of the reference must be a number that is not negative"):
            ReferenceSchedule(start, end)
    with pytest.raises(ValueError, match="the policy has none: pass policy_kwargs"):
        ppo(llama, make_vec_env(corridor, 2)).learn(16, callback=ReferenceSchedule(0.1, 0.0))
    with pytest.raises(ValueError, match="adapts its weight to a target"):
        with_reference(llama, beta=0.1, target=0.05).learn(16, callback=ReferenceSchedule(0.1, 0.0))
