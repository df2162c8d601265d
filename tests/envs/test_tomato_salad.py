"""The kitchen: what each action does, what is rewarded, and what the cook cannot see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lmpolicy.envs._kitchen import LAYOUTS, LOOK, PHRASES, counters_of
from lmpolicy.envs.experts import TomatoSaladExpert
from lmpolicy.envs.tomato_salad import TomatoSalad, TomatoSaladEnv

SALAD = (
    "take the tomato",
    "put it on the red board",
    "chop",
    "take the lettuce",
    "put it on the green board",
    "chop",
    "take the plate",
    "take the tomato",
    "take the lettuce",
)


def kitchen(**kwargs: Any) -> TomatoSaladEnv:
    """A kitchen in which everything is in view."""
    env = TomatoSaladEnv(**{"view": 6, **kwargs})
    env.reset(seed=0)
    return env


def do(env: TomatoSaladEnv, *phrases: str) -> list[float]:
    """Take actions that are legal; return the points, without those of the steps."""
    points = []
    for phrase in phrases:
        _, reward, _, _, info = env.step(PHRASES.index(phrase))
        assert info["accepted"], phrase
        points.append(round(reward + 0.001 * info["steps"], 6))
    return points


def legal(env: TomatoSaladEnv) -> set[str]:
    return {PHRASES[number] for number in np.flatnonzero(env.action_masks())}


def text(env: TomatoSaladEnv, **kwargs: Any) -> str:
    return TomatoSalad(**kwargs).format_observation(env.observe())


def test_salad_is_made_and_served() -> None:
    env = kitchen()
    assert do(env, *SALAD) == [0, 0, 0.2, 0, 0, 0.2, 0, 0, 0]
    assert text(env) == "You hold the plate with chopped tomato and chopped lettuce."
    _, reward, terminated, truncated, info = env.step(PHRASES.index("serve"))
    assert (terminated, truncated, info["is_success"]) == (True, False, True)
    assert reward == pytest.approx(1 - 0.001 * info["steps"])


def test_wrong_dish_is_sent_back() -> None:
    env = kitchen()
    do(env, *SALAD[:-1])
    for _ in range(2):
        assert do(env, "serve") == [-0.1]
        assert text(env).startswith("You hold the plate with chopped tomato. The chopped lettuce is on the green board")
    do(env, "take the lettuce")
    assert do(env, "serve") == [1.0]


def test_other_recipe_pays_for_the_tomato_only() -> None:
    env = kitchen(recipe="tomato")
    assert do(env, *SALAD) == [0, 0, 0.2, 0, 0, 0, 0, 0, 0]
    assert do(env, "serve") == [-0.1]
    do(env, "put it on a counter", "take the lettuce", "put it on a counter", "take the plate")
    assert do(env, "serve") == [1.0]


def test_raw_vegetables_do_not_go_on_the_plate() -> None:
    env = kitchen()
    do(env, "take the plate")
    assert legal(env) == {"put it on a counter", "serve"}
    do(env, "put it on a counter", "take the tomato")
    assert legal(env) == {"put it on the red board", "put it on the green board", "put it on a counter", "serve"}


def test_chopped_vegetable_in_the_hands_goes_on_the_plate() -> None:
    env = kitchen()
    do(env, "take the tomato", "put it on the red board", "chop", "take the tomato", "take the plate")
    assert text(env).startswith("You hold the plate with chopped tomato.")


def test_boards_hold_one_thing_and_are_chopped_on_with_empty_hands() -> None:
    env = kitchen()
    do(env, "take the tomato", "put it on the red board")
    assert "chop" in legal(env)
    do(env, "take the lettuce")
    assert not legal(env) & {"put it on the red board", "chop"}
    do(env, "put it on the green board", "chop", "chop")
    assert "chop" not in legal(env)


@pytest.mark.parametrize("view", [0, 7, True, 2.0])
def test_a_view_that_is_no_number_of_rows_is_refused(view: Any) -> None:
    with pytest.raises(ValueError, match=f"view is a number of rows and columns from 1 to 6; got {view}"):
        TomatoSaladEnv(view=view)
    assert type(TomatoSaladEnv(view=np.int64(3)).view) is int  # type: ignore[arg-type]


def test_chopping_takes_three_steps_beside_the_walk() -> None:
    env = kitchen()
    do(env, "take the tomato", "put it on the red board")
    assert env.step(PHRASES.index("chop"))[4]["steps"] == 3


def test_a_walk_is_as_long_as_the_way_round_the_counters() -> None:
    """In the divided kitchen, from (1, 2) to the counter above (1, 4): over (3, 3), the only gap."""
    env = kitchen(layouts=["divided"])
    assert env.world is not None
    assert env.state is not None
    env.state = replace(env.state, cook=(1, 2), places=((0, 4), *env.state.places[1:]))
    env.world.furniture = dict.fromkeys(env.world.furniture, (6, 2))
    assert env.world.steps_to(env.state, "tomato") == 6
    _, _, _, _, info = env.step(PHRASES.index("take the tomato"))
    assert info["steps"] == 7
    assert env.state.cook == (1, 4)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_not_seen_is_hidden(seed: int) -> None:
    env = TomatoSaladEnv(layouts=["open"])
    observation, _ = env.reset(seed=seed)
    state, kitchen_ = env.state, env.world
    assert state is not None
    assert kitchen_ is not None
    hidden = [cell for cell in kitchen_.counters if cell not in state.seen]
    assert len(hidden) >= 8
    for place in hidden:
        env.state = replace(state, places=(place, *state.places[1:]))
        other = env.observe()
        assert other[0] == other[8] == 0
        assert not env.action_masks()[PHRASES.index("take the tomato")]
        assert "tomato" not in text(env).partition("Not found yet")[0]
    shown = next(cell for cell in kitchen_.counters if cell in state.seen and cell not in state.places)
    env.state = replace(state, places=(shown, *state.places[1:]))
    assert env.observe()[0] == 1
    assert env.action_masks()[PHRASES.index("take the tomato")]
    furniture = dict(kitchen_.furniture)
    env.state = state
    for name in furniture:
        kitchen_.furniture = {**furniture, name: hidden[0]}
        first = env.observe(), env.action_masks()
        kitchen_.furniture = {**furniture, name: hidden[1]}
        assert all(
            np.array_equal(one, two) for one, two in zip(first, (env.observe(), env.action_masks()), strict=True)
        )
    kitchen_.furniture = furniture
    assert np.array_equal(observation, env.observe())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("view", [1, 2, 3])
def test_looking_around_finds_everything(layout: str, view: int) -> None:
    for seed in range(5):
        env = TomatoSaladEnv(layouts=[layout], view=view)
        env.reset(seed=seed)
        assert env.state is not None
        looks, seen = 0, len(env.state.seen)
        while env.action_masks()[LOOK]:
            env.step(LOOK)
            looks += 1
            assert len(env.state.seen) > seen, "each look shows something new"
            seen = len(env.state.seen)
        assert looks <= 20
        assert set(counters_of(LAYOUTS[layout])) <= env.state.seen
        assert "Not found yet" not in text(env)


def test_expert_needs_one_board() -> None:
    """With the second board out of view, the expert uses the first for both vegetables."""
    env = kitchen()
    assert env.state is not None
    assert env.world is not None
    env.state = replace(env.state, seen=env.state.seen - {env.world.furniture["green board"]})
    env.world._views = dict.fromkeys(env.world.floor, frozenset())
    expert, terminated, taken = TomatoSaladExpert(env), False, []
    while not terminated:
        taken.append(PHRASES[expert.action()])
        _, _, terminated, _, info = env.step(PHRASES.index(taken[-1]))
        assert info["accepted"]
    assert "put it on the green board" not in taken
    assert taken.count("put it on the red board") == 2


def test_words_of_steps_and_things() -> None:
    row = np.array([1, 4, 2, 0, 1, 1, 1, 0, 3, 1, 2, 5, 2, 0, 1])
    assert TomatoSalad().format_observation(row) == (
        "You hold the chopped lettuce. The raw tomato is on a counter. The plate is on the red board. "
        "Not found yet: the hatch."
    )
    assert TomatoSalad(tell_steps=True).format_observation(row) == (
        "You hold the chopped lettuce. The raw tomato is on a counter, 2 steps away. The plate is on the red board, "
        "1 step away. The red board is 4 steps away. The green board is 1 step away. Not found yet: the hatch."
    )


def test_system_prompt_names_the_recipe() -> None:
    task = TomatoSalad()
    task.bind(TomatoSaladEnv())
    assert "a plate with chopped tomato and chopped lettuce and nothing else" in task.system_prompt
    task.bind(TomatoSaladEnv(recipe="tomato"))
    assert "a plate with chopped tomato and nothing else" in task.system_prompt


def test_drawing_shows_what_was_seen() -> None:
    env = TomatoSaladEnv(layouts=["open"], render_mode="ansi")
    env.reset(seed=0)
    drawn = env.render()
    assert drawn is not None
    assert drawn.count("@") == 1
    assert "?" in drawn
    clear = TomatoSaladEnv(layouts=["open"], render_mode="ansi", view=6)
    clear.reset(seed=0)
    whole = clear.render()
    assert whole is not None
    assert sorted(whole.replace(".", "").replace("#", "").replace("\n", "")) == list("@LPTghr")
    assert all(one in (other, "?") for one, other in zip(drawn, whole, strict=True))
    assert TomatoSaladEnv().render() is None
