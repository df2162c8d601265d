"""The text tasks of classic control and Lunar Lander: sides, signs and numbers are those of the engine."""

from __future__ import annotations

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers.bundled_envs import BOX2D_IDS, env_actions, make, step_from

from lmpolicy.envs import Acrobot
from lmpolicy.envs._words import side

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting")


# --- classic control ------------------------------------------------------------------------------


def painted_centre(frame: Any, colour: tuple[int, int, int]) -> float:
    """Mean horizontal place of a colour in a frame, as a fraction of the width."""
    columns = np.nonzero((np.abs(frame.astype(int) - colour) < 40).all(-1))[1]
    assert columns.size
    return float(columns.mean() / frame.shape[1])


def painted_side(monkeypatch: pytest.MonkeyPatch, env_id: str, state: list[float], colour: Any) -> str:
    """The side of the picture that a colour is on."""
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")
    env = gym.make(env_id, disable_env_checker=True, render_mode="rgb_array")
    env.reset(seed=0)
    inner: Any = env.unwrapped
    inner.state = np.array(state)
    return side(painted_centre(env.render(), colour) - 0.5)


def test_pendulum_examples() -> None:
    env, task = make("Pendulum-v1")
    text = task.format_observation(np.array([np.cos(0.5), np.sin(0.5), -2.0], dtype=np.float32))
    assert text == "Rod leans left 29 degrees, turns right 115 per second."
    text = task.format_observation(np.array([-1.0, -0.0, 0.0], dtype=np.float32))
    assert text == "Rod leans right 180 degrees, turns left 0 per second."
    for word in ("left", "right"):
        # at rest straight up and straight down, only the torque moves the rod
        for start in (0.0, np.pi):
            weak = step_from(env, task, [start, 0.0], f"turn {word}")
            hard = step_from(env, task, [start, 0.0], f"turn hard {word}")
            assert weak.endswith(f"turns {word} 9 per second.")
            assert hard.endswith(f"turns {word} 17 per second.")
    assert step_from(env, task, [0.0, 0.0], "coast") == "Rod leans left 0 degrees, turns left 0 per second."


def test_pendulum_sides_are_those_of_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    _, task = make("Pendulum-v1")
    for angle in (0.8, -0.8, 2.5, -2.5):
        observation = np.array([np.cos(angle), np.sin(angle), 0.0], dtype=np.float32)
        drawn = painted_side(monkeypatch, "Pendulum-v1", [angle, 0.0], (204, 77, 77))
        assert task.format_observation(observation).startswith(f"Rod leans {drawn} ")


def test_acrobot_examples() -> None:
    env, task = make("Acrobot-v1")
    state = [np.cos(0.5), np.sin(0.5), np.cos(-0.25), np.sin(-0.25), -1.0, 2.0]
    assert task.format_observation(np.array(state, dtype=np.float32)) == (
        "Upper link leans right 29 degrees, turns left 57 per second. "
        "Lower link bends left 14 degrees, turns right 115 per second. Tip is 1.85 m below the pivot."
    )
    text = task.format_observation(np.array([-1.0, 0.0, 1.0, 0.0, 0.0, 0.0], dtype=np.float32))
    assert text.startswith("Upper link leans right 180 degrees")
    assert text.endswith("Tip is 2.00 m above the pivot.")
    for word in ("left", "right"):
        text = step_from(env, task, [0.0, 0.0, 0.0, 0.0], f"push {word}")
        assert re.search(rf"Lower link bends {word} [1-9]\d* degrees, turns {word} [1-9]", text)
    assert "bends right 0 degrees, turns right 0" in step_from(env, task, [0.0] * 4, "coast")


def test_acrobot_in_round_numbers() -> None:
    task = Acrobot(coarse=True)
    state = [np.cos(0.5), np.sin(0.5), np.cos(-0.25), np.sin(-0.25), -1.0, 2.0]
    assert task.format_observation(np.array(state, dtype=np.float32)) == (
        "Upper link leans right 30 degrees, turns left 50 per second. "
        "Lower link bends left 0 degrees, turns right 100 per second. Tip is 1.8 m below the pivot."
    )
    assert "turns left 0 per second" in task.format_observation([1.0, 0.0, 1.0, 0.0, -0.1, 0.0])  # the side is kept


def test_acrobot_sides_are_those_of_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    _, task = make("Acrobot-v1")
    for upper, lower in ((0.6, 0.0), (-0.6, 0.0), (0.0, 0.9), (0.0, -0.9)):
        state = [np.cos(upper), np.sin(upper), np.cos(lower), np.sin(lower), 0.0, 0.0]
        text = task.format_observation(np.array(state, dtype=np.float32))
        drawn = painted_side(monkeypatch, "Acrobot-v1", [upper, lower, 0.0, 0.0], (0, 204, 204))
        assert f"{'leans' if upper else 'bends'} {drawn} " in text


def test_acrobot_ends_when_the_tip_is_1_m_up() -> None:
    env, task = make("Acrobot-v1")
    inner: Any = env.unwrapped
    rng = np.random.default_rng(0)
    for _ in range(300):
        inner.state = rng.uniform(-np.pi, np.pi, size=4).astype(np.float32)
        found = re.search(r"Tip is (\S+) m (above|below)", task.format_observation(inner._get_ob()))
        assert found
        if found[1] != "1.00":  # there, rounding hides the answer
            assert inner._terminal() == (found[2] == "above" and float(found[1]) > 1)


@pytest.mark.parametrize("env_id", ["MountainCar-v0", "MountainCarContinuous-v0"])
def test_mountain_car_examples(env_id: str) -> None:
    env, task = make(env_id)
    assert task.format_observation(np.array([-0.83, 0.0421])) == "Car is left 31 cm, rolls right 4.2 cm per step."
    assert task.format_observation(np.array([0.5, -0.07])) == "Car is right 102 cm, rolls left 7.0 cm per step."
    for position, pull in ((-0.45, "left"), (-0.6, "right")):  # what it is about to do
        at_rest = task.format_observation(np.array([position, 0.0]))
        assert f"rolls {pull} 0.0 cm" in at_rest
        assert f"rolls {pull} 0." in step_from(env, task, [position, 0.0], "coast")
    lowest = -np.pi / 6
    strength = "hard " if env_id == "MountainCarContinuous-v0" else ""
    for word in ("left", "right"):
        text = step_from(env, task, [lowest, 0.0], f"push {strength}{word}")
        assert re.fullmatch(rf"Car is {word} 0 cm, rolls {word} 0\.[12] cm per step\.", text)
        # gravity pulls back to the place that the text calls the lowest
        text = step_from(env, task, [lowest + (0.3 if word == "left" else -0.3), 0.0], "coast")
        assert f"rolls {word} 0.2 cm" in text


def test_mountain_car_system_prompt() -> None:
    assert "at right 102 cm, and at left 68 cm a wall" in make("MountainCar-v0")[1].system_prompt
    assert "flag is at right 97 cm" in make("MountainCarContinuous-v0")[1].system_prompt
    fast = make("MountainCar-v0", goal_velocity=0.05)[1].system_prompt
    assert "the flag on the right hill at 5.0 cm per step or faster." in fast


@pytest.mark.parametrize("word", ["left", "right"])
def test_cart_pole_signs(word: str) -> None:
    env, task = make("CartPole-v1")
    text = step_from(env, task, [0.0] * 4, f"push {word}")
    assert f"in 50 steps {word} 0.2 m." in text
    assert f"in 10 steps {side(1 if word == 'left' else -1)} " in text, "a pole falls against the push"


def test_cart_pole_says_where_things_go() -> None:
    env, task = make("CartPole-v1")
    text = task.format_observation(np.array([1.0, -1.62, 0.1, -0.4]))
    assert text == (
        "Pole leans right 5.7 degrees, in 10 steps right 1.1 degrees. Cart is right 1.0 m, in 50 steps left 0.6 m."
    )
    inner: Any = env.unwrapped
    env.reset(seed=0)
    inner.state = np.array([0.3, 0.8, 0.0, 0.0])
    *_, (observation, *_) = [env.step(action) for action in (0, 1) * 25]  # pushes that cancel out
    assert observation[0] == pytest.approx(0.3 + 0.8, abs=0.2)


def test_cart_pole_words_are_exact_enough_to_balance() -> None:
    """A linear controller that reads nothing but the words stands until the time is up."""
    env, task = make("CartPole-v1")
    weights = {"leans": 0.053, "in 10 steps": 0.011, "Cart is": 0.012, "in 50 steps": 0.026}
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        steps, terminated, truncated = 0, False, False
        while not (terminated or truncated):
            words = re.findall(
                r"(leans|in 10 steps|Cart is|in 50 steps) (left|right) ([\d.]+)", task.format_observation(observation)
            )
            assert len(words) == 4
            push = sum(weights[name] * float(number) * (1 if word == "right" else -1) for name, word, number in words)
            observation, _, terminated, truncated, _ = env.step(int(push > 0))
            steps += 1
        assert steps == 500


# --- lunar lander ---------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", BOX2D_IDS)
def test_lunar_lander_pushes(env_id: str) -> None:
    env, task = make(env_id)
    inner: Any = env.unwrapped
    actions = env_actions(env, task)
    for word in ("left", "right"):
        env.reset(seed=0)
        inner.lander.linearVelocity = (0, 0)
        inner.lander.angularVelocity = 0
        for _ in range(10):
            observation, *_ = env.step(actions[f"push {word}"])
        text = task.format_observation(observation)
        assert re.search(rf"moves {word} 0\.[1-9] per second, falls .*turns {word} [1-9]", text), text
        assert (inner.lander.GetWorldVector((0, 1))[0] < 0) == (word == "left")
        assert f"leans {word} " in text
    env.reset(seed=0)
    inner.lander.linearVelocity = (0, 0)
    for _ in range(10):
        observation, *_ = env.step(actions["push up"])
    assert "rises" in task.format_observation(observation)


def test_lunar_lander_numbers_are_those_of_the_engine() -> None:
    env, task = make("LunarLander-v3")
    inner: Any = env.unwrapped
    env.reset(seed=5)
    for phrase in ["push left", "push up", "coast", "push right"] * 5:
        observation, *_ = env.step(env_actions(env, task)[phrase])
        numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", task.format_observation(observation))]
        body = inner.lander
        middle = (inner.helipad_x1 + inner.helipad_x2) / 2
        standing = inner.helipad_y + 18 / 30  # LEG_DOWN / SCALE
        truth = [
            body.position.x - middle,
            body.position.y - standing,
            *body.linearVelocity,
            np.degrees(body.angle),
            np.degrees(body.angularVelocity),
        ]
        assert np.allclose(numbers[:4], np.abs(truth[:4]), atol=0.06)
        assert np.allclose(numbers[4:], np.abs(truth[4:]), atol=0.6)
    assert inner.helipad_x2 - middle == 2


def test_lunar_lander_legs_and_wind() -> None:
    env, task = make("LunarLander-v3")
    inner: Any = env.unwrapped
    env.reset(seed=0)
    places = [leg.position.x < inner.lander.position.x for leg in inner.legs]
    assert places == [False, True], "observation[6] is the right leg, observation[7] the left one"
    state = np.array([-0.35, -0.003, 0.02, -0.08, 0.1, -0.2, 1.0, 0.0], dtype=np.float32)
    assert task.format_observation(state) == (
        "Lander is left 3.5 m, down 0.0 m, moves right 0.1 per second, falls 0.6 per second, "
        "leans left 6 degrees, turns right 29 per second. Legs down: right."
    )
    ends = {(0, 0): "none", (1, 0): "right", (0, 1): "left", (1, 1): "both"}
    for legs, word in ends.items():
        assert task.format_observation([*state[:6], *legs]).endswith(f"Legs down: {word}.")
    assert "wind" not in task.system_prompt
    assert "A changing wind blows." in make("LunarLander-v3", enable_wind=True)[1].system_prompt


def test_lunar_lander_with_continuous_actions_by_argument() -> None:
    env, task = make("LunarLander-v3", continuous=True)
    assert all(env.action_space.contains(action) for action in env_actions(env, task).values())
