"""The small scripts behind single claims measure what they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.learning_tools import ROOT, table

from benchmarks import equal_information, legal_random, parsing, reading
from benchmarks.common.paths import RESULTS
from benchmarks.zero_shot import report as zero_shot
from benchmarks.zero_shot.cells import TRIALS
from lmpolicy.pretraining import corpus


def test_documents_are_those_of_the_corpus_and_their_steps_are_counted() -> None:
    plain = corpus.documents(3)
    for found in (one for one, _ in zip(reading.documents(3), range(300), strict=False)):
        assert found.text == next(plain)
        assert (found.env == "") == ("Compare " in found.text)
        scattered = 1  # the step from a random state to where the document begins
        foresight = corpus.FORESIGHT_STEPS if "Later: " in found.text else 0
        assert found.told <= found.env_steps <= found.told + foresight + scattered
        assert found.told == found.text.count("<|user|>") - 1 or not found.env


def test_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading.build, "POOL", 200)
    reading.main(["--batches", "3", "--output", str(tmp_path / "table.csv")])
    rows = table(tmp_path / "table.csv")
    assert [row["env"] for row in rows] == list(corpus.WEIGHTS)
    assert sum(float(row["share_of_env_steps"]) for row in rows) == pytest.approx(1, abs=1e-3)
    # About 4 096 tokens each, at most 200 documents in all.
    assert 30 < sum(int(row["documents"]) for row in rows) <= 200


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
    lines = zero_shot.table(zero_shot.read(RESULTS / "zero_shot.csv"))
    assert len(lines) == 2 + len(TRIALS)
    page = (ROOT / "docs" / "results.md").read_text()
    assert "\n".join(lines) in page
