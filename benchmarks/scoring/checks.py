"""What goes with the timings: that all methods return the same numbers, and what memory an update takes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import torch as th

from benchmarks.scoring.measure import peak_memory, peak_of_tensors
from benchmarks.scoring.methods import ENGINE, FLOOR, ROWS_FLOOR, make_methods
from benchmarks.scoring.models import WORDS, make_policy
from benchmarks.scoring.workload import CENTRE, make_cell, make_workload
from lmpolicy import LMActorCriticPolicy, Prompt

SAME = 1e-4
"""Largest difference of log-probabilities in float32 that is rounding."""

MICRO_BATCHES: tuple[tuple[int, int | None], ...] = (
    (256, None),
    (256, 64),
    (256, 16),
    (256, 4),
    (64, 16),
    (1024, 16),
)
"""Batch and micro-batch sizes of the memory table."""


def check_methods(folder: Path | None, device: str) -> tuple[float, float]:
    """Hold the scorer against the other methods in float32, on prompts and phrases of unequal lengths.

    :param folder: the model.
    :param device: where to run.
    :return: largest relative differences of scores and of gradients, see :func:`relative_difference`, over the methods.
    :raises AssertionError: if they do not agree; then there is no point in timing them.
    """
    phrases = tuple(" ".join(WORDS[start:end]) for start, end in [(0, 1), (0, 3), (0, 2), (1, 4)])
    system = ("system", " ".join(WORDS[100:120]))
    prompts = [Prompt((system, ("user", " ".join(WORDS[200 + i : 210 + 3 * i]))), phrases) for i in range(5)]
    policy = make_policy(folder, len(phrases), "float32", device)
    work = make_workload(policy.backbone.renderer, prompts)
    weights = th.randn(len(prompts), len(phrases), generator=th.Generator().manual_seed(0))
    adapters = {name: p for name, p in policy.backbone.lm.named_parameters() if p.requires_grad}
    results = []
    for memory_limit in (10.0, 1e-3):  # in one piece, with padding, and in several
        for method in make_methods(policy, work, True, memory_limit, weights):
            if method.name not in (FLOOR, ROWS_FLOOR):
                numbers = th.cat([method.run(index, backward=True) for index in range(len(method.pieces))])
                gradients = {name: p.grad.clone() for name, p in adapters.items() if p.grad is not None}
                results.append((method.name, numbers[: weights.numel()], gradients))
                policy.zero_grad()
    (_, scores, gradients), *others = results  # the engine comes first
    assert len(gradients) == len(adapters)
    worst_scores = worst_gradients = 0.0
    for name, other_scores, other_gradients in others:
        error = float((scores - other_scores).abs().max())
        assert error < SAME, f"{ENGINE} and {name} differ by {error:.2g}"
        worst_scores = max(worst_scores, relative_difference(scores, other_scores))
        pairs = [(gradients[key], other_gradients[key]) for key in gradients]
        worst_gradients = max(worst_gradients, *(relative_difference(*pair) for pair in pairs))
    return worst_scores, worst_gradients


def relative_difference(first: th.Tensor, second: th.Tensor) -> float:
    """Largest difference of two tensors relative to the largest number in them.

    :param first: any shape.
    :param second: the same shape.
    """
    return float((first - second).abs().max() / second.abs().max())


def update_memory(
    batch: int, micro_batch_size: int | None, device: str, seed: int
) -> tuple[float, float | None, float]:
    """What one ``evaluate_actions`` with backward takes.

    :param batch: number of distinct prompts of the bundled LM, as in the centre of the grid.
    :param micro_batch_size: as in ``policy_kwargs``.
    :param device: where to run.
    :param seed: of the prompts.
    :return: MiB that all tensors beyond those there before hold at the peak; MiB by which the process grows for it,
        which has what the C library cannot reuse, too, or ``None`` where the system does not tell; seconds.
    """
    policy = make_policy(None, CENTRE.actions, "float32", device, micro_batch_size=micro_batch_size)
    work = make_cell(policy.backbone.renderer, replace(CENTRE, batch=batch), seed)
    rows = work.rows.to(policy.device)
    actions = th.arange(batch, device=policy.device) % CENTRE.actions
    _update(policy, rows, actions)  # reads the rows, which is remembered, and warms up
    process, seconds = peak_memory(lambda: _update(policy, rows, actions), policy.device)
    return peak_of_tensors(lambda: _update(policy, rows, actions), policy.device), process, seconds


def _update(policy: LMActorCriticPolicy, rows: th.Tensor, actions: th.Tensor) -> float:
    start = time.perf_counter()
    values, log_probs, entropy = policy.evaluate_actions(rows, actions)
    assert entropy is not None
    (log_probs.sum() + entropy.sum() + values.sum()).backward()
    seconds = time.perf_counter() - start
    policy.zero_grad()
    return seconds
