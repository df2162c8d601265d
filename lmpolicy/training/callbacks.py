"""Callbacks for what PPO has no argument for: a warm-up of the critic, schedules of entropy bonus and reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from lmpolicy.lm.reference import Reference
from lmpolicy.lm.reference_term import ReferenceTerm
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.training.per_env_advantages import whole_returns


class CriticWarmup(BaseCallback):
    """Train only the critic in the first rollouts, on Monte-Carlo returns.

    In these rollouts, the policy is not updated. The critic learns returns of GAE with lambda 1, which are sums of
    rewards until the end of the episode, or until the end of the rollout plus the value there. The env steps count as
    steps of training. A model that has been trained before gets no warm-up, unless :func:`lmpolicy.resume` continues
    one.

    :param rollouts: number of rollouts.
    :raises ValueError: if ``rollouts`` is not a positive integer; and when training starts, if the learner has
        ``vf_coef=0`` and trains no critic.
    """

    def __init__(self, rollouts: int) -> None:
        super().__init__()
        if isinstance(rollouts, bool) or not isinstance(rollouts, int) or rollouts < 1:
            raise ValueError(f"the warm-up takes a positive number of rollouts, got {rollouts!r}")
        self.rollouts = rollouts
        self._left = 0
        self._resumed = False

    def state_dict(self) -> dict[str, Any]:
        """Return the number of rollouts that are left."""
        return {"left": self._left}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with a warm-up that was interrupted.

        :param state: what :meth:`state_dict` returned.
        """
        self._left, self._resumed = state["left"], True

    def _on_training_start(self) -> None:
        policy_of(self).critic_only = False
        if vars(self.model)["vf_coef"] == 0:
            raise ValueError(
                "CriticWarmup trains the critic alone, but with vf_coef=0 there is no critic to train: leave the "
                "callback out (critic_warmup=0 in named settings), or pass vf_coef=0.5"
            )
        if not self._resumed:
            self._left = 0 if learner_of(self)._n_updates else self.rollouts
        self._resumed = False

    def _on_rollout_start(self) -> None:
        policy_of(self).critic_only = False

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self._left == 0:
            return
        self._left -= 1
        buffer = learner_of(self).rollout_buffer
        with whole_returns(buffer):
            buffer.compute_returns_and_advantage(self.locals["values"], self.locals["dones"])
        policy_of(self).critic_only = True  # for the update that follows; acting in a new rollout ends it

    def _on_training_end(self) -> None:
        policy_of(self).critic_only = False


class CoefficientSchedule(BaseCallback):
    """Change a coefficient of the updates linearly over the training.

    The coefficient of an update belongs to the same progress as its learning rate, which SB3 counts to the end of the
    rollout. So the last update is given ``end``. Outside the updates, the coefficient is what it was.

    :param start: coefficient at the beginning.
    :param end: coefficient at the end.
    """

    def __init__(self, start: float, end: float) -> None:
        super().__init__()
        self.start, self.end = start, end
        self._own: tuple[Any, float] | None = None  # who has the coefficient, and what it was before the training
        self._resumed: float | None = None

    def owner(self) -> Any:
        """Return who has the coefficient."""
        raise NotImplementedError

    def get(self, owner: Any) -> float:
        """Return the coefficient."""
        raise NotImplementedError

    def set(self, owner: Any, value: float) -> None:
        """Change the coefficient."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return the coefficient before the training."""
        return {"own": None if self._own is None else self._own[1]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the coefficient before the training.

        :param state: what :meth:`state_dict` returned.
        """
        self._resumed = state["own"]

    def _on_training_start(self) -> None:
        self.put_back()  # if a training was interrupted by an error
        owner = self.owner()
        self._own = owner, self.get(owner) if self._resumed is None else self._resumed
        self._resumed = None

    def _on_rollout_start(self) -> None:
        assert self._own is not None
        self.set(*self._own)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        # SB3 updates its own count of the progress after this call, and before the update.
        assert self._own is not None
        left = max(0.0, 1.0 - self.num_timesteps / self.locals["total_timesteps"])
        self.set(self._own[0], self.end + (self.start - self.end) * left)

    def _on_training_end(self) -> None:
        self.put_back()

    def put_back(self) -> None:
        """Give back the coefficient of before the training, also where an update was interrupted."""
        if self._own is not None:
            self.set(*self._own)
            self._own = None


class EntropySchedule(CoefficientSchedule):
    """Change PPO's ``ent_coef`` linearly over the training.

    A large coefficient at the beginning makes the policy explore. A small one at the end lets the policy become sure.
    The coefficient of an update belongs to the same progress as its learning rate, which SB3 counts to the end of the
    rollout. So the last update is given ``end``. Outside the updates, the learner has its own coefficient.

    :param start: entropy coefficient at the beginning.
    :param end: entropy coefficient at the end.
    """

    def owner(self) -> OnPolicyAlgorithm:
        """Return the learner."""
        return learner_of(self)

    def get(self, owner: OnPolicyAlgorithm) -> float:
        """Return the learner's ``ent_coef``.

        :param owner: learner.
        """
        return owner.ent_coef

    def set(self, owner: OnPolicyAlgorithm, value: float) -> None:
        """Change the learner's ``ent_coef``.

        :param owner: learner.
        :param value: coefficient.
        """
        owner.ent_coef = value


class ReferenceSchedule(CoefficientSchedule):
    """Change the weight of a :class:`~lmpolicy.Reference` linearly over the training.

    A large weight at the beginning keeps what the policy has learnt from demonstrations, while the critic is not good
    yet. A small one at the end lets the policy become better than these. Progress is counted as by
    :class:`~lmpolicy.EntropySchedule`. SB3's logger is given ``train/reference_beta``.

    What :class:`~lmpolicy.ExpertIteration` and :class:`~lmpolicy.SelfImitation` learn after an update has the weight of
    that update, wherever they stand in the list of callbacks.

    :param start: weight at the beginning, not negative.
    :param end: weight at the end, not negative.
    :raises ValueError: if a weight is negative or no number; and when training starts, if the policy has no reference,
        or adapts its weight to a target.
    """

    def __init__(self, start: float, end: float) -> None:
        super().__init__(start, end)
        self._updated = False  # whether there has been an update in this training
        for beta in (start, end):
            Reference(beta=beta)  # refuses what is no weight

    def owner(self) -> ReferenceTerm:
        """Return the reference of the policy."""
        reference = policy_of(self).reference
        if reference is None:
            raise ValueError(
                "ReferenceSchedule changes the weight of the policy's reference, but the policy has none: pass "
                'policy_kwargs={"reference": lmpolicy.Reference(beta=0.1)}'
            )
        if reference.settings.target is not None:
            raise ValueError(
                "the reference adapts its weight to a target, which ReferenceSchedule would undo: leave one of both out"
            )
        return reference

    def get(self, owner: ReferenceTerm) -> float:
        """Return the weight of the reference.

        :param owner: reference of the policy.
        """
        return owner.beta

    def set(self, owner: ReferenceTerm, value: float) -> None:
        """Change the weight of the reference.

        :param owner: reference of the policy.
        :param value: weight.
        """
        owner.settings = replace(owner.settings, beta=value)

    def _on_rollout_start(self) -> None:
        assert self._own is not None
        if self._updated:
            self.logger.record("train/reference_beta", self.get(self._own[0]))  # of the update that is over
        self._updated = True
        super()._on_rollout_start()

    def _on_training_start(self) -> None:
        super()._on_training_start()
        self._updated = False


def learner_of(callback: BaseCallback) -> OnPolicyAlgorithm:
    """Return the learner that a callback belongs to.

    :param callback: a callback of a training that has begun.
    """
    assert isinstance(callback.model, OnPolicyAlgorithm)
    return callback.model


def policy_of(callback: BaseCallback) -> LMActorCriticPolicy:
    """Return the policy of the learner that a callback belongs to.

    :param callback: a callback of a training that has begun.
    :raises TypeError: if the policy is not an :class:`LMActorCriticPolicy`.
    """
    policy = callback.model.policy
    if not isinstance(policy, LMActorCriticPolicy):
        raise TypeError(f"{type(callback).__name__} is for LMActorCriticPolicy, got {type(policy).__name__}")
    return policy
