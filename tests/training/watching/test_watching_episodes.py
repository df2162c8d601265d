"""The whole episodes and the same prompts that WatchLearning records: each number against the rollouts themselves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers import shown_runs
from helpers.lm_tools import ROW_BYTES
from helpers.policy_tools import corridor, ppo
from helpers.resuming import Run
from helpers.toy_envs import Script, Told
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from lmpolicy import Agent, Checkpoints, Demonstrations, Prompt, TextObservationWrapper, TextSpace, WatchLearning
from lmpolicy.report.episodes import Episodes
from lmpolicy.report.runs import read_runs
from lmpolicy.training.turns import TURN_KEYS

TEXTS = [f"text {number}" for number in range(12)]
STEPS, ENVS = 8, 2


def long_episode() -> gym.Env:
    """Episodes of 11 steps, longer than a rollout of 8."""
    return TextObservationWrapper(Script(TEXTS), Told(), max_prompt_bytes=ROW_BYTES)


class Keep(BaseCallback):
    """Keeps the rows of each env, one after another over all rollouts, and who was done when."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[dict[str, Any]]] = [[] for _ in range(ENVS)]
        self.dones: list[Any] = []

    def _on_step(self) -> bool:
        self.dones.append(self.locals["dones"].copy())
        return True

    def _on_rollout_end(self) -> None:
        buffer: Any = self.model.rollout_buffer  # type: ignore[attr-defined]
        rows = th.from_numpy(buffer.observations.reshape(-1, buffer.observations.shape[-1]))
        with th.no_grad():
            probabilities = self.model.policy.get_distribution(rows).distribution.probs  # type: ignore[union-attr]
        shares = probabilities.reshape(STEPS, ENVS, -1).tolist()
        space = TextSpace(rows.shape[1])
        for step in range(STEPS):
            for env in range(ENVS):
                prompt = Prompt.from_json(space.decode(buffer.observations[step, env]))
                self.rows[env].append(
                    {
                        "messages": [{"role": role, "content": content} for role, content in prompt.messages],
                        "probabilities": dict(zip(prompt.actions, shares[step][env], strict=False)),
                        "action": prompt.actions[int(buffer.actions[step, env, 0])],
                        "value": float(buffer.values[step, env]),
                        "advantage": float(buffer.advantages[step, env]),
                    }
                )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def learn(model: Any, rollouts: int, folder: Path, **options: Any) -> tuple[Keep, list[dict[str, Any]]]:
    keep = Keep()
    model.learn(rollouts * STEPS * ENVS, callback=[WatchLearning(folder=folder, **options), keep])
    path = folder / "episodes.jsonl"
    return keep, lines(path) if path.exists() else []


@pytest.mark.parametrize("make", [long_episode, corridor], ids=["longer than a rollout", "shorter"])
def test_every_turn_of_an_episode(llama: str, tmp_path: Path, make: Any) -> None:
    env = VecNormalize(make_vec_env(make, n_envs=ENVS, seed=0), norm_obs=False)
    keep, turns = learn(ppo(llama, env, n_steps=STEPS), 6, tmp_path, every=1)
    episodes = sorted({turn["episode"] for turn in turns})
    assert episodes == list(range(len(episodes)))
    assert len(episodes) >= 2
    dones = np.array(keep.dones)  # (all steps, ENVS)
    for number in episodes:
        episode = [turn for turn in turns if turn["episode"] == number]
        assert [turn["turn"] for turn in episode] == list(range(len(episode)))
        env_index = number % ENVS
        assert {turn["env"] for turn in episode} == {env_index}
        first, last = (turn["env_step"] // ENVS - 1 for turn in (episode[0], episode[-1]))
        assert last - first == len(episode) - 1
        assert first == 0 or dones[first - 1, env_index]  # it begins where an episode begins
        assert dones[first : last + 1, env_index].tolist() == [False] * (len(episode) - 1) + [True]
        for turn, row in zip(episode, keep.rows[env_index][first : last + 1], strict=True):
            assert turn["messages"] == row["messages"]
            assert turn["action"] == row["action"]
            for name in ("value", "advantage", "probabilities"):
                assert turn[name] == pytest.approx(row[name], abs=1e-6), name
        rewards = [turn["env_reward"] for turn in episode]
        assert all(turn["episode_return"] == sum(rewards) for turn in episode)
        if make is long_episode:
            assert rewards == [1.0] * 11  # not what scaling makes of them
    assert all(turn["greedy"] is False and set(turn) <= set(TURN_KEYS) for turn in turns)


def test_an_episode_every_so_many_rollouts(llama: str, tmp_path: Path) -> None:
    env = make_vec_env(corridor, n_envs=ENVS, seed=0)
    _, turns = learn(ppo(llama, env, n_steps=STEPS), 6, tmp_path, every=3)
    assert len({turn["episode"] for turn in turns}) == 2
    assert [turn["env_step"] > 3 * STEPS * ENVS for turn in turns if turn["turn"] == 0] == [False, True]
    _, turns = learn(ppo(llama, env, n_steps=STEPS), 6, tmp_path / "two", every=3, n_episodes=2)
    assert len({turn["episode"] for turn in turns}) == 4
    _, turns = learn(ppo(llama, env, n_steps=STEPS), 2, tmp_path / "none", every=1, n_episodes=0)
    assert turns == []


class TimeIsUp(gym.Wrapper):
    """Cuts episodes off after three steps."""

    def reset(self, **arguments: Any) -> Any:
        self.steps = 0
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = self.env.step(action)
        self.steps += 1
        return observation, reward, terminated, self.steps == 3, {**info, "env_id": "script"}


def test_episodes_are_demonstrations(llama: str, tmp_path: Path) -> None:
    env = make_vec_env(lambda: TimeIsUp(long_episode()), n_envs=ENVS, seed=0)
    _, turns = learn(ppo(llama, env, n_steps=STEPS), 2, tmp_path, every=1)
    assert [turn.get("truncated") for turn in turns[:3]] == [None, None, True]
    assert {turn["env_id"] for turn in turns} == {"script"}
    found = Demonstrations.from_jsonl(tmp_path / "episodes.jsonl", env)
    assert [one.action for one in found] == [turn["action"] for turn in turns]
    assert [len(places) for places in found.episodes] == [3] * (len(turns) // 3)
    assert found.rewards() == [[1.0] * 3] * (len(turns) // 3)
    assert [one.truncated for one in found][:3] == [False, False, True]
    singles = Demonstrations.from_turns(tmp_path, env)  # the table of random turns
    assert [one.reward for one in singles] == [None] * len(singles)


def test_answers_and_how_they_were_read(llama: str, tmp_path: Path) -> None:
    def make() -> gym.Env:
        return TextObservationWrapper(
            Script(TEXTS[:4]),
            Told(),
            max_prompt_bytes=ROW_BYTES,
            action_mode="generate",
            tokenizer=llama,
            max_new_tokens=3,
        )

    settings: dict[str, Any] = {"score_normalization": "sum"}
    model = ppo(llama, make_vec_env(make, n_envs=ENVS, seed=0), settings, n_steps=STEPS)
    model.learn(STEPS * ENVS, callback=WatchLearning(every=1, folder=tmp_path))
    turns = lines(tmp_path / "episodes.jsonl")
    assert len(turns) == 3
    for turn in turns:
        assert isinstance(turn["answer"], str)
        assert turn["action"] in ("left", "right")  # what the env was given
        assert turn["clipped"] is False
    errors = [turn["parse_error"] for turn in turns]
    assert any(errors)
    found = Demonstrations.from_jsonl(tmp_path / "episodes.jsonl")
    assert [one.action is None for one in found] == errors  # what the answer says
    said = lines(tmp_path / "prompts.jsonl")
    assert all(isinstance(turn["answer"], str) and turn["probabilities"] == {} for turn in said)
    assert len({(turn["env_step"], turn["turn"]) for turn in said}) == len(said) == 2 * len({t["turn"] for t in said})


def test_same_prompts(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, make_vec_env(corridor, n_envs=ENVS, seed=0), n_steps=STEPS, learning_rate=1e-2)
    keep, _ = learn(model, 5, tmp_path, every=2, n_prompts=3)
    said = lines(tmp_path / "prompts.jsonl")
    steps = [0, 2 * STEPS * ENVS, 4 * STEPS * ENVS, 5 * STEPS * ENVS]
    assert [turn["env_step"] for turn in said] == [step for step in steps for _ in range(3)]
    prompts = [turn["messages"] for turn in said]
    assert prompts == prompts[:3] * 4
    assert len({json.dumps(one) for one in prompts}) == 3
    seen = [row["messages"] for rows in keep.rows for row in rows[:STEPS]]
    assert all(one in seen for one in prompts)
    first = {json.dumps(row["messages"]): row for rows in keep.rows for row in rows[:STEPS]}
    space = model.observation_space
    assert isinstance(space, TextSpace)
    for turn in said[:3]:  # the policy that acted in the first rollout
        row = first[json.dumps(turn["messages"])]
        assert turn["probabilities"] == pytest.approx(row["probabilities"], abs=1e-6)
        assert turn["value"] == pytest.approx(row["value"], abs=1e-6)
    for turn in said[-3:]:  # the policy as it is at the end
        messages = tuple((one["role"], one["content"]) for one in turn["messages"])
        row = space.encode(Prompt(messages, tuple(turn["probabilities"])).to_json())
        with th.no_grad():
            shares = model.policy.get_distribution(th.from_numpy(row[None])).distribution.probs[0].tolist()  # type: ignore[union-attr]
        assert list(turn["probabilities"].values()) == pytest.approx(shares[: len(turn["probabilities"])], abs=1e-6)
        assert turn["action"] == max(turn["probabilities"], key=turn["probabilities"].__getitem__)
    changed = [abs(one - other) for one, other in zip(shares_of(said[:3]), shares_of(said[-3:]), strict=True)]
    assert max(changed) > 1e-4


def shares_of(turns: list[dict[str, Any]]) -> list[float]:
    return [share for turn in turns for share in turn["probabilities"].values()]


def test_forward_passes_for_the_same_prompts(llama: str, tmp_path: Path) -> None:
    """None while nothing is recorded; one whenever they are asked about with weights that the rollout did not use."""
    calls = []
    for options in ({"n_prompts": 0, "every": 1}, {"every": 1}):
        model = ppo(llama, make_vec_env(corridor, n_envs=ENVS, seed=0), n_steps=STEPS)
        count: list[int] = []
        model.policy.backbone.lm.register_forward_pre_hook(lambda *_, count=count: count.append(1))
        model.learn(2 * STEPS * ENVS, callback=WatchLearning(folder=tmp_path / str(len(calls)), **options))
        calls.append(len(count))
    # The corridor has three prompts, so the second rollout knows all of them; only the end asks anew.
    assert calls[1] - calls[0] in (1, 2)  # with the shared prefix of the prompts, two


def test_same_training_with_and_without_files(llama: str, tmp_path: Path) -> None:
    runs = []
    for folder in (None, tmp_path):
        model = ppo(llama, make_vec_env(corridor, n_envs=ENVS, seed=3), learning_rate=1e-2)
        model.learn(64, callback=WatchLearning(every=1, folder=folder))
        runs.append(th.nn.utils.parameters_to_vector(model.policy.parameters()))
    assert th.equal(*runs)


def test_a_killed_training_records_the_same_episodes(llama: str, tmp_path: Path) -> None:
    def run(name: str, killed: int | None) -> list[list[dict[str, Any]]]:
        def make() -> Run:
            return Run(
                lambda: make_vec_env(long_episode, ENVS, seed=0),
                lambda env: ppo(llama, env),
                lambda: [WatchLearning(every=1, folder=tmp_path / name)],
            )

        if killed is None:
            make().whole(tmp_path / name, 6 * STEPS * ENVS)
        else:
            make().killed(tmp_path / name, 6 * STEPS * ENVS, killed)
            make().resumed(tmp_path / name, 6 * STEPS * ENVS)
        return [lines(tmp_path / name / file) for file in ("episodes.jsonl", "prompts.jsonl")]

    whole = run("whole", None)
    assert len({turn["episode"] for turn in whole[0]}) == 2
    assert run("killed", STEPS * ENVS + 5) == whole  # in the middle of an episode


def test_another_callback_goes_on_in_the_same_folder(llama: str, tmp_path: Path) -> None:
    """Episodes that are there stay, and what is said to other prompts stands by itself."""
    Episodes([[replace(shown_runs.turn(0), episode=7)]]).save(tmp_path)
    model = ppo(llama, make_vec_env(corridor, n_envs=ENVS, seed=0), n_steps=STEPS)
    for number in range(2):
        watch = WatchLearning(every=1, folder=tmp_path, n_prompts=1, seed=number)
        model.learn(3 * STEPS * ENVS, callback=watch, reset_num_timesteps=False)
    numbers = [line["episode"] for line in lines(tmp_path / "episodes.jsonl") if line["turn"] == 0]
    assert numbers == [7, *range(8, 8 + len(numbers) - 1)]
    (run,) = read_runs(tmp_path)
    assert len(run.episodes) == len(numbers) >= 5
    asked = [{str(said.messages) for said in one} for one in run.prompts]
    assert [len(one) for one in asked] == [1, 1]
    assert asked[0] != asked[1]


def test_a_training_that_was_interrupted_drops_the_running_episode(llama: str, tmp_path: Path) -> None:
    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return self.n_calls != STEPS + 3  # in the middle of the second rollout, and of the first episode

    model = ppo(llama, make_vec_env(long_episode, n_envs=ENVS, seed=0), n_steps=STEPS)
    watch = WatchLearning(every=1, folder=tmp_path)
    model.learn(10 * STEPS * ENVS, callback=[watch, Stop()])
    assert not (tmp_path / "episodes.jsonl").exists()
    model.learn(5 * STEPS * ENVS, callback=watch, reset_num_timesteps=False)
    turns = lines(tmp_path / "episodes.jsonl")
    for number in {turn["episode"] for turn in turns}:
        assert [turn["messages"][-1]["content"] for turn in turns if turn["episode"] == number] == TEXTS[:-1]


def test_an_agent_records_no_episodes(llama: str, tmp_path: Path) -> None:
    watch = WatchLearning(every=1, folder=tmp_path)
    small = {"max_prompt_bytes": ROW_BYTES, "n_steps": 4, "batch_size": 4, "n_epochs": 1, "device": "cpu"}
    agent = Agent(llama, actions=["wait", "ring"], callback=watch, **small)
    for step in range(6):
        agent.act(f"at {step}")
        agent.assign_reward(1.0)
        if step % 2:
            agent.terminate_episode()
    agent.close()
    assert (tmp_path / "turns.jsonl").exists()
    assert not (tmp_path / "episodes.jsonl").exists()


@pytest.mark.parametrize("options", [{"n_episodes": -1}, {"n_episodes": True}, {"n_prompts": 1.5}])
def test_wrong_numbers(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        WatchLearning(**options)


def test_checkpoints_from_before_episodes_were_recorded(llama: str, tmp_path: Path) -> None:
    watch = WatchLearning()
    old = {name: value for name, value in watch.state_dict().items() if name not in ("whole", "prompts")}
    WatchLearning().load_state_dict(json.loads(json.dumps(old)))
    model = ppo(llama, make_vec_env(long_episode, n_envs=ENVS, seed=0), n_steps=STEPS)
    model.learn(STEPS * ENVS, callback=[WatchLearning(every=1, folder=tmp_path), Checkpoints(tmp_path)])
