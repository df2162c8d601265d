"""The trials of other settings: what is changed, no run twice, no reported seed, and the best first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import setting_trials
from benchmarks.common.rows import read_rows
from lmpolicy.comparison.experiment import Experiment

SMALL = ["--task", "frozenlake", "--steps", "64", "--seeds", "0"]


def test_a_run_has_the_settings_that_were_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, plain = [], setting_trials.run_experiment

    def run(what: Experiment, *rest: Any, **others: Any) -> Any:
        asked.append(what)
        return plain(what, *rest, **others)

    monkeypatch.setattr(setting_trials, "run_experiment", run)
    path = tmp_path / "trials.csv"
    setting_trials.main(
        [*SMALL, "--every", "32", "--set", "learning_rate=[1e-3, 0]", "n_steps=8", "--output", str(path)]
    )
    (what,) = asked
    assert (what.settings.learning_rate, what.settings.n_steps, what.every) == ((1e-3, 0), 8, 32)
    (row,) = read_rows(path)
    assert json.loads(row["settings"]) == {"learning_rate": [1e-3, 0], "n_steps": 8}
    assert row["env_steps"] == "64"
    assert 0 <= float(row["final_sampled"]) <= 1
    steps, greedy, sampled = (row[name].split() for name in ("evaluations", "greedy", "sampled"))
    assert (steps[0], steps[-1]) == ("0", "64")
    assert len(steps) == len(greedy) == len(sampled)
    assert float(sampled[-1]) == pytest.approx(float(row["final_sampled"]), abs=1e-3)

    setting_trials.main([*SMALL, "--set", "n_steps=8", "learning_rate=[1e-3, 0]", "--output", str(path)])
    assert len(asked) == 1, "the same settings in another order ran again"


def test_settings_that_are_no_longer_the_named_ones_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ran = tmp_path / "trials.csv", []
    named = setting_trials.experiment

    def run(task: str, changes: Any, seed: int, what: Experiment) -> dict[str, Any]:
        ran.append(what.settings.n_steps)
        return {"task": task, "settings": "{}", "seed": seed, "digest": setting_trials.digest_of(what.settings)}

    def other(*args: Any, **kwargs: Any) -> Experiment:
        what = named(*args, **kwargs)
        return replace(what, settings=replace(what.settings, n_steps=48))

    monkeypatch.setattr(setting_trials, "run", run)
    monkeypatch.setattr(setting_trials, "table", lambda *_: ())
    setting_trials.main([*SMALL, "--output", str(path)])
    monkeypatch.setattr(setting_trials, "experiment", other)
    for _ in range(2):
        setting_trials.main([*SMALL, "--output", str(path)])
    assert ran == [16, 48]


def test_the_best_settings_come_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, numbers = tmp_path / "trials.csv", dict.fromkeys(setting_trials.FIELDS, "0")
    rows = [
        {**numbers, "task": "cartpole", "settings": "{}", "final": "500", "final_sampled": "400"},
        {**numbers, "task": "cartpole", "settings": '{"n_steps": 64}', "final": "490", "final_sampled": "480"},
        {**numbers, "task": "taxi", "settings": "{}"},
    ]
    setting_trials.add_rows(path, setting_trials.FIELDS, rows)
    setting_trials.main(["--task", "cartpole", "--table", "--output", str(path)])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith('{"n_steps": 64} (0): 490 greedy, 480 sampled, lowest 480')
    assert second.startswith("{} (0): 500 greedy, 400 sampled, lowest 400")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "n_step=8"], "n_steps"),
        (["--set", "n_steps=eight"], "is no JSON"),
        (["--seeds", "100"], "seed 100 is reported"),
    ],
)
def test_what_cannot_be_tried_is_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit):
        setting_trials.main(["--task", "cartpole", *arguments, "--output", str(tmp_path / "trials.csv")])
    assert told in capsys.readouterr().err
