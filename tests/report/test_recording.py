"""Episodes that are recorded: each turn against the model and the env, whoever plays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.lm_tools import ROW_BYTES
from helpers.policy_tools import corridor, ppo
from helpers.toy_envs import Corridor, CorridorTask, Script, Told
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import lmpolicy
from lmpolicy import Demonstrations, TextObservationWrapper
from lmpolicy.report.episodes import Episodes
from lmpolicy.report.pictures import WIDTH
from lmpolicy.report.runs import read_runs
from lmpolicy.training.imitation.playing import StopPlaying


def test_every_turn_of_a_language_model(llama: str, tmp_path: Path) -> None:
    env = Monitor(corridor())
    model = ppo(llama, env).learn(8)
    played = lmpolicy.record_episodes(model, env, 3, tmp_path, seed=7)
    assert len(played) == 3
    for number, turns in enumerate(played):
        observation, _ = env.reset(seed=7 + number)
        total, rewards, ended = 0.0, [], False
        for place, turn in enumerate(turns):
            prompt = env.get_wrapper_attr("prompt")
            row = th.from_numpy(observation[None])
            with th.no_grad():
                shares = model.policy.get_distribution(row).distribution.probs[0].tolist()  # type: ignore[union-attr]
                value = float(model.policy.predict_values(row))
            action, _ = model.predict(observation, deterministic=True)
            assert turn.messages == [{"role": role, "content": content} for role, content in prompt.messages]
            assert dict(turn.probabilities) == pytest.approx(dict(zip(prompt.actions, shares, strict=False)), abs=1e-6)
            assert turn.value == pytest.approx(value, abs=1e-6)
            assert turn.action == prompt.actions[int(action)]
            assert (turn.episode, turn.turn, turn.greedy, turn.env_step) == (number, place, True, 8)
            observation, reward, terminated, truncated, _ = env.step(action)
            rewards.append(reward)
            assert turn.env_reward == reward
            assert turn.truncated is (True if truncated and not terminated else None)
            total, ended = total + float(reward), terminated or truncated
        assert ended
        assert {turn.episode_return for turn in turns} == {sum(rewards)}
    assert played.returns == [turns[0].episode_return for turns in played]
    lines = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert [(line["episode"], line["turn"], line["episode_return"]) for line in lines] == [
        (turn.episode, turn.turn, turn.episode_return) for turns in played for turn in turns
    ]
    assert list(map(list, Episodes.from_jsonl(tmp_path))) == list(map(list, played))
    found = Demonstrations.from_jsonl(tmp_path / "episodes.jsonl", env)
    assert [one.action for one in found] == [turn.action for turns in played for turn in turns]
    assert [sum(rewards) for rewards in found.rewards()] == played.returns


def test_sampled_actions(llama: str) -> None:
    th.manual_seed(0)
    env = TextObservationWrapper(Script([f"text {n}" for n in range(40)]), Told(), max_prompt_bytes=ROW_BYTES)
    (turns,) = lmpolicy.record_episodes(ppo(llama, env), env, 1, deterministic=False)
    likely = [
        turn.action == max(turn.probabilities, key=lambda phrase: turn.probabilities[phrase] or 0) for turn in turns
    ]
    assert not all(likely)
    assert all(turn.greedy is False for turn in turns)


class Cells(gym.Wrapper):
    """Shows the cell as a vector, as a classic learner needs it."""

    observation_space = gym.spaces.Box(0, 3, (1,), np.float32)

    def reset(self, **arguments: Any) -> Any:
        observation, info = self.env.reset(**arguments)
        return np.array([observation], np.float32), info

    def step(self, action: Any) -> Any:
        observation, *rest = self.env.step(action)
        return np.array([observation], np.float32), *rest


class CellsTask(CorridorTask):
    """Names the actions in another order than the env numbers them."""

    max_actions = None
    action_texts = {"right": 1, "left": 0}  # type: ignore[assignment]  # noqa: RUF012


class Open(Corridor):
    """A corridor in which one may walk into the wall."""

    def step(self, action: int) -> Any:
        return super().step(1 if self.cell == 0 else action)


def test_a_classic_learner_in_the_same_words() -> None:
    env = TextObservationWrapper(Cells(Open()), CellsTask(), max_prompt_bytes=ROW_BYTES)
    inner = env.env
    model = PPO("MlpPolicy", Cells(Open()), n_steps=8, batch_size=8, seed=0, device="cpu")
    (turns,) = lmpolicy.record_episodes(model, env, 1, seed=3)
    assert env.env is inner  # nothing is left in between
    for turn in turns:
        cell = turn.messages[-1]["content"][-3]  # "[0.]"
        observation = th.tensor([[float(cell)]])
        with th.no_grad():
            left, right = model.policy.get_distribution(observation).distribution.probs[0].tolist()  # type: ignore[union-attr]
            value = float(model.policy.predict_values(observation))
        assert dict(turn.probabilities) == pytest.approx({"right": right, "left": left})
        assert turn.value == pytest.approx(value)
        assert turn.action == ("right" if right > left else "left")


def test_a_classic_learner_that_reads_scaled_numbers(tmp_path: Path) -> None:
    venv = VecNormalize(DummyVecEnv([lambda: Cells(Open())]))
    model = PPO("MlpPolicy", venv, n_steps=32, batch_size=32, n_epochs=1, seed=0, device="cpu").learn(64)
    venv.save(str(tmp_path / "scaling.pickle"))
    model.save(tmp_path / "model")
    loaded = VecNormalize.load(str(tmp_path / "scaling.pickle"), DummyVecEnv([lambda: Cells(Open())]))
    again = PPO.load(tmp_path / "model", env=loaded, device="cpu")
    mean, variance = float(venv.obs_rms.mean[0]), float(venv.obs_rms.var[0])  # type: ignore[union-attr, index]
    assert variance > 0.01
    env = TextObservationWrapper(Cells(Open()), CellsTask(), max_prompt_bytes=ROW_BYTES)
    for one in (model, again):
        (turns,) = lmpolicy.record_episodes(one, env, 1, seed=3)
        for turn in turns:
            cell = float(turn.messages[-1]["content"][-3])  # "[0.]"
            row = th.tensor([[(cell - mean) / (variance + 1e-8) ** 0.5]], dtype=th.float32)
            with th.no_grad():
                left, right = model.policy.get_distribution(row).distribution.probs[0].tolist()  # type: ignore[union-attr]
                value = float(model.policy.predict_values(row))
            assert dict(turn.probabilities) == pytest.approx({"right": right, "left": left}, abs=1e-5)
            assert turn.value == pytest.approx(value, abs=1e-4)
    assert (float(venv.obs_rms.mean[0]), float(venv.obs_rms.var[0])) == (mean, variance)  # type: ignore[union-attr, index]


def test_a_classic_learner_without_probabilities() -> None:
    env = TextObservationWrapper(Cells(Open()), CellsTask(), max_prompt_bytes=ROW_BYTES)
    model = DQN("MlpPolicy", Cells(Open()), seed=0, device="cpu")
    (turns,) = lmpolicy.record_episodes(model, env, 1)
    assert dict(turns[0].probabilities) == {"right": None, "left": None}
    assert turns[0].value is None
    action, _ = model.predict(np.array([0], np.float32), deterministic=True)
    assert turns[0].action == ("left", "right")[int(action)]


def test_a_classic_learner_of_another_env() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu")
    with pytest.raises(ValueError, match=r"the model was trained on observations of .* pass the env"):
        lmpolicy.record_episodes(model, corridor(), 1)


def test_an_action_without_a_phrase() -> None:
    class OnlyRight(CellsTask):
        action_texts = {"right": 1}  # type: ignore[assignment]  # noqa: RUF012

    class Left:
        observation_space = Cells.observation_space

        def predict(self, observation: Any, **_: Any) -> tuple[int, None]:
            return 0, None

    env = TextObservationWrapper(Cells(Open()), OnlyRight(), max_prompt_bytes=ROW_BYTES)
    with pytest.raises(ValueError, match="no legal phrase stands for the action 0"):
        lmpolicy.record_episodes(Left(), env, 1)


class RandomPlay:
    """Reads rows, and picks the first phrase."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> Any:
        assert observation.shape == (1, ROW_BYTES)
        return np.zeros(len(observation), int), state


def test_anything_that_predicts() -> None:
    (turns,) = lmpolicy.record_episodes(RandomPlay(), corridor(), 1)
    assert [turn.action for turn in turns[:3]] == ["right", "left", "right"]
    assert dict(turns[0].probabilities) == {"right": None}


def test_a_function_plays_until_it_stops(tmp_path: Path) -> None:
    games: list[str] = []

    def play(prompt: Any, info: Any) -> str:
        if "cell 0" in prompt.messages[-1][1]:
            games.append("begun")
        if len(games) == 3:
            raise StopPlaying
        return "right"

    played = lmpolicy.record_episodes(play, corridor(), 5, tmp_path / "mine.jsonl")
    assert [len(turns) for turns in played] == [3, 3]
    assert played[0][0].greedy is None
    assert list(map(list, Episodes.from_jsonl(tmp_path / "mine.jsonl"))) == list(map(list, played))


@pytest.mark.parametrize("close", [False, True])
def test_written_answers(llama: str, close: bool) -> None:
    env = TextObservationWrapper(
        Corridor(),
        CorridorTask(),
        max_prompt_bytes=ROW_BYTES,
        action_mode="generate",
        tokenizer=llama,
        max_new_tokens=3,
        close_with_phrase=close,
        fallback_action="right",
    )
    model = ppo(llama, env, {"score_normalization": "sum"})
    (turns,) = lmpolicy.record_episodes(model, env, 1)
    observation, _ = env.reset()
    answer = env.read_answer(model.predict(observation, deterministic=True)[0])
    assert turns[0].answer == answer.text
    assert turns[0].action == answer.phrase
    assert turns[0].parse_error == answer.parse_error
    assert turns[0].clipped is False
    assert dict(turns[0].probabilities) == {}


def test_pictures_where_the_env_shows_some() -> None:
    env = TextObservationWrapper(gym.make("CartPole-v1", render_mode="rgb_array"))
    pytest.importorskip("pygame")
    (turns,) = lmpolicy.record_episodes(lambda prompt, info: "push left", env, 1, seed=0)
    pictures = {turn.picture for turn in turns}
    assert None not in pictures
    assert len(pictures) > 3
    assert max(len(picture or "") for picture in pictures) < 30 * WIDTH
    plain = TextObservationWrapper(gym.make("CartPole-v1"))
    assert lmpolicy.record_episodes(lambda prompt, info: "push left", plain, 1)[0][0].picture is None


def test_envs_that_are_taken_and_refused(llama: str) -> None:
    one = make_vec_env(corridor, 1)
    assert len(lmpolicy.record_episodes(RandomPlay(), one, 1)) == 1
    with pytest.raises(TypeError, match="one env at a time: pass an env in TextObservationWrapper"):
        lmpolicy.record_episodes(RandomPlay(), make_vec_env(corridor, 2), 1)
    with pytest.raises(TypeError, match="TextObservationWrapper"):
        lmpolicy.record_episodes(RandomPlay(), gym.make("CartPole-v1"), 1)
    with pytest.raises(TypeError, match="a model must be a learner, a policy, or a function"):
        lmpolicy.record_episodes(3, corridor(), 1)
    with pytest.raises(ValueError, match="positive number, got 0"):
        lmpolicy.record_episodes(RandomPlay(), corridor(), 0)


def test_episodes_of_a_training_are_not_replaced(llama: str, tmp_path: Path) -> None:
    model = ppo(llama, corridor())
    model.learn(64, callback=lmpolicy.WatchLearning(every=1, folder=tmp_path))
    before = (tmp_path / "episodes.jsonl").read_bytes()

    def never(*_: Any) -> str:
        raise AssertionError("played before the place was looked at")

    for place in (tmp_path, tmp_path / "episodes.jsonl"):
        with pytest.raises(FileExistsError, match=r"episodes of a training.* name another place, e\.g\. .*recorded"):
            lmpolicy.record_episodes(never, corridor(), 1, place)
    with pytest.raises(FileExistsError, match="would be lost"):
        lmpolicy.record_episodes(RandomPlay(), corridor(), 1).save(tmp_path)
    assert (tmp_path / "episodes.jsonl").read_bytes() == before
    watched = len(Episodes.from_jsonl(tmp_path))
    lmpolicy.record_episodes(RandomPlay(), corridor(), 2, tmp_path / "recorded")
    lmpolicy.record_episodes(RandomPlay(), corridor(), 2, tmp_path / "recorded")  # of its own, replaced as before
    (run,) = read_runs(tmp_path)
    assert len(run.episodes) == watched + 2


def test_same_seeds_begin_alike() -> None:
    env = TextObservationWrapper(gym.make("CartPole-v1"))
    often = lmpolicy.record_episodes(lambda prompt, info: "push left", env, 3, seed=1)
    other = lmpolicy.record_episodes(lambda prompt, info: "push right", env, 3, seed=1)
    beginnings = [[turns[0].messages for turns in played] for played in (often, other)]
    assert beginnings[0] == beginnings[1]
    assert beginnings[0][0] != beginnings[0][1]
