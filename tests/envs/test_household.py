"""The house: what each action does, when the tasks are done, and what is hidden in rooms and fridge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lmpolicy.envs._house import FRIDGE, MICROWAVE, PHRASES, PLANS, ROOMS, STARTS, THINGS, House
from lmpolicy.envs.experts import HouseholdExpert
from lmpolicy.envs.household import Household, HouseholdEnv


def house(
    task: str = "food",
    room: str = "kitchen",
    opened: tuple[str, ...] = (),
    distractors: bool = True,
    **places: str,
) -> HouseholdEnv:
    """A house with things in places of one's choice."""
    env = HouseholdEnv(task, plans=["row"], distractors=distractors)
    env.reset(seed=0)
    assert env.world is not None
    where = {"pancake": "kitchen table", "chips": "shelf", "milk": FRIDGE, **places}
    env.state = env.world.start(room, where, opened, known=False)
    return env


def do(env: HouseholdEnv, *phrases: str) -> tuple[float, bool]:
    """Take actions that are legal; return the last points, without those of the steps, and whether it ended."""
    points, terminated = 0.0, False
    for phrase in phrases:
        _, reward, terminated, _, info = env.step(PHRASES.index(phrase))
        assert info["accepted"], phrase
        points = round(reward + 0.001 * info["steps"], 6)
    return points, terminated


def legal(env: HouseholdEnv) -> set[str]:
    return {PHRASES[number] for number in np.flatnonzero(env.action_masks())}


def text(env: HouseholdEnv) -> str:
    task = Household()
    task.bind(env)
    return task.format_observation(env.observe())


def test_pancake_is_heated() -> None:
    env = house()
    assert do(env, "take the pancake", "open the microwave", "put the pancake in the microwave") == (0, False)
    assert "switch on the microwave" not in legal(env), "its door is open"
    assert do(env, "close the microwave") == (0, False)
    assert do(env, "switch on the microwave") == (1, True)


def test_empty_microwave_heats_nothing() -> None:
    env = house()
    before = env.state
    assert do(env, "switch on the microwave", "switch on the microwave") == (0, False)
    assert env.state == replace(before, spot=MICROWAVE)  # type: ignore[type-var]


def test_heating_is_not_the_other_task() -> None:
    env = house("entertainment")
    do(env, "take the pancake", "open the microwave", "put the pancake in the microwave", "close the microwave")
    assert do(env, "switch on the microwave") == (0, False)


LOUNGE = {"chips": "coffee table", "milk": "coffee table"}


def test_evening_before_the_television() -> None:
    env = house("entertainment", "living room", **LOUNGE)
    assert do(env, "sit down on the sofa") == (0, False)
    assert legal(env) == {"stand up"}
    assert do(env, "stand up", "switch on the television") == (0, False)
    assert do(env, "sit down on the sofa") == (1, True)


@pytest.mark.parametrize(
    ("places", "success"),
    [
        (LOUNGE, True),
        ({**LOUNGE, "milk": "hands"}, True),
        ({**LOUNGE, "chips": "hands", "milk": "hands"}, True),
        ({**LOUNGE, "milk": "shelf"}, False),
        ({**LOUNGE, "chips": "kitchen table"}, False),
    ],
)
def test_snacks_must_be_in_reach(places: dict[str, str], success: bool) -> None:
    env = house("entertainment", "living room", **places)
    assert env.state is not None
    env.state = replace(env.state, television=True)
    assert do(env, "sit down on the sofa") == (float(success), success)


def test_television_must_be_on() -> None:
    env = house("entertainment", "living room", **LOUNGE)
    do(env, "switch on the television", "switch off the television")
    assert do(env, "sit down on the sofa") == (0, False)


def test_sofa_is_not_the_other_task() -> None:
    env = house("food", "living room", **LOUNGE)
    do(env, "switch on the television")
    assert do(env, "sit down on the sofa") == (0, False)


def test_full_hands_open_and_switch_nothing() -> None:
    env = house(chips="kitchen table", milk="kitchen table")
    do(env, "take the chips", "take the milk")
    assert legal(env) == {
        *(f"go to the {room}" for room in ROOMS[1:]),
        "put the chips on the table",
        "put the milk on the table",
    }
    do(env, "go to the living room")
    assert "switch on the television" not in legal(env)
    do(env, "put the milk on the table")
    assert "switch on the television" in legal(env)
    assert "The milk is on the coffee table." in text(env)


def test_fridge_hides_what_is_in_it() -> None:
    env = house()
    assert "milk" not in text(env).partition("Not found yet")[0]
    assert "take the milk" not in legal(env)
    assert "inside of the fridge" in text(env)
    do(env, "open the fridge")
    assert "The milk is in the fridge." in text(env)
    assert "take the milk" in legal(env)
    do(env, "close the fridge")
    assert "The milk is in the fridge. The fridge is closed." in text(env), "it is remembered"
    assert "take the milk" not in legal(env)
    assert "inside of the fridge" not in text(env)


def test_without_distractors_the_other_task_is_not_there() -> None:
    env = house(distractors=False, room="pantry", pancake="shelf")
    assert legal(env) == {*(f"go to the {room}" for room in ROOMS[:3]), "take the pancake"}
    assert "chips" not in text(env)
    do(env, "go to the living room")
    assert legal(env) == {f"go to the {room}" for room in ROOMS if room != "living room"}
    assert "television" not in text(env)
    env = house("entertainment", distractors=False)
    assert legal(env) == {*(f"go to the {room}" for room in ROOMS[1:]), "open the fridge"}
    assert not {"pancake", "microwave"} & set(text(env).replace(".", "").split())


@pytest.mark.parametrize("room", ROOMS)
def test_other_rooms_are_hidden(room: str) -> None:
    rows = set()
    for pancake in STARTS["pancake"]:
        for chips in STARTS["chips"]:
            env = house(room=room, pancake=pancake, chips=chips, milk=FRIDGE)
            rows.add((tuple(env.observe()), tuple(env.action_masks()), text(env)))
    # Only what is on this room's own table makes a difference.
    own = {"kitchen": (1, 1), "living room": (1, 0), "bedroom": (0, 1), "pantry": (1, 1)}[room]
    assert len(rows) == 2 ** sum(own)
    open_env = HouseholdEnv(partial_view=False, distractors=True)
    assert all(0 not in open_env.reset(seed=seed)[0][1:4] for seed in range(5))


def test_steps_of_walks() -> None:
    doors = {name: House(plan, "food", False).doors_between for name, plan in PLANS.items()}
    assert [doors["row"]("pantry", room) for room in ROOMS] == [1, 2, 3, 0]
    assert [doors["ring"]("pantry", room) for room in ROOMS] == [1, 2, 1, 0]
    assert [doors["hall"]("pantry", room) for room in ROOMS] == [2, 2, 2, 0]
    env = house(room="pantry")
    assert env.step(PHRASES.index("go to the bedroom"))[4]["steps"] == 12
    env = house()
    lasted = [
        env.step(PHRASES.index(one))[4]["steps"] for one in ("open the fridge", "take the milk", "take the pancake")
    ]
    assert lasted == [3, 1, 3], "two steps to another piece of furniture, and one of the hands"


def test_expert_stands_up_and_looks_for_what_is_missing() -> None:
    env = house("entertainment", "living room", milk=FRIDGE, chips="desk")
    do(env, "sit down on the sofa")
    expert, taken, terminated = HouseholdExpert(env), [], False
    while not terminated:
        taken.append(PHRASES[expert.action()])
        _, _, terminated, _, info = env.step(PHRASES.index(taken[-1]))
        assert info["accepted"]
    assert taken[0] == "stand up"
    assert {"take the chips", "open the fridge", "take the milk"} <= set(taken)
    assert taken[-1] == "sit down on the sofa"


def test_expert_frees_a_hand_for_the_fridge() -> None:
    env = house("food", pancake=FRIDGE, chips="kitchen table", milk="kitchen table")
    do(env, "take the chips", "take the milk")
    expert = HouseholdExpert(env)
    assert PHRASES[expert.action()] == "put the chips on the table"
    do(env, "put the chips on the table")
    assert PHRASES[expert.action()] == "open the fridge"


def test_words_of_tasks() -> None:
    task, prompts = Household(), []
    for name in ("food", "entertainment"):
        task.bind(HouseholdEnv(name))
        prompts.append(task.system_prompt)
    assert "Heat the pancake" in prompts[0]
    assert "chips and milk" in prompts[1]
    assert all(len(prompt.split()) < 120 for prompt in prompts)


def test_rendered_as_text() -> None:
    env = HouseholdEnv(render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == text(env)
    assert HouseholdEnv().render() is None


def test_every_start_is_drawn() -> None:
    env: Any = HouseholdEnv(partial_view=False)
    drawn: dict[str, set[str]] = {thing: set() for thing in THINGS}
    for seed in range(60):
        env.reset(seed=seed)
        for thing in THINGS:
            drawn[thing].add(env.state.place(thing))
    assert {thing: tuple(sorted(places)) for thing, places in drawn.items()} == {
        thing: tuple(sorted(places)) for thing, places in STARTS.items()
    }
