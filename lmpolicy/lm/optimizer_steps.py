"""What a policy does before and after each step of its optimizer; and optimizers by name."""

from __future__ import annotations

from typing import Any

import torch as th

from lmpolicy.lm.checkpoints import shorten_steps
from lmpolicy.lm.heap import trim_heap


def watch_steps(policy: Any) -> None:
    """Add the hooks of this module to the optimizer of a policy.

    :param policy: the :class:`~lmpolicy.LMActorCriticPolicy`.
    """
    policy.optimizer.register_step_pre_hook(lambda *_: before_step(policy))
    policy.optimizer.register_step_post_hook(lambda *_: after_step(policy))
    policy.optimizer.register_state_dict_post_hook(shorten_steps)


def before_step(policy: Any) -> None:
    """Check the gradients, hold the actor still while only the critic learns, and give the critic its own rate.

    SB3 writes one rate into every group before each update, so the critic's factor is applied at each step.

    :param policy: the :class:`~lmpolicy.LMActorCriticPolicy`; the last group of its optimizer is the critic.
    """
    if policy.guard is not None:
        policy.guard.check_gradients(policy)
    *actor, critic = policy.optimizer.param_groups
    if policy.critic_only:
        for parameter in (parameter for group in actor for parameter in group["params"]):
            parameter.grad = None  # None, because with a zero Adam would follow its momentum
    policy._scheduled_rate = critic["lr"]
    critic["lr"] = critic["lr"] * policy.settings.critic_lr_factor


def after_step(policy: Any) -> None:
    """Give the critic the scheduled rate back, and drop what was computed with the weights as they were.

    :param policy: the :class:`~lmpolicy.LMActorCriticPolicy`.
    """
    policy.optimizer.param_groups[-1]["lr"] = policy._scheduled_rate
    policy._has_stepped = True
    if policy.guard is not None:
        policy.guard.stepped()
    with policy.actor.scorer.lock:
        policy.backbone.value_head.update_statistics()
        policy.actor.forget()


def end_update(policy: Any) -> None:
    """Note that the update before, if there was one, is over: a rollout begins, or a checkpoint is written.

    What the update has freed is given back to the operating system.

    :param policy: the :class:`~lmpolicy.LMActorCriticPolicy`.
    """
    policy.backbone.value_head.forget_seen()  # of a minibatch before whose step PPO stopped
    if policy.reference is not None:
        policy.reference.acted()
    if vars(policy).pop("_has_stepped", False):
        trim_heap()


def find_optimizer(given: str | type[th.optim.Optimizer]) -> type[th.optim.Optimizer]:
    """Return the class of an optimizer.

    :param given: the class, or the name of one of ``torch.optim``, such as ``"RAdam"``.
    :raises ValueError: if there is none of this name.
    """
    found = getattr(th.optim, given, None) if isinstance(given, str) else given
    if not isinstance(found, type) or not issubclass(found, th.optim.Optimizer):
        raise ValueError(f'an optimizer is a class of torch.optim or its name, such as "RAdam"; got {given!r}')
    return found
