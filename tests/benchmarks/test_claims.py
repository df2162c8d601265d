"""The small scripts behind single claims measure what they say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.learning_tools import ROOT, table

from benchmarks import equal_information, legal_random, parsing
from benchmarks.common.paths import RESULTS
from benchmarks.common.rows import read_rows
from benchmarks.zero_shot import report as zero_shot
from benchmarks.zero_shot.cells import TRIALS
from lmpolicy.bundled import BUNDLED
from lmpolicy.envs import TEXT_WORLD
from lmpolicy.pretraining.bundled_mixture import CONTROL


def test_the_pages_say_what_the_bundled_model_has_read() -> None:
    facts = json.loads((BUNDLED / "pretraining.json").read_text())
    for page in (ROOT / "docs" / "results.md", BUNDLED / "MODEL_CARD.md"):
        for env_id, steps in facts["env_steps"].items():
            if env_id in CONTROL or env_id == TEXT_WORLD:
                assert f"| {env_id} | {facts['documents'][env_id]:,} | {steps:,} |" in page.read_text(), env_id


def test_the_network_is_given_the_numbers_of_the_words() -> None:
    env = equal_information.make_env("words, degrees")
    state = np.array([-0.12, 0.3, 0.05, -0.9], dtype=np.float32)
    told = env.words.format_observation(state)
    assert (
        told
        == "Pole leans right 2.9 degrees, in 10 steps left 7.4 degrees. Cart is left 0.1 m, in 50 steps right 0.2 m."
    )
    assert env.observation(state) == pytest.approx([2.9, -7.4, -0.1, 0.2])
    shares = equal_information.make_env("words, shares of the limits").observation(state)
    assert shares == pytest.approx([2.9 / 12, -7.4 / 12, -0.1 / 2.4, 0.2 / 2.4])


def test_equal_information(tmp_path: Path) -> None:
    command = ["--seeds", "7", "--steps", "256", "--episodes", "2", "--output", str(tmp_path / "table.csv")]
    equal_information.main(command)
    rows = table(tmp_path / "table.csv")
    assert {row["observation"] for row in rows} == set(equal_information.OBSERVATIONS)
    for name in equal_information.OBSERVATIONS:
        own = [(row["env_steps"], row["sampled"]) for row in rows if row["observation"] == name]
        assert own == [("0", "0"), ("256", "0"), ("256", "1")]


def test_legal_moves_save_taxi_its_fines(tmp_path: Path) -> None:
    legal_random.main(["--seeds", "0", "--episodes", "10", "--output", str(tmp_path / "table.csv")])
    every, legal = table(tmp_path / "table.csv")
    assert (every["actions"], legal["actions"]) == ("all", "legal")
    assert float(every["mean_return"]) < -400
    assert -200 <= float(legal["mean_return"]) < -100, "no move costs more than 1"


def test_parsing(tmp_path: Path) -> None:
    parsing.main(["--lists", "50", "--output", str(tmp_path / "table.csv")])
    (row,) = table(tmp_path / "table.csv")
    assert row["lists"] == row["lists_with_all"] == "50"
    assert {row[form] for form in parsing.FORMS} == {row["phrases"]}
    assert {row["characters"] for row in table(tmp_path / "table_times.csv")} == {"65536"}


def test_every_phrase_was_read_back_as_itself() -> None:
    (row,) = table(parsing.RESULTS / "parsing.csv")
    assert row["lists"] == row["lists_with_all"] == "100000"
    assert {row[form] for form in parsing.FORMS} == {row["phrases"]}


def test_the_page_has_the_table_of_untrained_models() -> None:
    lines = zero_shot.table(read_rows(RESULTS / "zero_shot.csv"))
    assert len(lines) == 2 + len(TRIALS)
    page = (ROOT / "docs" / "results.md").read_text()
    assert "\n".join(lines) in page
