"""Policies that have left their reference, and the naive divergence from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch as th
from helpers.lm_tools import (
    SHARED,
    UNSHARED,
    encode,
    make_policy,
)

from lmpolicy import LMActorCriticPolicy

PROMPTS = [SHARED[0], SHARED[1], UNSHARED[1], SHARED[0], SHARED[5], SHARED[3], SHARED[0]]
"""With distinct rows that come again, and others of the same words with other phrases."""
ACTIONS = th.tensor([0, 1, 1, 2, 0, 1, 0])
OF_TWO = [UNSHARED[1], SHARED[3]]
"""Prompts of two phrases, as in the corridor."""
WARNS_OF_SIZES = "ignore:You have specified a mini-batch size"


@th.no_grad()
def move(policy: LMActorCriticPolicy, seed: int = 7, size: float = 0.2) -> None:
    """Change the adapter, so that the policy is somewhere else than its reference."""
    generator = th.Generator().manual_seed(seed)
    for name, weight in policy.named_parameters():
        if "lora_" in name:
            weight.add_(size * th.randn(weight.shape, generator=generator))


@contextmanager
def without_adapter(policy: LMActorCriticPolicy) -> Iterator[None]:
    """The naive way to the base model: all B matrices are 0."""
    kept = {name: weight.detach().clone() for name, weight in policy.named_parameters() if "lora_B" in name}
    with th.no_grad():
        for name, weight in policy.named_parameters():
            if name in kept:
                weight.zero_()
        yield
        for name, weight in policy.named_parameters():
            if name in kept:
                weight.copy_(kept[name])


def naive_divergence(mine: th.Tensor, its: th.Tensor, direction: str = "pi||ref") -> th.Tensor:
    """KL between the softmax of two vectors of scores of the legal phrases."""
    log_p, log_q = mine.log_softmax(-1), its.log_softmax(-1)
    if direction == "ref||pi":
        log_p, log_q = log_q, log_p
    return sum((p.exp() * (p - q) for p, q in zip(log_p, log_q, strict=True)), th.zeros(()))


def policy_away_from(llama: str, tmp_path: Path, of: str, **settings: Any) -> tuple[Any, LMActorCriticPolicy]:
    """A policy that has acted, somewhere else than its reference; and another one that is that reference."""
    reference: dict[str, Any] = {"beta": 0.7, "of": of, **settings.pop("reference", {})}
    start = make_policy(llama, **settings)
    if of == "folder":
        start.save_adapter(tmp_path / "adapter")
        reference["of"] = str(tmp_path / "adapter")
    policy: Any = make_policy(llama, reference=reference, **settings)
    if of == "start":
        policy.set_reference()
    move(policy)
    with th.no_grad():
        policy(encode(PROMPTS))
    return policy, start
