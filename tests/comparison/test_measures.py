"""Measures of complete runs: their numbers by hand, their intervals, and the table that is made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lmpolicy.comparison.measures import FinishedRun, curve_of, interquartile_mean, interval
from lmpolicy.comparison.storage import Runs
from lmpolicy.comparison.summary import group_runs
from lmpolicy.comparison.table import COLUMNS, cells_of, markdown, meanings, to_html

COMMON = {"threads": "1", "processor": "cpu", "torch": "2", "episodes": "10", "settings": "x", "pretraining_steps": "0"}


def rows(curve: dict[int, float], sampled: dict[int, float] | None = None, **fields: str) -> list[dict[str, str]]:
    """Rows of a run, with returns by env steps."""
    found = []
    for steps, value in curve.items():
        for drawn, mean in (("0", value), ("1", value / 2 if sampled is None else sampled[steps])):
            own = {"env_steps": str(steps), "mean_return": str(mean), "sampled": drawn}
            found.append({**COMMON, "seed": "0", "train_seconds": str(0.6 * steps), **own, **fields})
    return found


def runs(method: str, *curves: dict[int, float], **fields: str) -> Runs:
    return {(method, seed): rows(curve, **fields) for seed, curve in enumerate(curves)}


def summary(found: Runs, threshold: float | None = 475) -> list[dict[str, str]]:
    return [group.summarize() for group in group_runs(found, "env", threshold)]


def test_reached_is_not_stays() -> None:
    leaps = {0: 20.0, 1000: 480.0, 2000: 400.0, 3000: 475.0, 4000: 500.0}
    found = [FinishedRun(rows(one)) for one in (leaps, {**leaps, 2000: 475}, {**leaps, 4000: 474}, {0: 1.0})]
    assert [run.steps_to(475) for run in found] == [1000, 1000, 1000, math.inf]
    assert [run.stays_from(475) for run in found] == [3000, 1000, math.inf, math.inf]
    assert found[0].steps_to(240, sampled=True) == 1000
    assert found[0].stays_from(240, sampled=True) == 4000


def test_area_is_the_mean_over_the_training() -> None:
    run = FinishedRun(rows({0: 0.0, 100: 10.0, 400: 20.0}, {0: 4.0, 100: 4.0, 400: 4.0}))
    assert run.area() == (100 * 5 + 300 * 15) / 400
    assert run.area(sampled=True) == 4
    assert FinishedRun(rows({0: 7.0})).area() == 7


def test_what_is_only_sampled_counts_as_either() -> None:
    run = FinishedRun([row for row in rows({0: 4.0}) if row["sampled"] == "1"])
    assert run.final() == run.final(sampled=True) == 2


def test_threads_of_a_training_that_went_on_with_others_are_all_named() -> None:
    one, other = rows({0: 1.0}), rows({100: 2.0}, threads="2")
    assert FinishedRun(one).hardware == "cpu, 1 thread, torch 2"
    assert FinishedRun(other).hardware == "cpu, 2 threads, torch 2"
    assert FinishedRun([*one, *other]).hardware == "cpu, 1 and 2 threads, torch 2"


def test_a_training_that_went_on_elsewhere_names_both_places() -> None:
    here, there = rows({0: 1.0}), rows({100: 2.0}, processor="NVIDIA H200", torch="3")
    assert FinishedRun([*here, *there]).hardware == "cpu and NVIDIA H200, 1 thread, torch 2 and 3"
    assert FinishedRun([*here, *there]).on_gpu
    assert not FinishedRun(here).on_gpu


def test_intervals() -> None:
    assert interval([1.0, 2.0]) is None
    assert interval([2.0, 2.0, 2.0]) == (2.0, 2.0)
    numbers = [0.0, 1.0, 5.0]
    # Of three numbers, a quarter is less than one: nothing is cut off.
    means = np.random.default_rng(1).choice(numbers, (4000, 3)).mean(axis=1)
    assert interval(numbers) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.4)
    assert interquartile_mean([100, 200, 300, 500, 10]) == 200


def test_curves_have_the_steps_that_all_seeds_have() -> None:
    found = [FinishedRun(rows(one)) for one in ({0: 1.0, 5: 2.0, 9: 3.0}, {0: 4.0, 9: 5.0})]
    assert curve_of(found) == {0: [1, 4], 9: [3, 5]}


def test_summary_equals_hand_computed_numbers() -> None:
    finals = [100, 200, 300, 500, 10]  # the middle half: without the smallest and the largest
    (row,) = summary(runs("lm", *({0: 20.0, 1000: float(final)} for final in finals), pretraining_steps="7"))
    assert float(row["final"]) == 200
    assert float(row["sampled_final"]) == 100
    assert 10 <= float(row["final_low"]) < 200 < float(row["final_high"]) <= 500
    assert float(row["lowest_final"]) == 10
    assert float(row["area"]) == (20 + 200) / 2
    assert (row["reached"], row["seeds_reached"], row["stays"], row["seeds_staying"]) == ("never", "1", "never", "1")
    assert (row["train_minutes"], row["env_steps"], row["pretraining_steps"]) == ("10.0", "1000", "7")


def test_minutes_are_those_of_seeds_on_a_processor() -> None:
    found = runs("lm", {0: 0.0, 1000: 10.0}, {0: 0.0, 1000: 20.0})
    for row in found["lm", 1]:
        row.update(processor="NVIDIA H200", train_seconds="6")
    (row,) = summary(found)
    assert (row["seeds"], row["train_minutes"]) == ("2", "10.0")
    assert row["hardware"] == "NVIDIA H200, 1 thread, torch 2; cpu, 1 thread, torch 2"
    (row,) = summary({("lm", 1): found["lm", 1]})
    assert row["train_minutes"] == "0.1", "a GPU's, where there are no others"


def test_what_is_not_known_is_left_open() -> None:
    (row,) = summary(runs("lm", {0: 1.0, 10: 2.0}, pretraining_steps=""), threshold=None)
    assert row["pretraining_steps"] == row["threshold"] == ""
    assert "reached" not in row
    (line,) = cells_of([row])[1:]
    assert dict(zip(COLUMNS, line, strict=True))["env steps before"] == "not known"


def test_both_ways_to_act_are_side_by_side_in_the_table() -> None:
    sure = {0: 0.0, 1000: 480.0, 2000: 500.0}
    found = {("lm", seed): rows(sure, {0: 0.0, 1000: 470.0, 2000: 480.0}) for seed in range(3)}
    found |= {("random", 0): [row for row in rows({0: 40.0}) if row["sampled"] == "1"]}
    lm, random = (dict(zip(COLUMNS, line, strict=True)) for line in cells_of(summary(found))[1:])
    assert (lm["return"], lm["return, sampled"]) == ("500.0 (500.0 to 500.0)", "480.0 (480.0 to 480.0)")
    assert (lm["reached"], lm["reached, sampled"]) == ("1 000 (3 of 3)", "2 000 (3 of 3)")
    assert (lm["stays"], lm["stays, sampled"]) == ("1 000 (3 of 3)", "2 000 (3 of 3)")
    assert (random["return"], random["return, sampled"], random["reached"], random["minutes"]) == (
        "20.0",
        "20.0",
        "",
        "",
    )


def test_markdown_and_html_hold_the_same_cells() -> None:
    cells = [("a", "b"), ("1 < 2", "x")]
    assert markdown(cells) == "| a | b |\n| --- | --- |\n| 1 < 2 | x |"
    page = to_html(cells, "title & more")
    assert "<th>a</th>" in page
    assert "<td>1 &lt; 2</td><td>x</td>" in page
    assert "<caption>title &amp; more</caption>" in page


def test_meanings_name_what_is_in_the_table() -> None:
    text = meanings(["lm", "classic-raw", "classic-raw+help", "bot"])
    assert text.count("- classic-raw:") == 1
    assert "+help: with" in text
    assert "+zoo-budget" not in text
    assert "- bot: a player that was given." in text
