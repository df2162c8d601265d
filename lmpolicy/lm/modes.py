"""Run the language model in evaluation mode, also while it learns.

A rollout and an update must compute the same probabilities. In training mode, models of some families compute others:
dropout is not all of it. Routers add noise or draw experts at random, layers are skipped, and weights are rescaled. In
evaluation mode, each model computes what it computes for every other user, and gradients flow all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from lmpolicy.lm.calls import checkpoints_layers


def hold_evaluation(lm: nn.Module, mode: bool) -> None:
    """Put the parts of a model into training mode that checkpoint gradients, and all others into evaluation mode.

    Gradient checkpointing of Transformers acts in training mode alone.

    :param lm: causal LM, with adapters or without.
    :param mode: True for training.
    """
    lm.eval()
    if mode:
        checkpointing = [module for module in lm.modules() if getattr(module, "gradient_checkpointing", False)]
        for module in checkpointing:  # one by one, because train() would reach all their parts
            module.training = True
        lm.training = bool(checkpointing)


@contextmanager
def modes_kept(lm: nn.Module) -> Iterator[None]:
    """Restore the modes of a model's parts at the end of a ``with`` block.

    :param lm: causal LM, with adapters or without.
    """
    modes = [(module, module.training) for module in lm.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def checkpointing_off(lm: nn.Module) -> Iterator[None]:
    """Hold a model in evaluation mode in a ``with`` block if it checkpoints gradients, so that it takes a cache.

    :param lm: causal LM, with adapters or without.
    """
    if not checkpoints_layers(lm):
        yield
        return
    with modes_kept(lm):
        lm.eval()
        yield
