"""Measure how large the gradients of actor and critic are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch as th

from lmpolicy.policy import LMActorCriticPolicy

UNMEASURED: WeakSet[LMActorCriticPolicy] = WeakSet()
"""Policies that take steps now which belong to no update of their learner."""


class GradientNorms:
    """Measure the norms of the gradients of actor and critic before clipping.

    The hooks are on the weights, because SB3 clips before the optimizer's hooks run. If the gradient of a weight comes
    in parts, its hook runs again with the whole sum.

    :param policy: policy whose weights are watched until :meth:`remove`.
    """

    def __init__(self, policy: LMActorCriticPolicy) -> None:
        self._policy = policy
        self._now: dict[str, dict[th.Tensor, th.Tensor]] = {"policy": {}, "value": {}}
        self._steps: dict[str, list[th.Tensor]] = {"policy": [], "value": []}
        modules = {"policy": policy.backbone.lm, "value": policy.backbone.value_head}
        self._handles: list[Any] = [
            parameter.register_post_accumulate_grad_hook(lambda weight, name=name: self._note(name, weight))
            for name, module in modules.items()
            for parameter in module.parameters()
            if parameter.requires_grad
        ]
        self._handles.append(policy.optimizer.register_step_pre_hook(self._close))

    def _note(self, name: str, weight: th.Tensor) -> None:
        if weight.grad is None:  # no part of the loss depends on it, e.g. the value head while actions are cloned
            return
        self._now[name][weight] = th.linalg.vector_norm(weight.grad.detach(), dtype=th.float32)

    def _close(self, *_: Any) -> None:
        """Join the norms of one optimizer step, without a transfer from the device."""
        is_measured = self._policy not in UNMEASURED
        for name, norms in self._now.items():
            # If this step does not change the LM, the policy has removed the LM's gradients by now.
            taken = [norm for weight, norm in norms.items() if weight.grad is not None]
            if taken and is_measured:
                self._steps[name].append(th.stack(taken).norm())
            norms.clear()

    def means(self) -> dict[str, float]:
        """Return the mean norms over the steps since the last call.

        It takes one transfer from the device.

        :return: mean norms by ``"policy"`` and ``"value"``.
        """
        found = {name: th.stack(norms).mean() for name, norms in self._steps.items() if norms}
        self._steps = {name: [] for name in self._steps}
        return dict(zip(found, th.stack(list(found.values())).tolist(), strict=True)) if found else {}

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()


@contextmanager
def unmeasured(policy: LMActorCriticPolicy) -> Iterator[None]:
    """Measure no gradients of a policy in a ``with`` block, because its learner makes no update there.

    :param policy: policy that is trained within the block.
    """
    UNMEASURED.add(policy)
    try:
        yield
    finally:
        UNMEASURED.discard(policy)
