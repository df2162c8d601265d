"""The trials of classic PPO: general settings first, the best again with further seeds, and no run twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna", reason='needs pip install "lmpolicy[search]"')

from benchmarks import classic_trials
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import read_rows
from benchmarks.learning.tasks import BY_NAME
from lmpolicy.comparison.classic_settings import GENERAL, ClassicSettings, find_classic_settings

TRIALS = RESULTS / "classic_trials.csv"
SMALL = ["--tasks", "frozenlake", "--trials", "4", "--steps", "512"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("trials") / "trials.csv"
    classic_trials.main([*SMALL, "--output", str(output)])
    return output


def test_the_best_trials_run_with_all_seeds(path: Path) -> None:
    rows = read_rows(path)
    first = {int(row["trial"]): float(row["score"]) for row in rows if row["seed"] == "0"}
    again = {int(row["trial"]) for row in rows if row["seed"] == "2"}
    assert sorted(first) == [0, 1, 2, 3]
    assert len(rows) == 4 + 2 * 3
    assert again == set(sorted(first, key=lambda trial: -first[trial])[:3])
    assert all(0 <= float(row["score"]) <= 1 and int(row["env_steps"]) >= 512 for row in rows)


def test_runs_that_are_there_are_not_run_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_text()
    monkeypatch.setattr(classic_trials, "run", lambda *_: pytest.fail("ran again"))
    classic_trials.main([*SMALL, "--output", str(path)])
    assert path.read_text() == before


def test_an_interrupted_search_proposes_the_same_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read_rows(path)
    lost = next(row for row in rows if row["trial"] == "3")
    kept = {(int(row["trial"]), int(row["seed"])): row for row in rows if row is not lost}
    proposed = []
    monkeypatch.setattr(classic_trials, "run", lambda *given: proposed.append(given) or lost)
    monkeypatch.setattr(classic_trials, "add_rows", lambda *_: None)
    trials = classic_trials.Trials("frozenlake", path, 4, 512)
    trials.rows = kept
    trials.search()
    (task, trial, seed, chosen, _), *more = proposed
    assert (task, trial, seed) == ("frozenlake", 3, 0)
    assert classic_trials.json.dumps(chosen) == lost["settings"]
    assert not more


def test_the_best_is_best_at_the_end(path: Path) -> None:
    def row(trial: int, seed: int, score: float, final: float, sampled: float) -> dict[str, str]:
        measured = {"score": str(score), "final": str(final), "final_sampled": str(sampled)}
        return {"trial": str(trial), "seed": str(seed), "settings": f'{{"trial": {trial}}}', **measured}

    trials = classic_trials.Trials("frozenlake", path, 4)
    late = [row(0, seed, 0.5, 1.0, 1.0) for seed in (0, 1, 2)]
    soon = [row(1, seed, 0.9, 1.0, 0.4) for seed in (0, 1, 2)]
    sooner = [row(2, seed, 0.6, 1.0, 1.0) for seed in (0, 1, 2)]
    once = [row(3, 0, 1.0, 1.0, 1.0)]
    trials.rows = {(int(one["trial"]), int(one["seed"])): one for one in (*late, *soon, *sooner, *once)}
    assert [(final, number) for final, number, _ in trials.best()] == [(1.0, 2), (1.0, 0), (pytest.approx(0.7), 1)]


def test_the_first_trial_has_the_general_settings() -> None:
    settings = classic_trials.classic(classic_trials.FIRST)
    general = GENERAL.arguments
    made = settings.arguments
    assert made["learning_rate"](1.0) == made["learning_rate"](0.0) == general.pop("learning_rate")
    assert general.items() <= made.items()
    assert (settings.n_envs, settings.normalize, settings.normalize_reward) == (GENERAL.n_envs, False, False)


def rounded(settings: ClassicSettings) -> dict[str, Any]:
    """What settings do, with numbers of two digits."""
    arguments = settings.arguments
    entropy = settings.ent_coef or (arguments["ent_coef"],) * 2
    rate = arguments["learning_rate"]
    rates = (rate(1.0), rate(0.0)) if callable(rate) else (rate, rate)
    arguments |= {"ent_coef": entropy, "learning_rate": rates}
    arguments.setdefault("normalize_advantage", True)
    short = {name: tuple(f"{one:.2g}" for one in arguments.pop(name)) for name in ("ent_coef", "learning_rate")}
    return {**arguments, **short, "envs": settings.n_envs, "scaled": settings.normalize_reward}


COMPLETE = [task for task in classic_trials.TASKS if any(classic_trials.Trials(task, TRIALS).best())]


@pytest.mark.parametrize("task", COMPLETE)
def test_the_comparison_takes_the_best(task: str) -> None:
    (_, _, best), *_ = classic_trials.Trials(task, TRIALS).best()
    what = BY_NAME[task]
    assert rounded(classic_trials.classic(best)) == rounded(find_classic_settings(what.env_id, **what.env_kwargs))
