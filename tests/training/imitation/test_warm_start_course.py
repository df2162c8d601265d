"""How a warm start runs: when it ends, what it logs and shows, and what its guard rails stop."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch as th
from helpers.policy_tools import changed, corridor, ppo, weights
from helpers.walks import expert_walks
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure

import lmpolicy
from lmpolicy import NonFiniteError, warm_start
from lmpolicy.training.imitation.cloning import Judgement, losses_of
from lmpolicy.training.imitation.warm_start import SMALLEST_PROGRESS

# When it ends


def test_the_best_weights_are_put_back(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ppo(llama, corridor())
    losses, after = iter([5.0, 3.0, 2.0, 4.0, 2.0 - SMALLEST_PROGRESS / 2, 4.0, 1.0]), []

    def judge(policy: Any, rows: Any, batch_size: int) -> Judgement:
        statistics = {name: one.clone() for name, one in policy.backbone.value_head.named_buffers()}
        steps = [float(one["step"]) for one in policy.optimizer.state.values()]
        after.append((weights(model), statistics, steps))
        return Judgement(next(losses), None, 0.3, 0.5)

    monkeypatch.setattr(lmpolicy.training.imitation.warm_start, "judge", judge)
    result = warm_start(model, expert_walks(), 20, patience=3)
    assert (result.best_epoch, result.stopped_early, len(result.epochs)) == (4, True, 6)
    assert result.best["validation_loss"] == 2.0 - SMALLEST_PROGRESS / 2
    expected, statistics, steps = after[4]
    assert not changed(expected, weights(model))
    assert changed(after[5][0], weights(model))
    for name, one in model.policy.backbone.value_head.named_buffers():
        assert th.equal(one, statistics[name])
    assert [float(one["step"]) for one in model.policy.optimizer.state.values()] == steps
    model.policy.optimizer.step()  # its hooks are there still


def test_a_warm_start_that_only_harms_leaves_the_policy(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ppo(llama, corridor())
    before, losses = weights(model), iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(
        lmpolicy.training.imitation.warm_start, "judge", lambda *_: Judgement(next(losses), None, 0.3, 0.5)
    )
    result = warm_start(model, expert_walks(), 20, patience=2)
    assert result.best_epoch == 0
    assert not changed(before, weights(model))


def test_without_validation_all_epochs_are_run(llama: str) -> None:
    model = ppo(llama, corridor())
    result = warm_start(model, expert_walks(1), 3, validation=0)
    assert (result.best_epoch, result.stopped_early, result.held_out, len(result.epochs)) == (3, False, 0, 4)
    assert "validation_loss" not in result.best
    assert result.best["accuracy"] > 0


def test_patience_counts_progress_that_is_worth_it(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = (1 - epoch * SMALLEST_PROGRESS / 10 for epoch in range(100))
    monkeypatch.setattr(
        lmpolicy.training.imitation.warm_start, "judge", lambda *_: Judgement(next(numbers), None, 0.3, 0.5)
    )
    result = warm_start(ppo(llama, corridor()), expert_walks(), 50, patience=4)
    assert (result.best_epoch, len(result.epochs)) == (4, 5)
    numbers = (1 - epoch * SMALLEST_PROGRESS / 10 for epoch in range(100))
    assert warm_start(ppo(llama, corridor()), expert_walks(), 6, patience=None).best_epoch == 6


# Log and guard rails


def test_the_logger_is_given_each_epoch(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, corridor())
    model.set_logger(configure(str(tmp_path), ["csv"]))
    result = warm_start(model, expert_walks(), 3, patience=None)
    rows = list(csv.DictReader((tmp_path / "progress.csv").open()))
    assert len(rows) == 4
    names = {"loss", "value_loss", "validation_loss", "validation_value_loss", "entropy", "accuracy"}
    assert {f"warm_start/{name}" for name in names} == set(rows[-1])
    for row, numbers in zip(rows, result.epochs, strict=True):
        assert {name: float(row[f"warm_start/{name}"]) for name in numbers} == pytest.approx(dict(numbers))


def test_a_learner_that_has_not_trained_gets_its_own_logger_later(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, corridor(), tensorboard_log=str(tmp_path))
    warm_start(model, expert_walks(), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["warm_start_1"]
    model.learn(8)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["PPO_1", "warm_start_1"]


def test_lines_and_a_bar_are_shown_if_asked_for(
    llama: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tqdm")
    model = ppo(llama, corridor())
    warm_start(model, expert_walks(), 2)
    assert capsys.readouterr() == ("", "")
    warm_start(model, expert_walks(), 2, verbose=1, progress_bar=True)
    shown = capsys.readouterr()
    assert "warm start, epoch 2: loss" in shown.out
    assert "2/2" in shown.err
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r'pip install "lmpolicy\[examples\]"'):
        warm_start(model, expert_walks(), 1, progress_bar=True)


def test_numbers_that_are_not_finite_stop_it(llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = ppo(llama, corridor())
    before = weights(model)
    original = losses_of

    def broken(policy: Any, rows: Any) -> Any:
        losses = original(policy, rows)
        return replace(losses, actor=losses.actor * float("inf"))

    monkeypatch.setattr(lmpolicy.training.imitation.cloning, "losses_of", broken)
    with pytest.raises(NonFiniteError):
        warm_start(model, expert_walks(), 1)
    assert not changed(before, weights(model))
    assert [group["lr"] for group in model.policy.optimizer.param_groups] == [3e-4, 3e-4]


def test_a_cloned_policy_is_not_warned_of_what_it_avoids(llama: str, recwarn: pytest.WarningsRecorder) -> None:
    model = ppo(llama, make_vec_env(corridor, 2), n_steps=32, batch_size=64, n_epochs=1, learning_rate=3e-3)
    warm_start(model, expert_walks(10), 60, patience=None)
    model.learn(192)
    assert not [one for one in recwarn if "hardly ever choose" in str(one.message)]
