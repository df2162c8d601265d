"""The bundled text tasks: every state distinct, every word checked against what the env does."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

import lmpolicy.envs
from lmpolicy.envs import TASKS, task_for
from lmpolicy.envs._words import cells, offset, side
from lmpolicy.task import TextTask

BOX2D_IDS = ("LunarLander-v3", "LunarLanderContinuous-v3")
IDS = (
    "Acrobot-v1",
    "Blackjack-v1",
    "CartPole-v0",
    "CartPole-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Taxi-v4",
    *BOX2D_IDS,
)
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*CartPole-v0 is out of date"),
    pytest.mark.filterwarnings("ignore:.*precision lowered by casting"),
]
STEPS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}


def make(env_id: str, **kwargs: Any) -> tuple[gym.Env, TextTask]:
    """An env and its bound task."""
    if env_id in BOX2D_IDS:
        pytest.importorskip("Box2D")
    env = gym.make(env_id, disable_env_checker=True, **kwargs)
    task = task_for(env)
    assert task is not None
    task.bind(env)
    return env, task


def env_actions(env: gym.Env, task: TextTask) -> dict[str, Any]:
    """The env action of each phrase."""
    if isinstance(task.action_texts, dict):
        return dict(task.action_texts)
    assert isinstance(task.action_texts, tuple)
    assert isinstance(env.action_space, gym.spaces.Discrete)
    assert len(task.action_texts) == env.action_space.n
    return {phrase: index for index, phrase in enumerate(task.action_texts)}


def step_from(env: gym.Env, task: TextTask, state: Any, phrase: str) -> str:
    """The text after an action in a state of the env."""
    inner: Any = env.unwrapped
    env.reset(seed=0)
    if isinstance(env.observation_space, gym.spaces.Discrete):
        inner.s = state
    else:
        inner.state = np.array(state)
    observation, *_ = env.step(env_actions(env, task)[phrase])
    return task.format_observation(observation)


def neighbour_words(text: str) -> dict[str, str]:
    """What the text says lies in each direction."""
    words = dict(re.findall(r"(Left|Down|Right|Up): (\w+)\.", text))
    assert list(words) == ["Left", "Down", "Right", "Up"]
    return {name.lower(): word for name, word in words.items()}


# --- every env ------------------------------------------------------------------------------------


def test_tasks_and_exports() -> None:
    assert {env_id.rsplit("-v", 1)[0] for env_id in IDS} == set(TASKS)
    assert set(lmpolicy.envs.__all__) == {"TASKS", "task_for"} | {task.__name__ for task in TASKS.values()}
    assert all(hasattr(lmpolicy.envs, name) for name in lmpolicy.envs.__all__)


@pytest.mark.parametrize("env_id", IDS)
def test_task_is_found_by_id_without_version(env_id: str) -> None:
    env, task = make(env_id)
    assert type(task) is TASKS[env_id.rsplit("-v", 1)[0]]
    assert task_for(env.unwrapped) is not task, "each call gives a task of its own"


def test_no_task_for_other_envs() -> None:
    env = gym.make("FrozenLake-v1")
    spec = env.spec
    assert spec is not None
    for name, namespace in (("BipedalWalker", None), ("FrozenLake9x9", None), ("FrozenLake", "mine")):
        other = copy.deepcopy(spec)
        other.name, other.namespace = name, namespace
        env.unwrapped.spec = other
        assert task_for(env.unwrapped) is None
    env.unwrapped.spec = None
    assert task_for(env.unwrapped) is None


def test_no_task_where_wrappers_change_the_spaces() -> None:
    flat = gym.wrappers.FlattenObservation(gym.make("FrozenLake-v1"))
    with pytest.warns(UserWarning, match="observations of Discrete"):
        assert task_for(flat) is None
    scaled = gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), np.float32(-1), np.float32(1))
    with pytest.warns(UserWarning, match="actions of Box"):
        assert task_for(scaled) is None
    assert task_for(gym.wrappers.RecordEpisodeStatistics(gym.make("FrozenLake-v1"))) is not None


@pytest.mark.parametrize("env_id", IDS)
def test_random_play_reads_well(env_id: str) -> None:
    env, task = make(env_id)
    actions = env_actions(env, task)
    assert all(env.action_space.contains(action) for action in actions.values())
    assert all(1 <= len(phrase.split()) <= 3 for phrase in actions)
    assert 0 < len(task.system_prompt.split()) < 120
    assert "  " not in task.system_prompt
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    for _ in range(300):
        text = task.format_observation(observation)
        assert text.isascii()
        assert text[-1] == "."
        assert not re.search(r"-\d|nan|inf|\d{4}|\d\.\d{3}|  |\n", text), text
        assert len(text.split()) <= 32, text
        observation, _, terminated, truncated, _ = env.step(list(actions.values())[rng.integers(len(actions))])
        if terminated or truncated:
            observation, _ = env.reset()


@pytest.mark.parametrize("env_id", IDS)
def test_bound_task_survives_pickle_and_deepcopy(env_id: str) -> None:
    env, task = make(env_id)
    observation, _ = env.reset(seed=3)
    for twin in (copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        assert twin.format_observation(observation) == task.format_observation(observation)
        assert twin.system_prompt == task.system_prompt
        assert list(twin.action_texts) == list(task.action_texts)  # type: ignore[arg-type]


def test_binding_again_reads_the_new_env() -> None:
    _, task = make("MountainCarContinuous-v0")
    assert len(task.action_texts) == 5  # type: ignore[arg-type]
    _, task = make("FrozenLake-v1")
    task.bind(gym.make("FrozenLake8x8-v1", is_slippery=False))
    assert "8 rows and 8 columns" in task.system_prompt
    assert "The ice is not slippery." in task.system_prompt


# --- words ----------------------------------------------------------------------------------------


def test_words() -> None:
    assert (side(-0.0), side(0.0), side(-1e-9), side(2, "falls", "rises")) == (
        "right",
        "right",
        "left",
        "rises",
    )
    assert offset(0, 0) == "here"
    assert offset(-1, 0) == "1 row up"
    assert offset(2, -1) == "2 rows down, 1 column left"
    assert cells(["ab", "aa", "bb"], "c") == ""
    assert cells(["abaa", "aaaa", "babb", "abbb"], "a") == (
        "row 1, columns 1, 3 and 4; row 2, columns 1 to 4; row 3, column 2; row 4, column 1"
    )


# --- grids ----------------------------------------------------------------------------------------

RANDOM_LAKES = [{"desc": generate_random_map(size=size, p=0.7, seed=seed)} for size in range(3, 9) for seed in range(2)]
LAKES = [
    {"map_name": "4x4"},
    {"map_name": "8x8"},
    {"desc": ["SFFHF", "FFFFG"]},
    {"desc": ["GFS", "FFF", "FFG"]},
    {"desc": ["SF", "FF"]},
    *RANDOM_LAKES,
]


@pytest.mark.parametrize("lake", LAKES, ids=lambda lake: "-".join(lake.get("desc", lake.values())))
@pytest.mark.parametrize("slippery", [False, True])
def test_frozen_lake_tells_the_truth(lake: dict[str, Any], slippery: bool) -> None:
    env, task = make("FrozenLake-v1", is_slippery=slippery, **lake)
    inner: Any = env.unwrapped
    tiles = inner.desc.ravel()
    texts = [task.format_observation(state) for state in range(tiles.size)]
    assert len(set(texts)) == tiles.size
    for state, text in enumerate(texts):
        row, column = divmod(state, inner.ncol)
        assert text.startswith(f"You are at row {row + 1}, column {column + 1}")
        assert (", in a hole" in text) == (tiles[state] == b"H")
        assert ("Goal: here" in text) == (tiles[state] == b"G")
        if tiles[state] in b"GH":
            continue
        for phrase, action in env_actions(env, task).items():
            # On slippery ice, the middle one of three outcomes is the way one chooses.
            outcomes = inner.P[state][action]
            _, target, _, ends = outcomes[len(outcomes) // 2]
            word = neighbour_words(text)[phrase.removeprefix("move ")]
            found = {b"G": "goal", b"H": "hole"}.get(tiles[target], "ice")
            assert word == ("wall" if target == state else found)
            assert ends == (word in ("goal", "hole"))
            down, right = STEPS[phrase.removeprefix("move ")] if word != "wall" else (0, 0)
            assert target == (row + down) * inner.ncol + column + right


def test_frozen_lake_system_prompt() -> None:
    _, task = make("FrozenLake-v1")
    assert task.system_prompt == (
        "You walk on a frozen lake of 4 rows and 4 columns; row 1 is the top row, column 1 the leftmost "
        "column. Goal: row 4, column 4. Holes: row 2, columns 2 and 4; row 3, column 4; row 4, column 1. "
        "The goal and the holes end the walk. A wall surrounds the lake; a step into it leaves you in place. "
        "Points: goal 1, hole 0, ice 0. The ice is slippery: a step goes the way you choose with probability "
        "0.33, else to one of the two sides, 0.33 each."
    )
    _, task = make("FrozenLake-v1", desc=["SFG"], success_rate=0.8, reward_schedule=(10, -5, -0.1))
    assert "1 row and 3 columns" in task.system_prompt
    assert "Holes: none." in task.system_prompt
    assert "Points: goal 10, ice -0.1." in task.system_prompt
    assert "with probability 0.80, else to one of the two sides, 0.10 each." in task.system_prompt


def test_frozen_lake_examples() -> None:
    env, task = make("FrozenLake-v1", is_slippery=False)
    assert task.format_observation(4) == (
        "You are at row 2, column 1. Left: wall. Down: ice. Right: hole. Up: ice. Goal: 2 rows down, 3 columns right."
    )
    assert step_from(env, task, 0, "move right").startswith("You are at row 1, column 2. Left: ice. Down: hole.")
    assert step_from(env, task, 0, "move down").startswith("You are at row 2, column 1.")
    assert step_from(env, task, 14, "move right").endswith("Goal: here.")
    assert step_from(env, task, 14, "move up").endswith("Goal: 1 row down, 1 column right.")
    assert step_from(env, task, 14, "move left").endswith("Goal: 2 columns right.")


@pytest.mark.parametrize("env_id", ["CliffWalking-v1", "CliffWalkingSlippery-v1"])
def test_cliff_walking_tells_the_truth(env_id: str) -> None:
    env, task = make(env_id)
    inner: Any = env.unwrapped
    texts = [task.format_observation(state) for state in range(48)]
    assert len(set(texts)) == 48
    assert [state for state, text in enumerate(texts) if "Goal: here" in text] == [47]
    for state in range(37):  # from 37 on: cliff and goal, where no step starts
        row, column = divmod(state, 12)
        for phrase, action in env_actions(env, task).items():
            outcomes = inner.P[state][action]
            _, target, reward, ends = outcomes[len(outcomes) // 2]
            word = neighbour_words(texts[state])[phrase.removeprefix("move ")]
            assert (word == "cliff") == (reward == -100)
            assert (word == "goal") == ends
            if word == "cliff":
                assert target == inner.start_state_index
            else:
                down, right = STEPS[phrase.removeprefix("move ")] if word != "wall" else (0, 0)
                assert target == (row + down) * 12 + column + right
    assert ("slippery" in task.system_prompt) == (env_id == "CliffWalkingSlippery-v1")
    assert "Start: row 4, column 1. Goal: row 4, column 12. Cliff: row 4, columns 2 to 11." in task.system_prompt


def test_cliff_walking_examples() -> None:
    env, task = make("CliffWalking-v1")
    start = "You are at row 4, column 1. Left: wall. Down: wall. Right: cliff. Up: ground. Goal: 11 columns right."
    assert task.format_observation(36) == start
    assert step_from(env, task, 36, "move right") == start
    assert step_from(env, task, 36, "move up") == (
        "You are at row 3, column 1. Left: wall. Down: ground. Right: ground. Up: ground. "
        "Goal: 1 row down, 11 columns right."
    )


@pytest.mark.parametrize("rainy", [False, True])
def test_taxi_tells_the_truth(rainy: bool) -> None:
    env, task = make("Taxi-v4", is_rainy=rainy)
    inner: Any = env.unwrapped
    texts = [task.format_observation(state) for state in range(500)]
    assert len(set(texts)) == 500
    actions = env_actions(env, task)
    for state, text in enumerate(texts):
        row, column, passenger, destination = inner.decode(state)
        assert text.startswith(f"You are at row {row + 1}, column {column + 1}.")
        for name, (down, right) in STEPS.items():
            target = inner.P[state][actions[f"move {name}"]][0][1]  # the first outcome is the way one chooses
            if neighbour_words(text)[name] == "wall":
                assert target == state
            else:
                assert target == inner.encode(row + down, column + right, passenger, destination)
        pick_up, drop_off = inner.P[state][actions["pick up"]][0], inner.P[state][actions["drop off"]][0]
        assert ("Passenger: here." in text) == (pick_up[2] != -10)
        assert ("Passenger: in the taxi." in text) == (passenger == 4)
        assert ("Passenger: in the taxi. Destination: here." in text) == (drop_off[2] == 20)
    assert ("It rains: a step goes the way you choose with probability 0.80" in task.system_prompt) == rainy


def test_taxi_examples() -> None:
    env, task = make("Taxi-v4")
    inner: Any = env.unwrapped
    # the passenger waits at row 5, column 1 (stand 2) and wants to go to row 5, column 4 (stand 3)
    state = inner.encode(2, 1, 2, 3)
    assert task.format_observation(state) == (
        "You are at row 3, column 2. Left: road. Down: road. Right: road. Up: road. "
        "Passenger: 2 rows down, 1 column left. Destination: 2 rows down, 2 columns right."
    )
    assert step_from(env, task, inner.encode(4, 0, 2, 3), "pick up") == (
        "You are at row 5, column 1. Left: wall. Down: wall. Right: wall. Up: road. "
        "Passenger: in the taxi. Destination: 3 columns right."
    )
    assert "Stands: row 1, column 1; row 1, column 5; row 5, column 1; row 5, column 4." in task.system_prompt
    _, task = make("Taxi-v4", fickle_passenger=True, fickle_probability=0.5)
    assert "the destination changes with probability 0.50" in task.system_prompt


# --- blackjack ------------------------------------------------------------------------------------


def test_blackjack_tells_hands_apart() -> None:
    env, task = make("Blackjack-v1")
    everything = list(itertools.product(range(32), range(11), range(2)))
    assert all(env.observation_space.contains(observation) for observation in everything)
    assert len({task.format_observation(observation) for observation in everything}) == len(everything) == 704
    assert task.format_observation((16, 10, 0)) == "Your total is 16 with no usable ace. The dealer shows a 10."
    assert task.format_observation((18, 1, 1)) == "Your total is 18 with a usable ace. The dealer shows an ace."
    assert task.format_observation((4, 8, 0)) == "Your total is 4 with no usable ace. The dealer shows an 8."


def test_blackjack_phrases_and_rules() -> None:
    env, task = make("Blackjack-v1")
    inner: Any = env.unwrapped
    actions = env_actions(env, task)
    env.reset(seed=0)
    inner.player, inner.dealer = [10, 10, 1], [10, 10]
    assert env.step(actions["stick"])[1:3] == (1.0, True)
    env.reset(seed=0)
    inner.player = [2, 2]
    assert env.step(actions["hit"])[1:3] == (0.0, False)
    assert len(inner.player) == 3
    rules = [
        make("Blackjack-v1", natural=natural, sab=sab)[1].system_prompt.rpartition(". ")[2]
        for natural, sab in ((False, True), (True, False), (False, False))
    ]
    assert rules == [
        "An ace and a 10 as your first two cards win, unless the dealer has them, too.",
        "A win with an ace and a 10 as your first two cards earns 1.5.",
        "A win earns 1 point, a loss costs 1, a draw is 0.",
    ]


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
    assert f"rolls {word} 0.4 cm per step" in text
    assert f"turns {side(1 if word == 'left' else -1)} " in text, "a pole falls against the push"


def test_cart_pole_words_are_exact_enough_to_balance() -> None:
    """A linear controller that reads nothing but the words stands until the time is up."""
    env, task = make("CartPole-v1")
    weights = {"leans": 0.064, "turns": 0.105, "Cart is": 0.038, "rolls": 0.013}
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        steps, terminated, truncated = 0, False, False
        while not (terminated or truncated):
            words = re.findall(
                r"(leans|turns|Cart is|rolls) (left|right) ([\d.]+)", task.format_observation(observation)
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
