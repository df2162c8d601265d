"""What a new user wants to do, each by one command or a few, on an env of a package of one's own."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch as th
import yaml
from helpers.commands import ENV, RUNS, TINY, lmpolicy, succeed
from peft import PeftModel
from stable_baselines3 import PPO
from transformers import AutoModelForCausalLM

import lmpolicy as package
from lmpolicy.bundled import BUNDLED

WORDS = ["--task", "bulbs:Words"]


@pytest.fixture(scope="module")
def run(project: Path) -> Path:
    """A run of the env of the package, in words of its own."""
    return Path(succeed("train", ENV, *WORDS, *TINY, "--json").facts["run"])


def test_1_train(run: Path, project: Path) -> None:
    assert run == Path(RUNS, "1")
    names = {path.name for path in run.iterdir()}
    assert {"settings.yaml", "checkpoints", "progress.csv", "episodes.jsonl", "model.zip"} <= names
    rows = list(csv.DictReader((run / "progress.csv").open()))
    assert [row["time/total_timesteps"] for row in rows] == ["64"]
    assert float(rows[0]["rollout/ep_rew_mean"]) == pytest.approx(3, abs=2)
    assert PPO.load(run / "model.zip", device="cpu").num_timesteps == 64


def test_2_resume(run: Path) -> None:
    finished = lmpolicy("train", "--resume", run)
    assert finished.code == 1
    assert "is complete" in finished.err
    assert f"--resume {run} --steps 128" in finished.err
    done = succeed("train", "--resume", run, "--steps", 128, "--json")
    assert done.facts["env_steps"] == 128
    assert done.facts["run"] == str(run)
    rows = list(csv.DictReader((run / "progress.csv").open()))
    assert [row["time/total_timesteps"] for row in rows] == ["64", "128"]


def test_3_evaluate(run: Path) -> None:
    shown = succeed("evaluate", run, "--episodes", 12)
    assert re.search(r"random play +\d\.\d\d ± \d\.\d\d +6\.0", shown.out)
    found = succeed("evaluate", run, "--episodes", 12, "--record", 2, "--json").facts
    assert set(found["players"]) == {"random play", "most likely action", "sampled action"}
    assert found["players"]["random play"]["mean_return"] == pytest.approx(3, abs=2)
    assert found["recorded"] == str(run / "evaluation" / "episodes.jsonl")
    lines = [json.loads(line) for line in Path(found["recorded"]).read_text().splitlines()]
    assert len(lines) == 12  # two episodes of six turns
    again = succeed("evaluate", run, "--episodes", 12, "--record", 0, "--json").facts
    assert again["players"] == found["players"]


def test_4_watch(run: Path) -> None:
    found = succeed("report", run, "--json").facts
    page = Path(found["report"])
    assert page == run / "report.html"
    assert page.stat().st_size == found["bytes"]
    assert "Say whether the bulb is on" in page.read_text()


def test_5_explain(run: Path) -> None:
    shown = succeed("explain", run).out
    assert "The bulb is o" in shown
    assert re.search(r"it is (dark|bright) +0\.\d+", shown)
    (first, *_) = found = succeed("explain", run, "--turns", 3, "--json").facts["turns"]
    assert len(found) == 3
    assert sum(first["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert set(first["probabilities"]) == {"it is dark", "it is bright"}


def test_6_compare(project: Path) -> None:
    options = ["--seeds", "100,101", "--steps", 64, "-s", "n_steps=8", "--episodes", 4, "--processes", 1]
    options += ["--checkpoints", "--keep-models"]
    done = succeed("compare", ENV, *WORDS, "--methods", "lm,random", *options, "--json")
    assert [row["method"] for row in done.facts["summary"]] == ["lm", "random"]
    assert "0 of 4 trainings" in done.err
    assert "4 of 4 trainings" in done.err
    assert Path("comparison/bulbs-Bulb-v0/table.md").exists()
    kept = sorted(Path("comparison/bulbs-Bulb-v0/models").iterdir())
    assert [path.name for path in kept if path.suffix == ".zip"] == ["lm-100.zip", "lm-101.zip"]
    again = succeed("compare", ENV, *WORDS, "--methods", "lm,random", *options, "--json")
    assert again.facts == done.facts
    assert "4 of 4 trainings" in again.err


def test_7_own_words(run: Path) -> None:
    (turn,) = succeed("explain", run, "--json").facts["turns"]
    assert turn["prompt"]["messages"][0][1].startswith("Say whether the bulb is on.")
    assert yaml.safe_load((run / "settings.yaml").read_text())["task"] == "bulbs:Words"
    plain = Path(succeed("train", ENV, *TINY, "--json").facts["run"])
    (turn,) = succeed("explain", plain, "--json").facts["turns"]
    assert set(turn["probabilities"]) == {"action 0", "action 1"}


def test_8_own_model(llama: str) -> None:
    run = succeed("train", ENV, "--model", llama, *TINY, "--json").facts["run"]
    assert yaml.safe_load(Path(run, "settings.yaml").read_text())["hyperparameters"]["model"] == llama
    assert succeed("evaluate", run, "--episodes", 2, "--record", 0, "--json").facts["env_steps"] == 64


def test_9_and_10_adapter_in_and_merged_model_out(run: Path, project: Path) -> None:
    succeed("export", run, "--output", "adapter", "--adapter")
    succeed("export", run, "--output", "merged")
    base, merged = (AutoModelForCausalLM.from_pretrained(folder) for folder in (BUNDLED, "merged"))
    ids = th.arange(20)[None]
    with th.no_grad():
        before, after = base(ids).logits, merged(ids).logits
        adapted = PeftModel.from_pretrained(base, "adapter")(ids).logits
    th.testing.assert_close(adapted, after, atol=1e-4, rtol=1e-4)
    assert not th.allclose(before, after, atol=1e-4)

    begun = Path(succeed("train", ENV, *WORDS, "--adapter", "adapter", *TINY, "--seed", 5, "--json").facts["run"])
    first = package.load(begun / "checkpoints" / "1" / "model.zip", device="cpu")
    last = package.load(run / "model.zip", device="cpu")
    weights = {name: value for name, value in last.policy.named_parameters() if "lora_" in name}
    assert weights
    for name, value in first.policy.named_parameters():
        if name in weights:
            th.testing.assert_close(value, weights[name])


def test_11_demonstrations(project: Path) -> None:
    played = succeed("play", ENV, *WORDS, "--by", "bulbs:bot", "--episodes", 12, "--output", "played.jsonl", "--json")
    assert played.facts == {"episodes": 12, "returns": [6.0] * 12, "turns": 72, "file": "played.jsonl"}
    done = succeed("train", ENV, *WORDS, "--demonstrations", "played.jsonl", *TINY, "--json")
    assert "100% of turns" in done.err
    numbers = succeed("evaluate", done.facts["run"], "--episodes", 4, "--record", 0, "--json").facts["players"]
    assert numbers["most likely action"]["mean_return"] == 6


def test_12_free_text(project: Path) -> None:
    run = succeed("train", ENV, *WORDS, "--generate", 4, *TINY, "--json").facts["run"]
    (turn,) = succeed("explain", run, "--json").facts["turns"]
    assert isinstance(turn["answer"], str)
    found = succeed("evaluate", run, "--episodes", 2, "--record", 1, "--json").facts
    assert found["players"]["random play"]["mean_return"] >= 0
    record: dict[str, Any] = json.loads(Path(found["recorded"]).read_text().splitlines()[0])
    assert isinstance(record["answer"], str)


@pytest.mark.parametrize(("episodes", "kind"), [(2, "answers that were played"), (20, "held-out answers")])
def test_written_answers_that_were_cloned_are_told_by_their_loss(episodes: int, kind: str, project: Path) -> None:
    named = f"written-{episodes}.jsonl"
    succeed("play", ENV, *WORDS, "--by", "bulbs:bot", "--episodes", episodes, "--output", named)
    said = succeed("train", ENV, *WORDS, "--generate", 8, "--demonstrations", named, *TINY).err
    assert re.search(rf"Its loss on the {kind} is [0-9.e-]*[1-9][0-9.e-]*\.", said)
    assert "of turns" not in said
