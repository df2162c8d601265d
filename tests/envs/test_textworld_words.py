"""The words of text adventures, which need no game."""

from __future__ import annotations

from lmpolicy.envs import TextWorld

OBSERVATION = {
    "objective": "Take the coin!",
    "description": "-= Pantry =-\nA small room. You see a coin.\n\n",
    "inventory": "You are carrying nothing.",
    "feedback": "-= Pantry =-\nA small room. You see a coin.\n\n",
}


def test_the_room_is_told_once() -> None:
    task = TextWorld()
    assert task.format_observation(OBSERVATION) == (
        "Goal: Take the coin! Room: Pantry. A small room. You see a coin. You are carrying nothing."
    )
    answered = {**OBSERVATION, "feedback": "You can't go that way.\n\n>"}
    assert task.format_observation(answered).endswith("You are carrying nothing. Last answer: You can't go that way.")


def test_a_past_turn_leaves_out_the_goal() -> None:
    assert (
        TextWorld().format_past(OBSERVATION) == "Room: Pantry. A small room. You see a coin. You are carrying nothing."
    )


def test_the_way_back_is_told_on_request() -> None:
    told = TextWorld(tell_way_back=True)
    came = {**OBSERVATION, "way_back": "east"}
    assert told.format_observation(came).endswith("You are carrying nothing. You came from the east.")
    assert told.format_past(came).endswith("You came from the east.")
    for task, observation in ((TextWorld(), came), (told, {**OBSERVATION, "way_back": ""})):
        assert "You came from" not in task.format_observation(observation)


def test_commands_may_be_left_out_of_the_prompt() -> None:
    assert TextWorld().list_actions
    assert not TextWorld(list_commands=False).list_actions


def test_commands_that_tell_nothing_new() -> None:
    commands = ("examine coin", "examine red cookbook", "go east", "inventory", "look", "look at coin", "take coin")
    info = {"admissible_commands": commands}
    assert tuple(TextWorld().action_texts(OBSERVATION, info)) == commands
    useful = ("examine red cookbook", "go east", "look at coin", "take coin")
    assert TextWorld(useful_only=True).action_texts(OBSERVATION, info) == useful
    crowded = {"admissible_commands": (*commands, *(f"take pea {i}" for i in range(60)))}
    assert len(TextWorld().action_texts(OBSERVATION, crowded)) == 64  # three are left out
    only = {"admissible_commands": ("inventory", "look")}
    assert TextWorld(useful_only=True).action_texts(OBSERVATION, only) == ("inventory", "look")
