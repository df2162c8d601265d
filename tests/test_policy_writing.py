"""A policy that writes its answers, under the unmodified PPO and A2C: acting, learning, saving, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.lm_tools import ROW_BYTES
from helpers.policy_tools import changed, ppo, weights
from helpers.toy_envs import Corridor, CorridorTask
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

from lmpolicy import LMActorCriticPolicy, NonFiniteError, TextObservationWrapper, WatchLearning
from lmpolicy.lm.text_actor import TextActor

OPTIONS: dict[str, Any] = {"action_mode": "generate", "max_new_tokens": 6, "max_prompt_bytes": ROW_BYTES}


def corridor(tokenizer: str | None, **options: Any) -> TextObservationWrapper:
    return TextObservationWrapper(Corridor(), CorridorTask(), **{**OPTIONS, "tokenizer": tokenizer, **options})


class Logged(BaseCallback):
    """Keeps what each iteration logged."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.rows.append(dict(self.logger.name_to_value))


@pytest.mark.parametrize("options", [{}, {"close_with_phrase": True}, {"history": 2}], ids=str)
def test_ppo_learns(llama: str, options: dict[str, Any]) -> None:
    model = ppo(llama, make_vec_env(corridor, 3, 0, env_kwargs={"tokenizer": llama, **options}), {"guard_rails": True})
    before = weights(model)
    model.learn(48)
    moved = changed(before, weights(model))
    assert any("lora_" in name for name in moved)
    assert any("value_head" in name for name in moved)
    assert all("lora_" in name or "value_head" in name for name in moved)


@pytest.mark.parametrize("ratio_level", ["mean", "sum"])
@pytest.mark.parametrize("close", [False, True])
def test_learning_rate_0(tiny_models: dict[str, Path], ratio_level: str, close: bool) -> None:
    """The first ratio is 1, whatever the length of the answers and with dropout in the config."""
    for name in ("qwen2", "gpt2"):
        folder = str(tiny_models[name])
        envs = make_vec_env(corridor, 3, 0, env_kwargs={"tokenizer": folder, "close_with_phrase": close, "history": 1})
        model = ppo(folder, envs, {"ratio_level": ratio_level}, learning_rate=0.0)
        with th.no_grad():
            for parameter_name, parameter in model.policy.named_parameters():
                if "lora_B" in parameter_name:
                    parameter.normal_(std=0.1)
        model.learn(48)
        assert abs(float(model.logger.name_to_value["train/approx_kl"])) <= 1e-6
        assert model.logger.name_to_value["train/clip_fraction"] == 0


def test_bfloat16(llama: str) -> None:
    envs = make_vec_env(corridor, 3, 0, env_kwargs={"tokenizer": llama})
    model = ppo(llama, envs, {"dtype": "bfloat16"}, learning_rate=0.0)
    model.learn(48)
    assert abs(float(model.logger.name_to_value["train/approx_kl"])) < 1e-3


def test_a2c_and_evaluate_policy(llama: str) -> None:
    env = corridor(llama)
    model = A2C(LMActorCriticPolicy, env, policy_kwargs={"model": llama, "lora": {"r": 2}}, seed=0, device="cpu")
    model.learn(15)
    mean, _ = evaluate_policy(model, model.get_env(), n_eval_episodes=2, warn=False)
    assert np.isfinite(mean)


def test_predictions_are_rows_that_the_env_takes(llama: str) -> None:
    env = corridor(llama)
    model = ppo(llama, env)
    observation, _ = env.reset(seed=0)
    action, _ = model.predict(observation, deterministic=True)
    again, _ = model.predict(observation, deterministic=True)
    np.testing.assert_array_equal(action, again)
    assert action.dtype == np.int64
    assert env.action_space.contains(action)
    answer = env.read_answer(action)
    assert env.step(action)[-1]["answer"] == answer.text
    drawn = {model.predict(observation)[0].tobytes() for _ in range(10)}
    assert len(drawn) > 1


def test_save_and_load(llama: str, tmp_path: Path) -> None:
    env = corridor(llama)
    model = ppo(llama, env, {"stop": ["!"], "ratio_level": "sum", "temperature": 0.7})
    model.learn(16)
    observation, _ = env.reset(seed=0)
    wanted, _ = model.predict(observation, deterministic=True)
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=corridor(llama), device="cpu")
    np.testing.assert_array_equal(loaded.predict(observation, deterministic=True)[0], wanted)
    actor: Any = loaded.policy.actor
    assert (actor.stop, actor.ratio_level, actor.scorer.temperature) == (("!",), "sum", 0.7)
    loaded.learn(8)
    with pytest.raises(ValueError, match="Action spaces do not match"):
        PPO.load(tmp_path / "model", env=corridor(None), device="cpu")
    with pytest.raises(ValueError, match="Action spaces do not match"):
        PPO.load(tmp_path / "model", env=corridor(llama, max_new_tokens=7), device="cpu")


def test_another_tokenizer(llama: str) -> None:
    with pytest.raises(ValueError, match=r"another tokenizer .* TextObservationWrapper\(env, .* tokenizer='"):
        ppo(llama, corridor(None))
    with pytest.raises(ValueError, match=r"tokenizer=None \(or leave it out\)"):
        PPO(LMActorCriticPolicy, corridor(llama))


@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p", "repetition_penalty", "generation_config"])
def test_what_warps_the_distribution_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}: answers are sampled from the softmax .* makes every ratio wrong"):
        PPO(LMActorCriticPolicy, corridor(None), policy_kwargs={name: 5})


def test_the_models_own_generation_config_is_not_used(llama: str, tmp_path: Path) -> None:
    """Only its end tokens are: they say where a turn is over."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(llama)
    AutoTokenizer.from_pretrained(llama).save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    config = {"do_sample": True, "top_k": 1, "temperature": 0.01, "eos_token_id": [5, 7]}
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    env = corridor(str(tmp_path))
    observation, _ = env.reset(seed=0)
    actor: Any = ppo(str(tmp_path), env).policy.actor
    assert {5, 7} < set(actor.queries.ends)
    rows = actor.choose(th.from_numpy(np.stack([observation] * 50)), False)
    assert len({row.numpy().tobytes() for row in rows}) > 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratio_level": "token"}, "ratio_level must be one of"),
        ({"stop": "\n"}, "stop must be a list of texts"),
        ({"stop": [""]}, "stop must be a list of texts"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PPO(LMActorCriticPolicy, corridor(None), policy_kwargs=settings)


def test_a_number_that_is_not_finite_stops_the_training(llama: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    model = ppo(llama, corridor(llama))
    model.learn(8)
    with th.no_grad():
        next(p for n, p in model.policy.named_parameters() if "lora_B" in n).fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="a weight of the model itself is not finite"):
        model.learn(8)
    model.predict(model.get_env().reset())  # the last good weights are back


def test_watching(llama: str, tmp_path: Path) -> None:
    envs = make_vec_env(corridor, 2, 0, env_kwargs={"tokenizer": llama, "on_parse_error": "random"})
    model = ppo(llama, envs)
    logged = Logged()
    model.learn(32, callback=[WatchLearning(every=1, n_turns=5, folder=tmp_path), logged])
    row = logged.rows[-1]
    assert isinstance(model.policy.actor, TextActor)
    assert 1 <= row["lm/answer_tokens_mean"] <= 6
    assert 0 < row["lm/entropy"] < np.log(400)
    assert 0 <= row["lm/unfinished_rate"] <= 1
    assert 0 <= row["lm/parse_error_rate"] <= 1
    assert row["lm/clipped_rate"] == 0
    turns = [json.loads(line) for line in (tmp_path / "turns.jsonl").read_text().splitlines()]
    assert len(turns) == 10
    for turn in turns:
        assert turn["probabilities"] == {}
        assert isinstance(turn["answer"], str)
        assert turn["action"] in ("left", "right")
    assert turns[0]["answer"] in row["lm/turns"] or "<br>" in row["lm/turns"] or "\\" in row["lm/turns"]
