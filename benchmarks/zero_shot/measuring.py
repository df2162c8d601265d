"""Measuring a cell, with language models that all tasks share."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import torch as th

from benchmarks.zero_shot.cells import RANDOM, WRITE, Cell, Trial
from benchmarks.zero_shot.players import DRAWS_SEED, FIRST_SEED, Chooser, Writer, play, random_player
from benchmarks.zero_shot.report import numbers
from lmpolicy import PolicySettings
from lmpolicy.lm.backbone import Backbone


def _policy(model: str) -> PolicySettings:
    """Settings without an adapter: one that is not trained changes nothing, and costs time."""
    return PolicySettings(model=model, lora="frozen")


@lru_cache(maxsize=3)
def backbone_of(model: str) -> Backbone:
    """The language model, which all tasks share."""
    return Backbone(_policy(model))


@lru_cache(maxsize=1)
def chooser_of(trial: Trial, model: str, n_phrases: int) -> Chooser:
    """What chooses in all cells of a task, which follow one another."""
    return Chooser(backbone_of(model), n_phrases, _policy(model))


def measure(cell: Cell) -> dict[str, Any]:
    """Play the episodes of a cell; return the numbers of its row."""
    th.manual_seed(DRAWS_SEED)
    settings, writing = cell.settings, {}
    if cell.way == WRITE:
        writing = {"action_mode": "generate", "tokenizer": backbone_of(cell.model).tokenizer}
        writing |= {"max_new_tokens": cell.tokens, "parse_error_reward": 0.0}
    arguments = {**settings.wrapper_arguments, **writing}
    envs = [settings.put_into_words(settings.make(), arguments, training=False) for _ in range(cell.episodes)]
    space: Any = envs[0].action_space
    if cell.way == RANDOM:
        player = random_player()
    elif cell.way == WRITE:
        player = Writer(backbone_of(cell.model), space, _policy(cell.model)).player(cell.sampled)
    else:
        player = chooser_of(cell.trial, cell.model, int(space.n)).player(cell.normalization, cell.sampled)
    start = time.process_time()
    episodes = play(envs, player)
    seconds = time.process_time() - start
    for env in envs:
        env.close()
    return {**numbers(cell, episodes), "first_seed": FIRST_SEED, "cpu_seconds": f"{seconds:.1f}"}
