"""The encoder loses nothing of what a text says, and stays as random play has made it."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import lmpolicy
from lmpolicy import Prompt
from lmpolicy.comparison.slots import HASHED, MOST_PATTERNS
from lmpolicy.comparison.word_encoder import WordEncoder


def prompt(text: str, actions: tuple[str, ...] = ("go", "stop"), history: tuple[str, ...] = ()) -> Prompt:
    past = [pair for one in history for pair in (("user", one), ("assistant", "go"))]
    return Prompt((("system", "Play."), *past, ("user", text)), actions)


def encoder(*texts: str) -> WordEncoder:
    return WordEncoder.learn(map(prompt, texts))


def code(own: WordEncoder, one: Prompt) -> bytes:
    return b"|".join(part.tobytes() for part in own.encode(one))


def played(env_id: str, steps: int, **arguments: object) -> list[Prompt]:
    """Prompts of random play."""
    settings = lmpolicy.hyperparameters(env_id)
    env = settings.put_into_words(settings.make(), {**settings.wrapper_arguments, **arguments})
    env.reset(seed=0)
    found, rng = [env.prompt], np.random.default_rng(0)
    for _ in range(steps):
        _, _, terminated, truncated, _ = env.step(int(rng.integers(len(env.prompt.actions))))
        found.append(env.prompt)
        if terminated or truncated:
            env.reset()
            found.append(env.prompt)
    return found


def test_two_sides_become_a_sign() -> None:
    own = encoder("leans left 1.7 degrees", "leans right 0.4 degrees", "leans right 2.0 degrees")
    assert own.n_numbers == 1
    signed = [own.encode(prompt(f"leans {side} 3.5 degrees"))[1][0] for side in ("left", "right")]
    assert signed == [-3.5, 3.5]
    words = [own.encode(prompt(f"leans {side} 3.5 degrees"))[0] for side in ("left", "right")]
    assert [one.sum() for one in words] == [1, 1]
    assert not (words[0] * words[1]).any()


def test_numbers_have_columns_of_their_own_for_each_pattern() -> None:
    own = encoder("at 1.5", "at 2 rows up, 3 columns left", "at home", "at 1 row up")
    rows = {text: own.encode(prompt(text))[1] for text in ("at 7.5", "at 4 rows up, 5 columns left", "at home")}
    assert sorted(rows["at 4 rows up, 5 columns left"][rows["at 4 rows up, 5 columns left"] != 0]) == [4, 5]
    assert not (rows["at 7.5"] * rows["at 4 rows up, 5 columns left"]).any()
    assert not rows["at home"].any()


def test_contents_have_columns_unless_they_are_fractions() -> None:
    own = encoder(*(f"total {k}" for k in range(10)))
    assert (own.n_words - HASHED, own.n_numbers) == (10, 1)
    assert encoder(*(f"total {k}.5" for k in range(10))).n_words == HASHED


def test_past_turns_have_columns_of_their_own() -> None:
    first, later = prompt("cell a"), prompt("cell b", history=("cell a",))
    other = prompt("cell a", history=("cell b",))
    own = WordEncoder.learn([first, later, other, prompt("cell b", history=("cell b",))])
    assert len({code(own, one) for one in (first, later, other)}) == 3


def test_what_random_play_has_not_shown_is_hashed_and_changes_nothing() -> None:
    own = encoder("the door is open", "the door is closed")
    before = {text: code(own, prompt(text)) for text in ("the door is open", "the door is closed")}
    ajar, gone = own.encode(prompt("the door is ajar"))[0], own.encode(prompt("the door is gone"))[0]
    assert ajar[:HASHED].sum() == gone[:HASHED].sum() == 1
    assert not ajar[HASHED:].any()
    assert (ajar != gone).any()
    assert {text: code(own, prompt(text)) for text in before} == before


def test_free_text_has_columns_for_words_pairs_and_clauses() -> None:
    colours, kinds = ("red", "green", "blue", "grey", "pink"), ("ball", "box", "key", "door")
    texts = [
        f"You see a {one} {kind} 2 steps left, a {other} {kind} 3 steps right."
        for one in colours
        for other in colours
        for kind in kinds
    ]
    texts += [f"You see a {one} {kind} 1 step forward." for one in colours for kind in kinds]
    assert len(texts) > MOST_PATTERNS
    own = encoder(*texts, *texts)
    assert len({code(own, prompt(text)) for text in texts}) == len(texts)
    swapped = "You see a green ball 2 steps left, a red ball 3 steps right."
    assert code(own, prompt(swapped)) != code(
        own, prompt("You see a red ball 2 steps left, a green ball 3 steps right.")
    )


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "Taxi-v4", "MountainCar-v0"])
def test_different_prompts_of_an_env_have_different_codes(env_id: str) -> None:
    prompts = played(env_id, 600)
    own = WordEncoder.learn(prompts[:300])
    codes: dict[bytes, Prompt] = {}
    for one in prompts[:300]:  # what it was made from
        assert codes.setdefault(code(own, one), one) == one
    assert len(codes) > 3


def test_cartpole_has_its_four_numbers() -> None:
    own = WordEncoder.learn(played("CartPole-v1", 300))
    env = lmpolicy.hyperparameters("CartPole-v1")
    task = env.put_into_words(env.make(), env.wrapper_arguments).task
    state = np.array([-0.12, 0.3, 0.05, -0.9], dtype=np.float32)
    told = task.format_observation(state)
    assert "right 2.9 degrees, in 10 steps left 7.4 degrees" in told
    numbers = own.encode(prompt(told, ("push left", "push right")))[1]
    assert {round(float(number), 1) for number in numbers} >= {2.9, -7.4, -0.1, 0.2}


def test_legal_phrases_are_part_of_the_words() -> None:
    own = WordEncoder.learn([prompt("x", ("a", "b")), prompt("x", ("b", "c"))])
    assert own.phrases == ("b", "a", "c")
    assert own.legal(prompt("x", ("c", "b"))).tolist() == [True, False, True, False]
    assert own.legal(prompt("x", ("c", "new"))).tolist() == [False, False, True, True]
    assert code(own, prompt("x", ("a", "b"))) != code(own, prompt("x", ("b", "c")))
    assert encoder("x", "y").phrases is None


def test_a_copy_reads_in_the_same_way() -> None:
    own = WordEncoder.learn(played("Taxi-v4", 200))
    copy = pickle.loads(pickle.dumps(own))
    for one in played("Taxi-v4", 50):
        assert code(own, one) == code(copy, one)


def test_an_encoder_needs_prompts() -> None:
    with pytest.raises(ValueError, match="play at least one step"):
        WordEncoder.learn([])
