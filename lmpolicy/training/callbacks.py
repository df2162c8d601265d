"""What PPO has no argument for: a critic that learns first, and an entropy bonus that changes with progress."""

from __future__ import annotations

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from lmpolicy.policy import LMActorCriticPolicy


class CriticWarmup(BaseCallback):
    """Train the critic alone on Monte-Carlo returns before the first update of the policy.

    In the first rollouts, the policy acts as it is, returns are those of GAE with lambda 1 (rewards until the episode
    or the rollout ends, bootstrapped only there), and the optimizer steps leave the LM alone. The env steps count like
    any other. A model that has been trained before is not warmed up again.

    :param rollouts: how many.
    :raises ValueError: if it is not a positive integer.
    """

    def __init__(self, rollouts: int) -> None:
        super().__init__()
        if isinstance(rollouts, bool) or not isinstance(rollouts, int) or rollouts < 1:
            raise ValueError(f"the warm-up takes a positive number of rollouts, got {rollouts!r}")
        self.rollouts = rollouts
        self._left = 0

    def _on_training_start(self) -> None:
        self._left = 0 if learner_of(self)._n_updates else self.rollouts

    def _on_rollout_start(self) -> None:
        policy_of(self).critic_only = self._left > 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self._left == 0:
            return
        self._left -= 1
        buffer = learner_of(self).rollout_buffer
        gae_lambda, buffer.gae_lambda = buffer.gae_lambda, 1.0
        buffer.compute_returns_and_advantage(self.locals["values"], self.locals["dones"])
        buffer.gae_lambda = gae_lambda

    def _on_training_end(self) -> None:
        policy_of(self).critic_only = False


class EntropySchedule(BaseCallback):
    """Change PPO's ``ent_coef`` linearly over the training: exploration at first, a policy that is sure at the end.

    :param start: entropy coefficient at the beginning.
    :param end: at the end.
    """

    def __init__(self, start: float, end: float) -> None:
        super().__init__()
        self.start, self.end = start, end

    def _on_rollout_start(self) -> None:
        learner = learner_of(self)
        learner.ent_coef = self.end + (self.start - self.end) * learner._current_progress_remaining

    def _on_step(self) -> bool:
        return True


def learner_of(callback: BaseCallback) -> OnPolicyAlgorithm:
    """The learner that a callback belongs to.

    :param callback: of a training that has begun.
    """
    assert isinstance(callback.model, OnPolicyAlgorithm)
    return callback.model


def policy_of(callback: BaseCallback) -> LMActorCriticPolicy:
    """The policy of that learner.

    :param callback: of a training that has begun.
    :raises TypeError: if the policy is no language model.
    """
    policy = callback.model.policy
    if not isinstance(policy, LMActorCriticPolicy):
        raise TypeError(f"{type(callback).__name__} is for LMActorCriticPolicy, got {type(policy).__name__}")
    return policy
