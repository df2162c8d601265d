"""Add the divergence from a reference to the loss of a learner that knows nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch as th
from torch import nn

from lmpolicy.lm.actor import Actor, Decision
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.caches import ScoreMemory
from lmpolicy.lm.prefixes import PrefixMemory
from lmpolicy.lm.reference import START, Reference
from lmpolicy.lm.reference_weights import ReferenceWeights
from lmpolicy.lm.settings import PolicySettings

PREFIX = "reference."
"""Beginning of the names of what a checkpoint holds of a reference."""
TOO_FAR, TOO_NEAR = 1.5, 1 / 1.5
"""Shares of the target divergence beyond which the weight of the divergence is doubled or halved."""


class ReferenceTerm(nn.Module):
    """Pull the policy towards its reference, with the gradient of ``beta * mean(KL)``.

    The log-probabilities that PPO is given stay as they are. In the backward pass, the gradient of the divergence is
    added where they came from. So PPO's own step is one on ``loss + beta * mean(KL)``.

    The reference is scored by the policy's own scorer, without gradient and with other weights in place. Its scores
    never change, so that they are remembered for each distinct decision: across epochs, updates and rollouts. What is
    not remembered takes one forward pass.

    :param backbone: language model with its adapter.
    :param settings: settings of the policy.
    :param max_bytes: largest number of bytes of the scores that are remembered.
    :raises ValueError: if the reference does not fit the policy's adapter; the message says what to do.
    :raises OSError: if the adapter of the reference cannot be read.
    """

    adapted: th.Tensor
    last: th.Tensor
    last_beta: th.Tensor

    def __init__(self, backbone: Backbone, settings: PolicySettings, max_bytes: int) -> None:
        super().__init__()
        assert isinstance(settings.reference, Reference)
        self.settings: Reference = settings.reference
        self.memory = ScoreMemory(max_bytes)
        self.active = False
        self._update: tuple[th.Tensor, int] | None = None  # sum of divergences and number of rows, of this update
        self._between: float | None = None  # weight of the divergence between two updates, while something learns there
        self.weights = ReferenceWeights(backbone, settings)
        self.register_buffer("last", th.zeros(2))  # sum of divergences and number of rows, of the update before
        self.register_buffer("last_beta", th.tensor(float(self.settings.beta)))  # weight in this update, or that before
        if self.settings.target is not None:  # a beta that is not adapted is as the settings say, also after loading
            self.register_buffer("adapted", th.tensor(float(self.settings.beta)))
        self.register_load_state_dict_post_hook(_loaded)
        self.register_state_dict_post_hook(_saved)

    @property
    def beta(self) -> float:
        """Return the weight of the divergence now."""
        if self._between is not None:
            return self._between
        return self.settings.beta if self.settings.target is None else float(self.adapted)

    def forget(self) -> None:
        """Drop the remembered scores, because the reference has changed."""
        self.memory.clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let gradients be without this term in a ``with`` block, as when demonstrations are learnt."""
        active, self.active = self.active, False
        try:
            yield
        finally:
            self.active = active

    @contextmanager
    def between_updates(self, *, as_before: bool) -> Iterator[None]:
        """Count no rows in a ``with`` block, because what learns there is no part of an update.

        :param as_before: whether the divergence keeps the weight of the update before, whatever has changed it since.
        """
        before, self._between = self._between, float(self.last_beta) if as_before else self.beta
        try:
            yield
        finally:
            self._between = before

    def pull(self, actor: Actor, decision: Decision) -> Decision:
        """Return a decision whose log-probabilities bring the gradient of the divergence with them.

        :param actor: actor of the policy.
        :param decision: what the actor decided in an update, with gradient.
        :raises MissingAdapterError: if the adapter of the reference is missing.
        """
        if not self.active or decision.scored is None or not decision.log_prob.requires_grad:
            return decision
        self.weights.settle(actor.scorer.backbone.lm)
        comparison = actor.comparison(self.settings)
        keys, actions = decision.keys, decision.actions
        actor.beside = (self.memory,)  # a copy of the policy has an actor that does not know of it
        if len(self.memory) and self.memory.device != decision.scored.device:
            self.forget()

        def run(places: list[int]) -> th.Tensor:
            with self._in_place(actor):
                return comparison.rows([keys[place] for place in places], actions[places])

        with th.no_grad():
            reference = self.memory.rows(comparison.names(keys, actions), run)
        divergence = comparison.divergence(actions, decision.scored, reference)
        beta = self.beta
        if self._between is None:
            total, rows = self._update or (0.0, 0)
            self._update = divergence.detach().sum() + total, rows + len(keys)
            self.last_beta.fill_(beta)
        return replace(decision, log_prob=_Pull.apply(decision.log_prob, divergence, beta))

    @contextmanager
    def _in_place(self, actor: Actor) -> Iterator[None]:
        """Put the weights of the reference in place of the policy's, and set aside what was computed with those.

        Other processes have the weights that train alone, so this one computes all of it.
        """
        scorer = actor.scorer
        forward, lm = scorer.forward, scorer.backbone.lm  # the way to run the model is chosen before, if it was not yet
        with ExitStack() as stack:
            stack.callback(setattr, scorer, "spread", scorer.spread)
            scorer.spread = None
            for cache in forward.caches():
                if isinstance(cache, PrefixMemory):
                    stack.enter_context(cache.set_aside())
            stack.enter_context(self.weights.in_place(lm))
            yield

    def acted(self) -> None:
        """Note that a rollout begins: the update before it, if there was one, is over."""
        self.active = True
        for name, value in self._after_update().items():
            getattr(self, name).copy_(value)
        self._update = None

    def _after_update(self) -> dict[str, th.Tensor]:
        """Return the buffers as they are when this update is over; empty before one."""
        if self._update is None:
            return {}
        total, rows = self._update
        found, target = {"last": self.last.new_tensor([float(total), rows])}, self.settings.target
        if target is not None:
            share = float(total) / rows / target
            found["adapted"] = self.adapted * (2.0 if share > TOO_FAR else 0.5 if share < TOO_NEAR else 1.0)
        return found

    def statistics(self) -> dict[str, float]:
        """Return the mean divergence over the rows of the last update, and its weight if that is adapted.

        :return: numbers by their names in the log; empty before the first update.
        """
        total, rows = self._update or self.last.tolist()
        found = {"train/kl_to_reference": float(total) / rows} if rows else {}
        return found | ({} if self.settings.target is None else {"train/reference_beta": self.beta})


def make_reference(backbone: Backbone, actor: Actor, settings: PolicySettings) -> ReferenceTerm | None:
    """Make the term of the reference that the settings name; ``None`` if they name none.

    :param backbone: language model with its adapter.
    :param actor: actor of the policy.
    :param settings: settings of the policy.
    :raises ValueError: if the reference does not fit the policy; the message says what to do.
    """
    if not isinstance(settings.reference, Reference):
        return None
    actor.comparison(settings.reference)
    return ReferenceTerm(backbone, settings, actor.scorer.limits.scores // 2)


def take_reference(term: ReferenceTerm | None, backbone: Backbone) -> None:
    """Make the policy as it is now the reference.

    :param term: term of the policy's reference.
    :param backbone: language model with its adapter.
    :raises ValueError: if there is no reference that could be set; the message says how there is one.
    """
    if term is None:
        raise ValueError(
            f'the policy has no reference: make it with policy_kwargs={{"reference": {{"beta": 0.1, "of": "{START}"}}}}'
        )
    term.weights.take(backbone.lm)
    term.forget()


class _Pull(th.autograd.Function):
    """Return log-probabilities as they are, and in the backward pass add the gradient of the weighted divergence."""

    @staticmethod
    def forward(ctx: Any, log_prob: th.Tensor, divergence: th.Tensor, beta: float) -> th.Tensor:
        ctx.weight = beta / max(1, divergence.numel())
        return log_prob.view_as(log_prob)

    @staticmethod
    @th.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: th.Tensor) -> tuple[th.Tensor, th.Tensor, None]:
        return gradient, th.full_like(gradient, ctx.weight), None


def _saved(term: ReferenceTerm, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Let what is saved after an update be as when the next rollout has begun, with which a loaded policy begins."""
    state.update({f"{prefix}{name}": value for name, value in term._after_update().items()})


def _loaded(term: ReferenceTerm, keys: Any) -> None:
    """Drop scores and update of before; the checkpoint may be of a policy with another reference, or none."""
    for names in (keys.missing_keys, keys.unexpected_keys):
        names[:] = [name for name in names if not name.startswith(PREFIX)]
    term.forget()
    term._update = None
