"""Envs of other packages: 200 random steps in words, and one update; skipped where the package is missing."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from lmpolicy import GenericTask, LMActorCriticPolicy, Prompt, TextObservationWrapper
from lmpolicy.envs import OneSeat
from lmpolicy.text.describing import format_number
from lmpolicy.text.mujoco_names import joint_names

EXTRAS = {
    "highway_env": "highway",
    "ale_py": "atari",
    "mujoco": "mujoco",
    "pettingzoo": "pettingzoo",
    "textworld_express": "textworld-express",
    "scienceworld": "scienceworld",
}
SEEN = {"observation": {"type": "Kinematics", "normalize": False}, "vehicles_count": 8, "simulation_frequency": 5}
DISCRETE_AXES = {"action": {"type": "DiscreteAction", "lateral": False}}
RAM = {"obs_type": "ram"}
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*out of date"),
    pytest.mark.filterwarnings("ignore:.*builtin type"),
]


def connect_four() -> gym.Env:
    return OneSeat(importlib.import_module("pettingzoo.classic").connect_four_v3.env(), "any")


Case = tuple[str, Any, dict[str, Any], GenericTask | None, dict[str, Any]]
CASES: dict[str, Case] = {
    "highway": ("highway_env", "highway-fast-v0", {"config": SEEN}, None, {}),
    "parking": ("highway_env", "parking-v0", {}, GenericTask(decimals=2), {"action_bins": 3}),
    "pong": ("ale_py", "ALE/Pong-v5", RAM, GenericTask(names={49: "ball x", 54: "ball y"}), {}),
    "breakout": ("ale_py", "ALE/Breakout-v5", RAM, GenericTask(max_numbers=128), {}),
    "hopper": ("mujoco", "Hopper-v5", {}, None, {"action_bins": 3}),
    "cheetah": ("mujoco", "HalfCheetah-v5", {}, None, {"action_bins": 2, "max_prompt_bytes": 8192}),
    "ant": ("mujoco", "Ant-v5", {"include_cfrc_ext_in_observation": False}, None, {"action_mode": "generate"}),
    "tic-tac-toe": ("pettingzoo", "lmpolicy/TicTacToe-v0", {"seat": "any"}, None, {}),
    "connect four": ("pettingzoo", connect_four, {}, GenericTask(max_numbers=84), {}),
    "twx": ("textworld_express", "lmpolicy/TextWorldExpress-v0", {}, None, {"max_prompt_bytes": 8192}),
    "scienceworld": (
        "scienceworld",
        "lmpolicy/ScienceWorld-v0",
        {"task": "lifespan-longest-lived"},
        None,
        {"max_prompt_bytes": 32_768},
    ),
}
"""Module, id or function, arguments of the env, task, arguments of the wrapper."""


def require(module: str) -> Any:
    """Import a package, or skip the test and say how to install it."""
    found = pytest.importorskip(module, reason=f'needs: pip install "lmpolicy[{EXTRAS[module]}]"')
    if module in ("textworld_express", "scienceworld") and shutil.which("java") is None:
        pytest.skip("needs Java: install a Java runtime, so that java is on the path")
    if module in ("highway_env", "ale_py"):
        gym.register_envs(found)
    return found


@pytest.fixture
def make() -> Any:
    """Makes the env of a case in words, and closes it."""
    made = []

    def make_one(name: str) -> TextObservationWrapper:
        module, env, arguments, task, words = CASES[name]
        require(module)
        inner = env() if callable(env) else gym.make(env, **arguments)
        made.append(TextObservationWrapper(inner, task, **words))
        return made[-1]

    yield make_one
    for env in made:
        env.close()


@pytest.mark.parametrize("name", CASES)
def test_random_steps_and_an_update(name: str, make: Callable[[str], TextObservationWrapper]) -> None:
    env = make(name)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(200):
        prompt = env.prompt
        action = int(rng.integers(len(prompt.actions))) if prompt.actions else env.action_space.sample()
        row, reward, terminated, truncated, info = env.step(action)
        assert Prompt.from_json(env.observation_space.decode(row)) == env.prompt
        assert info["prompt_truncated"] == 0
        assert np.isfinite(reward)
        assert info.get("action_text") in (*prompt.actions, None)
        if terminated or truncated:
            env.reset()
    model = PPO(LMActorCriticPolicy, env, n_steps=4, batch_size=4, n_epochs=1, ent_coef=0.1, seed=0, device="cpu")
    before = [parameter.detach().clone() for parameter in model.policy.parameters() if parameter.requires_grad]
    model.learn(4)
    after = [parameter for parameter in model.policy.parameters() if parameter.requires_grad]
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(torch.isfinite(parameter).all() for parameter in after)


# --- names ----------------------------------------------------------------------------------------


def user_message(env: TextObservationWrapper, seed: int = 0) -> str:
    env.reset(seed=seed)
    return env.prompt.messages[-1][1]


def test_a_vehicle_is_told_as_the_env_sees_it(make: Callable[[str], TextObservationWrapper]) -> None:
    env = make("highway")
    assert env.fixed_phrases == ("lane left", "idle", "lane right", "faster", "slower")
    first, second = user_message(env).splitlines()[:2]
    inner: Any = env.unwrapped
    x, y = inner.vehicle.position
    assert first.startswith(f"you: x {x:.0f}, y {y:.3g}, vx ")
    near = inner.road.close_vehicles_to(inner.vehicle, 1000, count=1, see_behind=False)[0]
    assert second.startswith(f"vehicle 1: x {near.position[0] - x:.3g}, y ")
    env.step("lane right")
    assert inner.vehicle.target_lane_index[2] == inner.vehicle.lane_index[2] or inner.vehicle.action["steering"] != 0


def test_continuous_actions_of_highway_env(make: Callable[[str], TextObservationWrapper]) -> None:
    env = make("parking")
    assert env.fixed_phrases is not None
    assert env.fixed_phrases[1] == "acceleration -1, steering 0"
    assert user_message(env).startswith("achieved_goal: x ")
    other = TextObservationWrapper(gym.make("highway-fast-v0", config={**SEEN, **DISCRETE_AXES}))
    assert other.fixed_phrases == ("action 0", "action 1", "action 2")


def test_meanings_and_memory_of_an_atari_game(make: Callable[[str], TextObservationWrapper]) -> None:
    env = make("pong")
    assert env.fixed_phrases == ("do nothing", "fire", "right", "left", "right fire", "left fire")
    text = user_message(env)
    ram = env.unwrapped.ale.getRAM()  # type: ignore[attr-defined]
    assert text == f"ball x {ram[49]}, ball y {ram[54]}"
    with pytest.raises(ValueError, match=r'gymnasium\.make\("ALE/Pong-v5", obs_type="ram"\) shows the 128 bytes'):
        TextObservationWrapper(gym.make("ALE/Pong-v5"))


@pytest.mark.parametrize(
    ("env_id", "joints", "actions"),
    [
        ("Hopper-v5", ("torso x", "torso z", "torso angle", "thigh", "leg", "foot"), ("thigh", "leg", "foot")),
        (
            "HalfCheetah-v5",
            ("torso x", "torso z", "torso angle", "bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"),
            ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot"),
        ),
        ("InvertedPendulum-v5", ("cart", "pole"), ("cart",)),
        ("InvertedDoublePendulum-v5", ("cart", "pole", "pole2"), ("cart",)),
        ("Reacher-v5", ("joint0", "joint1", "target x", "target y"), ("joint0", "joint1")),
    ],
)
@pytest.mark.filterwarnings("ignore:.*settotalmass")
def test_joints_of_mujoco(env_id: str, joints: tuple[str, ...], actions: tuple[str, ...]) -> None:
    require("mujoco")
    env = gym.make(env_id)
    assert tuple(joint_names(env.unwrapped.model)) == joints  # type: ignore[attr-defined]
    task = GenericTask()
    task.bind(env)
    assert task.action_dimensions == actions


def told(env_id: str, **arguments: Any) -> tuple[Any, dict[str, str]]:
    """An env of MuJoCo after its reset, and what is told of it under each title."""
    require("mujoco")
    env = gym.make(env_id, **arguments)
    task = GenericTask(max_numbers=200)
    task.bind(env)
    observation, _ = env.reset(seed=0)
    return env.unwrapped, dict(line.split(": ", 1) for line in task.format_observation(observation).splitlines())


def listed(names: Any, numbers: Any) -> str:
    pairs = zip(names, numbers, strict=True)
    return ", ".join(f"{name}{':' if name[-1].isdigit() else ''} {format_number(number)}" for name, number in pairs)


@pytest.mark.parametrize("env_id", ["Hopper-v5", "HalfCheetah-v5", "Walker2d-v5", "Swimmer-v5", "InvertedPendulum-v5"])
@pytest.mark.filterwarnings("ignore:.*settotalmass")
def test_places_and_speeds_of_joints(env_id: str) -> None:
    env, lines = told(env_id)
    joints = joint_names(env.model)
    skipped = env.observation_structure.get("skipped_qpos", 0)
    assert lines == {
        "positions": listed(joints[skipped:], env.data.qpos[skipped:]),
        "speeds": listed(joints, np.clip(env.data.qvel, -10, 10)),
    }


def test_a_body_that_moves_freely_and_forces_on_bodies() -> None:
    env, lines = told("Ant-v5")
    legs = [f"{part} {leg}" for leg in (1, 2, 3, 4) for part in ("hip", "ankle")]
    turn = ["torso turn w", "torso turn x", "torso turn y", "torso turn z"]
    places = [f"torso {axis}" for axis in "xyz"]
    assert lines["positions"] == listed([places[2], *turn, *legs], env.data.qpos[2:])
    assert lines["speeds"] == listed([*places, *turn[1:], *legs], env.data.qvel)
    forces = ("torque x", "torque y", "torque z", "force x", "force y", "force z")
    of_torso = listed([f"torso {force}" for force in forces], np.clip(env.data.cfrc_ext[1], -1, 1))
    assert lines["contact forces"].startswith(of_torso + ", ")
    assert lines["contact forces"].count("force z") == env.model.nbody - 1
    assert set(told("Ant-v5", include_cfrc_ext_in_observation=False)[1]) == {"positions", "speeds"}
    with pytest.raises(ValueError, match=r"Ant-v5\", include_cfrc_ext_in_observation=False\) may show less"):
        TextObservationWrapper(gym.make("Ant-v5"))


def test_envs_of_mujoco_that_do_not_say_what_they_show() -> None:
    env, lines = told("Reacher-v5")
    joints, place = env.data.qpos[:2], env.get_body_com("fingertip") - env.get_body_com("target")
    assert lines == {
        "cosines": listed(("joint0", "joint1"), np.cos(joints)),
        "sines": listed(("joint0", "joint1"), np.sin(joints)),
        "target": listed("xy", env.data.qpos[2:]),
        "speeds": listed(("joint0", "joint1"), env.data.qvel[:2]),
        "fingertip from target": listed("xy", place[:2]),
    }
    env, lines = told("Pusher-v5")
    joints = joint_names(env.model)[:7]
    assert lines["positions"] == listed(joints, env.data.qpos[:7])
    assert lines["speeds"] == listed(joints, env.data.qvel[:7])
    for title, body in (("fingertip", "tips_arm"), ("object", "object"), ("goal", "goal")):
        assert lines[title] == listed("xyz", env.get_body_com(body))
    env, lines = told("InvertedDoublePendulum-v5")
    assert lines["position"] == listed(("cart",), env.data.qpos[:1])
    assert lines["sines"] == listed(("pole", "pole2"), np.sin(env.data.qpos[1:]))
    assert lines["cosines"] == listed(("pole", "pole2"), np.cos(env.data.qpos[1:]))
    assert lines["speeds"] == listed(("cart", "pole", "pole2"), np.clip(env.data.qvel, -10, 10))
    assert lines["constraint force"].startswith("cart ")


def test_tic_tac_toe_is_read_as_it_is_played(make: Callable[[str], TextObservationWrapper]) -> None:
    env = make("tic-tac-toe")
    for seed in range(5):
        text = user_message(env, seed)
        board = env.unwrapped.game.unwrapped.board.squares  # type: ignore[attr-defined]
        assert text.startswith("You have nothing. ")
        assert ("The other has nothing." in text) == (not any(board))
        assert len(env.prompt.actions) == board.count(0)


def test_units_of_mujoco() -> None:
    require("mujoco")
    task = GenericTask(max_numbers=200)
    task.bind(gym.make("Ant-v5"))
    for words in ("positions in m or rad", "speeds in m/s or rad/s", "contact forces in N or Nm"):
        assert words in task.system_prompt, task.system_prompt
