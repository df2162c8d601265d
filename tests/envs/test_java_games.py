"""TextWorldExpress and ScienceWorld as envs; their simulators are replaced, so that no Java is needed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lmpolicy import TextObservationWrapper, hyperparameters
from lmpolicy.envs import ScienceWorld, TextWorldExpress, _java_games, task_for
from lmpolicy.envs.scienceworld import ScienceWorldEnv
from lmpolicy.envs.textworld_express import TextWorldExpressEnv

ROOM = (
    "This room is called the hall. In it, you see: \n\tthe agent\n\ta substance called air\n\ta box\n"
    "You also see:\n\tA door\n"
)


class Coins:
    """Stands for the simulator of TextWorldExpress: take the coin."""

    def __init__(self, envStepLimit: int) -> None:  # noqa: N803
        self.calls: list[Any] = [("limit", envStepLimit)]

    def getGameNames(self) -> list[str]:  # noqa: N802
        return ["coin", "twc"]

    def load(self, game: str, settings: str) -> None:
        self.calls.append(("load", game, settings))

    def getValidSeedsTrain(self) -> list[int]:  # noqa: N802
        return [0, 1, 2, 3]

    def getValidSeedsTest(self) -> list[int]:  # noqa: N802
        return [100, 101]

    def _known(self, score: float, failed: bool = False) -> dict[str, Any]:
        return {
            "taskDescription": "Find the coin.",
            "look": "You are in the hall. \nA coin. ",
            "inventory": "Inventory: \n  Your inventory is currently empty.\n",
            "score": score,
            "tasksuccess": score >= 1,
            "taskfailure": failed,
            "validActions": ["take coin", "look around", "examine coin", "drop it", "inventory"],
        }

    def reset(self, seed: int, gameFold: str) -> Any:  # noqa: N803
        self.calls.append(("reset", seed, gameFold))
        return "You are in the hall.", self._known(0)

    def step(self, command: str) -> Any:
        self.calls.append(("step", command))
        score = {"take coin": 1.0, "look around": 0.25}.get(command, 0.0)
        return f"You {command}.", 0.0, False, self._known(score, command == "drop it")

    def close(self) -> None:
        self.calls.append("closed")


class Lab:
    """Stands for the simulator of ScienceWorld: focus on the right thing."""

    task_names = ("boil", "find-living-thing")

    def __init__(self, task: str, envStepLimit: int) -> None:  # noqa: N803
        self.calls: list[Any] = []

    def load(self, task: str, variation: int, simplifications: str) -> None:
        self.calls.append((task, variation, simplifications))

    def get_variations_train(self) -> list[int]:
        return [4, 5]

    def _known(self, score: int) -> dict[str, Any]:
        valid = [
            "focus on bee",
            "look at box",
            "wait1",
            "wait",
            "move box to hall",
            "move orange to box",
            "pour box into door",
        ]
        valid += [
            "put down orange",
            "reset task",
            "mix box",
            "connect box to door",
            "use orange on box",
            "connect air to bee",
        ]
        valid += ["connect anode in lamp to wire terminal 1", "disconnect lamp", "disconnect wire terminal 1"]
        told = {
            "taskDesc": "Task Description:\nFind life.",
            "look": ROOM,
            "inv": "In your inventory, you see:\n\tan orange\n",
        }
        return {**told, "score": score, "valid": valid}

    def reset(self) -> Any:
        return ROOM, self._known(0)

    def step(self, command: str) -> Any:
        score = {"focus on bee": 25, "focus on box": -100, "wait": 100}.get(command, 0)
        return "Done.", 0, False, self._known(score)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _simulators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textworld_express", SimpleNamespace(TextWorldExpressEnv=Coins))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "scienceworld", SimpleNamespace(ScienceWorldEnv=Lab))  # type: ignore[arg-type]
    monkeypatch.setattr(_java_games.shutil, "which", lambda name: f"/usr/bin/{name}")


def test_a_game_of_textworld_express() -> None:
    env = gym.make("lmpolicy/TextWorldExpress-v0", game="twc", settings="numLocations=2")
    observation, info = env.reset(seed=0)
    assert observation["objective"] == "Find the coin."
    assert observation["feedback"] == ""
    assert info["admissible_commands"] == ("drop it", "examine coin", "inventory", "look around", "take coin")
    inner: Any = env.unwrapped
    assert inner._game.calls[:2] == [("limit", 10**9), ("load", "twc", "numLocations=2")]
    _, reward, terminated, _, info = env.step(" look   around ")
    assert inner._game.calls[-1] == ("step", "look around")
    assert (reward, terminated, info["won"], info["lost"]) == (0.25, False, False, False)
    _, reward, terminated, _, info = env.step("take coin")
    assert (reward, terminated, info["won"], info["lost"]) == (0.75, True, True, False)
    env.reset()
    _, reward, terminated, _, info = env.step("drop it")
    assert (reward, terminated, info["won"], info["lost"]) == (0.0, True, False, True)
    game = inner._game
    env.close()
    assert game.calls[-1] == "closed"


def test_games_of_a_split() -> None:
    env = TextWorldExpressEnv(games=np.int64(2))  # type: ignore[arg-type]
    for seed in range(20):
        env.reset(seed=seed)
    drawn = {call for call in env._game.calls if call[0] == "reset"}
    assert drawn == {("reset", 0, "train"), ("reset", 1, "train")}
    test = TextWorldExpressEnv(split="test", games=None, render_mode="ansi")
    test.reset(options={"game": 1})
    assert test._game.calls[-1] == ("reset", 101, "test")
    assert test.render() == "You are in the hall."
    drawn_again = [TextWorldExpressEnv().reset(seed=5) for _ in range(2)]
    assert drawn_again[0] == drawn_again[1]


def test_words_of_textworld_express() -> None:
    env = TextObservationWrapper(gym.make("lmpolicy/TextWorldExpress-v0"))
    assert isinstance(env.task, TextWorldExpress)
    env.reset(seed=0)
    text = "Goal: Find the coin. Room: You are in the hall. A coin. Inventory: nothing."
    listed = "Possible actions: drop it, examine coin, inventory, look around, take coin."
    assert env.prompt.messages[-1][1] == f"{text}\n{listed}"
    env.step("inventory")
    assert env.prompt.messages[-1][1] == f"{text} Last answer: You inventory.\n{listed}"
    useful = TextObservationWrapper(TextWorldExpressEnv(), TextWorldExpress(useful_only=True))
    useful.reset(seed=0)
    assert useful.prompt.actions == ("drop it", "take coin")


def test_an_experiment_of_scienceworld() -> None:
    env = TextObservationWrapper(gym.make("lmpolicy/ScienceWorld-v0", task="boil"))
    assert isinstance(env.task, ScienceWorld)
    env.reset(seed=0)
    assert env.prompt.messages[-1][1] == (
        "Goal: Find life. Room: This room is called the hall. In it, you see: a box. You also see: A door. "
        "In your inventory, you see: an orange."
    )
    assert env.prompt.actions == (
        *("connect anode in lamp to wire terminal 1", "disconnect wire terminal 1", "focus on bee"),
        *("move orange to box", "put down orange", "use orange on box", "wait"),
    )
    inner: Any = env.unwrapped
    assert inner._game.calls[0] == ("boil", 0, "easy")
    assert inner._game.calls[-1][1] in (4, 5)
    _, reward, terminated, _, info = env.step("focus on bee")
    assert (reward, terminated) == (0.25, False)
    assert env.prompt.messages[-1][1].endswith("Last answer: Done.")
    _, reward, terminated, _, info = env.step("wait")
    assert (reward, terminated, info["won"]) == (0.75, True, True)


def test_a_failed_experiment() -> None:
    env = ScienceWorldEnv()
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("focus on box")
    assert (reward, terminated, info["lost"]) == (-1.0, True, True)


def test_the_words_and_the_room_for_prompts() -> None:
    for env_id in ("lmpolicy/TextWorldExpress-v0", "lmpolicy/ScienceWorld-v0"):
        assert task_for(gym.make(env_id)) is not None
        assert hyperparameters(env_id).wrapper_kwargs["max_prompt_bytes"] >= 8192


@pytest.mark.parametrize(
    ("kind", "arguments", "error", "message"),
    [
        (TextWorldExpressEnv, {"game": "chess"}, ValueError, "game must be one of coin, twc; got 'chess'"),
        (ScienceWorldEnv, {"task": "fly"}, ValueError, "task must be one of boil, find-living-thing; got 'fly'"),
        (ScienceWorldEnv, {"split": "all"}, ValueError, "split must be one of train, dev, test; got 'all'"),
        (TextWorldExpressEnv, {"games": 0}, ValueError, "games is the number of different games, 1 or more; got 0"),
        (TextWorldExpressEnv, {"games": True}, ValueError, "got True"),
        (TextWorldExpressEnv, {"render_mode": "human"}, TypeError, "render_mode is \"ansi\" or None, got 'human'"),
    ],
)
def test_mistakes_are_refused_with_the_remedy(kind: Any, arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        kind(**arguments).reset(seed=0)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_java_games.shutil, "which", lambda name: None)
    with pytest.raises(OSError, match="runs in Java, and there is no java on the path: install a Java runtime"):
        TextWorldExpressEnv()
    monkeypatch.setitem(sys.modules, "textworld_express", None)
    with pytest.raises(ImportError, match=r'needs: pip install "lmpolicy\[textworld-express\]" \(and Java\)'):
        TextWorldExpressEnv()
