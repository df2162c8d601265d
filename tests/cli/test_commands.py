"""The commands beyond the twelve tasks: playing, models, pretraining, completion, and how the program is started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from helpers.commands import ENV, TINY, succeed, write_package

import lmpolicy as package
from lmpolicy import Demonstrations, TextObservationWrapper
from lmpolicy.cli import main
from lmpolicy.cli.comparing import importable, read_seeds
from lmpolicy.cli.options import env_ids, model_names, task_names
from lmpolicy.envs.babyai_bot import babyai_bot
from lmpolicy.models.names import find
from lmpolicy.models.places import BUNDLED, HUB, place_of

ROOT = Path(__file__).parents[2]
NAMES = ("compare", "evaluate", "explain", "export", "models", "play", "pretrain", "report", "train")


@pytest.fixture(scope="module")
def run(project: Path) -> str:
    return str(succeed("train", ENV, "--task", "bulbs:Words", *TINY, "--json").facts["run"])


# How it is started


def test_the_version() -> None:
    assert succeed("--version").out.strip() == f"lmpolicy {package.__version__}"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself(name: str) -> None:
    assert succeed(name, "--help").out.count("Usage: lmpolicy") == 1


def test_no_other_commands() -> None:
    modules = {path.stem for path in (ROOT / "lmpolicy/cli").glob("*.py")}
    assert set(NAMES) <= modules
    assert all(f" {name} " in succeed("--help").out for name in NAMES)


def test_as_a_program_of_its_own_it_finds_a_package_in_the_current_folder(tmp_path: Path) -> None:
    write_package(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}  # as for a script in another folder
    command = [sys.executable, "-m", "lmpolicy", "train", ENV, "--task", "bulbs:Words", "--dry-run"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "env: bulbs/Bulb-v0" in done.stdout
    assert done.stderr == ""


def test_help_needs_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom lmpolicy.cli import main\n"
        "try:\n    main(['train', '--help'])\n"
        "except SystemExit:\n    print(sorted({'torch', 'peft'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("missing", ["typer", "rich", "yaml"])
def test_a_missing_package_is_named_with_its_remedy(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SystemExit, match=rf'{missing}.*pip install "lmpolicy\[cli\]"'):
        main(["--version"])


def test_the_entry_point_and_the_extra_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"lmpolicy": "lmpolicy.cli:main"}
    names = {one.partition(">")[0] for one in project["optional-dependencies"]["cli"]}
    assert {"typer", "rich", "pyyaml"} <= names
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert names <= pinned
    assert any(one.startswith("lmpolicy[cli,") for one in project["optional-dependencies"]["dev"])


def test_what_can_be_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Found among the parent processes otherwise, of which none need be a shell.
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    assert "CartPole-v1" in env_ids("cartp")
    assert list(model_names("smollm2-135")) == ["smollm2-135m-instruct"]
    assert list(task_names("Cart")) == ["CartPole"]
    assert "_LMPOLICY_COMPLETE" in succeed("--show-completion", "bash").out


# Playing


def test_a_person_plays_and_stops(run: str, monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    lines = iter(["it is dark"] * 6 + ["1"] * 6 + ["nonsense", "0"])

    def answer(_: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", answer)
    done = succeed("play", ENV, "--task", "bulbs:Words", "--output", "mine.jsonl")
    assert "Say whether the bulb is on." in done.out
    assert "Episode 2: return" in done.out
    assert "'nonsense' is none of them" in done.out
    assert "2 episodes, 12 turns" in done.out
    found = Demonstrations.from_jsonl("mine.jsonl")
    assert [turn.action for turn in found] == ["it is dark"] * 6 + ["it is bright"] * 6
    assert [len(places) for places in found.episodes] == [6, 6]


def test_a_person_who_stops_at_once_leaves_no_file(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", answer)
    assert "0 episodes" in succeed("play", ENV, "--output", "nothing.jsonl").out
    assert not Path("nothing.jsonl").exists()


def test_a_run_plays_its_env(run: str) -> None:
    done = succeed("play", run, "--episodes", 2)
    assert done.out.count("The bulb is o") == 12
    assert done.out.count("(it is dark 0.") == 12
    assert "Episode 2: return" in done.out
    first, second = (succeed("play", run, "--seed", 3, "--json").facts for _ in range(2))
    assert first == second


@pytest.mark.parametrize("by", ["random", "lmpolicy/bundled", "bulbs:bot"])
def test_others_play(by: str, project: Path) -> None:
    found = succeed("play", ENV, "--task", "bulbs:Words", "--by", by, "--episodes", 3, "--json").facts
    assert found["episodes"] == 3
    assert found["turns"] == 18
    assert (found["returns"] == [6, 6, 6]) is (by == "bulbs:bot")


def test_the_bot_of_babyai(project: Path) -> None:
    pytest.importorskip("minigrid")
    done = succeed("play", "BabyAI-GoToObj-v0", "--by", "bot", "--episodes", 2, "--output", "bot.jsonl", "--json")
    assert all(returned > 0.5 for returned in done.facts["returns"])
    env = TextObservationWrapper(gym.make("BabyAI-GoToObj-v0"))
    played = Demonstrations.from_player(env, babyai_bot(env), episodes=1, seed=0)
    assert played.rewards()[0][-1] > 0.5  # type: ignore[index]


# Models


def test_models_are_listed_with_their_places() -> None:
    found = {one["name"]: one for one in succeed("models", "--json").facts["models"]}
    assert found["lmpolicy/bundled"]["where"] == BUNDLED
    assert found["lmpolicy/bundled"]["bytes"] > 1e6
    assert {one["where"] for one in found.values()} >= {BUNDLED, HUB}
    assert "lmpolicy/bundled" in succeed("models").out


def test_a_model_in_the_cache_counts_when_its_weights_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = find("qwen3-0.6b")
    assert model is not None
    monkeypatch.setattr("lmpolicy.models.places.cached", lambda hub_id, revision: tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"12345")
    assert place_of(model) == (HUB, None, None)
    (tmp_path / "model.safetensors").write_bytes(b"123")
    assert place_of(model) == ("in the cache", tmp_path, 8)


def test_a_model_of_ones_own_envs(project: Path) -> None:
    size = ["--steps", 3, "--tokens", 256, "--sample", 100, "--vocabulary", 400, "--width", 32]
    facts = succeed(
        "pretrain", ENV, "--output", "small", *size, "--layers", 1, "--heads", 2, "--threads", 1, "--json"
    ).facts
    assert facts["tokens"] > 100
    assert facts["env_steps_of_random_play"] > 0
    assert json.loads(Path("small/config.json").read_text())["hidden_size"] == 32
    shown = succeed("play", ENV, "--by", "small", "--json")
    assert shown.facts["turns"] == 6


# Ctrl-C


@pytest.mark.parametrize("moment", ["import numpy", "import gymnasium", "import typer", "import torch"])
def test_ctrl_c_while_it_imports_is_one_line(moment: str, tmp_path: Path) -> None:
    """The module that is imported at that moment sends the signal."""
    name = moment.split()[1]
    (tmp_path / f"{name}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "lmpolicy", "train", "CartPole-v1"]
    listens = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, preexec_fn=listens
    )
    assert (done.returncode, done.stderr) == (130, "stopped by Ctrl-C\n")


# Reports and comparisons


def test_two_runs_side_by_side(run: str) -> None:
    other = succeed("train", ENV, "--task", "bulbs:Words", *TINY, "--seed", 1, "--json").facts["run"]
    page = succeed("report", run, other, "--output", "both.html", "--title", "Two bulbs", "--json").facts["report"]
    assert "<title>Two bulbs" in Path(page).read_text()


@pytest.mark.parametrize(
    ("text", "seeds"), [("100", [100]), ("100-102", [100, 101, 102]), ("3, 1-2", [3, 1, 2]), ("7,", [7])]
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert read_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", ",", "a", "1-", "-1", "1-b", "1 2"])
def test_seeds_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="--seeds"):
        read_seeds(text)


def test_another_process_can_import_the_env(run: str) -> None:
    assert importable(ENV) == f"bulbs:{ENV}"
    for env_id in ("CartPole-v1", "lmpolicy/TextWorld-v0", "phys2d/CartPole-v1", "bulbs:Other-v0"):
        assert importable(env_id) == env_id


def test_only_the_result_of_a_comparison_is_printed(project: Path) -> None:
    """Trainings print as they go, also in processes of their own."""
    options: list[Any] = ["--seeds", "100", "--steps", 16, "-s", "n_steps=8", "--episodes", 2, "--processes", 2]
    main_in_a_process = [sys.executable, "-m", "lmpolicy", "compare", ENV, "--methods", "random,lm-frozen", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*map(str, main_in_a_process), "--json"], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["summary"]) == 2
    assert "seed 100" in done.stderr
