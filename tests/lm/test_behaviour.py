"""Entropy and mutual information of a policy's decisions equal those of plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from helpers.naive_behaviour import naive_information

from lmpolicy import Prompt
from lmpolicy.lm.behaviour import BehaviourStream, entropies, mutual_information


def test_mutual_information_equals_the_naive_loop() -> None:
    random = np.random.default_rng(0)
    probabilities = random.dirichlet(np.ones(5), size=60)
    probabilities[:20, 3:] = 0
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    groups = random.integers(0, 4, 60)
    found = mutual_information(th.from_numpy(probabilities), th.from_numpy(groups))
    assert found == pytest.approx(naive_information(probabilities, groups.tolist()), abs=1e-12)


def test_mutual_information_at_its_ends() -> None:
    sure = th.eye(4).repeat(5, 1)
    assert mutual_information(sure, th.zeros(20, dtype=th.int64)) == pytest.approx(np.log(4))
    assert mutual_information(sure, th.arange(20) % 4) == 0  # what depends on the legal phrases alone does not count
    same = th.tensor([[0.9, 0.1]]).expand(7, 2)
    assert mutual_information(same, th.zeros(7, dtype=th.int64)) == pytest.approx(0, abs=1e-12)
    assert entropies(th.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])).tolist() == pytest.approx([np.log(2), 0])


def test_stream_equals_the_naive_loop() -> None:
    random = np.random.default_rng(1)
    phrases = [("left", "right"), ("left", "right", "stay"), ("stay",)]
    stream, keys, rows = BehaviourStream(), [], []
    for _ in range(10):
        chosen = [phrases[random.integers(3)] for _ in range(6)]
        batch = [Prompt((("user", f"row {random.integers(9)}"),), legal).to_json().encode() for legal in chosen]
        table = np.stack([np.pad(random.dirichlet(np.ones(len(one))), (0, 3 - len(one))) for one in chosen])
        stream.add(batch, th.from_numpy(table).float(), entropies(th.from_numpy(table)).float())
        keys += [(key, legal) for key, legal in zip(batch, chosen, strict=True)]
        rows.append(table)
    table = np.concatenate(rows)
    several = [n for n, (_, legal) in enumerate(keys) if len(legal) > 1]
    most = sum(np.log(len(keys[n][1])) for n in several)
    behaviour = stream.behaviour()
    assert behaviour is not None
    assert behaviour.entropy == pytest.approx(float(entropies(th.from_numpy(table)).sum()) / most, rel=1e-5)
    gain = naive_information(table[several], [keys[n][1] for n in several]) * len(several)
    assert behaviour.information == pytest.approx(gain / most, rel=1e-4)


def test_stream_does_not_compare_what_has_phrases_of_its_own() -> None:
    stream = BehaviourStream()
    keys = [Prompt((("user", "here"),), ("stay", f"take {n}")).to_json().encode() for n in range(300)]
    table = th.tensor([[0.5, 0.5]]).expand(300, 2)
    stream.add(keys, table, entropies(table))
    behaviour = stream.behaviour()
    assert behaviour is not None
    assert behaviour.information is None
    assert behaviour.entropy == pytest.approx(1)
    assert len(stream._counts) == 256  # and does not grow
