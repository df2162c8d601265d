"""Refuse what does not go together with advantages of groups, and say what to pass instead."""

from __future__ import annotations

from typing import Any

from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm

from lmpolicy.training.agent.told_env import ToldEnv

RLOO, GRPO, LEAVE_ONE_OUT, MIXTURE = "rloo", "grpo", "leave-one-out", "mixture"
BASELINES = (RLOO, GRPO, LEAVE_ONE_OUT, MIXTURE)
GROUPED = (RLOO, GRPO)
"""Baselines that compare episodes from the same seed."""
UNFINISHED = ("baseline", "zero")


def check_arguments(baseline: Any, kappa: Any, divide_by_std: Any, unfinished: Any) -> None:
    """Refuse arguments out of range, and a weight of the critic where there is none.

    :param baseline: as for :class:`~lmpolicy.GroupAdvantages`.
    :param kappa: as for :class:`~lmpolicy.GroupAdvantages`.
    :param divide_by_std: as for :class:`~lmpolicy.GroupAdvantages`.
    :param unfinished: as for :class:`~lmpolicy.GroupAdvantages`.
    :raises ValueError: for a value that does not fit; the message names the allowed ones.
    """
    if baseline not in BASELINES:
        raise ValueError(f"baseline must be one of {', '.join(map(repr, BASELINES))}, got {baseline!r}")
    if unfinished not in UNFINISHED:
        raise ValueError(f"unfinished must be one of {', '.join(map(repr, UNFINISHED))}, got {unfinished!r}")
    if divide_by_std is not None and not isinstance(divide_by_std, bool):
        raise ValueError(f"divide_by_std must be True or False, got {divide_by_std!r}")
    if kappa is None:
        return
    if baseline != MIXTURE:
        raise ValueError(f"kappa weighs the critic of baseline='mixture': leave it out with baseline={baseline!r}")
    if isinstance(kappa, bool) or not isinstance(kappa, int | float) or not 0 < kappa < float("inf"):
        raise ValueError(f"kappa must be above 0, got {kappa!r}; baseline='leave-one-out' takes no critic at all")


def check_learner(learner: BaseAlgorithm, baseline: str) -> None:
    """Refuse a learner that the buffer does not fit.

    :param learner: learner whose buffer it is.
    :param baseline: baseline of the buffer.
    :raises TypeError: if the learner is not PPO.
    :raises ValueError: if a critic is asked for that is not trained, or for an agent in a loop of one's own; the
        message says what to pass.
    """
    if not isinstance(learner, PPO):
        raise TypeError(
            f"GroupAdvantages is a rollout buffer for PPO, not for {type(learner).__name__}, which has a buffer of its "
            "own, or rollouts of few steps in which hardly an episode ends: use PPO"
        )
    if learner.env is not None and isinstance(learner.env.unwrapped, ToldEnv):
        raise ValueError(
            "GroupAdvantages compares whole episodes, but in the rollouts of an Agent those that go on end with the "
            "critic's value of the rest: leave out rollout_buffer_class, or let PPO.learn play the env"
        )
    if baseline == MIXTURE and learner.vf_coef == 0:
        raise ValueError(
            "baseline='mixture' mixes with the critic, but vf_coef=0 never trains it: pass vf_coef=0.5, or "
            "baseline='leave-one-out', which needs no critic"
        )
