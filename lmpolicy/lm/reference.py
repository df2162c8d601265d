"""Say which policy training must not forget, and compute the divergence from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch as th

from lmpolicy.lm.model_settings import FROZEN, plain_numbers

BASE, START = "base", "start"
"""Names of references that are no folder."""
POLICY_TO_REFERENCE, REFERENCE_TO_POLICY = "pi||ref", "ref||pi"
DIRECTIONS = (POLICY_TO_REFERENCE, REFERENCE_TO_POLICY)
ESTIMATES = ("k1", "k2", "k3")


@dataclass(frozen=True)
class Reference:
    """Hold the policy near a reference while PPO trains it.

    The loss of PPO becomes ``loss + beta * mean(KL)``, where the mean is over the rows of the minibatch and KL is the
    Kullback-Leibler divergence between the policy and the reference, in nats. Among phrases, KL is exact: the sum over
    the legal phrases. Of written answers, it is estimated from the tokens that were written.

    Only the gradient of the loss changes. So what PPO logs means what it always means, and ``beta`` does not depend on
    ``ent_coef``. The term acts from the first rollout on, and not in updates of which :class:`~lmpolicy.CriticWarmup`
    takes the LM out.

    Example:
        >>> from lmpolicy import Reference
        >>> policy_kwargs = {"reference": Reference(beta=0.1, of="start")}

    :param beta: weight of the divergence in the loss, not negative. 0: the divergence is only logged. The default holds
        a policy near its reference that learnt from demonstrations, and lets rewards of order 1 move it.
    :param of: ``"start"``: the policy as it is when its training begins, after a warm start, if there was one. Its
        adapter is kept a second time, frozen, and saved in checkpoints. ``"base"``: the base model, which is the policy
        with its adapter switched off. Else a folder or hub id of an adapter of PEFT, with the settings of the policy's
        own.
    :param direction: ``"pi||ref"``: KL(pi || ref) of the policy pi. It keeps the policy from actions that the reference
        does not take, and lets it drop some that the reference takes. ``"ref||pi"``: KL(ref || pi), which keeps all
        actions of the reference likely; not for written answers, because the reference did not write them.
    :param estimate: estimate for written answers, from the log-ratio r = log ref - log pi of each token that was
        written (Schulman, "Approximating KL divergence", 2020). ``"k1"``: -r. Its value is unbiased, but as part of a
        loss it does nothing on average: the mean of its gradient over answers of the policy is 0. ``"k2"``: r^2 / 2.
        Its value is biased, and its gradient is that of KL(pi || ref) at each token. ``"k3"``: exp(r) - 1 - r. Its
        value is unbiased, never negative and varies little; its gradient is that of KL(ref || pi) at each token, which
        is near the other one while the policy is near the reference. After the first step of an update, the answers are
        those of an older policy, and each estimate is biased by that.
    :param target: divergence in nats that ``beta`` is adapted to, as in PPO's paper (Schulman et al. 2017, section 4):
        after an update with more than 1.5 times the target, ``beta`` is doubled, and with less than two thirds it is
        halved. ``None``: ``beta`` stays as it is.
    :raises ValueError: for a value out of range; the message names the allowed values.
    """

    beta: float = 0.1
    of: str | Path = START
    direction: str = POLICY_TO_REFERENCE
    estimate: str = "k3"
    target: float | None = None

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, plain_numbers(getattr(self, one.name)))
        if not _is_number(self.beta) or self.beta < 0:
            raise ValueError(f"beta of the reference must be a number that is not negative, got {self.beta!r}")
        if isinstance(self.of, Path):
            object.__setattr__(self, "of", str(self.of))
        if not isinstance(self.of, str) or not self.of:
            raise ValueError(f'a reference is of="{BASE}", "{START}" or a folder with an adapter, got {self.of!r}')
        if self.direction not in DIRECTIONS:
            raise ValueError(f"direction of the reference must be one of {DIRECTIONS}, got {self.direction!r}")
        if self.estimate not in ESTIMATES:
            raise ValueError(f"estimate of the reference must be one of {ESTIMATES}, got {self.estimate!r}")
        if self.target is not None and (not _is_number(self.target) or self.target <= 0 or self.beta == 0):
            raise ValueError(
                f"target is a divergence above 0 that a beta above 0 is adapted to, got target={self.target!r} with "
                f"beta={self.beta!r}; target=None leaves beta as it is"
            )

    @property
    def holds_weights(self) -> bool:
        """Return whether the reference has weights of its own, which are kept."""
        return self.of != BASE


def saved_reference(reference: Any) -> Any:
    """Return the reference as a checkpoint names it: the weights of one from a folder are in the checkpoint.

    :param reference: reference of a policy.
    """
    of_folder = isinstance(reference, Reference) and reference.of not in (BASE, START)
    return replace(reference, of=START) if of_folder else reference


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_reference(value: Any, lora: Any) -> Reference | None:
    """Return the reference that a setting names.

    :param value: a :class:`Reference`, its arguments by name, or ``None``.
    :param lora: normalised LoRA of the policy.
    :raises TypeError: if the setting is something else, or an argument is misspelt; the message says what to pass.
    :raises ValueError: if there is no adapter that could be switched off or kept twice; the message says what to do.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        names = [one.name for one in fields(Reference)]
        unknown = sorted(set(map(str, value)) - set(names))
        if unknown:
            raise TypeError(f"reference got {', '.join(map(repr, unknown))}; it takes {', '.join(names)}")
        value = Reference(**value)
    if not isinstance(value, Reference):
        raise TypeError(
            f'reference must be a Reference, its arguments such as {{"beta": 0.1, "of": "{START}"}}, or None, got '
            f"{value!r}"
        )
    if lora is None:
        raise ValueError(
            "a reference needs an adapter, which can be switched off or kept a second time; with lora=None (full "
            "fine-tuning) it would be a second copy of the whole model: train an adapter "
            '(lora={"r": 16, "lora_alpha": 32}), or leave out reference'
        )
    if lora == FROZEN:
        raise ValueError(
            f'with lora="{FROZEN}" the LM never leaves its reference: train an adapter, or leave out reference'
        )
    return value


def exact_divergence(policy: th.Tensor, reference: th.Tensor, direction: str) -> th.Tensor:
    """Return the divergence between two distributions over phrases.

    :param policy: log-probabilities of the policy, ``(B, K)``.
    :param reference: log-probabilities of the reference, ``(B, K)``.
    :param direction: one of :data:`DIRECTIONS`.
    :return: nats, ``(B,)``.
    """
    first, second = (policy, reference) if direction == POLICY_TO_REFERENCE else (reference, policy)
    legal = reference > ALMOST_NEVER  # both are astronomically small where a phrase is illegal, and 0 * inf is not 0
    terms = first.exp() * (first - second)
    return terms.where(legal, 0.0).sum(dim=-1)


ALMOST_NEVER = -1e20
"""Log-probability below which a phrase is illegal."""


def estimated_divergence(policy: th.Tensor, reference: th.Tensor, estimate: str) -> th.Tensor:
    """Return the estimated divergence at each token of answers of the policy.

    :param policy: log-probabilities of the tokens under the policy, of any shape.
    :param reference: log-probabilities of the same tokens under the reference.
    :param estimate: one of :data:`ESTIMATES`, see :class:`Reference`.
    :return: nats, of the same shape; 0 where both are equal.
    """
    ratio = reference - policy
    if estimate == "k1":
        return -ratio
    return ratio.square() / 2 if estimate == "k2" else ratio.expm1() - ratio
