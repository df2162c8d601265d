"""Many envs for one learner: equal spaces, names in the infos, no missing phrase ever, and rewards scaled per env."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.wrappers import TransformReward
from helpers.lm_tools import make_policy, naive_batch
from helpers.policy_tools import changed, ppo, weights
from helpers.toy_envs import Corridor, CorridorTask
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecNormalize

from lmpolicy import (
    EnvCopies,
    LMActorCriticPolicy,
    PerEnvRewardNormalization,
    Prompt,
    TextObservationWrapper,
    TextSpace,
    TokenSpace,
    hyperparameters,
    make_multi_env,
)

CORRIDOR = EnvCopies(Corridor, 2, task=CorridorTask)
MIXED = [
    EnvCopies("CartPole-v1", 2),
    EnvCopies("Blackjack-v1", 1, {"sab": False}),
    EnvCopies("FrozenLake-v1", 2, {"is_slippery": False}),
    CORRIDOR,
]
NAMES = ["CartPole-v1", "CartPole-v1", "Blackjack-v1", "FrozenLake-v1", "FrozenLake-v1", "Corridor", "Corridor"]
PHRASES = [2, 2, 2, 4, 4, 1, 1]  # in the first state; Corridor has up to 2, and room for 3


def prompts(rows: Any, space: Any) -> list[Prompt]:
    assert isinstance(space, TextSpace)
    return [Prompt.from_json(space.decode(row)) for row in rows]


def play(venv: VecEnv, steps: int) -> Iterator[tuple[Any, ...]]:
    """Random legal steps, the same for the same prompts."""
    rng, rows = np.random.default_rng(0), venv.reset()
    for _ in range(steps):
        actions = [rng.integers(len(one.actions)) for one in prompts(rows, venv.observation_space)]
        rows, rewards, dones, infos = venv.step(np.array(actions))
        yield rows, rewards, dones, infos


# Spaces, names and seeds


def test_spaces_are_equal_and_infos_name_the_env() -> None:
    venv = make_multi_env(MIXED, seed=0, max_prompt_bytes=1500, history=1)
    assert venv.action_space == spaces.Discrete(4)
    assert all(space == spaces.Discrete(4) for space in venv.get_attr("action_space"))
    assert all(space == TextSpace(1500) for space in venv.get_attr("observation_space"))
    rows = venv.reset()
    assert [len(one.actions) for one in prompts(rows, venv.observation_space)] == PHRASES
    assert [info["env_id"] for info in venv.reset_infos] == NAMES
    for _, _, _, infos in play(venv, 10):
        assert [info["env_id"] for info in infos] == NAMES
        assert all(info["episode"]["env_id"] == info["env_id"] for info in infos if "episode" in info)


def test_forms_of_envs() -> None:
    venv = make_multi_env({"CartPole-v1": 2, Corridor: 1}, max_prompt_bytes=512)
    assert venv.get_attr("env_id") == ["CartPole-v1", "CartPole-v1", "Corridor"]
    lake = replace(hyperparameters("FrozenLake-v1", is_slippery=False), n_envs=2)
    cliff = EnvCopies("CliffWalking-v1", 1, {"max_episode_steps": 7}, name="cliff")
    pendulum = EnvCopies("Pendulum-v1", wrapper_kwargs={"history": 2})
    venv = make_multi_env([lake, cliff, pendulum], n_actions=9)
    assert venv.get_attr("env_id") == ["FrozenLake-v1", "FrozenLake-v1", "cliff", "Pendulum-v1"]
    assert venv.action_space == spaces.Discrete(9)
    assert venv.get_attr("spec")[2].max_episode_steps == 7
    *_, (rows, *_) = play(venv, 3)
    last = prompts(rows, venv.observation_space)
    assert "not slippery" in last[0].messages[0][1]
    assert [len(one.messages) for one in last] == [2, 2, 2, 6]


def test_wrapper_arguments_of_named_settings_are_kept() -> None:
    cart, lake = (replace(hyperparameters(env_id), n_envs=1) for env_id in ("CartPole-v1", "FrozenLake-v1"))
    venv = make_multi_env([replace(cart, wrapper_kwargs={"history": 2}), lake])
    *_, (rows, *_) = play(venv, 3)
    assert [len(one.messages) for one in prompts(rows, venv.observation_space)] == [6, 2]


@pytest.mark.parametrize(
    ("asked", "given", "expected"),
    [
        ({"max_prompt_bytes": 4096}, {}, (4096, 4)),
        ({"max_prompt_bytes": 1024}, {}, (2048, 4)),  # the other env has the wrapper's default
        ({"max_prompt_bytes": 4096}, {"max_prompt_bytes": 1500}, (1500, 4)),
        ({"n_actions": 6}, {}, (2048, 6)),
        ({"n_actions": 6}, {"n_actions": 9}, (2048, 9)),
    ],
)
def test_largest_spaces_that_named_settings_ask_for_are_those_of_all(
    asked: dict[str, int], given: dict[str, int], expected: tuple[int, int]
) -> None:
    cart = replace(hyperparameters("CartPole-v1"), n_envs=1, wrapper_kwargs=asked)
    venv = make_multi_env([cart, EnvCopies("FrozenLake-v1")], **given)
    assert venv.get_attr("observation_space") == [TextSpace(expected[0])] * 2
    assert venv.get_attr("action_space") == [spaces.Discrete(expected[1])] * 2


def test_seeds_differ_between_copies_and_are_reproducible() -> None:
    first, again, other = (list(play(make_multi_env(MIXED, seed=seed), 5)) for seed in (3, 3, 4))
    assert all(np.array_equal(one[0], two[0]) for one, two in zip(first, again, strict=True))
    assert not np.array_equal(first[0][0], other[0][0])
    assert not np.array_equal(first[0][0][0], first[0][0][1])


# Wider than the env


def test_width_of_the_action_space() -> None:
    env = TextObservationWrapper(gym.make("Blackjack-v1"), n_actions=5, render_mode="ansi")
    assert env.action_space == spaces.Discrete(5)
    assert env.spec is not None
    assert gym.make(env.spec).action_space == spaces.Discrete(5)
    env.reset(seed=0)
    assert len(env.prompt.actions) == 2
    with pytest.raises(ValueError, match="action index 2 is not legal now; legal are: 0 'stick', 1 'hit'"):
        env.step(2)
    env.step(0)
    for width in (1, 0, True, 2.0):
        with pytest.raises(ValueError, match=r"no smaller than .* 2 here; got .*: pass n_actions=2 or more"):
            TextObservationWrapper(gym.make("Blackjack-v1"), n_actions=width)  # type: ignore[arg-type]


def test_missing_phrases_have_probability_0_and_rows_do_not_disturb_each_other(llama: str) -> None:
    venv = make_multi_env(MIXED, seed=0)
    policy = make_policy(llama, n_actions=4, space=venv.observation_space, score_normalization="token")
    rows = th.from_numpy(venv.reset())
    with th.no_grad():
        probs = policy.get_distribution(rows).distribution.probs  # type: ignore[union-attr]
        for row, count in zip(probs, PHRASES, strict=True):
            assert (row[count:] == 0).all()
            assert (row[:count] > 0).all()
        actions = th.stack([policy(rows)[0] for _ in range(50)])
        assert (actions.amax(0) < th.tensor(PHRASES)).all()
        values, log_prob, entropy = policy.evaluate_actions(rows, actions[0])
        for name in dict.fromkeys(NAMES):
            part = th.tensor([one == name for one in NAMES])
            alone = policy.evaluate_actions(rows[part], actions[0][part])
            for whole, found in zip((values, log_prob, entropy), alone, strict=True):
                assert whole is not None
                th.testing.assert_close(found, whole[part], rtol=0, atol=1e-5)
        expected, expected_values = naive_batch(policy, prompts(rows.numpy(), venv.observation_space), "token")
    th.testing.assert_close(log_prob, expected.gather(1, actions[0][:, None])[:, 0], rtol=0, atol=1e-5)
    th.testing.assert_close(values.flatten(), expected_values, rtol=0, atol=1e-5)


# Learning, and a model on one env alone


@pytest.mark.parametrize("vec_env_cls", [None, SubprocVecEnv])
def test_ppo_learns(llama: str, vec_env_cls: Any) -> None:
    envs = MIXED if vec_env_cls is None else [EnvCopies("Blackjack-v1"), EnvCopies("FrozenLake-v1")]
    venv = make_multi_env(envs, seed=0, vec_env_cls=vec_env_cls)
    model = ppo(llama, venv, n_steps=8, batch_size=venv.num_envs * 4, n_epochs=1)
    before = weights(model)
    model.learn(2 * 8 * venv.num_envs)
    assert any("lora" in name for name in changed(before, weights(model)))
    assert all(weight.isfinite().all() for weight in model.policy.parameters())
    assert "Blackjack-v1" in {episode["env_id"] for episode in model.ep_info_buffer or ()}
    assert [info["env_id"] for info in venv.reset_infos] == venv.get_attr("env_id")
    venv.close()


@pytest.mark.filterwarnings("ignore:Training and eval env are not of the same type")  # meant so
def test_model_on_one_env(llama: str, tmp_path: Path) -> None:
    venv = make_multi_env(MIXED, seed=0, max_prompt_bytes=1024)
    options = {"n_actions": int(venv.action_space.n), "max_prompt_bytes": 1024}  # type: ignore[attr-defined]
    one = make_vec_env("Blackjack-v1", 2, wrapper_class=TextObservationWrapper, wrapper_kwargs=options)
    model = ppo(llama, venv, n_steps=4, batch_size=28, n_epochs=1)
    model.learn(28, callback=EvalCallback(one, n_eval_episodes=2, eval_freq=4, verbose=0))
    assert -1 <= evaluate_policy(model, one, n_eval_episodes=4, deterministic=False)[0] <= 1
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=one, device="cpu")
    rows = venv.reset()
    assert np.array_equal(loaded.predict(rows, deterministic=True)[0], model.predict(rows, deterministic=True)[0])
    loaded.learn(8)
    more = make_multi_env({"CartPole-v1": 1, "Blackjack-v1": 1}, **options)
    loaded.set_env(more)  # other envs, as many as before
    loaded.learn(8)
    narrow = make_multi_env({"Blackjack-v1": 2}, max_prompt_bytes=1024)
    with pytest.raises(ValueError, match="do not match"):
        loaded.set_env(narrow)


# Rewards


def ten_times(env: gym.Env) -> gym.Env:
    return TransformReward(env, lambda reward: 10 * float(reward))


def test_returns_of_episodes_are_the_envs_own(tmp_path: Path) -> None:
    venv = make_multi_env(
        [replace(CORRIDOR, training_wrapper=ten_times), EnvCopies("CartPole-v1")], seed=0, monitor_dir=tmp_path
    )
    assert isinstance(venv, PerEnvRewardNormalization)
    returns: dict[str, list[float]] = {"Corridor": [], "CartPole-v1": []}
    seen = set()
    for _, _, _, infos in play(venv, 100):
        seen |= set(venv.get_original_reward().tolist())
        for info in infos:
            if "episode" in info:
                returns[info["env_id"]].append(info["episode"]["r"])
    assert seen == {0.0, 1.0, 10.0}
    assert set(returns["Corridor"]) == {0.0, 1.0}
    assert min(returns["CartPole-v1"]) >= 8
    venv.close()
    written: dict[str, list[float]] = {"Corridor": [], "CartPole-v1": []}
    for path in sorted(tmp_path.glob("*.monitor.csv")):
        for row in csv.DictReader(path.read_text().splitlines()[1:]):
            written[row["env_id"]].append(float(row["r"]))
    assert {name: sorted(numbers) for name, numbers in written.items()} == {
        name: sorted(numbers) for name, numbers in returns.items()
    }


def test_one_env_is_scaled_as_vec_normalize_does() -> None:
    lake = [EnvCopies("CartPole-v1", 5)]
    ours = make_multi_env(lake, seed=1, gamma=0.9)
    theirs = VecNormalize(make_multi_env(lake, seed=1, normalize_reward=False), norm_obs=False, gamma=0.9)
    assert isinstance(ours, PerEnvRewardNormalization)
    for part in (1, 2):
        for mine, wanted in zip(play(ours, 60), play(theirs, 60), strict=True):
            assert np.array_equal(mine[1], wanted[1])
            assert mine[1].dtype == wanted[1].dtype == np.float32
        assert ours.ret_rms["CartPole-v1"].var == theirs.ret_rms.var
        assert np.array_equal(ours.get_original_reward(), theirs.get_original_reward())
        rewards = np.arange(5.0)
        assert np.array_equal(ours.normalize_reward(rewards), theirs.normalize_reward(rewards))
        assert np.array_equal(ours.unnormalize_reward(rewards), theirs.unnormalize_reward(rewards))
        ours.training = theirs.training = part == 2


def test_each_env_is_scaled_by_its_own_returns_and_statistics_are_kept(tmp_path: Path) -> None:
    pair = [CORRIDOR, replace(CORRIDOR, training_wrapper=ten_times, name="rich")]
    venv = make_multi_env(pair, seed=0)
    assert isinstance(venv, PerEnvRewardNormalization)
    assert len(list(play(venv, 300))) == 300
    spread = {name: float(np.sqrt(rms.var)) for name, rms in venv.ret_rms.items()}
    assert spread["rich"] == pytest.approx(10 * spread["Corridor"], rel=0.3)
    assert all(rms.count == pytest.approx(600) for rms in venv.ret_rms.values())
    scaled = venv.normalize_reward(np.array([1, 1, 10, 10]))
    assert scaled[2] == pytest.approx(scaled[0], rel=0.3)

    venv.training = False
    venv.save(tmp_path / "rewards.json")
    plain = make_multi_env([replace(pair[1], n_envs=1), pair[0]], normalize_reward=False)
    loaded = PerEnvRewardNormalization.load(tmp_path / "rewards.json", plain)
    assert not loaded.training
    assert np.array_equal(loaded.normalize_reward(np.array([10, 1, 1])), scaled[[2, 0, 1]])
    assert len(list(play(loaded, 20))) == 20
    assert loaded.ret_rms["rich"].var == venv.ret_rms["rich"].var
    with pytest.raises(ValueError, match=r"no statistics of 'Blackjack-v1', only of 'Corridor', 'rich': give the env"):
        PerEnvRewardNormalization.load(
            tmp_path / "rewards.json", make_multi_env({"Blackjack-v1": 1}, normalize_reward=False)
        )


@pytest.mark.parametrize("closes", [False, True])
def test_answers_in_free_text(closes: bool) -> None:
    options = {"action_mode": "generate", "max_new_tokens": 3, "close_with_phrase": closes}
    env = make_multi_env({"CartPole-v1": 1, "FrozenLake-v1": 1}, seed=0, **options)
    assert env.action_space == TokenSpace(
        env.action_space.n_ids, 3, env.action_space.tokenizer, n_phrases=4 if closes else 0
    )
    model = PPO(LMActorCriticPolicy, env, n_steps=4, batch_size=8, n_epochs=1, seed=0)
    model.learn(8)
    env.reset()
    infos = env.step(np.stack([env.action_space.row([], 1)] * 2))[-1]
    assert [info["env_id"] for info in infos] == ["CartPole-v1", "FrozenLake-v1"]
    assert [info["parse_error"] for info in infos] == [not closes] * 2


def test_saved_statistics_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env, path = make_multi_env([CORRIDOR], 0), tmp_path / "scaling.json"
    assert isinstance(env, PerEnvRewardNormalization)
    env.save(path)
    before = path.read_text()
    env.ret_rms["Corridor"].mean = np.array(7.0)

    def full(number: int) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            env.save(path)
    assert path.read_text() == before
    assert [one.name for one in tmp_path.iterdir()] == ["scaling.json"]
