"""Add the divergence from a reference to the loss of a learner that knows nothing of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import peft
import torch as th
from torch import nn

from lmpolicy.lm.actor import Actor, Decision
from lmpolicy.lm.adapters import MissingAdapterError, put_weights, read_arguments, read_weights
from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.caches import ScoreMemory
from lmpolicy.lm.loading import hub_options
from lmpolicy.lm.model_settings import lora_arguments, to_json
from lmpolicy.lm.prefixes import PrefixMemory
from lmpolicy.lm.reference import START, Reference
from lmpolicy.lm.settings import PolicySettings

log = logging.getLogger(__name__)

PREFIX = "reference."
"""Beginning of the names of what a checkpoint holds of a reference."""
TOO_FAR, TOO_NEAR = 1.5, 1 / 1.5
"""Shares of the target divergence beyond which the weight of the divergence is doubled or halved."""
PLAIN_INITS = (True, False, "gaussian")
"""Ways to initialise an adapter that leave the base model as it is."""


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
    taken: th.Tensor

    def __init__(self, backbone: Backbone, settings: PolicySettings, max_bytes: int) -> None:
        super().__init__()
        assert isinstance(settings.reference, Reference)
        self.settings: Reference = settings.reference
        self.memory = ScoreMemory(max_bytes)
        self.active = False
        self._missing: MissingAdapterError | None = None
        self._sum, self._rows = 0.0, 0
        self._update: list[tuple[th.Tensor, int]] = []
        self.register_buffer("taken", th.tensor(False))
        if self.settings.target is not None:  # a beta that is not adapted is as the settings say, also after loading
            self.register_buffer("adapted", th.tensor(float(self.settings.beta)))
        if not self.settings.holds_weights:
            _check_base(backbone)
        else:
            for name, weight in _learning(backbone.lm).items():
                self.register_buffer(_buffer(name), weight.detach().clone())
            if self.settings.of != START:
                self._read(backbone, settings)
        self.register_load_state_dict_post_hook(_loaded)

    def _read(self, backbone: Backbone, settings: PolicySettings) -> None:
        """Read the adapter that is the reference; a checkpoint that is loaded later may hold it, too."""
        folder, options = str(self.settings.of), hub_options(settings)
        try:
            arguments = read_arguments(folder, settings.model, options)
        except MissingAdapterError as error:
            self._missing = error
            log.warning("%s\nThe policy can be trained once a checkpoint is loaded into it.", error)
            return
        own = _arguments(backbone.lm)
        differing = [name for name in SCALING if own.get(name) != arguments.get(name)]
        misfit = (
            f"the adapter {folder!r} cannot be the reference of this policy, because it has other settings than the "
            "policy's own. Give lora= the settings of that adapter, start from it with adapter=, or merge it into the "
            'model with PEFT and take of="base"'
        )
        if differing:
            shown = ", ".join(f"{name}={arguments.get(name)!r}, not {own.get(name)!r}" for name in differing)
            raise ValueError(f"{misfit}: {shown}")
        before = {name: weight.detach().clone() for name, weight in _learning(backbone.lm).items()}
        try:
            put_weights(backbone.lm, read_weights(folder, options), misfit)
            self.take(backbone.lm)
        finally:
            with th.no_grad():
                for name, weight in _learning(backbone.lm).items():
                    weight.copy_(before[name])

    @property
    def beta(self) -> float:
        """Return the weight of the divergence now."""
        return self.settings.beta if self.settings.target is None else float(self.adapted)

    @th.no_grad()
    def take(self, lm: nn.Module) -> None:
        """Make the policy as it is now the reference.

        :param lm: language model with its adapter.
        :raises ValueError: if the reference is the base model; the message says which reference can be taken anew.
        """
        if not self.settings.holds_weights:
            raise ValueError(
                f'the reference is the base model, which never changes; policy_kwargs={{"reference": {{"of": "{START}"'
                "}} can be set to the policy as it is"
            )
        for name, weight in _learning(lm).items():
            self.get_buffer(_buffer(name)).copy_(weight)
        self.taken.fill_(True)
        self.forget()

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

    def pull(self, actor: Actor, decision: Decision) -> Decision:
        """Return a decision whose log-probabilities bring the gradient of the divergence with them.

        :param actor: actor of the policy.
        :param decision: what the actor decided in an update, with gradient.
        :raises MissingAdapterError: if the adapter of the reference is missing.
        """
        if not self.active or decision.scored is None or not decision.log_prob.requires_grad:
            return decision
        if self._missing is not None and not self.taken:
            raise self._missing
        if self.settings.holds_weights and not self.taken:
            self.take(actor.scorer.backbone.lm)
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
        self._update.append((divergence.detach().sum(), len(keys)))
        return replace(decision, log_prob=_Pull.apply(decision.log_prob, divergence, self.beta))

    @contextmanager
    def _in_place(self, actor: Actor) -> Iterator[None]:
        """Put the weights of the reference in place of the policy's, and set aside what was computed with those."""
        scorer = actor.scorer
        forward, lm = scorer.forward, scorer.backbone.lm  # the way to run the model is chosen before, if it was not yet
        with ExitStack() as stack:
            for cache in forward.caches():
                if isinstance(cache, PrefixMemory):
                    stack.enter_context(cache.set_aside())
            stack.enter_context(self._exchanged(lm) if self.settings.holds_weights else switched_off(lm))
            yield

    @contextmanager
    def _exchanged(self, lm: nn.Module) -> Iterator[None]:
        """Exchange the weights that learn, without writing to them: nobody who watches them sees a change."""
        weights = _learning(lm)
        own = {name: weight.data for name, weight in weights.items()}
        try:
            for name, weight in weights.items():
                weight.data = self.get_buffer(_buffer(name))
            yield
        finally:
            for name, weight in weights.items():
                weight.data = own[name]

    def acted(self) -> None:
        """Note that the policy acts in a rollout: the update before it, if there was one, is over."""
        self.active = True
        if not self._update:
            return
        self._sum = float(th.stack([total for total, _ in self._update]).sum())
        self._rows = sum(rows for _, rows in self._update)
        self._update = []
        mean, target = self._sum / self._rows, self.settings.target
        if target is not None and not TOO_NEAR * target <= mean <= TOO_FAR * target:
            self.adapted.mul_(2.0 if mean > target else 0.5)

    def statistics(self) -> dict[str, float]:
        """Return the mean divergence over the rows of the last update, and its weight if that is adapted.

        :return: numbers by their names in the log; empty before the first update.
        """
        totals = [total for total, _ in self._update]
        total, rows = self._sum, self._rows
        if totals:
            total, rows = float(th.stack(totals).sum()), sum(count for _, count in self._update)
        found = {"train/kl_to_reference": total / rows} if rows else {}
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
    term.take(backbone.lm)


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


@contextmanager
def switched_off(lm: Any) -> Iterator[None]:
    """Run a model without its adapter in a ``with`` block.

    PEFT marks all weights of the adapter as learning afterwards, so what learns is noted before.

    :param lm: model with an adapter of PEFT.
    """
    flags = [(weight, weight.requires_grad) for weight in lm.parameters()]
    try:
        with lm.disable_adapter():
            yield
    finally:
        for weight, learns in flags:
            weight.requires_grad_(learns)


SCALING = ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora")
"""Arguments of a LoRA that must be equal for its weights to mean the same."""


def _arguments(lm: Any) -> Mapping[str, Any]:
    """Return the arguments of a model's adapter, as values for JSON."""
    return to_json(lora_arguments(lm.peft_config[lm.active_adapter]), "lora")


def _check_base(backbone: Backbone) -> None:
    """Refuse adapters of which the base model cannot be had back by switching them off."""
    lm: Any = backbone.lm
    config: peft.LoraConfig = lm.peft_config[lm.active_adapter]
    if config.bias != "none" or config.init_lora_weights not in PLAIN_INITS:
        odd = f"bias={config.bias!r}" if config.bias != "none" else f"init_lora_weights={config.init_lora_weights!r}"
        raise ValueError(
            f'an adapter with {odd} changes the base model itself, which of="base" could not get back: take a '
            f'reference of="{START}", which is the policy before its training'
        )


def _learning(lm: nn.Module) -> dict[str, nn.Parameter]:
    return {name: weight for name, weight in lm.named_parameters() if weight.requires_grad}


def _buffer(name: str) -> str:
    return name.replace(".", "/")  # names of buffers have no dots


def _loaded(term: ReferenceTerm, keys: Any) -> None:
    """Drop the remembered scores after loading; the checkpoint may be of a policy with another reference, or none."""
    for names in (keys.missing_keys, keys.unexpected_keys):
        names[:] = [name for name in names if not name.startswith(PREFIX)]
    term.forget()
