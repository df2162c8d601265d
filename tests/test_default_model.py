"""A policy without a model takes the bundled LM that has read most about its env, and its checkpoints keep that LM."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from helpers.toy_envs import Script, Told
from stable_baselines3 import PPO
from stable_baselines3.common.save_util import data_to_json, json_to_data

import lmpolicy.wrapper
from lmpolicy import LMActorCriticPolicy, TextObservationWrapper, TextSpace, TextTask, make_multi_env
from lmpolicy.bundled import WORLDS
from lmpolicy.envs import MiniGrid, TextWorld

GRID = "MiniGrid-Empty-5x5-v0"


def grid(**options: Any) -> gym.Env:
    """A grid in words, as anybody would make it."""
    pytest.importorskip("minigrid")
    return TextObservationWrapper(gym.make(GRID), **options)


def learner(env: gym.Env, **policy_kwargs: Any) -> PPO:
    return PPO(LMActorCriticPolicy, env, n_steps=8, batch_size=8, n_epochs=1, device="cpu", policy_kwargs=policy_kwargs)


class Adventure(TextWorld):
    """A task of one's own for an env that is not registered."""

    action_texts = ("left", "right")

    def bind(self, env: gym.Env) -> None:
        pass

    def format_observation(self, observation: Any) -> str:
        return str(observation)


def test_the_env_says_which_model_has_read_about_it() -> None:
    assert grid().observation_space.default_model == WORLDS
    assert TextObservationWrapper(Script(["a", "b"]), Adventure()).observation_space.default_model == WORLDS
    for env in (TextObservationWrapper(gym.make("CartPole-v1")), TextObservationWrapper(Script(["a", "b"]), Told())):
        assert env.observation_space.default_model is None


def test_a_grid_in_other_words_is_still_a_grid() -> None:
    class Mine(MiniGrid):
        pass

    class Terse(TextTask):
        def format_observation(self, observation: Any) -> str:
            return str(observation["mission"])

    for task in (Mine, Terse):
        assert grid(task=task).observation_space.default_model == WORLDS


def through_json(space: TextSpace) -> TextSpace:
    """As SB3 keeps it in a checkpoint."""
    return json_to_data(data_to_json({"space": space}))["space"]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s)), through_json])
def test_copies_of_the_space_keep_it(duplicate: Any) -> None:
    space = TextSpace(64, default_model=WORLDS)
    assert duplicate(space).default_model == WORLDS
    assert duplicate(TextSpace(64)).default_model is None
    assert duplicate(space) == space == TextSpace(64), "any model can read the rows"


def test_spaces_of_older_checkpoints_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def reduce_as_before(space: TextSpace) -> tuple[Any, ...]:
        return TextSpace, (space.max_bytes,), {"_np_random": space._np_random}

    monkeypatch.setattr(TextSpace, "__reduce__", reduce_as_before)
    old = pickle.dumps(TextSpace(64))
    monkeypatch.undo()
    assert pickle.loads(old).default_model is None
    assert repr(pickle.loads(old)) == "TextSpace(max_bytes=64)"


def test_the_policy_takes_the_model_of_the_env() -> None:
    policy = learner(grid()).policy
    assert policy.settings.model == policy.backbone.name == WORLDS
    assert learner(grid(), model="lmpolicy/control").policy.settings.model == "lmpolicy/control"
    assert learner(TextObservationWrapper(gym.make("CartPole-v1"))).policy.settings.model is None


def test_it_can_go_forward() -> None:
    model = learner(grid())
    observation = model.get_env().reset()
    env = grid()
    env.reset()
    with th.no_grad():
        probabilities = model.policy.get_distribution(th.as_tensor(observation)).distribution.probs[0]
    assert probabilities[env.prompt.actions.index("go forward")] > 0.01


def test_checkpoints_load_the_same_model(tmp_path: Path) -> None:
    model = learner(grid()).learn(8)
    model.save(tmp_path / "learner")
    model.policy.save(str(tmp_path / "policy"))
    row = np.asarray(model.get_env().reset())
    for loaded in (
        PPO.load(tmp_path / "learner", device="cpu").policy,
        PPO.load(tmp_path / "learner", env=grid(), device="cpu").policy,
        LMActorCriticPolicy.load(str(tmp_path / "policy"), device="cpu"),
    ):
        assert loaded.settings.model == WORLDS
        assert th.equal(loaded.predict_values(th.as_tensor(row)), model.policy.predict_values(th.as_tensor(row)))


def test_checkpoints_from_before_keep_the_model_that_they_were_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmpolicy.wrapper, "default_model", lambda *_: None)
    model = learner(grid())
    monkeypatch.undo()
    assert model.policy.settings.model is None
    model.save(tmp_path / "old")
    loaded = PPO.load(tmp_path / "old", env=grid(), device="cpu")
    assert loaded.policy.settings.model is None
    loaded.learn(8)


def test_written_answers_are_in_the_tokens_of_that_model() -> None:
    env = grid(action_mode="generate", max_new_tokens=4)
    model = learner(env).learn(8)
    assert model.policy.settings.model == WORLDS
    with pytest.raises(ValueError, match="another tokenizer"):
        learner(grid(action_mode="generate", tokenizer="lmpolicy/control"))


@pytest.mark.parametrize("order", [1, -1])
def test_different_envs_side_by_side_take_the_default(order: int) -> None:
    pytest.importorskip("minigrid")
    ids = [GRID, "CartPole-v1"][::order]
    assert make_multi_env(dict.fromkeys(ids, 1)).observation_space.default_model is None
    both = make_multi_env({GRID: 1, "MiniGrid-Empty-6x6-v0": 1})
    assert both.observation_space.default_model == WORLDS
