"""Settings by the id of an env: unknown ids, packages that are missing, and arguments that decide."""

from __future__ import annotations

import sys

import gymnasium as gym
import pytest

from lmpolicy import (
    Hyperparameters,
    hyperparameters,
)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(ImportError, match=r'BabyAI-GoToObj-v0 needs: pip install "lmpolicy\[minigrid\]"'):
        hyperparameters("BabyAI-GoToObj-v0").make_env(n_envs=1)


def test_arguments_decide_which_settings_of_an_env() -> None:
    slippery, dry = hyperparameters("FrozenLake-v1"), hyperparameters("FrozenLake-v1", is_slippery=False)
    assert slippery.env_kwargs == {"is_slippery": True}
    assert dry.env_kwargs == {"is_slippery": False}
    assert slippery.ppo["n_steps"] != dry.ppo["n_steps"]
    large = hyperparameters("FrozenLake-v1", is_slippery=False, map_name="8x8")
    assert large.env_kwargs == {"is_slippery": False, "map_name": "8x8"}
    assert large.n_steps == dry.n_steps
    assert dry.make_env(n_envs=1).get_attr("unwrapped")[0].spec.kwargs["is_slippery"] is False
    assert hyperparameters("CliffWalking-v1").env_kwargs["max_episode_steps"] == 200
    assert hyperparameters("CliffWalking-v1", max_episode_steps=50).env_kwargs["max_episode_steps"] == 50


def test_an_unknown_env_gets_general_settings() -> None:
    settings = hyperparameters("Pendulum-v1", g=9.0)
    assert settings == Hyperparameters("Pendulum-v1", env_kwargs={"g": 9.0}, score_normalization="token")
    # The bundled LM would be sure of one of the phrases, which it has never read, before it has learnt anything.
    assert settings.ppo["policy_kwargs"]["score_normalization"] == "token"


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPole", r"no env with the id 'CartPole': did you mean 'CartPole-v0' or 'CartPole-v1'\?"),
        ("FrozenLak-v1", r"did you mean 'FrozenLake-v1'"),
        ("BabyAI-GoToObjekt-v0", r"did you mean 'BabyAI-GoToObj-v0'"),
        ("Blackjack-v99", r"did you mean 'Blackjack-v1'\?"),
        ("NoSuchEnv-v0", r"perhaps import the package that registers it, .* lmpolicy\.Hyperparameters\(MyEnv\)"),
        ("minigrid:NoSuchEnv-v0", "no env with the id 'minigrid:NoSuchEnv-v0'"),
    ],
)
def test_unknown_ids(env_id: str, message: str) -> None:
    with pytest.raises(gym.error.NameNotFound, match=message):
        hyperparameters(env_id)


def test_ids_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hyperparameters("minigrid:MiniGrid-Empty-5x5-v0").env_id == "minigrid:MiniGrid-Empty-5x5-v0"
    with pytest.raises(TypeError, match=r"by the Gymnasium id \(str\), got .*: .*lmpolicy\.Hyperparameters\(MyEnv\)"):
        hyperparameters(gym.Env)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "minigrid", None)
    assert hyperparameters("BabyAI-NoSuchLevel-v0").n_envs == 16, "making it names the package"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("n_envs", r"but a setting: dataclasses\.replace\(.*, n_envs=...\) or settings\.make_env\(n_envs=...\)$"),
        ("learning_rate", r"but a setting: dataclasses\.replace\(.*, learning_rate=...\)$"),
        ("seed", r"but a setting: settings\.make_env\(seed=...\)$"),
    ],
)
def test_settings_are_no_arguments_of_an_env(argument: str, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{argument} is no argument of CartPole-v1, {message}"):
        hyperparameters("CartPole-v1", **{argument: 4})


def test_an_env_may_have_an_argument_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(gym.Env):
        def __init__(self, gamma: float) -> None: ...

    for number, options in enumerate(({}, {"kwargs": {"n_steps": 3}})):
        monkeypatch.setitem(
            gym.registry, f"Own-v{number}", gym.envs.registration.EnvSpec(f"Own-v{number}", Own, **options)
        )
    assert hyperparameters("Own-v0", gamma=0.5).env_kwargs == {"gamma": 0.5}
    assert hyperparameters("Own-v1", n_steps=4).env_kwargs == {"n_steps": 4}
    assert hyperparameters("CartPole-v1", sutton_barto_reward=True, max_episode_steps=9).gamma == 0.995
