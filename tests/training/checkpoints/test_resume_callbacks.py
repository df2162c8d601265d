"""Callbacks go on counting in a resumed run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.policy_tools import corridor, ppo
from helpers.resuming import WIDTH, Run, assert_same
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env

import lmpolicy
from lmpolicy import (
    Checkpoints,
    CriticWarmup,
    EntropySchedule,
    WatchLearning,
)


def test_callbacks_of_others_go_on_counting(llama: str, tmp_path: Path) -> None:
    class Own(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def _on_step(self) -> bool:
            self.seen.append(self.num_timesteps)
            return True

        def state_dict(self) -> dict[str, Any]:
            return {"seen": np.array(self.seen)}

        def load_state_dict(self, given: dict[str, Any]) -> None:
            self.seen = given["seen"]

    def callbacks() -> list[Any]:
        evaluation = EvalCallback(make_vec_env(corridor, 1), eval_freq=3, n_eval_episodes=1, verbose=0)
        return [evaluation, [Own(), EveryNTimesteps(6, Own())], Checkpoints(tmp_path)]

    first = callbacks()
    first[1] = first[1][0]
    nested = EveryNTimesteps(6, Own())
    ppo(llama, make_vec_env(corridor, 2, seed=0)).learn(2 * WIDTH, [first[0], first[1], nested, first[2]])
    again = [callbacks()[0], Own(), EveryNTimesteps(6, Own()), Checkpoints(tmp_path)]
    model = lmpolicy.resume(tmp_path, make_vec_env(corridor, 2, seed=0), again, device="cpu")
    assert again[0].n_calls == first[0].n_calls == 16
    assert again[0].best_mean_reward == first[0].best_mean_reward
    assert again[1].seen == list(range(2, 2 * WIDTH + 1, 2))
    assert again[2].last_time_trigger == nested.last_time_trigger > 0
    assert again[2].callback.seen == nested.callback.seen
    model.learn(WIDTH, again, reset_num_timesteps=False)
    assert again[1].seen == list(range(2, 3 * WIDTH + 1, 2))


def test_a_callback_that_is_missing_is_named(llama: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    callbacks = [CriticWarmup(2), EntropySchedule(0.1, 0.0), Checkpoints(tmp_path)]
    ppo(llama, make_vec_env(corridor, 2)).learn(WIDTH, callbacks)
    with caplog.at_level(logging.WARNING, "lmpolicy"):
        lmpolicy.resume(tmp_path, make_vec_env(corridor, 2), [CriticWarmup(2)], device="cpu")
    assert "no callback for the state of EntropySchedule 1: it is lost" in caplog.text


def test_a_state_that_is_no_json_is_refused(llama: str, tmp_path: Path) -> None:
    class Odd(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def state_dict(self) -> dict[str, Any]:
            return {"env": self.training_env}

        def load_state_dict(self, given: dict[str, Any]) -> None:
            raise AssertionError

    with pytest.raises(TypeError, match=r"the state of a callback holds .*state_dict\(\) returns numbers"):
        ppo(llama, make_vec_env(corridor, 2)).learn(WIDTH, [Odd(), Checkpoints(tmp_path)])


def test_watching_goes_on(llama: str, tmp_path: Path) -> None:
    def watched(name: str, at: int | None = None) -> tuple[WatchLearning, list[str]]:
        watch = WatchLearning(every=1, n_turns=3, folder=tmp_path / name)
        run = Run(lambda: make_vec_env(corridor, 2, seed=0), lambda env: ppo(llama, env), lambda: [watch])
        if at is not None:
            run.killed(tmp_path / name, 4 * WIDTH, at)
            watch = WatchLearning(every=1, n_turns=3, folder=tmp_path / name)
            run.resumed(tmp_path / name, 4 * WIDTH)
        else:
            run.whole(tmp_path / name, 4 * WIDTH)
        return watch, (tmp_path / name / "turns.jsonl").read_text().splitlines()

    watch, turns = watched("whole")
    again, turns_again = watched("killed", at=2 * WIDTH + 3)
    assert_same(again.state_dict(), watch.state_dict())
    assert len(turns) == 12
    assert turns_again == turns
