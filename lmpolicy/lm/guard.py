"""Guard rails: training that cannot go well any more stops, or warns, and says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch as th

from lmpolicy.lm.actor import Actor, Decision
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.judging import LearningJudge

CHECKPOINT = "lmpolicy_last_good.zip"
"""Where the last good weights are saved, in the folder of the run."""


class NonFiniteError(FloatingPointError):
    """A number in training became NaN or infinite; raised before an optimizer step would write it into the weights."""


class Saver(Protocol):
    """What can be written to a file: a policy, or its learner."""

    def save(self, path: str) -> None:
        """Write a checkpoint."""


class GuardedPolicy(Saver, Protocol):
    """What the guard has to know of a policy."""

    backbone: Backbone
    actor: Actor
    optimizer: th.optim.Optimizer

    @property
    def actor_learns(self) -> bool:
        """Whether optimizer steps change what the policy does."""

    def parameters(self) -> Iterator[th.nn.Parameter]:
        """All weights."""

    def named_parameters(self) -> Iterator[tuple[str, th.nn.Parameter]]:
        """All weights with their names."""


class Guard:
    """Watches a policy from within: what it does in rollouts, and what reaches it in updates.

    *Non-finite numbers* stop the training before the step: SB3 clips by the joint norm, which spreads one NaN over all
    gradients, so the check is one norm per step, and where the first such number arose tells the cause. The weights go
    back to those of the last rollout, which acted on them, and are saved.

    What a policy's numbers say about its learning is left to a :class:`~lmpolicy.lm.judging.LearningJudge`.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.learner: Saver | None = None
        self.optimizer_steps = 0
        self.env_steps = 0
        self.judge = LearningJudge()
        self._acted = False
        self._outputs: tuple[th.Tensor, th.Tensor] | None = None
        self._incoming: dict[str, th.Tensor] = {}
        self._good: dict[str, th.Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "learner": None}  # a copied policy is no copy of its learner

    def acted(self, decision: Decision) -> None:
        """Note decisions of a rollout.

        :param decision: what was decided.
        """
        self._acted = True
        self.env_steps += len(decision.keys)
        self.judge.acted(decision)

    def evaluated(self, policy: GuardedPolicy, decision: Decision) -> None:
        """Note a forward of an update, and follow the gradients that come back to it.

        :param policy: the policy.
        :param decision: with what the learner gets of it.
        """
        first, self._acted = self._acted, False
        if first:
            self.judge.begin_update(policy.actor_learns, self._when())
            self._keep(policy)
        self._outputs = decision.outputs.detach(), decision.values.detach()
        self._incoming = {}
        for name, tensor in (("log_prob", decision.log_prob), ("values", decision.values)):
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient, name=name: self._arrived(name, gradient, first))

    def stepped(self) -> None:
        """Count an optimizer step."""
        self.optimizer_steps += 1

    def _when(self) -> str:
        return f"after {self.optimizer_steps} optimizer steps and {self.env_steps} env steps"

    def _arrived(self, name: str, gradient: th.Tensor, first: bool) -> None:
        self._incoming[name] = gradient.detach()
        if first and name == "log_prob":
            self.judge.first_gradient(gradient)

    def check_gradients(self, policy: GuardedPolicy) -> None:
        """Stop before a step that would write a number that is not finite.

        :param policy: the policy whose optimizer is about to step.
        :raises NonFiniteError: if a gradient is not finite; names the likely cause and the last good checkpoint.
        """
        gradients = [p.grad for group in policy.optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients or bool(th.nn.utils.get_total_norm(gradients).isfinite()):
            return
        if all(_is_finite(gradient) for gradient in gradients):  # only their norm overflows, in half precision
            return
        raise self.stop(policy, self._cause(policy))

    def _cause(self, policy: GuardedPolicy) -> str:
        """Where the first number arose that is not finite, and what usually does that."""
        if self._outputs is not None and not all(_is_finite(output) for output in self._outputs):
            return overflow(policy)
        returns, advantages = self._incoming.get("values"), self._incoming.get("log_prob")
        if returns is not None and not _is_finite(returns):
            bad = int((~returns.isfinite()).sum())
            return (
                f"{bad} of {len(returns)} returns in this minibatch are not finite, while the model's own numbers are: "
                "the env gave a reward that is NaN or infinite. Find the step with "
                "stable_baselines3.common.vec_env.VecCheckNan(env)"
            )
        if advantages is not None and not _is_finite(advantages):
            return (
                "the gradient at the log-probabilities is not finite, while returns and the model's numbers are: the "
                "policy has moved so far within one update that its ratio to the old one overflows. Lower "
                "learning_rate, or set target_kl (e.g. 0.02)"
            )
        half = " Pass dtype='bfloat16' or 'float32'." if _uses_float16(policy) else ""
        return f"the backward pass through the model overflowed.{half} Lower learning_rate"

    def stop(self, policy: GuardedPolicy, cause: str) -> NonFiniteError:
        """Put the last good weights back and save them.

        :param policy: the policy.
        :param cause: what probably went wrong, and what helps.
        :return: what to raise.
        """
        return NonFiniteError(
            f"training stopped {self._when()} because a number is not finite (NaN or infinite). Likely cause: {cause}. "
            f"{self._save(policy)}"
        )

    def _keep(self, policy: GuardedPolicy) -> None:
        """Copy the weights that the last rollout acted on: few, unless the base is trained, which is not copied."""
        if not policy.backbone.frozen:
            return
        now = _learnt(policy)
        if self._good.keys() != now.keys():
            self._good = {name: tensor.clone() for name, tensor in now.items()}
        else:
            for name, tensor in now.items():
                self._good[name].copy_(tensor)

    def forget_weights(self) -> None:
        """Other weights were loaded: what was kept belongs to another policy."""
        self._good = {}

    @th.no_grad()
    def _save(self, policy: GuardedPolicy) -> str:
        """Restore and save the last good weights; tell where."""
        for name, tensor in _learnt(policy).items():
            if name in self._good:
                tensor.copy_(self._good[name])
        policy.actor.forget()
        if not all(_is_finite(parameter) for parameter in policy.parameters()):
            return "The weights in memory are not finite, so none were saved: go back to a checkpoint of your own"
        what = "those that the last rollout acted on" if self._good else "those before the step"
        path = (self.folder or Path()).resolve() / CHECKPOINT
        saved, more = (policy, "") if self.learner is None else (self.learner, ", env=env")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            saved.save(str(path))
        except Exception as error:  # whatever the disk says must not hide why training stopped
            return f"The weights in memory are good ({what}), but saving them to {path} failed: {error!r}"
        how = f"{type(saved).__name__}.load({str(path)!r}{more})"
        return f"Last good checkpoint, weights as in memory ({what}): {path}; load it with {how}"


def overflow(policy: GuardedPolicy) -> str:
    """Why scores or values of the model's forward are not finite, and what helps.

    :param policy: the policy.
    """
    if not all(_is_finite(parameter) for parameter in policy.parameters()):
        return (
            "a weight of the model itself is not finite, although every gradient was: it was loaded so, other code "
            "wrote it, or learning_rate is far too high"
        )
    if _uses_float16(policy):
        return "the model's activations overflow in float16. Pass dtype='bfloat16' or 'float32', or lower learning_rate"
    return "the model's activations overflow: earlier steps were too large. Lower learning_rate, or set target_kl"


def _learnt(policy: GuardedPolicy) -> dict[str, th.Tensor]:
    """What training changes: trainable weights, and the statistics of the value head."""
    weights = {name: p.detach() for name, p in policy.named_parameters() if p.requires_grad}
    return {**weights, **{f"statistics.{name}": b for name, b in policy.backbone.value_head.named_buffers()}}


def _uses_float16(policy: GuardedPolicy) -> bool:
    return any(parameter.dtype == th.float16 for parameter in policy.parameters())


def _is_finite(tensor: th.Tensor) -> bool:
    return bool(tensor.isfinite().all())
