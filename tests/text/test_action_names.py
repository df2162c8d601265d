"""Names of actions: from the env, or as the user gives them; what does not fit is left out or refused."""

from __future__ import annotations

import copy
import enum
import importlib.util
import pickle
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.bundled_envs import IDS
from helpers.toy_envs import Toy

from lmpolicy import GenericTask, TextObservationWrapper
from lmpolicy.text.action_names import find_action_names, in_words

BOX = spaces.Box(-1, 1, (2,))


class Moves(enum.IntEnum):
    """Not called actions, so not taken for them."""

    WEST = 0
    EAST = 1


class GridAction(enum.Enum):
    """The actions of the envs of this module that have three."""

    turn_left = 0
    TurnRight = 1
    GO_ON = 2


class OtherActions(enum.Enum):
    """For no env of this module."""

    RUN = "run"
    WALK = "walk"


def toy(space: Any = None, **attributes: Any) -> Toy:
    env = Toy(spaces.Discrete(4), space or spaces.Discrete(2))
    vars(env).update(attributes)
    return env


@pytest.mark.parametrize(
    ("attributes", "names"),
    [
        ({"action_names": ["left", "right"]}, ("left", "right")),
        ({"action_names": lambda: ("left", "right")}, ("left", "right")),
        ({"action_names": {0: "left", 1: "right"}}, ("left", "right")),
        ({"action_names": {"right": 1, "left": 0}}, ("left", "right")),
        ({"get_action_meanings": lambda: ["NOOP", "UPRIGHTFIRE"]}, ("do nothing", "up right fire")),
        ({"action_type": SimpleNamespace(actions={1: "LANE_LEFT", 0: "IDLE"})}, ("idle", "lane left")),
        ({"actions": Moves}, ("west", "east")),
        ({"action_names": ["a"], "get_action_meanings": lambda: ["GO", "STOP"]}, ("go", "stop")),
        ({"action_names": ["GO_ON", "go on"]}, ("GO_ON", "go on")),  # they would be the same in words
        ({"action_names": np.array(["left", "right"])}, ("left", "right")),
        ({"action_names": {np.int64(1): "right", np.int64(0): "left"}}, ("left", "right")),
        ({"action_names": Moves}, ("west", "east")),
        ({"action_names": lambda state: ("left", "right")}, None),
        ({"get_action_meanings": lambda state, mode=0: ["left", "right"]}, None),
        ({"action_names": {"left": "west", "right": "east"}}, None),
        ({"action_names": {"left": [0], "right": [1]}}, None),
        ({"action_names": ["a", "b", "c"]}, None),
        ({"action_names": ["a", "a"]}, None),
        ({"action_names": ["a", " "]}, None),
        ({"action_names": ["a", 1]}, None),
        ({"action_names": "ab"}, None),
        ({"action_names": {0: "a", 2: "b"}}, None),
        ({"action_names": {}}, None),
        ({"action_names": None}, None),
        ({"moves": Moves}, None),
        ({}, None),
    ],
)
def test_names_that_the_env_has(attributes: dict[str, Any], names: Any) -> None:
    assert find_action_names(toy(**attributes)) == names


def test_an_enum_of_the_module() -> None:
    env = toy(spaces.Discrete(3))
    assert find_action_names(env) is None  # the class is of another module
    local = type("Local", (Toy,), {"__module__": __name__})(spaces.Discrete(4), spaces.Discrete(3))
    assert find_action_names(local) == ("turn left", "turn right", "go on")
    late = type("Late", (Toy,), {"__module__": __name__})(spaces.Discrete(4), spaces.Discrete(3, start=1))
    assert find_action_names(late) is None, "its numbers are others"


def in_module(monkeypatch: pytest.MonkeyPatch, name: str, *enums: Any, others: Sequence[str] = ()) -> gym.Env:
    """An env with three actions of a module with Enums, and with other envs."""
    module = ModuleType("sailing")
    monkeypatch.setitem(sys.modules, "sailing", module)
    for made in (*enums, *(type(other, (Toy,), {}) for other in others)):
        setattr(module, made.__name__, made)
    kind = type(name, (Toy,), {"__module__": "sailing"})
    return kind(spaces.Discrete(4), spaces.Discrete(3))


def three(name: str, *members: str) -> Any:
    return enum.Enum(name, [*(members or ("A", "B", "C"))], start=0, module=__name__)


CAR, BOAT = three("CarActions", "BRAKE", "COAST", "GAS"), three("BoatAction", "PORT", "AHEAD", "STARBOARD")
STEER = ("port", "ahead", "starboard")


@pytest.mark.parametrize(
    "name", ["Faction", "Factions", "FACTION", "Transaction", "Interaction", "Reaction", "Actionable"]
)
def test_an_enum_of_another_word_is_none_of_actions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_action_names(in_module(monkeypatch, "Boat", three(name))) is None
    assert find_action_names(toy(spaces.Discrete(3), **{name: BOAT, name.lower(): BOAT})) is None


@pytest.mark.parametrize("name", ["Action", "Actions", "_Action", "RLAction", "BoatActions", "ACTIONS", "my_actions"])
def test_names_of_enums_that_are_actions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_action_names(in_module(monkeypatch, "Boat", three(name))) == ("A", "B", "C")
    assert find_action_names(toy(spaces.Discrete(3), **{name: BOAT})) == STEER


@pytest.mark.parametrize(
    ("env", "enums", "others", "names"),
    [
        ("Boat", [CAR, BOAT], [], STEER),
        ("BoatEnv", [CAR, BOAT], ["Car"], STEER),
        ("Ship", [CAR, BOAT], [], None),
        ("Ship", [CAR, BOAT], ["CarEnv"], None),
        ("Boat", [CAR], ["Car"], None),
        ("Boat", [CAR], [], ("brake", "coast", "gas")),
        ("Car", [three("CargoActions"), three("Actions")], [], None),
        ("Boat", [three("BoatActions"), three("BoatMoveActions")], [], None),
        ("Env", [CAR, BOAT], [], None),
        ("Boat", [three("CarActions", "GO", "STOP"), BOAT, three("Faction")], [], STEER),
    ],
)
def test_an_enum_of_the_module_must_be_clearly_the_envs_own(
    env: str, enums: Any, others: Any, names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_action_names(in_module(monkeypatch, env, *enums, others=others)) == names


def test_one_enum_with_two_names_and_the_enum_of_a_base_class(monkeypatch: pytest.MonkeyPatch) -> None:
    boat = in_module(monkeypatch, "Boat", BOAT)
    sys.modules["sailing"].Actions = BOAT  # type: ignore[attr-defined]
    assert find_action_names(boat) == STEER
    sys.modules["sailing"].CarActions = CAR  # type: ignore[attr-defined]
    fast = type("Fast", (type(boat),), {"__module__": "sailing"})
    assert find_action_names(fast(spaces.Discrete(4), spaces.Discrete(3))) == STEER


def test_the_first_action_may_have_another_number() -> None:
    assert find_action_names(toy(spaces.Discrete(2, start=5), action_names={6: "b", 5: "a"})) == ("a", "b")


def test_the_outermost_names_count_as_far_as_the_actions_are_the_same() -> None:
    class Renames(gym.Wrapper):
        action_names = ("hop", "skip")

    inner = toy(action_names=("left", "right"))
    assert find_action_names(Renames(inner)) == ("hop", "skip")
    assert find_action_names(gym.wrappers.TimeLimit(inner, 3)) == ("left", "right")
    assert find_action_names(gym.wrappers.TransformAction(inner, lambda one: one % 2, spaces.Discrete(3))) is None


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (SimpleNamespace(longitudinal=True, lateral=True), ("acceleration", "steering")),
        (SimpleNamespace(longitudinal=False, lateral=True), None),  # one name for two numbers
    ],
)
def test_names_of_the_numbers_of_an_action(kind: Any, names: Any) -> None:
    assert find_action_names(toy(BOX, action_type=kind)) == names


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("left", "left"),
        ("MOVE_LEFT", "move left"),
        ("move_left", "move left"),
        ("MoveLeft", "move left"),
        ("Up", "up"),
        ("UP", "up"),
        ("N", "N"),
        ("DOWNLEFT", "down left"),
        ("UPLEFTFIRE", "up left fire"),
        ("upstairs", "upstairs"),
        ("NOOP", "do nothing"),
        ("NO_OP", "do nothing"),
        ("Buy AAPL", "Buy AAPL"),
        ("go  north", "go north"),
        ("speed-up", "speed-up"),
    ],
)
def test_names_in_words(name: str, words: str) -> None:
    assert in_words(name) == words


def wrapped(env: gym.Env, task: GenericTask | None = None, **kwargs: Any) -> TextObservationWrapper:
    made = TextObservationWrapper(env, task or GenericTask(), **kwargs)
    made.reset(seed=0)
    return made


def test_found_names_are_phrases() -> None:
    env = wrapped(toy(action_names=["GO_LEFT", "GO_RIGHT"]))
    assert env.prompt.messages[0][1].endswith("reward. Possible actions: go left, go right.")
    env.step("go right")
    assert env.unwrapped.taken == [1]  # type: ignore[attr-defined]
    assert wrapped(toy(action_names=["a", "b"]), GenericTask(action_names=())).prompt.actions == (
        "action 0",
        "action 1",
    )


def test_given_names_are_phrases_as_they_are() -> None:
    task = GenericTask(action_names=("Go_Left", "NOOP"))
    assert wrapped(toy(action_names=["a", "b"]), task).prompt.actions == ("Go_Left", "NOOP")
    for names in (("a",), "ab"):
        with pytest.raises(
            ValueError, match=r"action_names are .*, but Discrete\(2\) has 2 actions: name each of them"
        ):
            wrapped(toy(), GenericTask(action_names=names))
    with pytest.raises(ValueError, match=r"has 2 numbers: name each"):
        wrapped(toy(BOX), GenericTask(action_names=("a",)), action_bins=2)
    with pytest.raises(ValueError, match=r"has no numbers: name each"):
        wrapped(toy(spaces.Text(3)), GenericTask(action_names=("a",)))
    with pytest.raises(ValueError, match="named twice: 'a'"):
        wrapped(toy(), GenericTask(action_names=("a", "a")))


def test_a_method_that_needs_an_argument_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lmpolicy")
    env = wrapped(toy(action_names=lambda state: ["a", "b"], get_action_meanings=lambda: ["GO", "STOP"]))
    assert env.prompt.actions == ("go", "stop")
    assert "names of Toy.action_names are not used, because it needs an argument" in caplog.text


def test_a_compiled_method_that_does_not_say_what_it_needs() -> None:
    assert find_action_names(toy(action_names={0: "left", 1: "right"}.copy)) == ("left", "right")


@pytest.mark.parametrize(
    "names", [np.array(["go", "stop"]), {"stop": 1, "go": 0}, {1: "stop", 0: "go"}, {np.int64(1): "stop", 0: "go"}]
)
def test_given_names_may_be_an_array_or_a_mapping(names: Any) -> None:
    assert wrapped(toy(), GenericTask(action_names=names)).prompt.actions == ("go", "stop")
    box = wrapped(toy(BOX), GenericTask(action_names=names), action_bins=[2, 1])
    assert box.prompt.actions == ("go -1, stop 0", "go 1, stop 0")


@pytest.mark.parametrize("names", [{"go": 0, "stop": 2}, {"go": "a", "stop": "b"}, np.array(["go"])])
def test_given_names_of_other_actions_are_refused(names: Any) -> None:
    with pytest.raises(ValueError, match=r"action_names are .*, but Discrete\(2\) has 2 actions: name each"):
        wrapped(toy(), GenericTask(action_names=names))


def test_phrases_name_up_to_two_numbers() -> None:
    env = wrapped(toy(BOX), GenericTask(action_names=("gas", "wheel")), action_bins=2)
    assert env.prompt.actions == ("gas -1, wheel -1", "gas -1, wheel 1", "gas 1, wheel -1", "gas 1, wheel 1")
    system = env.prompt.messages[0][1]
    assert "An action is 2 numbers between -1 and 1: gas, wheel. Choose" in system
    assert system.endswith("Possible actions: gas -1, wheel -1; gas -1, wheel 1; gas 1, wheel -1; gas 1, wheel 1.")
    answer = env.read_answer("gas 1, wheel -1")
    assert np.array_equal(answer.action, [1, -1])
    assert (answer.clipped, answer.parse_error) == (False, False)
    three = wrapped(toy(spaces.MultiBinary(3)), GenericTask(action_names=("A", "B", "up")))
    assert "An action is 3 whole numbers between 0 and 1: A, B, up. Choose" in three.prompt.messages[0][1]
    assert three.prompt.actions[:2] == ("use 0, 0, 0", "use 0, 0, 1")


def test_a_list_for_people_separates_as_the_prompt_does() -> None:
    env = wrapped(toy(BOX), GenericTask(action_names=("gas", "wheel")), action_bins=[1, 2], render_mode="ansi")
    assert env.render().endswith("[actions] 0: gas 0, wheel -1; 1: gas 0, wheel 1")


def test_numbers_written_in_free_text_are_told_in_their_order() -> None:
    env = wrapped(toy(BOX), GenericTask(action_names=("gas", "wheel")), action_mode="generate")
    assert "An action is 2 numbers between -1 and 1: gas, wheel." in env.prompt.messages[0][1]


def test_phrases_of_a_subclass_count_more_than_names() -> None:
    class Own(GenericTask):
        action_texts = ("stay", "go")

    assert wrapped(toy(action_names=["a", "b"]), Own()).prompt.actions == ("stay", "go")
    task = GenericTask()
    task.action_texts = ("x", "y")
    assert wrapped(toy(action_names=["a", "b"]), task).prompt.actions == ("x", "y")


def test_a_task_can_be_bound_again_copied_and_pickled() -> None:
    task = GenericTask()
    task.bind(toy(action_names=["a", "b"]))
    assert task.action_texts == ("a", "b")
    for other in (task, copy.deepcopy(task), pickle.loads(pickle.dumps(task))):
        other.bind(toy(spaces.Discrete(3)))
        assert other.action_texts is None


@pytest.mark.parametrize("env_id", IDS)
def test_generic_words_of_gymnasiums_own_envs_have_no_names(env_id: str) -> None:
    """Results with generic words, and what the bundled LM has read, hold as long as this does."""
    if env_id.startswith("LunarLander") and importlib.util.find_spec("Box2D") is None:
        pytest.skip("needs Box2D")
    task = GenericTask()
    task.bind(gym.make(env_id, disable_env_checker=True))
    assert task.action_texts is None
    assert task.action_dimensions == ()
    assert task._named is None
