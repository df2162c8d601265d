"""Callbacks that let an agent learn from its own good episodes again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.callbacks import BaseCallback

from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.training.callbacks import learner_of, policy_of
from lmpolicy.training.imitation.cloning import Rows, clone_epoch, observations, own_rate, rate_now, step
from lmpolicy.training.imitation.own_episodes import BestEpisodes, EpisodeRecorder, rows_of
from lmpolicy.training.per_env_advantages import PerEnvAdvantages
from lmpolicy.training.reward_scale import return_divisors


class OwnEpisodes(BaseCallback):
    """Learn from one's own episodes between the update of a rollout and the next rollout.

    There, the learner compares no probabilities with older ones, so that PPO's ratios stay right. This is the common
    part of :class:`ExpertIteration` and :class:`SelfImitation`.

    :param name: beginning of the names in the log.
    :param every: number of rollouts from one time to the next.
    :param batch_size: number of turns in a minibatch.
    :param learning_rate: learning rate of the actor. ``None``: that of the learner's schedule.
    :param max_turns: largest number of turns that are kept.
    :param values_rest: whether the critic values what would have followed where an episode is cut off.
    :param seed: seed of the minibatches, which have a random generator of their own.
    :raises ValueError: if a number is out of range; when training starts, if the language model is frozen.
    """

    def __init__(
        self,
        name: str,
        every: int,
        batch_size: int,
        learning_rate: float | None,
        max_turns: int,
        values_rest: bool,
        seed: int,
    ) -> None:
        super().__init__()
        for argument, value in (("every", every), ("batch_size", batch_size), ("max_turns", max_turns)):
            check_count(argument, value)
        if learning_rate is not None and not (is_number(learning_rate) and learning_rate > 0):
            raise ValueError(f"learning_rate must be above 0, or None for the learner's own; got {learning_rate!r}")
        self.name, self.every, self.batch_size, self.learning_rate = name, every, batch_size, learning_rate
        self.best = BestEpisodes(max_turns)
        self._recorder = EpisodeRecorder(values_rest)
        self._random = np.random.default_rng(seed)
        self._rollouts = 0
        self._due = False

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes that are kept and those that are running, and what is counted."""
        return {
            "best": self.best.state_dict(),
            "open": self._recorder.state_dict(),
            "random": self._random.bit_generator.state,
            "rollouts": self._rollouts,
            "due": self._due,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the episodes of a training that was interrupted.

        :param state: what :meth:`state_dict` returned.
        """
        self.best.load_state_dict(state["best"])
        self._recorder.load_state_dict(state["open"])
        self._random.bit_generator.state = state["random"]
        self._rollouts, self._due = state["rollouts"], state["due"]

    def _on_training_start(self) -> None:
        if len(policy_of(self).optimizer.param_groups) == 1:
            raise ValueError(
                f"{type(self).__name__} trains the language model, which is frozen here (lora='frozen'): train an "
                "adapter, or leave the callback out"
            )

    def _on_rollout_start(self) -> None:
        self._learn_if_due()

    def _on_step(self) -> bool:
        for episode in self._recorder.step(self):
            self.best.add(episode)
        return True

    def _on_rollout_end(self) -> None:
        self._recorder.end_rollout(self)
        self._rollouts += 1
        self._due = self._rollouts % self.every == 0

    def _on_training_end(self) -> None:
        self._learn_if_due()

    def _learn_if_due(self) -> None:
        due, self._due = self._due, False
        model, policy = learner_of(self), policy_of(self)
        rate = rate_now(model) if self.learning_rate is None else self.learning_rate
        if due and rate > 0:  # at the end of a schedule, the rate may be 0
            with own_rate(policy, rate, as_before=True):  # wherever a schedule of this weight stands in the list
                self.learn()

    def learn(self) -> None:
        """Train the policy on episodes that are kept."""
        raise NotImplementedError

    def _rows(self, episodes: Any) -> Rows:
        learner = learner_of(self)
        own = learner.rollout_buffer
        gammas = own.gammas() if isinstance(own, PerEnvAdvantages) else np.full(learner.n_envs, learner.gamma)
        return rows_of(episodes, gammas, return_divisors(self.training_env))


class ExpertIteration(OwnEpisodes):
    """Clone the best of the agent's own episodes, every few rollouts.

    The episodes since the last time are compared by the sums of their rewards, each env with its like. The best share
    of them is learnt as demonstrations are: the loss is the mean of -log π(action | prompt). Episodes no better than
    the worst are left out, so nothing is learnt while all are alike. See Anthony et al. 2017, "Thinking Fast and Slow
    with Deep Learning and Tree Search", where the expert is a search; here it is the selection.

    The log is given ``expert_iteration/loss``, ``expert_iteration/episodes`` and ``expert_iteration/lowest_return`` of
    the episodes that were cloned. What is kept is part of a checkpoint.

    :param every: number of rollouts from one time to the next.
    :param share: share of the episodes that is cloned, above 0 and at most 1.
    :param min_return: lowest sum of rewards of an episode that is cloned. ``None``: any.
    :param epochs: number of times to go over these episodes.
    :param alone: whether the learner's own updates train the critic only, so that the actor learns from its best
        episodes alone.
    :param batch_size: number of turns in a minibatch.
    :param learning_rate: learning rate of the cloning. Default: that of the learner's schedule.
    :param max_turns: largest number of turns that are kept; the worst episodes are dropped first.
    :param seed: seed of the minibatches, which have a random generator of their own.
    :raises ValueError: if a number is out of range; when training starts, if the language model is frozen.
    """

    def __init__(
        self,
        every: int = 4,
        share: float = 0.2,
        min_return: float | None = None,
        *,
        epochs: int = 1,
        alone: bool = False,
        batch_size: int = 64,
        learning_rate: float | None = None,
        max_turns: int = 10_000,
        seed: int = 0,
    ) -> None:
        super().__init__("expert_iteration", every, batch_size, learning_rate, max_turns, False, seed)
        check_count("epochs", epochs)
        if not is_number(share) or not 0 < share <= 1:
            raise ValueError(f"share is the share of episodes that is cloned, above 0 and at most 1; got {share!r}")
        if min_return is not None and not is_number(min_return):
            raise ValueError(f"min_return is the lowest return that is cloned, or None; got {min_return!r}")
        self.share, self.min_return, self.epochs, self.alone = share, min_return, epochs, alone

    def _on_rollout_end(self) -> None:
        super()._on_rollout_end()
        if self.alone:
            policy_of(self).critic_only = True  # for the update that follows

    def _on_training_end(self) -> None:
        super()._on_training_end()
        if self.alone:
            policy_of(self).critic_only = False

    def learn(self) -> None:
        """Clone the best episodes since the last time."""
        chosen = self.best.best(self.share, self.min_return)
        self.best = BestEpisodes(self.best.max_turns)
        self.logger.record(f"{self.name}/episodes", len(chosen))
        if not chosen:
            return
        rows = self._rows(chosen)
        rows = Rows(rows.keys, rows.actions, rows.weights, np.full_like(rows.returns, np.nan))  # PPO trains the critic
        losses = [clone_epoch(learner_of(self), rows, self.batch_size, self._random)[0] for _ in range(self.epochs)]
        self.logger.record(f"{self.name}/loss", float(np.mean(losses)))
        self.logger.record(f"{self.name}/lowest_return", min(episode.total for episode in chosen))


class SelfImitation(OwnEpisodes):
    """Learn again what turned out better than the critic expected.

    The best episodes are kept over the whole training. After an update of the learner, a few minibatches of their turns
    are learnt with the loss -log π(action | prompt) · max(G - V, 0) + value_coef · max(G - V, 0)² / 2, where G is the
    discounted return and V the value, as in Oh et al. 2018, "Self-Imitation Learning". In contrast to the paper, turns
    are drawn evenly, and only from the best episodes. An episode that was cut off ends with the critic's value.

    The log is given ``self_imitation/loss``, ``self_imitation/advantage``, the mean of max(G - V, 0), and
    ``self_imitation/turns``, the number of turns that are kept. What is kept is part of a checkpoint.

    :param steps: number of minibatches after an update.
    :param every: number of rollouts from one time to the next.
    :param value_coef: weight of the critic's part.
    :param batch_size: number of turns in a minibatch.
    :param learning_rate: learning rate. Default: that of the learner's schedule.
    :param max_turns: largest number of turns that are kept; the worst episodes are dropped first.
    :param seed: seed of the minibatches, which have a random generator of their own.
    :raises ValueError: if a number is out of range; when training starts, if the language model is frozen.
    """

    def __init__(
        self,
        steps: int = 4,
        *,
        every: int = 1,
        value_coef: float = 0.01,
        batch_size: int = 64,
        learning_rate: float | None = None,
        max_turns: int = 10_000,
        seed: int = 0,
    ) -> None:
        super().__init__("self_imitation", every, batch_size, learning_rate, max_turns, True, seed)
        check_count("steps", steps)
        if not is_number(value_coef) or value_coef < 0:
            raise ValueError(f"value_coef must be 0 or more, got {value_coef!r}")
        self.steps, self.value_coef = steps, value_coef

    def learn(self) -> None:
        """Learn a few minibatches of the best episodes."""
        episodes = self.best.episodes()
        if not episodes:
            return
        rows, losses, advantages = self._rows(episodes), [], []
        for _ in range(self.steps):
            batch = rows.take(self._random.choice(len(rows), min(self.batch_size, len(rows)), replace=False))
            loss, advantage = self_imitation_loss(policy_of(self), batch, self.value_coef)
            step(learner_of(self), loss)
            losses.append(float(loss.detach()))
            advantages.append(float(advantage))
        self.logger.record(f"{self.name}/loss", float(np.mean(losses)))
        self.logger.record(f"{self.name}/advantage", float(np.mean(advantages)))
        self.logger.record(f"{self.name}/turns", len(rows))


def self_imitation_loss(policy: LMActorCriticPolicy, rows: Rows, value_coef: float) -> tuple[th.Tensor, th.Tensor]:
    """Compute the loss of Oh et al. 2018 on a minibatch.

    :param policy: policy in training.
    :param rows: minibatch with returns, scaled as the critic learns them.
    :param value_coef: weight of the critic's part.
    :return: the loss; and the mean of max(G - V, 0), without gradient.
    """
    actions = th.from_numpy(rows.actions).to(policy.device)
    values, log_prob, _ = policy.evaluate_actions(observations(policy, rows.keys), actions)
    advantages = (th.from_numpy(rows.returns).to(values.device) - values.flatten()).clamp(min=0)  # (B,)
    better = advantages.detach()
    loss = -(log_prob * better).mean() + value_coef * advantages.square().mean() / 2
    return loss, better.mean()


def check_count(name: str, value: Any) -> None:
    """Refuse what is no positive integer.

    :param name: name of the argument.
    :param value: its value.
    :raises ValueError: if it is no positive integer.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number.

    :param value: any value.
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
