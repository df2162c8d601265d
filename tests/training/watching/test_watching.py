"""What WatchLearning logs, each value against the naive computation, and the turns it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.lm_tools import ROW_BYTES
from helpers.naive_behaviour import naive_information
from helpers.policy_tools import cart_pole, corridor, ppo
from helpers.toy_envs import Corridor, CorridorTask, Script, Told
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lmpolicy import (
    EnvCopies,
    LMActorCriticPolicy,
    Prompt,
    TextObservationWrapper,
    TextSpace,
    WatchLearning,
    make_multi_env,
)
from lmpolicy.training.turns import Turn, markdown, write_turns


class Keep(BaseCallback):
    """Keeps what each rollout held and logged; stands behind WatchLearning in the list of callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.rollouts: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer  # type: ignore[attr-defined]
        arrays = ("observations", "actions", "values", "log_probs", "rewards")
        kept = {name: getattr(buffer, name).copy().reshape(-1, *getattr(buffer, name).shape[2:]) for name in arrays}
        with th.no_grad():
            logits = self.model.policy.get_distribution(th.from_numpy(kept["observations"])).distribution.logits
        self.rollouts.append({**kept, "probabilities": logits.exp().double().numpy()})
        self.logged.append(dict(self.logger.name_to_value))


def watched(model: Any, steps: int, **options: Any) -> Keep:
    keep = Keep()
    model.learn(steps, callback=[WatchLearning(**options), keep])
    return keep


def prompts(rollout: dict[str, Any]) -> list[Prompt]:
    space = TextSpace(rollout["observations"].shape[-1])
    return [Prompt.from_json(space.decode(row)) for row in rollout["observations"]]


# What is logged


@pytest.mark.parametrize("make", [corridor, cart_pole])
def test_every_value_of_a_rollout(llama: str, make: Any) -> None:
    model = ppo(llama, make_vec_env(make, n_envs=2, seed=0), n_steps=16, batch_size=16, learning_rate=1e-3)
    keep = watched(model, 64)
    renderer = model.policy.backbone.renderer
    assert len(keep.logged) == 2
    for rollout, logged in zip(keep.rollouts, keep.logged, strict=True):
        table, read = rollout["probabilities"], prompts(rollout)
        taken = table[np.arange(32), rollout["actions"].astype(int).reshape(-1)]
        np.testing.assert_allclose(np.log(taken), rollout["log_probs"], atol=1e-6)  # what the rollout acted with
        entropy = np.mean([-sum(p * np.log(p) for p in row if p > 0) for row in table])
        lengths = [len(ids) for ids in renderer.prompt_ids(read)]
        expected = {
            "lm/entropy": entropy,
            "lm/largest_probability": np.mean([max(row) for row in table]),
            "lm/mutual_information": naive_information(table, [prompt.actions for prompt in read]),
            "lm/legal_actions": np.mean([len(prompt.actions) for prompt in read]),
            "lm/illegal_rate": 0,
            "lm/truncation_rate": 0,
            "lm/prompt_tokens_mean": np.mean(lengths),
            "lm/prompt_tokens_max": max(lengths),
        }
        for name, value in expected.items():
            assert logged[name] == pytest.approx(value, abs=1e-6), name
        ratio = logged["time/tokens_per_second"] / logged["time/env_steps_per_second"]
        assert ratio == pytest.approx(np.mean(lengths))
        assert "lm/parse_error_rate" not in logged
        assert 0 < logged["lm/cache_mib"] < 256
        assert logged["lm/cache_evictions"] == 0
    assert keep.logged[1]["lm/mutual_information"] > 0


def test_no_forward_of_the_model_more(llama: str) -> None:
    calls = []
    for callback in (None, WatchLearning(every=1)):
        model = ppo(llama, make_vec_env(cart_pole, n_envs=2, seed=0))
        count: list[int] = []
        model.policy.backbone.lm.register_forward_pre_hook(lambda *_, count=count: count.append(1))
        model.learn(32, callback=callback)
        calls.append(len(count))
    assert calls[0] == calls[1]


def test_same_training_with_and_without(llama: str) -> None:
    runs = []
    for callback in (None, WatchLearning(every=1)):
        model = ppo(llama, make_vec_env(corridor, n_envs=2, seed=3), learning_rate=1e-2).learn(32, callback=callback)
        runs.append(th.nn.utils.parameters_to_vector(model.policy.parameters()))
    assert th.equal(*runs)


TEXTS = ["a", "b" * 300, "c", "d" * 300, "e" * 300, "f"]


def long_texts() -> gym.Env:
    return TextObservationWrapper(Script(TEXTS), Told(), max_prompt_bytes=200)


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.filterwarnings("ignore:a prompt did not fit")
def test_truncation_rate_counts_prompts_acted_on(llama: str, processes: bool) -> None:
    makers = [long_texts, long_texts]
    env = SubprocVecEnv(makers, start_method="fork") if processes else DummyVecEnv(makers)  # type: ignore[arg-type]
    try:
        keep = watched(ppo(llama, env, n_steps=5, batch_size=10), 20)
        for rollout, logged in zip(keep.rollouts, keep.logged, strict=True):
            cut = np.mean(["cut]" in prompt.messages[-1][1] for prompt in prompts(rollout)])
            assert logged["lm/truncation_rate"] == pytest.approx(cut)
            assert cut == pytest.approx(0.6)
    finally:
        env.close()


class Named(gym.Wrapper):
    """Gives its name, and calls every second answer one that could not be read."""

    def __init__(self, env: gym.Env, name: str) -> None:
        super().__init__(env)
        self.name, self.steps = name, 0

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        return observation, reward, terminated, truncated, {
            **info, "env_id": self.name, "parse_error": self.steps % 2 == 0
        }  # fmt: skip


def test_returns_by_env_and_parse_errors(llama: str) -> None:
    def make(name: str, texts: list[str]) -> Any:
        return lambda: Named(Monitor(TextObservationWrapper(Script(texts), Told(), max_prompt_bytes=200)), name)

    env = DummyVecEnv([make("short", ["a", "b", "c"]), make("long", ["a", "b", "c", "d", "e"])])
    logged = watched(ppo(llama, env), 16).logged[-1]
    assert logged["rollout/ep_rew_mean/short"] == logged["rollout/ep_len_mean/short"] == 2
    assert logged["rollout/ep_rew_mean/long"] == logged["rollout/ep_len_mean/long"] == 4
    assert logged["lm/parse_error_rate"] == 0.5


def test_a2c(llama: str) -> None:
    settings: dict[str, Any] = {"model": llama, "lora": {"r": 4}}
    model = A2C(LMActorCriticPolicy, cart_pole(), policy_kwargs=settings, n_steps=4, seed=0, device="cpu")
    logged = watched(model, 12).logged[-1]
    assert logged["train/policy_gradient_norm"] > 0
    assert logged["lm/entropy"] > 0


# Turns


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


SCALED = {
    "together": lambda: VecNormalize(make_vec_env(corridor, n_envs=2, seed=0), norm_obs=False),
    "env by env": lambda: make_multi_env([EnvCopies(Corridor, 2, task=CorridorTask())], 0, max_prompt_bytes=ROW_BYTES),
}


@pytest.mark.parametrize("scaled", SCALED)
def test_turns_in_the_file(llama: str, tmp_path: Path, scaled: str) -> None:
    env = SCALED[scaled]()
    keep = watched(ppo(llama, env), 64, every=2, n_turns=5, folder=tmp_path / "new")
    turns = lines(tmp_path / "new" / "turns.jsonl")
    assert len(turns) == 10  # of rollouts 1 and 3
    for turn in turns:
        rollout = keep.rollouts[(turn["env_step"] - 1) // 16]
        n = (turn["env_step"] - 1) % 16 // 2 * 2 + turn["env"]
        prompt = prompts(rollout)[n]
        assert [(one["role"], one["content"]) for one in turn["messages"]] == list(prompt.messages)
        assert list(turn["probabilities"]) == list(prompt.actions)
        shares = rollout["probabilities"][n][: len(prompt.actions)]
        assert list(turn["probabilities"].values()) == pytest.approx(list(shares), abs=1e-6)
        assert turn["action"] == prompt.actions[int(rollout["actions"][n, 0])]
        assert turn["value"] == pytest.approx(float(rollout["values"][n]))
        reaches = "cell 2" in prompt.messages[-1][1] and turn["action"] == "right"
        assert turn["env_reward"] == reaches  # not what scaling makes of it


def test_turns_as_text_in_tensorboard(llama: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ppo(llama, make_vec_env(corridor, n_envs=2, seed=0), tensorboard_log=str(tmp_path))
    model.learn(48, callback=WatchLearning(every=1, n_turns=2, verbose=1), tb_log_name="run")
    events = EventAccumulator(str(tmp_path / "run_1")).Reload()
    texts = events.Tensors("lm/turns/text_summary")
    assert len(texts) == 3
    table = texts[0].tensor_proto.string_val[0].decode()
    assert table.startswith("| env step | env | prompt |")
    assert table.count("\n") == 3
    assert table in capsys.readouterr().out
    assert {"lm/entropy", "lm/mutual_information", "train/policy_gradient_norm"} <= set(events.Tags()["scalars"])
    assert len(events.Scalars("lm/entropy")) == 3
    assert len(lines(tmp_path / "run_1" / "turns.jsonl")) == 6


def test_no_files_where_the_logger_writes_none(llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    watched(ppo(llama, corridor()), 8, every=1)
    model = ppo(llama, corridor())
    model.set_logger(configure(str(tmp_path / "log"), ["csv"]))
    watched(model, 16, every=0)
    assert {path.name for path in tmp_path.rglob("*")} == {"log", "progress.csv"}
    assert "lm/turns" not in (tmp_path / "log" / "progress.csv").read_text()


def test_a_table_holds_any_text() -> None:
    key = Prompt((("user", "a | b\nc"),), ("x|y", "z")).to_json().encode()
    turns = [Turn.of(key, [0.25, 0.75, 0.0], action, env_step=8, env=1, reward=-1, value=0.5) for action in (0, 2)]
    _, _, first, second = markdown(turns).split("\n")
    assert first == r"| 8 | 1 | a \| b<br>c | **x\|y** 0.250, z 0.750 | x\|y | -1 | 0.5 |"
    assert "(illegal)" in second


@pytest.mark.parametrize("options", [{"every": -1}, {"every": True}, {"n_turns": 0}, {"n_turns": 1.5}])
def test_invalid_setting(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="every"):
        WatchLearning(**options)


def test_other_policies_are_refused() -> None:
    with pytest.raises(TypeError, match="WatchLearning is for LMActorCriticPolicy"):
        PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu").learn(8, callback=WatchLearning())


def test_illegal_actions_are_counted(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(TextObservationWrapper):
        def step(self, action: Any) -> Any:
            return super().step(min(int(action), len(self.prompt.actions) - 1))

    def forward(self: Any, obs: th.Tensor, deterministic: bool = False) -> Any:
        values = self.predict_values(obs)
        return th.full((len(obs),), 1), values, th.zeros(len(obs))

    monkeypatch.setattr(LMActorCriticPolicy, "forward", forward)
    env = make_vec_env(lambda: Careless(Corridor(), CorridorTask(), max_prompt_bytes=ROW_BYTES), n_envs=1)
    keep = watched(ppo(llama, env), 8)
    illegal = np.mean([len(prompt.actions) == 1 for prompt in prompts(keep.rollouts[0])])
    assert keep.logged[0]["lm/illegal_rate"] == illegal > 0


def test_a_turn_that_was_not_finished_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text('{"env_step": 1}\n{"env_st')
    write_turns(path, [])
    assert path.read_text() == '{"env_step": 1}\n'
