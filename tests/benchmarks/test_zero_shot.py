"""The benchmark of untrained models plays the episodes it says, and counts the env's own rewards."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.learning_tools import table

from benchmarks.zero_shot.cells import BUNDLED, NORMALIZATIONS, RANDOM, TRIALS, WRITE, Cell
from benchmarks.zero_shot.measuring import measure
from benchmarks.zero_shot.players import FIRST_SEED, Chooser, Writer, play
from benchmarks.zero_shot.report import table as markdown
from lmpolicy import LMActorCriticPolicy, PolicySettings, TextObservationWrapper
from lmpolicy.lm.backbone import Backbone

FROZEN = PolicySettings(lora="frozen")


def make_envs(env_id: str, count: int, **arguments: Any) -> list[TextObservationWrapper]:
    return [TextObservationWrapper(gym.make(env_id), **arguments) for _ in range(count)]


@pytest.fixture
def run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """Run the benchmark with the bundled LM; return the lines that it prints."""
    short = ["--model", "lmpolicy/bundled", "--episodes", "2", "--tokens", "4", "--output", str(tmp_path)]

    def run(*arguments: str) -> list[str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["zero_shot", "--tasks", "frozenlake", "blackjack", *short, *arguments])
        runpy.run_module("benchmarks.zero_shot", run_name="__main__", alter_sys=True)
        return capsys.readouterr().out.splitlines()

    return run


def test_all_ways_and_going_on(tmp_path: Path, run: Callable[..., list[str]]) -> None:
    assert len(run()) == 22
    path = tmp_path / "zero_shot.csv"
    rows = table(path)
    assert [row["task"] for row in rows].count("blackjack") == len(rows) / 2 == 1 + 2 + 6 + 2
    for row in rows:
        assert -1 <= float(row["mean_return"]) <= 1
        assert (row["episodes"], row["first_seed"]) == ("2", str(FIRST_SEED))
        assert (row["parse_error_rate"] != "") == (row["way"] == WRITE)
    lines = path.read_text().splitlines()
    assert run() == [], "all cells are there"
    path.write_text("\n".join([*lines[:-1], ""]))
    assert len(run()) == 1
    assert [row["task"] for row in table(path)] == [row["task"] for row in rows]
    shown = run("--table")
    assert shown == markdown(table(path))
    assert shown[3].startswith("| FrozenLake-v1, not slippery | 2 / 2 | ")
    run("--tasks", "cartpole", "--ways", "choose")
    assert run("--table")[3].endswith(" | – / – | – / – |"), "nothing is written yet"


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_scores_of_one_actor_give_the_policy_of_each_normalization(name: str) -> None:
    env = TextObservationWrapper(gym.make("Taxi-v4"))
    rows = np.stack([env.reset(seed=seed)[0] for seed in range(25)])  # more than are run at a time
    settings = {"lora": "frozen", "score_normalization": name}
    policy = LMActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0, **settings)
    chooser = Chooser(Backbone(FROZEN), int(env.action_space.n), FROZEN)
    with th.no_grad():
        expected = policy.get_distribution(th.from_numpy(rows)).distribution.probs
    chooser.probabilities(rows, "sum")  # what is remembered stays as it was
    for _ in range(2):
        th.testing.assert_close(chooser.probabilities(rows, name), expected, rtol=0, atol=1e-5)


def test_ended_envs_wait_and_each_episode_has_its_seed() -> None:
    asked: list[int] = []

    def hit(envs: Sequence[TextObservationWrapper], rows: np.ndarray) -> list[str]:
        assert len(envs) == len(rows)
        asked.append(len(envs))
        return ["hit"] * len(envs)

    episodes = play(make_envs("Blackjack-v1", 8), hit)
    assert asked[0] == 8
    assert sum(asked) == sum(episode.length for episode in episodes)
    assert asked == sorted(asked, reverse=True)
    env = gym.make("Blackjack-v1")
    for seed, episode in enumerate(episodes, start=FIRST_SEED):
        env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            _, reward, ended, _, _ = env.step(1)
            total += float(reward)
        assert (episode.total, episode.ended) == (total, True)


def test_an_answer_that_cannot_be_read_costs_nothing(llama: str) -> None:
    """The first legal phrase takes its place: one token of random weights names none, and each hand sticks."""
    cell = Cell(TRIALS["blackjack"], WRITE, llama, "", False, 30, 1)
    row = measure(cell)
    assert row["parse_error_rate"] == "1"
    sticking = play(make_envs("Blackjack-v1", 30, task=cell.settings.task), lambda envs, _: ["stick"] * len(envs))
    assert float(row["mean_return"]) == pytest.approx(np.mean([episode.total for episode in sticking]), abs=1e-5)


def test_a_prompt_that_comes_again_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = make_envs("FrozenLake-v1", 3, action_mode="generate", max_new_tokens=4)
    writer, written = Writer(Backbone(FROZEN), envs[0].action_space, FROZEN), []
    choose = writer.actor.choose

    def counted(rows: th.Tensor, greedy: bool) -> th.Tensor:
        written.append(choose(rows, greedy))
        return written[-1]

    monkeypatch.setattr(writer.actor, "choose", counted)
    rows = np.stack([env.reset(seed=0)[0] for env in envs])
    likely, sampled = writer.player(sampled=False), writer.player(sampled=True)
    greedy = [*likely(envs, rows), *likely(envs, rows)]
    assert [len(answers) for answers in written] == [1]
    assert all((one == greedy[0]).all() for one in greedy)
    drawn = [*sampled(envs, rows), *sampled(envs[:1], rows[:1]), *sampled(envs, rows)]
    assert [len(answers) for answers in written[1:]] == [3, 4], "as many as the times that it came"
    everything = [tuple(one.tolist()) for answers in written[1:] for one in answers]
    assert sorted(everything) == sorted(tuple(one.tolist()) for one in drawn), "each draw is given once"
    assert len(set(everything)) > 1


def test_wins_are_counted_where_the_page_counts_them() -> None:
    pytest.importorskip("minigrid")
    row = measure(Cell(TRIALS["minigrid-empty"], RANDOM, "", episodes=20))
    assert 0 < float(row["mean_return"]) < float(row["success_rate"]) < 1, "the sooner, the more points"
    assert row["standard_error"] != "nan"
    alone = measure(Cell(TRIALS["blackjack"], BUNDLED, "lmpolicy/bundled", "sum", False, 1))
    assert (alone["standard_error"], "success_rate" in alone) == ("nan", False)
