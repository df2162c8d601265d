"""Free text as the action: what the env is given, what is counted, and that rewards and turns stay in step."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from helpers.scripted_prompts import read
from helpers.toy_envs import Script, Told, Toy
from stable_baselines3.common.env_checker import check_env as check_env_sb3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
from transformers import AutoTokenizer

from lmpolicy import ParseError, TextObservationWrapper, TokenSpace
from lmpolicy.bundled import BUNDLED


def writing(toy: gym.Env | None = None, task: Any = Told, **options: Any) -> TextObservationWrapper:
    return TextObservationWrapper(toy or Script(["a", "b", "c", "d"]), task, action_mode="generate", **options)


def row(env: TextObservationWrapper, text: str, phrase: int | None = None) -> np.ndarray:
    """The row of a text, as the bundled LM would write it."""
    assert isinstance(env.action_space, TokenSpace)
    return env.action_space.row(AutoTokenizer.from_pretrained(BUNDLED).encode(text), phrase)


def test_text_and_rows_mean_the_same() -> None:
    env = writing()
    env.reset()
    for action in ("I go right.", row(env, "I go right."), row(env, "I go right.<|end|>"), row(env, "right<|user|>")):
        answer = env.read_answer(action)
        assert (answer.action, answer.phrase, answer.parse_error) == (1, "right", False)
    _, reward, _, _, info = env.step(row(env, "I go right.<|end|>"))
    assert env.unwrapped.taken == [1]  # type: ignore[attr-defined]
    assert reward == 1.0
    assert info["answer"] == "I go right."
    assert info["action_text"] == "right"
    assert info["parse_error"] is False
    assert info["action_clipped"] is False


def test_the_prompt_itself_is_never_read() -> None:
    env = writing(Script(["go left, left!", "b", "c"]))
    env.reset()
    assert env.read_answer("hm").parse_error


@pytest.mark.parametrize(
    ("options", "taken", "reward"),
    [
        ({}, 0, 0.0),
        ({"parse_error_reward": -0.25, "fallback_action": "right"}, 1, 0.75),
        ({"fallback_action": 1}, 1, 0.0),
        ({"parse_error_reward": np.float32(-0.5)}, 0, 0.5),
        ({"parse_error_reward": np.int64(-2)}, 0, -1.0),
        ({"on_parse_error": "random", "parse_error_reward": -9}, None, 1.0),
    ],
)
def test_parse_errors(options: dict[str, Any], taken: int | None, reward: float) -> None:
    env = writing(Script("abcdefghijkl"), history=2, **options)
    actions = []
    for seed in (0, 0, 1):
        env.reset(seed=seed)
        for _ in range(10):
            _, given, _, _, info = env.step("I fly")
            assert given == reward
            assert info["parse_error"] is True
            assert info["answer"] == "I fly"
            assert info["action_text"] == ("left", "right")[env.unwrapped.taken[-1]]  # type: ignore[attr-defined]
        actions.append(list(env.unwrapped.taken))  # type: ignore[attr-defined]
    if taken is None:
        assert set(actions[0]) == {0, 1}
        assert actions[0] == actions[1] != actions[2]
    else:
        assert actions == [[taken] * 10] * 3
    assert [content for role, content in env.prompt.messages if role == "assistant"] == ["I fly"] * 2


def test_raising_leaves_the_env_where_it_is() -> None:
    env = writing(on_parse_error="raise")
    env.reset()
    before = env.prompt
    with pytest.raises(ParseError, match=r"'I fly' .* legal are: left, right"):
        env.step("I fly")
    assert env.prompt == before
    assert env.unwrapped.taken == []
    env.step("left")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action_mode": "write"}, 'action_mode must be "score" or "generate"'),
        ({"on_parse_error": "ignore"}, "on_parse_error must be one of 'penalize', 'random', 'raise'"),
        ({"parse_error_reward": float("nan")}, "parse_error_reward must be a finite number"),
        ({"parse_error_reward": np.float32("inf")}, "parse_error_reward must be a finite number"),
        ({"parse_error_reward": np.bool_(True)}, "parse_error_reward must be a finite number"),
        ({"fallback_action": "fly"}, "'fly' is no legal action; legal are: left, right"),
        ({"fallback_action": 2}, "2 is no legal action"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a positive integer"),
        ({"history": -1}, "history is the number"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextObservationWrapper(Script("abc"), Told, **{"action_mode": "generate", **options})


@pytest.mark.parametrize("action", [0, np.int64(1), np.array(0), None])
def test_an_index_is_no_answer(action: Any) -> None:
    env = writing()
    env.reset()
    with pytest.raises(TypeError, match=r'text or a row of 32 token ids, .* action_mode="score" takes an index'):
        env.step(action)


def test_before_reset() -> None:
    with pytest.raises(ResetNeeded):
        writing().step("left")


SPACES = [
    (spaces.Box(-1, 1, (2,)), "I push 0.5 and -3", [0.5, -1.0], True, [0.0, 0.0]),
    (spaces.MultiDiscrete([3, 4], start=[1, 0]), "Action: 2, 3", [2, 3], False, [1, 0]),
    (spaces.MultiBinary(2), '{"action": [1, 0]}', [1, 0], False, [0, 0]),
    (spaces.Discrete(3, start=5), "action 6", 6, False, 5),
]


@pytest.mark.parametrize(("space", "text", "action", "clipped", "fallback"), SPACES, ids=lambda x: str(x)[:12])
def test_action_spaces(space: Any, text: str, action: Any, clipped: bool, fallback: Any) -> None:
    env = writing(Toy(spaces.Discrete(3), space), task=None)
    env.reset(seed=0)
    info = env.step(text)[-1]
    assert (info["parse_error"], info["action_clipped"]) == (False, clipped)
    info = env.step("no idea")[-1]
    assert info["parse_error"] is True
    for taken, wanted in zip(env.unwrapped.taken, (action, fallback), strict=True):  # type: ignore[attr-defined]
        np.testing.assert_array_equal(taken, wanted)
        assert space.contains(taken)
    assert ("action_text" in info) == isinstance(space, spaces.Discrete)
    random = writing(Toy(spaces.Discrete(3), space), task=None, on_parse_error="random")
    random.reset(seed=0)
    for _ in range(3):
        random.step("no idea")
    assert all(map(space.contains, random.unwrapped.taken))  # type: ignore[attr-defined]


def test_a_text_action_needs_a_fallback() -> None:
    words = spaces.Text(20, charset="abcdefghijklmnopqrstuvwxyz ")
    toy = Toy(spaces.Discrete(3), words)
    with pytest.raises(ValueError, match='pass fallback_action, or on_parse_error="random" or "raise"'):
        writing(toy, task=None)
    env = writing(toy, task=None, fallback_action="look")
    env.reset(seed=0)
    env.step("Action: open the door")
    env.step("Ü")
    assert toy.taken == ["open the door", "look"]


class Own(Told):
    """Reads answers in a way of its own."""

    def extract_action(self, response: str) -> Any:
        if "boom" in response:
            raise RuntimeError("a bug of the user's")
        if response.startswith("Action"):
            return super().extract_action(response)
        return {"R": "right", "0": 0, "x": "fly", "?": None}[response[0]]


def test_a_task_that_reads_answers_itself() -> None:
    env = writing(task=Own)
    env.reset()
    assert [env.read_answer(text).action for text in ("R", "0")] == [1, 0]
    assert [env.read_answer(text).parse_error for text in ("R", "0", "x", "?")] == [False, False, True, True]
    assert env.read_answer("Action: right").action == 1
    assert env.read_answer("Action: up").parse_error
    with pytest.raises(RuntimeError, match="a bug of the user's"):
        env.step("boom")


@pytest.mark.parametrize(
    ("space", "first", "second"),
    [
        (
            spaces.Dict(a=spaces.MultiBinary(2), b=spaces.Discrete(2)),
            {"a": np.array([0, 1]), "b": 0},
            {"a": np.array([1, 1]), "b": 1},
        ),
        (spaces.Tuple([spaces.MultiBinary(2), spaces.Discrete(2)]), (np.array([0, 1]), 0), (np.array([1, 1]), 1)),
    ],
)
def test_a_task_that_returns_actions_with_arrays_in_them(space: Any, first: Any, second: Any) -> None:
    class Reads(Told):
        action_texts = {"left": first, "right": second}  # type: ignore[assignment]  # noqa: RUF012

        def extract_action(self, response: str) -> Any:
            return copy.deepcopy(second) if response == "r" else space.sample()

    env = writing(Script("abc", space), Reads, fallback_action=copy.deepcopy(second))
    env.reset()
    answer = env.read_answer("r")
    assert (answer.phrase, answer.parse_error) == ("right", False)
    taken = env.step("r")[-1]
    assert taken["action_text"] == "right"
    with pytest.raises(ValueError, match="is no legal action; legal are: left, right"):
        writing(Script("abc", space), Reads, fallback_action=(1, 2))


class PerState(Told):
    """Other phrases in other states."""

    max_actions = 2

    def action_texts(self, observation: Any, info: dict[str, Any]) -> dict[str, int]:  # type: ignore[override]
        return {"left": 0} if observation == "a" else {"up": 0, "right": 1}


def test_phrases_that_change_from_state_to_state() -> None:
    env = writing(task=PerState, fallback_action="right")
    env.reset()
    assert env.read_answer("right").parse_error
    assert env.read_answer("right").phrase == "left"  # the fallback is not legal here
    env.step("left")
    assert not env.read_answer("right").parse_error
    assert "Possible actions: up, right." in env.prompt.messages[-1][1]


def test_closing_with_a_phrase() -> None:
    env = writing(close_with_phrase=True, history=1)
    assert env.action_space.shape == (33,)
    env.reset()
    assert env.prompt.cue == "Thought:"
    answer = env.read_answer(row(env, "it is left, I think", 1))
    assert (answer.text, answer.action, answer.parse_error) == ("it is left, I think\nAction: right", 1, False)
    assert env.read_answer(row(env, "so. Action:", 0)).text == "so. Action: left"
    assert env.read_answer("Action: right").action == 1  # people may write what they like
    env.step(row(env, "yes\n", 1))
    assert env.prompt.messages[-2] == ("assistant", "yes\nAction: right")
    per_state = writing(task=PerState, close_with_phrase=True)
    per_state.reset()
    with pytest.raises(ValueError, match="phrase 1 is not legal now; legal are: left"):
        per_state.step(row(per_state, "x", 1))


def test_a_cue_of_the_task_reaches_the_policy() -> None:
    class Cued(Told):
        cue = "Move:"

    env = writing(task=Cued)
    row, _ = env.reset()
    assert env.prompt.cue == "Move:"
    assert read(env, row).cue == "Move:"


def test_instructions(llama: str) -> None:
    def system(**options: Any) -> str:
        env = writing(**options)
        env.reset(seed=0)
        return env.prompt.messages[0][1]

    assert system() == "Play. Possible actions: left, right."  # the bundled LM knows but one way
    assert 'End your answer with "Action: " and one of' in system(tokenizer=llama)
    assert 'Think in a few words, then end with "Action: "' in system(tokenizer=llama, close_with_phrase=True)
    toy = Toy(spaces.Discrete(3), spaces.Box(-1, 1, (2,)))
    assert 'with "Action: " and your action, which is' in system(toy=toy, task=None, tokenizer=llama)

    class Formatted(Told):
        answer_format = "Say it in JSON."

    assert system(task=Formatted).endswith("left, right. Say it in JSON.")


def test_conversation() -> None:
    env = writing(history=2)
    env.reset()
    for text in ("first: left", "second: right", "third: left"):
        env.step(text)
    roles_and_contents = [("user", "b"), ("assistant", "second: right"), ("user", "c"), ("assistant", "third: left")]
    assert list(env.prompt.messages[1:]) == [*roles_and_contents, ("user", "d")]


def test_checkers_and_vec_envs_are_content() -> None:
    env = TextObservationWrapper(gym.make("Blackjack-v1"), action_mode="generate", max_new_tokens=4)
    check_env(env, skip_render_check=True)
    check_env_sb3(env, warn=False)
    for vec_env_cls, vec_env_kwargs in ((DummyVecEnv, {}), (SubprocVecEnv, {"start_method": "fork"})):
        envs = make_vec_env(
            "Blackjack-v1",
            2,
            seed=0,
            wrapper_class=TextObservationWrapper,
            wrapper_kwargs={"action_mode": "generate", "max_new_tokens": 4},
            vec_env_cls=vec_env_cls,
            vec_env_kwargs=vec_env_kwargs,
        )
        try:
            assert isinstance(envs.action_space, TokenSpace)
            envs.reset()
            infos = envs.step(np.stack([row(env, "hit"), row(env, "fly")]))[-1]
            assert [info["parse_error"] for info in infos] == [False, True]
        finally:
            envs.close()
