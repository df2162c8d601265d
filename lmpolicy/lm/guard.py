"""Stop training before a number that is not finite reaches the weights, and say why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch as th

from lmpolicy.files import claim_number, whole_file
from lmpolicy.lm.actor import Actor, Decision
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.idle_adapters import IdleAdapters
from lmpolicy.lm.judging import LearningJudge
from lmpolicy.lm.quantization import is_plain

RESCUED = "lmpolicy_last_good"
"""Name of the folder of last good weights, in the folder of the run. Each stop gets a numbered folder in it."""


class NonFiniteError(FloatingPointError):
    """Say that a number in training became NaN or infinite.

    It is raised before an optimizer step would write such a number into the weights.
    """


class Saver(Protocol):
    """Write itself to a file, as a policy and its learner do."""

    def save(self, path: Any) -> None:
        """Write a checkpoint.

        :param path: name of a file, or an open binary file.
        """


class GuardedPolicy(Saver, Protocol):
    """Define what the guard needs to know of a policy."""

    backbone: Backbone
    actor: Actor
    optimizer: th.optim.Optimizer

    @property
    def actor_learns(self) -> bool:
        """Return whether optimizer steps change what the policy does."""

    def parameters(self) -> Iterator[th.nn.Parameter]:
        """Return all weights."""

    def named_parameters(self) -> Iterator[tuple[str, th.nn.Parameter]]:
        """Return all weights with their names."""


class Guard:
    """Watch a policy's rollouts, and the gradients of its updates.

    *Non-finite numbers* stop the training before an optimizer step. SB3 clips gradients by their joint norm, which
    would spread one NaN over all of them. So the check is one norm per step, and the place of the first number that is
    not finite tells the cause. Then the weights of the last rollout are put back and saved: the rollout acted with
    them, so they are good.

    A :class:`~lmpolicy.lm.judging.LearningJudge` judges whether the policy still learns.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.learner: Saver | None = None
        self.optimizer_steps = 0
        self.env_steps = 0
        self.judge = LearningJudge()
        self._idle = IdleAdapters()
        self._acted = False
        self._first = False  # whether the last forward pass was the first of its update
        self._outputs: tuple[th.Tensor, th.Tensor] | None = None
        self._incoming: dict[str, th.Tensor] = {}
        self._good: dict[str, th.Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "learner": None}  # the copy of a policy has no learner

    def acted(self, decision: Decision) -> None:
        """Note the decisions of one step of a rollout.

        :param decision: decisions of the policy.
        """
        self._acted = True
        self.env_steps += len(decision.keys)
        self.judge.acted(decision)

    def evaluated(self, policy: GuardedPolicy, decision: Decision) -> None:
        """Note a forward pass of an update, and watch its gradients.

        :param policy: policy in training.
        :param decision: decisions with the tensors that the learner is given.
        """
        first, self._first, self._acted = self._acted, self._acted, False
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

    def state_dict(self) -> dict[str, Any]:
        """Return what the guard and its judge counted, as numbers and texts."""
        return {
            "optimizer_steps": self.optimizer_steps,
            "env_steps": self.env_steps,
            "judge": self.judge.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from a state.

        :param state: what :meth:`state_dict` returned.
        """
        self.optimizer_steps, self.env_steps = state["optimizer_steps"], state["env_steps"]
        self.judge.load_state_dict(state["judge"])

    def _when(self) -> str:
        return f"after {self.optimizer_steps} optimizer steps and {self.env_steps} env steps"

    def _arrived(self, name: str, gradient: th.Tensor, first: bool) -> None:
        self._incoming[name] = gradient.detach()
        if first and name == "log_prob":
            self.judge.first_gradient(gradient)

    def check_gradients(self, policy: GuardedPolicy) -> None:
        """Stop before a step with a gradient that is not finite.

        :param policy: policy whose optimizer is about to step.
        :raises NonFiniteError: if a gradient is not finite; the message names the likely cause and the last good
            checkpoint.
        """
        self._idle.check(policy.backbone.lm)
        gradients = [p.grad for group in policy.optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients or bool(th.nn.utils.get_total_norm(gradients).isfinite()):
            return
        if all(_is_finite(gradient) for gradient in gradients):  # in half precision, the norm may overflow alone
            return
        raise self.stop(policy, self._cause(policy))

    def _cause(self, policy: GuardedPolicy) -> str:
        """Find the first place where a number is not finite, and name the usual cause."""
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
            if self._first:
                return (
                    "advantages in the first minibatch of the update are not finite, while returns and the model's "
                    "numbers are. With normalize_advantage=True, that of a single decision is NaN. Raise n_steps or "
                    "the number of envs, or pass normalize_advantage=False"
                )
            return (
                "the gradient at the log-probabilities is not finite, while returns and the model's numbers are: the "
                "policy has moved so far within one update that its ratio to the old one overflows. Lower "
                "learning_rate, or set target_kl (e.g. 0.02)"
            )
        half = " Pass dtype='bfloat16' or 'float32'." if _uses_float16(policy) else ""
        return f"the backward pass through the model overflowed.{half} Lower learning_rate"

    def stop(self, policy: GuardedPolicy, cause: str) -> NonFiniteError:
        """Put the last good weights back and save them.

        :param policy: policy in training.
        :param cause: likely cause, and what helps.
        :return: error with the cause and the place of the checkpoint.
        """
        return NonFiniteError(
            f"training stopped {self._when()} because a number is not finite (NaN or infinite). Likely cause: {cause}. "
            f"{self._save(policy)}"
        )

    def _keep(self, policy: GuardedPolicy) -> None:
        """Copy the trainable weights that the last rollout acted with.

        They are few, unless the base model is trained as well. In that case nothing is copied.
        """
        if not policy.backbone.frozen:
            return
        now = _learnt(policy)
        if self._good.keys() != now.keys():
            self._good = {name: tensor.clone() for name, tensor in now.items()}
        else:
            for name, tensor in now.items():
                self._good[name].copy_(tensor)

    def forget_weights(self) -> None:
        """Drop the kept weights, because other weights were loaded."""
        self._good = {}
        self.judge.weights_loaded()

    @th.no_grad()
    def _save(self, policy: GuardedPolicy) -> str:
        """Restore and save the last good weights, and say where they are."""
        for name, tensor in _learnt(policy).items():
            if name in self._good:
                tensor.copy_(self._good[name])
        policy.actor.forget()
        policy.backbone.value_head.forget_seen()
        if not all(_is_finite(tensor) for tensor in (*_plain(policy), *policy.backbone.value_head.buffers())):
            return "The weights in memory are not finite, so none were saved: go back to a checkpoint of your own"
        what = "those that the last rollout acted on" if self._good else "those before the step"
        folder = (self.folder or Path()).resolve() / RESCUED
        saved, more = (policy, "") if self.learner is None else (self.learner, ", env=env")
        try:
            path = claim_number(folder) / "model.zip"
            with whole_file(path) as file:
                saved.save(file)
        except Exception as error:  # an error of the disk must not hide why training stopped
            return f"The weights in memory are good ({what}), but saving them to {folder} failed: {error!r}"
        how = f"{type(saved).__name__}.load({str(path)!r}{more})"
        return f"Last good checkpoint, weights as in memory ({what}): {path}; load it with {how}"


def overflow(policy: GuardedPolicy) -> str:
    """Say why scores or values are not finite, and what helps.

    :param policy: policy in training.
    """
    if not all(map(_is_finite, _plain(policy))):
        return (
            "a weight of the model itself is not finite, although every gradient was: it was loaded so, other code "
            "wrote it, or learning_rate is far too high"
        )
    if _uses_float16(policy):
        return "the model's activations overflow in float16. Pass dtype='bfloat16' or 'float32', or lower learning_rate"
    return "the model's activations overflow: earlier steps were too large. Lower learning_rate, or set target_kl"


def _learnt(policy: GuardedPolicy) -> dict[str, th.Tensor]:
    """Return what training changes: trainable weights, and the statistics of the value head."""
    weights = {name: p.detach() for name, p in policy.named_parameters() if p.requires_grad}
    return {**weights, **{f"statistics.{name}": b for name, b in policy.backbone.value_head.named_buffers()}}


def _plain(policy: GuardedPolicy) -> list[th.nn.Parameter]:
    """Return all weights that are floats."""
    return [parameter for parameter in policy.parameters() if is_plain(parameter)]


def _uses_float16(policy: GuardedPolicy) -> bool:
    return any(parameter.dtype == th.float16 for parameter in policy.parameters())


def _is_finite(tensor: th.Tensor) -> bool:
    return bool(tensor.isfinite().all())
