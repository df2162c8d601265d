"""MiniGrid and BabyAI in words: every id, held against the env's own grid."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lmpolicy import TextObservationWrapper, TextTask
from lmpolicy.envs import task_for
from lmpolicy.envs.babyai import PHRASES, MiniGrid
from lmpolicy.envs.babyai_bot import babyai_bot

minigrid = pytest.importorskip("minigrid", reason="needs minigrid")

IDS = sorted(name for name in gym.registry if name.startswith(("MiniGrid-", "BabyAI-")))
STEPS = 200
NEEDS_PATTERNS = "WFC"
"""Ids whose rooms are laid out after a picture."""


def make(name: str, **options: Any) -> tuple[gym.Env, MiniGrid]:
    if NEEDS_PATTERNS in name:
        pytest.importorskip("imageio", reason="needs minigrid[wfc]")
        if not (Path(minigrid.__file__).parent / "envs" / "wfc" / "patterns").is_dir():
            pytest.skip("the wheel of minigrid 3.2 lacks the patterns of these ids: no one can make them")
    env = gym.make(name)
    task = MiniGrid(**options)
    task.bind(env)
    return env, task


def visible(env: Any) -> tuple[str | None, set[tuple[str, int, int]]]:
    """What is carried and what is seen, from the env's grid and not from the observation."""
    grid, mask = env.unwrapped.gen_obs_grid()
    found = set()
    for column in range(grid.width):
        for row in range(grid.height):
            thing = grid.get(column, row)
            place = (grid.height - 1 - row, column - grid.width // 2)
            if thing is None or not mask[column, row] or place == (0, 0):
                continue
            if thing.type in ("wall", "lava"):
                found.add((thing.type, *place))
                continue
            state = ""
            if thing.type == "door":
                state = "open " if thing.is_open else "locked " if thing.is_locked else "closed "
            kind = "tile" if thing.type == "floor" else thing.type
            found.add((f"{state}{thing.color} {kind}", *place))
    carried = env.unwrapped.carrying
    return carried and f"{carried.color} {carried.type}", found


def told(text: str) -> tuple[str, str, str | None, set[tuple[str, int, int]]]:
    """Mission, direction, what is carried and what is seen, read from the words alone."""
    pattern = r"Mission: (.*?)\. You face (\w+) and carry (.*?)\. You see (.*?)\.( Walls: .*?\.)?( Lava: .*\.)?"
    match = re.fullmatch(pattern, text)
    assert match, text
    mission, direction, carried, things, walls, lava = match.groups()
    found: list[tuple[str, int, int]] = []
    for thing in [] if things == "no object" else things.split(", "):
        parts = re.fullmatch(r"an? (.*?) (?:(\d+) steps? forward)?(?: and )?(?:(\d+) steps? (left|right))?", thing)
        assert parts, thing
        name, forward, aside, way = parts.groups()
        found.append((name, int(forward or 0), int(aside or 0) * (-1 if way == "left" else 1)))
    assert len(set(found)) == len(found)
    for kind, blocks in (("wall", walls), ("lava", lava)):
        for block in blocks.split(": ")[1].rstrip(".").split("; ") if blocks else []:
            found += [(kind, *cell) for cell in cells(block)]
    return mission, direction, None if carried == "nothing" else re.sub("^an? ", "", carried), set(found)


def cells(block: str) -> list[tuple[int, int]]:
    """The cells of a block of walls."""

    def span(words: str) -> range:
        numbers = [int(number) * (-1 if way == "left" else 1) for number, way in re.findall(r"(\d+) ?([a-z]*)", words)]
        return range(numbers[0], numbers[-1] + 1)

    ahead, _, aside = block.partition(", ")
    if "forward" not in ahead:
        ahead, aside = aside, ahead
    match = re.fullmatch(r"(from )?(\d+( to \d+)?) forward", ahead)
    assert match, block
    end = r"(0|[1-9]\d* (left|right))"
    assert re.fullmatch(rf"(from )?{end}( to {end})?", aside), block
    rows, columns = (span(part.removeprefix("from ").replace("to ", "")) for part in (match[2], aside))
    return [(forward, right) for forward in rows for right in columns]


@pytest.mark.parametrize("name", IDS)
def test_the_words_say_what_the_grid_shows(name: str) -> None:
    env, task = make(name, useful_only=True)
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    if "Carrying" in name:  # these put the thing into the hand after they have made the first observation
        observation = env.unwrapped.gen_obs()
    for _ in range(STEPS):
        mission, direction, carried, found = told(task.format_observation(observation))
        assert mission == env.unwrapped.mission.strip()
        assert direction == ("right", "down", "left", "up")[env.unwrapped.agent_dir]
        assert (carried, found) == visible(env)
        # Useful actions more often than not, or random play would hardly ever carry or open anything.
        useful = list(task._useful(observation, {}).values())
        action = rng.choice(useful) if rng.random() < 0.9 else rng.integers(env.action_space.n)
        observation, _, terminated, truncated, _ = env.step(int(action))
        if terminated or truncated:
            env.reset()
            observation = env.unwrapped.gen_obs()
    env.close()


@pytest.mark.parametrize("name", ["BabyAI-BossLevel-v0", "MiniGrid-DoorKey-5x5-v0", "MiniGrid-ObstructedMaze-Full-v0"])
def test_useful_actions_are_those_that_change_something(name: str) -> None:
    """Against the env itself: what is offered changes its state, what is not offered does not."""
    env, task = make(name, useful_only=True)
    rng, seen = np.random.default_rng(0), set()
    observation, _ = env.reset(seed=0)
    for _ in range(10 * STEPS):
        useful = task._useful(observation, {})
        action = int(rng.integers(len(task.phrases)))
        before = snapshot(env)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
            continue
        phrase = PHRASES[action]
        assert (snapshot(env) != before) == (phrase in useful), phrase
        seen.add((phrase, phrase in useful))
        if phrase in useful:
            continue
        rare = [action for phrase, action in useful.items() if phrase in ("pick up", "drop", "toggle")]
        observation, *_ = env.step(int(rng.choice(rare or list(useful.values()))))
    assert len(seen) == 10  # both outcomes of all but turning
    env.close()


def snapshot(env: Any) -> Any:
    inner = env.unwrapped
    return inner.grid.encode().tobytes(), tuple(inner.agent_pos), inner.agent_dir, inner.carrying


def test_done_is_offered_where_it_ends_the_episode() -> None:
    numbers = {"MiniGrid-GoToDoor-5x5-v0": 7, "MiniGrid-GoToObject-6x6-N2-v0": 7, "BabyAI-GoToObj-v0": 6}
    for name, wanted in numbers.items():
        env, task = make(name)
        assert list(task.phrases) == list(PHRASES[:wanted])
        assert ("Say done" in task.system_prompt) == (wanted == 7)
        if wanted == 7:
            env.reset(seed=0)
            assert env.step(task.phrases["done"])[2]
    _, task = make("MiniGrid-Dynamic-Obstacles-5x5-v0")
    assert list(task.phrases) == list(PHRASES[:3])


def test_found_by_id_and_played_in_words() -> None:
    env = TextObservationWrapper(gym.make("BabyAI-GoToLocal-v0"), history=2)
    assert isinstance(env.task, MiniGrid)
    env.reset(seed=0)
    prompts = [env.observation_space.decode(env.step("go forward")[0]) for _ in range(2)]
    assert prompts[-1].count("Mission: ") == 1  # told once
    assert prompts[-1].count("You face ") == 3
    assert prompts[-1].count("go forward") >= 2


def test_only_useful_phrases_are_legal() -> None:
    env = TextObservationWrapper(gym.make("MiniGrid-DoorKey-5x5-v0"), MiniGrid(useful_only=True))
    observation, _ = env.reset(seed=3)
    assert env.action_space.n == 6
    assert "toggle" not in str(env.observation_space.decode(observation)).split("Mission")[-1]


def test_another_observation_gets_generic_words() -> None:
    env = minigrid.wrappers.FullyObsWrapper(gym.make("MiniGrid-Empty-5x5-v0"))
    with pytest.warns(UserWarning, match="generic words are used"):
        assert task_for(env) is None


class Loud(gym.Wrapper):
    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        print("my own words")
        return super().reset(**kwargs)


def test_levels_that_are_drawn_again_are_not_printed(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "lmpolicy.envs.babyai")
    env = TextObservationWrapper(Loud(gym.make("BabyAI-GoToLocal-v0")))
    for seed in range(60):
        env.reset(seed=seed)
    assert any(record.message.startswith("Sampling rejected: ") for record in caplog.records)
    assert capsys.readouterr().out == "my own words\n" * 60


def rewards_of_bot(env: TextObservationWrapper, **instead: str) -> float:
    """Play as the bot says, but take another phrase for each of ``instead``, once."""
    bot, done = babyai_bot(env), False
    _, info = env.reset(seed=0)
    while not done:
        said = bot(env.prompt, info)
        assert said in env.prompt.actions
        _, reward, terminated, truncated, info = env.step(instead.pop(said.replace(" ", "_"), said))
        done = terminated or truncated
    assert not instead, "the bot never said it"
    return reward


def test_the_bot_plans_anew_where_its_advice_is_not_taken() -> None:
    assert rewards_of_bot(TextObservationWrapper(gym.make("BabyAI-PickupLoc-v0")), pick_up="turn left") > 0.5


def test_the_bot_says_phrases_where_only_some_are_legal() -> None:
    for history in (0, 1):
        env = TextObservationWrapper(gym.make("BabyAI-PickupLoc-v0"), MiniGrid(useful_only=True), history=history)
        assert rewards_of_bot(env) > 0.5


def test_the_bot_plays_in_the_words_of_any_task() -> None:
    class Backwards(TextTask):
        action_texts = {phrase.upper(): action for action, phrase in reversed([*enumerate(PHRASES)])}  # noqa: RUF012

        def format_observation(self, observation: Any) -> str:
            return str(observation["mission"])

    assert rewards_of_bot(TextObservationWrapper(gym.make("BabyAI-PickupLoc-v0"), Backwards())) > 0.5
    Backwards.action_texts.pop("PICK UP")
    with pytest.raises(ValueError, match=r"the bot would do 'pickup', but no legal phrase stands for it; legal are: "):
        rewards_of_bot(TextObservationWrapper(gym.make("BabyAI-PickupLoc-v0"), Backwards()))


def test_the_bot_needs_words() -> None:
    with pytest.raises(TypeError, match=r"wrap it in lmpolicy\.TextObservationWrapper"):
        babyai_bot(gym.make("BabyAI-PickupLoc-v0"))
