"""The pages of tasks are what docstrings, envs and files of results say."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from helpers.docs_code import task_list, task_pages, task_tables

from lmpolicy.envs import FAMILIES, TASKS

REMEDY = "write it anew: make pages"
NAMES = ["index", *(page.name for page in task_list.PAGES)]
BY_NAME = {page.name: page for page in task_list.PAGES}


def committed(name: str) -> str:
    return (task_pages.TASKS / f"{name}.md").read_text()


def test_every_task_has_a_page() -> None:
    found = {page.task for page in task_list.PAGES}
    wanted = {task.__name__ for task in (*TASKS.values(), *FAMILIES.values())} | {"GenericTask"}
    assert wanted == found, "name the task in docs/_generate/task_list.py"
    assert {path.stem for path in task_pages.TASKS.glob("*.md")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_up_to_date(name: str) -> None:
    """Where a package is missing, its prompt is left as it stands, and the rest is compared."""
    before = committed(name)
    assert task_pages.make(name, before) == before, REMEDY


@pytest.mark.parametrize("page", task_list.PAGES, ids=lambda page: page.name)
def test_a_page_has_all_parts(page: Any) -> None:
    text = committed(page.name)
    assert "[user]" in text or "Goal: " in text
    parts = ["Results", "How to run", "What the model reads"]
    parts += [] if page.name == "generic" else ["The environment", "Actions", "Reward"]
    for part in parts:
        assert f"\n## {part}\n\n" in text
    files = {path.name for path in task_tables.SUMMARIES}
    assert any(name in text for name in files) == bool(page.results)
    assert "``" not in text.replace("```", "")
    assert ":class:" not in text


def test_without_its_package_a_page_keeps_its_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    before = committed("cartpole").replace("Pole leans", "Pole tilts")
    assert "tilts" not in task_pages.make("cartpole", before)
    monkeypatch.setattr(task_pages, "missing", lambda page: "pip install something")
    assert "tilts" in task_pages.make("cartpole", before)
    assert "(shown where pip install something is there)" in task_pages.make("cartpole", "")


def write(path: Path, **row: str) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)


def test_results_are_of_the_first_table_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    monkeypatch.setattr(task_tables, "SUMMARIES", {first: "learning", second: "real_models"})
    monkeypatch.setattr(task_tables, "ROOT", tmp_path)
    assert task_tables.results(BY_NAME["cartpole"]) == "No result has been measured yet."
    common = {"method": "lm", "seeds": "8", "env_steps": "20480", "threshold": "475", "train_minutes": "3.1"}
    common |= {"seeds_staying": "5"}
    write(second, env="cartpole", final="489.6", sampled_final="384.487", stays="20480", **common)
    shown = task_tables.results(BY_NAME["cartpole"])
    assert "| CartPole-v1 | language model | 489.6 | 384.5 | 20 480 | 475 | 20 480 (5) | 8 |" in shown
    assert task_tables.benchmark_of(BY_NAME["cartpole"]) == "real_models"
    write(first, env="cartpole", final="499.25", sampled_final="498", stays="never", **common)
    shown = task_tables.results(BY_NAME["cartpole"])
    assert "| CartPole-v1 | language model | 499.2 | 498 | 20 480 | 475 | – (5) | 8 |" in shown
    assert task_tables.benchmark_of(BY_NAME["cartpole"]) == "learning"
    assert "first.csv" in shown
    assert "second.csv" not in shown


def test_docstrings_become_markdown() -> None:
    assert task_tables.plain("See :class:`~lmpolicy.envs.taxi.Taxi`\nand ``x``.") == "See `Taxi` and `x`."
    assert task_pages.as_markdown("- one\n  thing;\n- another.") == "- one thing;\n- another."


def test_numbers_of_a_table() -> None:
    for text, wanted in (
        ("-0.0560667", "-0.056"),
        ("20480", "20 480"),
        ("1", "1"),
        ("500", "500"),
        ("-2051.68", "-2051.7"),
        ("never", "–"),
        ("", ""),
    ):
        assert task_tables.number(text, 3) == wanted
