"""The benchmark of warm starts: experts that play well, rows, what is run again, and the table that is made of them."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
pytest.importorskip("matplotlib")

from benchmarks.learning.tasks import lm_settings
from benchmarks.warm_start import __main__ as benchmark
from benchmarks.warm_start import runs
from benchmarks.warm_start.experts import HIT, STICK, basic_strategy, play_expert
from benchmarks.warm_start.methods import METHODS, TASKS, Task
from benchmarks.warm_start.report import drops, read_runs, summarize
from lmpolicy import hyperparameters
from lmpolicy.comparison.measures import FinishedRun
from lmpolicy.envs.experts import TextWorldExpert

ARGUMENTS = ("--tasks", "lake", "--methods", "warm", "--steps", "512", "--episodes", "4", "--games", "3")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a short run."""
    output = tmp_path_factory.mktemp("warm_start")
    benchmark.main([*ARGUMENTS, "--seeds", "0", "--output", str(output)])
    return output


# Experts


def test_the_expert_on_the_lake_arrives() -> None:
    played = play_expert(lm_settings(TASKS["lake"].learning), TASKS["lake"].expert, 3, seed=0)
    assert played.rewards() == [[0, 0, 0, 0, 0, 1]] * 3


def best_of_blackjack() -> dict[tuple[int, int, bool], tuple[float, float]]:
    """What sticking and hitting are worth in each state, by dynamic programming over an endless deck."""
    cards = dict.fromkeys(range(1, 10), 1 / 13) | {10: 4 / 13}

    def dealer(total: int, ace: bool, memo: dict[Any, dict[int, float]]) -> dict[int, float]:
        best = total + 10 if ace and total + 10 <= 21 else total
        if best >= 17:
            return {best if best <= 21 else 0: 1.0}
        if (total, ace) not in memo:
            found: dict[int, float] = {}
            for card, share in cards.items():
                for end, chance in dealer(total + card, ace or card == 1, memo).items():
                    found[end] = found.get(end, 0.0) + share * chance
            memo[total, ace] = found
        return memo[total, ace]

    worth: dict[tuple[int, int, bool], tuple[float, float]] = {}
    memo: dict[Any, dict[int, float]] = {}
    for card in cards:
        ends = dealer(card, card == 1, memo)

        def value(total: int, usable: bool, card: int = card, ends: dict[int, float] = ends) -> float:
            if total > 21 and usable:
                total, usable = total - 10, False
            if total > 21:
                return -1.0
            if (total, card, usable) not in worth:
                stick = sum(chance * float(np.sign(total - end)) for end, chance in ends.items())
                hit = 0.0
                for new, share in cards.items():
                    ace = new == 1 and total + 11 <= 21
                    hit += share * value(total + (11 if ace else new), usable or ace, card, ends)
                worth[total, card, usable] = stick, hit
            return max(worth[total, card, usable])

        for total in range(4, 22):
            value(total, False)
        for total in range(12, 22):
            value(total, True)
    return worth


def test_the_expert_plays_blackjack_as_dynamic_programming_does() -> None:
    worth = best_of_blackjack()
    assert len(worth) > 200
    for (total, card, usable), (stick, hit) in worth.items():
        expected = STICK if stick >= hit else HIT
        assert basic_strategy(total, card, usable) == expected or abs(stick - hit) < 1e-3, (total, card, usable)


def test_the_expert_of_blackjack_sees_its_cards() -> None:
    settings = hyperparameters("Blackjack-v1")
    played = play_expert(settings, TASKS["blackjack"].expert, 30, seed=0)
    assert {one.action for one in played} == {"stick", "hit"}
    assert played == play_expert(settings, TASKS["blackjack"].expert, 30, seed=0)


def test_the_bot_finds_the_red_ball() -> None:
    pytest.importorskip("minigrid")
    played = play_expert(lm_settings(TASKS["redball"].learning), TASKS["redball"].expert, 4, seed=0)
    assert all(rewards[-1] > 0.5 for rewards in played.rewards())
    assert len(played.episodes) == 4


def few_games(task: Task) -> Task:
    """A task that needs two games of TextWorld instead of a hundred."""
    if task.expert is not TextWorldExpert:
        return task
    pytest.importorskip("textworld")
    learning = task.learning
    kwargs, test = {**learning.env_kwargs, "games": 2}, {**learning.test_kwargs, "games": 2}
    return replace(task, learning=replace(learning, env_kwargs=kwargs, test_kwargs=test))


def test_where_the_way_is_not_told_the_way_back_is() -> None:
    searched = lm_settings(TASKS["house-brief"].learning)
    assert searched.task.tell_way_back  # type: ignore[union-attr]
    assert not lm_settings(TASKS["house"].learning).task.tell_way_back  # type: ignore[union-attr]
    assert searched.score_normalization == lm_settings(TASKS["house"].learning).score_normalization


@pytest.mark.parametrize(("seed", "first"), [(100, "1000000"), (3, "3000000")])
def test_houses_are_shown_and_others_are_evaluated(seed: int, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = few_games(TASKS["house"])
    shown, evaluated = [], []

    def note_shown(settings: Any, *arguments: Any) -> Any:
        shown.append(settings.env_kwargs.get("split", "train"))
        return play_expert(settings, *arguments)

    def note_evaluated(model: Any, venv: Any, *_: Any) -> dict[str, Any]:
        evaluated.extend(str(file) for files in venv.get_attr("files") for file in files)
        return {"mean_return": 0.0}

    monkeypatch.setattr(runs, "play_expert", note_shown)
    monkeypatch.setattr(runs, "warm_start", lambda *_, **__: None)
    monkeypatch.setattr(runs, "evaluate", note_evaluated)
    runs.train(replace(task, steps=1), METHODS["warm"], seed, 2, lambda **_: None, episodes=2)
    assert shown == ["train"]
    assert {file.rpartition("-")[2] for file in evaluated} == {f"{first}.z8", f"{int(first) + 1}.z8"}


def test_the_number_of_games_is_that_of_the_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[int] = []
    monkeypatch.setattr(benchmark, "train", lambda task, method, seed, games, *_: seen.append(games))
    monkeypatch.setattr(benchmark, "report", lambda *_: None)
    common = ("--methods", "warm", "--seeds", "0", "--output", str(tmp_path))
    benchmark.main(["--tasks", "lake", "house", *common])
    benchmark.main(["--tasks", "house", "--games", "7", *common])
    assert seen == [20, 100, 7]


# Runs


@pytest.mark.parametrize("name", TASKS)
def test_the_warm_start_has_the_arguments_of_its_task(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "redball":
        pytest.importorskip("minigrid")
    task = few_games(TASKS[name])

    class SeenError(Exception):
        pass

    def note(model: Any, played: Any, **arguments: Any) -> None:
        raise SeenError(len(played.episodes), arguments)

    monkeypatch.setattr(runs, "warm_start", note)
    with pytest.raises(SeenError) as caught:
        runs.train(task, METHODS["warm-named"], 3, 2, lambda **_: None, steps=512, episodes=2)
    games, arguments = caught.value.args
    settings = lm_settings(task.learning)
    rate = (settings.for_model(task.model) if task.model else settings).learning_rate[0]
    assert (games, arguments) == (2, {"learning_rate": rate, "seed": 3, **task.cloning})


def test_rows_of_both_ways_to_act(folder: Path) -> None:
    rows = read(folder / "lake_warm_0.csv")
    assert [(row["env_steps"], row["sampled"]) for row in rows] == [("0", "0"), ("0", "1"), ("512", "0"), ("512", "1")]
    assert [row["complete"] for row in rows] == ["0", "0", "0", "1"]
    assert float(rows[0]["mean_return"]) == 1, "after the warm start"
    assert {row["games"] for row in rows} == {"3"}
    assert len(read(folder / "summary.csv")) == 2
    assert (folder / "learning.png").stat().st_size > 10_000


def test_complete_run_is_skipped_and_interrupted_one_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []

    def train(task: Any, method: Any, seed: int, games: int, write: Any, *_: Any) -> None:
        trained.append(seed)
        for complete in (0, 1):
            write(env_steps=0, sampled=complete, mean_return="0", std_return="0", episodes=1, train_seconds="1",
                  cpu_seconds="1", complete=complete)  # fmt: skip

    monkeypatch.setattr(benchmark, "train", train)
    (folder / "lake_warm_1.csv").write_text((folder / "lake_warm_0.csv").read_text().rpartition("lake,")[0])
    benchmark.main([*ARGUMENTS, "--seeds", "0", "1", "--output", str(folder)])
    assert trained == [1]
    assert len(read(folder / "lake_warm_1.csv")) == 2


def test_methods_change_what_they_say() -> None:
    named = hyperparameters("FrozenLake-v1", is_slippery=False)
    assert METHODS["warm"].settings(named) is named
    assert METHODS["warm-named"].settings(named) == named.after_warm_start() != named
    exploring = METHODS["warm-exploring"].settings(named)
    assert exploring == replace(named.after_warm_start(), gamma=0.9, ent_coef=(0.005, 0.0))
    assert [name for name, method in METHODS.items() if not method.warm] == [
        "scratch",
        "expert-iteration",
        "self-imitation",
    ]
    for name in ("expert-iteration", "self-imitation"):
        assert METHODS[name].callbacks()[0] is not METHODS[name].callbacks()[0], "each run has its own"


# The table


def finished(seed: int, greedy: list[float], method: str = "warm", spread: float = 0.0) -> FinishedRun:
    """A run that was evaluated every 512 env steps; sampled actions return half."""
    common = {"task": "lake", "method": method, "seed": str(seed), "threads": "1", "processor": "P", "torch": "T"}
    common |= {"episodes": "100", "std_return": str(spread), "cpu_seconds": "60", "train_seconds": "60"}
    return FinishedRun(
        [
            {
                **common,
                "env_steps": str(512 * place),
                "sampled": str(int(sampled)),
                "mean_return": str(value / (1 + sampled)),
            }
            for place, value in enumerate(greedy)
            for sampled in (False, True)
        ]
    )


def test_drops_are_against_the_warm_start() -> None:
    found = drops(finished(0, [0.9, 1.0, 0.6], spread=2.0), sampled=False)
    width = 1.96 * math.sqrt(2 * 4 / 100)
    np.testing.assert_allclose(found, [(-0.1, width), (0.3, width)], atol=1e-12)


def test_a_line_of_the_table() -> None:
    warm = [finished(0, [0.9, 0.5, 1.0]), finished(1, [0.7, 0.9, 0.8]), finished(2, [1.0, 1.0, 1.0])]
    scratch = [finished(0, [0.0, 0.0, 1.0], "scratch"), finished(1, [0.0, 1.0, 1.0], "scratch")]
    line = summarize(("lake", "warm"), warm, False, scratch, threshold=0.9)
    assert line["seeds"] == "0 1 2"
    assert line["start"] == "0.8667"
    assert line["steps_to_threshold"] == "0"
    assert line["share_of_scratch"] == "0.00"
    assert line["minimum_later"] == "0.5"
    assert line["largest_drop"] == "0.4"
    assert line["evaluations_below"] == "1 of 6"
    assert line["final"] == "0.9333"
    assert (line["final_low"], line["final_high"]) != ("", "")
    never = summarize(("lake", "warm"), [finished(0, [0.1, 0.2])], True, [], threshold=0.9)
    assert (never["steps_to_threshold"], never["share_of_scratch"]) == ("not reached", "")
    assert (never["final"], never["final_low"]) == ("0.1", "")


def test_only_complete_runs_are_read(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "lake_warm_0.csv").read_text()
    (tmp_path / "lake_warm_7.csv").write_text(whole)
    (tmp_path / "lake_warm_8.csv").write_text(whole.rpartition("lake,")[0])
    assert {key: len(runs) for key, runs in read_runs(tmp_path).items()} == {("lake", "warm"): 1}


def test_what_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark.main(["--methods", "magic"])
    assert "invalid choice: 'magic'" in capsys.readouterr().err
