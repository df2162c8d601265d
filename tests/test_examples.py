"""The examples run from beginning to end, keep what they say they keep, and refuse wrong input in one sentence."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, partial
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import pytest
import torch
from stable_baselines3 import PPO

import lmpolicy

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = (
    "blackjack",
    "cartpole",
    "custom_task",
    "frozen_lake",
    "group_advantages",
    "many_envs",
    "own_loop",
    "real_model",
    "text_world",
    "warm_start",
)
WRITING = ("blackjack", "cartpole", "real_model")
PNG = b"\x89PNG\r\n\x1a\n"
pytestmark = pytest.mark.filterwarnings("ignore:rich is experimental")  # Stable-Baselines3's progress bar


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*NAMES, "search"}  # test_search.py has this one


@pytest.fixture(scope="module", autouse=True)
def _games_are_made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMPOLICY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def example(request: pytest.FixtureRequest) -> ModuleType:
    """An example as a module, with a rollout and an update that take seconds."""
    return load(request.param)


def load(name: str) -> ModuleType:
    if name == "text_world":
        pytest.importorskip("textworld")
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if name == "text_world":
        module.GAMES, module.TEST_GAMES = 3, 2
    if name == "real_model":
        module.MODEL = "lmpolicy/bundled"  # which takes seconds
    if name == "warm_start":
        module.GAMES = 3
    short = {"n_steps": 8, "batch_size": 32, "n_epochs": 1}
    if hasattr(module, "SETTINGS"):
        module.SETTINGS = replace(module.SETTINGS, **short)
    else:
        module.HYPERPARAMETERS.update(short)
    if name == "many_envs":  # untrained, Acrobot takes all of its 500 steps
        limit = {"max_episode_steps": 20}
        module.ENVS[:] = [replace(one, env_kwargs={**one.env_kwargs, **limit}) for one in module.ENVS]
    return module


def run(module: ModuleType, folder: Path) -> None:
    module.main(["--steps", "64", "--episodes", "4", "--seed", "3", "--device", "cpu", "--output", str(folder)])


@dataclass(frozen=True)
class Finished:
    """An example that ran from beginning to end."""

    module: ModuleType
    folder: Path
    printed: str


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    """Runs an example by its name, the first time that it is asked for."""

    @cache
    def run_once(name: str) -> Finished:
        module, folder, printed = load(name), tmp_path_factory.mktemp(name) / "new" / "folder", StringIO()
        with redirect_stdout(printed):
            run(module, folder)
        return Finished(module, folder / "1", printed.getvalue())

    return run_once


def scores(printed: str) -> dict[str, float]:
    """Mean returns of the summary by name; of a table of several envs, those of the last one."""
    lines = re.findall(r"^  (random|before training|after training) +(-?[\d.]+) \+- [\d.]+$", printed, re.MULTILINE)
    table = re.search(r"^  env +(random) +(before training) +(after training)$", printed, re.MULTILINE)
    if table is not None:
        assert not lines
        lines = list(zip(table.groups(), list(rows(printed).values())[-1], strict=True))
    return {name: float(number) for name, number in lines}


def rows(printed: str) -> dict[str, list[float]]:
    """Lines of the table of several envs: random, before and after training by env."""
    lines = re.findall(r"^  (\S+-v\d)((?: +-?[\d.]+ \+- [\d.]+){3})$", printed, re.MULTILINE)
    return {env_id: [float(number) for number in re.findall(r"(\S+) \+-", cells)] for env_id, cells in lines}


@pytest.mark.parametrize("name", NAMES)
def test_example_trains_saves_and_sums_up(finished: Callable[[str], Finished], name: str) -> None:
    printed = finished(name).printed
    assert list(scores(printed)) == ["random", "before training", "after training"]
    steps = re.search(r"learnt in (\d+) env steps", printed)
    assert steps is not None
    assert 64 <= int(steps[1]) <= 128
    assert "stopped early" not in printed
    model = PPO.load(finished(name).folder / "model.zip", device="cpu")
    assert model.num_timesteps == int(steps[1])


@pytest.mark.parametrize("example", NAMES, indirect=True)
def test_ctrl_c_ends_the_training_but_not_the_example(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: PPO) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PPO, "train", interrupted)
    run(example, tmp_path)
    printed = capsys.readouterr().out
    assert "stopped early by Ctrl-C" in printed
    assert "after training" in scores(printed)
    assert (tmp_path / "1" / "model.zip").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_stopped_goes_on_in_its_folder(
    finished: Callable[[str], Finished], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, module = finished(name), load(name)
    arguments = ["--steps", "64", "--episodes", "4", "--seed", "3", "--device", "cpu"]

    def stop(self: PPO) -> None:
        raise SystemExit("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PPO, "train", stop)
        with pytest.raises(SystemExit, match="killed"):
            module.main([*arguments, "--output", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    module.main([*arguments, "--resume", str(tmp_path / "1")])
    printed = capsys.readouterr().out
    assert "checkpoint  " in printed
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    model, expected = (PPO.load(path / "model.zip", device="cpu") for path in (tmp_path / "1", whole.folder))
    assert model.num_timesteps == expected.num_timesteps
    if name != "text_world":  # its games cannot be copied
        for one, other in zip(model.policy.parameters(), expected.policy.parameters(), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("example", ["frozen_lake"], indirect=True)
def test_a_second_run_overwrites_nothing(example: ModuleType, tmp_path: Path) -> None:
    run(example, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    run(example, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
    assert {path: path.read_bytes() for path in (tmp_path / "1").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("method", ["rloo", "leave-one-out", "mixture", "ppo"])
def test_other_advantages(tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str) -> None:
    example = load("group_advantages")
    short = ["--steps", "64", "--episodes", "2", "--device", "cpu", "--output", str(tmp_path)]
    example.main(["--method", method, "--group-size", "4", *short])
    assert f"CartPole-v1, {method}: mean return" in capsys.readouterr().out
    model = PPO.load(tmp_path / "1" / "model.zip", device="cpu")
    assert (model.vf_coef == 0) == (method in ("rloo", "leave-one-out"))
    with pytest.raises(SystemExit):
        example.main(["--group-size", "3", *short])
    assert "groups of 2, 4 or 8" in capsys.readouterr().err


def test_cartpole_draws_the_curve_and_tells_an_episode(finished: Callable[[str], Finished]) -> None:
    picture = (finished("cartpole").folder / "learning_curve.png").read_bytes()
    assert picture.startswith(PNG)
    assert len(picture) > 10_000
    decision = r"push left (\d\.\d\d) \| push right (\d\.\d\d) -> push (left|right)$"
    decisions = re.findall(decision, finished("cartpole").printed, re.MULTILINE)
    assert 8 <= len(decisions) <= 11
    for left, right, taken in decisions:
        assert float(left) + float(right) == pytest.approx(1, abs=0.011)
        if left != right:
            assert taken == ("left" if float(left) > float(right) else "right")


@pytest.mark.parametrize("example", ["cartpole"], indirect=True)
@pytest.mark.parametrize(("limit", "end"), [(0.2, "The pole fell."), (100.0, "The cart left the track.")])
def test_cartpole_says_how_the_episode_ended(
    example: ModuleType, capsys: pytest.CaptureFixture[str], limit: float, end: str
) -> None:
    env = lmpolicy.TextObservationWrapper(gym.make("CartPole-v1"))
    inner: Any = env.unwrapped
    inner.theta_threshold_radians = limit
    (turns,) = lmpolicy.record_episodes(lambda prompt, info: "push right", env, 1, seed=0)
    example.show_episode(env, [replace(turn, probabilities={}) for turn in turns])
    assert capsys.readouterr().out.endswith(f"      {end}\n")


def test_cartpole_ends_by_naming_the_page(finished: Callable[[str], Finished]) -> None:
    run = finished("cartpole")
    assert run.printed.splitlines()[-1] == f"look at it      {run.folder / 'report.html'}"
    page = (run.folder / "report.html").read_text()
    assert '"lm/entropy"' in page
    assert "Pole leans" in page


def test_real_model_tells_an_episode_and_both_ways_to_act(finished: Callable[[str], Finished]) -> None:
    printed = finished("real_model").printed
    told = re.findall(r"^      move left (\S+) \| move down (\S+) \| .* -> move (\w+)$", printed, re.MULTILINE)
    assert 1 <= len(told) <= 20
    assert re.search(r"^      (The episode ends with a return of [01]\.|\.\.\.)$", printed, re.MULTILINE)
    for name in ("before training, sampled", "after training, sampled"):
        assert re.search(rf"^  {name} +[\d.]+ \+- [\d.]+$", printed, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d min +64 env steps: (mean return|no end yet)", printed, re.MULTILINE)


def test_real_model_on_another_env(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = load("real_model")
    with pytest.raises(SystemExit, match="Nowhere"):
        example.main(["--env", "Nowhere-v0", "--output", str(tmp_path)])
    sizes = ["--steps", "1", "--episodes", "2", "--device", "cpu", "--output", str(tmp_path)]
    small = replace(lmpolicy.hyperparameters("CliffWalking-v1"), n_steps=2, n_envs=2, batch_size=4, n_epochs=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(example.lmpolicy, "hyperparameters", lambda _: small)
        example.main(["--env", "CliffWalking-v1", *sizes])
    assert "CliffWalking-v1, lmpolicy/bundled: mean return of 2 episodes" in capsys.readouterr().out


@pytest.mark.parametrize("example", WRITING, indirect=True)
def test_answers_in_free_text(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--generate", "4", "--steps", "64", "--episodes", "3", "--device", "cpu", "--output", str(tmp_path)]
    example.main(arguments)
    printed = capsys.readouterr().out
    assert list(scores(printed)) == ["random", "before training", "after training"]
    said = {
        "Blackjack-v1": r"^It says, for example: '",
        "CartPole-v1": r"^      '.+' -> push (left|right)$",
        "FrozenLake-v1": r"^      '.*' -> move (left|down|right|up)$",
    }
    assert re.search(said[example.ENV_ID], printed, re.MULTILINE)
    assert PPO.load(tmp_path / "1" / "model.zip", device="cpu").action_space.max_new_tokens == 4
    with pytest.raises(SystemExit) as stop:
        example.main(["--generate", "--model", str(tmp_path / "nonexistent"), "--output", str(tmp_path)])
    assert "nonexistent" in str(stop.value)


@pytest.mark.parametrize("example", NAMES, indirect=True)
def test_wrong_model_and_device_are_short_errors(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        example.main(["--model", str(tmp_path / "nonexistent"), "--output", str(tmp_path)])
    assert "nonexistent" in str(stop.value)
    assert len(str(stop.value).splitlines()) < 10
    with pytest.raises(SystemExit):
        example.main(["--device", "cuda:99", "--output", str(tmp_path)])
    assert "--device cuda:99 does not work here" in capsys.readouterr().err


@pytest.mark.parametrize("example", ["text_world"], indirect=True)
def test_a_wrong_model_is_found_before_games_are_made(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMPOLICY_CACHE", str(tmp_path / "cache"))
    with pytest.raises(SystemExit, match="nonexistent"):
        example.main(["--model", str(tmp_path / "nonexistent"), "--output", str(tmp_path / "output")])
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("example", NAMES, indirect=True)
def test_help_names_every_option(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        example.main(["--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    for option in ("--model", "--device", "--steps", "--episodes", "--seed", "--output", "--resume"):
        assert option in printed


def test_many_envs_prints_a_line_for_each(finished: Callable[[str], Finished]) -> None:
    table = rows(finished("many_envs").printed)
    assert list(table) == [one.env_id for one in finished("many_envs").module.ENVS]
    assert list(table) == ["CartPole-v1", "Blackjack-v1", "FrozenLake-v1", "CliffWalking-v1", "Acrobot-v1"]
    lowest = {"CartPole-v1": 1, "Blackjack-v1": -1, "FrozenLake-v1": 0, "CliffWalking-v1": -2000, "Acrobot-v1": -20}
    highest = {"CartPole-v1": 20, "Blackjack-v1": 1, "FrozenLake-v1": 1, "CliffWalking-v1": -13, "Acrobot-v1": 0}
    for env_id, returns in table.items():
        assert all(lowest[env_id] <= value <= highest[env_id] for value in returns)


def test_warm_start_clones_before_it_trains(finished: Callable[[str], Finished]) -> None:
    printed = finished("warm_start").printed
    assert re.search(r"^  after cloning +1\.00 \+- 0\.00$", printed, re.MULTILINE)
    assert "Demonstrations(18 turns of 3 episodes)" in printed
    env = lmpolicy.TextObservationWrapper(gym.make("FrozenLake-v1", is_slippery=False))
    kept = lmpolicy.Demonstrations.from_jsonl(finished("warm_start").folder / "demonstrations.jsonl", env)
    assert kept.rewards() == [[0, 0, 0, 0, 0, 1]] * 3


@pytest.mark.parametrize("example", ["warm_start"], indirect=True)
def test_warm_start_from_a_person_or_a_file(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["1", "MOVE DOWN", "2", "nowhere", "1", "2", "2", "2"]

    def typed(_: str) -> str:
        if not lines:
            raise EOFError
        return lines.pop(0)

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr(example.lmpolicy, "warm_start", partial(lmpolicy.warm_start, epochs=1))
    arguments = ["--steps", "16", "--episodes", "2", "--device", "cpu", "--output", str(tmp_path)]
    example.main(["--play", *arguments])
    assert "Demonstrations(6 turns of 1 episode)" in capsys.readouterr().out
    example.main(["--demonstrations", str(tmp_path / "1" / "demonstrations.jsonl"), *arguments])
    assert "Demonstrations(6 turns of 1 episode)" in capsys.readouterr().out
    (tmp_path / "bad.jsonl").write_text('{"messages": []}\n')
    with pytest.raises(SystemExit, match=r"bad\.jsonl, line 1: "):
        example.main(["--demonstrations", str(tmp_path / "bad.jsonl"), *arguments])
    with pytest.raises(SystemExit, match=r"none\.jsonl"):
        example.main(["--demonstrations", str(tmp_path / "none.jsonl"), *arguments])


@pytest.mark.parametrize("example", ["custom_task"], indirect=True)
def test_custom_task_is_short_and_a_proper_env(example: ModuleType) -> None:
    from gymnasium.utils.env_checker import check_env

    check_env(example.Thermostat(), skip_render_check=True)
    source = (EXAMPLES / "custom_task.py").read_text()
    own = source[source.index("class Thermostat") : source.index("def make_env")]
    assert len([line for line in own.splitlines() if line.strip()]) < 40
