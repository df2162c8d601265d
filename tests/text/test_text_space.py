"""TextSpace: every text comes back, nothing else is taken for one, and SB3 and Gymnasium carry it untouched."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.preprocessing import get_obs_shape, is_image_space
from stable_baselines3.common.save_util import load_from_zip_file, save_to_zip_file
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecMonitor, VecNormalize

from lmpolicy import LMActorCriticPolicy, TextObservationWrapper, TextSpace
from lmpolicy.text.spaces import decode_bytes, row_bytes, utf8

TEXTS = ("", "hello", "a\x00b", "ends in NUL\x00\x00", "\x00", "é漢🙂 \u2028\u202e", "\ufffd", '{}"\\\n\t', "\x7f\x80ÿ")


class Echo(gym.Env):
    """Says the texts of TEXTS in turn, one per step."""

    observation_space = TextSpace(64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.step_count = 0
        return self._row(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_count += 1
        return self._row(), 1.0, False, False, {}

    def _row(self) -> Any:
        return self.observation_space.encode(TEXTS[self.step_count % len(TEXTS)])


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back(text: str) -> None:
    space = TextSpace(64)
    row = space.encode(text)
    assert row.dtype == np.uint8
    assert row.shape == (64,)
    assert space.contains(row)
    assert space.decode(row) == text
    assert decode_bytes(row_bytes(row)) == text
    assert row_bytes(row) == text.encode()


@settings(deadline=None)
@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    # st.text() draws no surrogates
    size = len(text.encode())
    for max_bytes in {max(1, size), size + 1, size + 1000}:
        space = TextSpace(max_bytes)
        assert space.decode(space.encode(text)) == text


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=())), st.integers(1, 40))
def test_surrogates_become_replacement_characters(text: str, max_bytes: int) -> None:
    expected = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    assert utf8(text) == expected.encode()
    space = TextSpace(max_bytes)
    if len(expected.encode()) <= max_bytes:
        assert space.decode(space.encode(text)) == expected
    else:
        with pytest.raises(ValueError, match=f"needs {len(expected.encode())} bytes"):
            space.encode(text)


@pytest.mark.parametrize("code", [0xD800, 0xDBFF, 0xDC00, 0xDFFF])
def test_the_first_and_the_last_surrogates_are_replaced(code: int) -> None:
    assert utf8(f"a{chr(code)}b") == "a\ufffdb".encode()
    neighbours = chr(0xD7FF) + chr(0xE000)
    assert utf8(neighbours + chr(code)) == (neighbours + "\ufffd").encode()


def test_exactly_full_and_one_byte_too_long() -> None:
    space = TextSpace(6)
    assert space.encode("漢字").tolist() == list("漢字".encode())  # no padding left
    assert space.decode(space.encode("漢字")) == "漢字"
    with pytest.raises(ValueError, match=r"needs 7 bytes but this TextSpace holds 6; use TextSpace\(max_bytes=7\)"):
        space.encode("漢字!")
    assert TextSpace(7).decode(TextSpace(7).encode("漢字!")) == "漢字!"


@pytest.mark.parametrize("value", [b"bytes", None, 3, ["a"], np.zeros(8, np.uint8)])
def test_only_str_is_encoded(value: Any) -> None:
    with pytest.raises(TypeError, match=f"encodes str, got {type(value).__name__}"):
        TextSpace(8).encode(value)


@pytest.mark.parametrize("max_bytes", [0, -1, 2.0, True, "8", None])
def test_max_bytes_is_checked(max_bytes: Any) -> None:
    with pytest.raises(ValueError, match="max_bytes must be a positive integer"):
        TextSpace(max_bytes)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, np.uint16])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    space = TextSpace(8)
    with pytest.raises(TypeError, match=r"uint8, got .*VecNormalize, make it with norm_obs=False"):
        space.decode(space.encode("abc").astype(dtype))


def test_other_shapes_are_refused() -> None:
    space = TextSpace(8)
    row = space.encode("abc")
    with pytest.raises(ValueError, match=r"shape \(8,\), got \(7,\)$"):
        space.decode(row[:7])
    with pytest.raises(ValueError, match=r"shape \(8,\), got \(1, 8\); decode one row of a batch at a time"):
        space.decode(row[None])
    with pytest.raises(ValueError, match=r"got \(\)"):
        space.decode(np.uint8(3))


@pytest.mark.parametrize("data", [b"\x80abc", b"ab\xff\xffcd", b"\xc3(", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80"])
def test_foreign_bytes_are_refused(data: bytes) -> None:
    row = np.full(8, 0xFF, np.uint8)
    row[: len(data)] = list(data)
    with pytest.raises(ValueError, match=r"holds no text .* must not be changed on the way"):
        TextSpace(8).decode(row)


def test_row_of_a_view() -> None:
    space = TextSpace(8)
    batch = np.asfortranarray(np.stack([space.encode("abc"), space.encode("de")]))
    assert not batch[0].flags["C_CONTIGUOUS"]
    assert [space.decode(row) for row in batch] == ["abc", "de"]
    assert row_bytes(batch[1]) == b"de"


def test_sample_is_a_text_of_any_length() -> None:
    space = TextSpace(5, seed=0)
    rows = [space.sample() for _ in range(300)]
    assert all(space.contains(row) for row in rows)
    texts = [space.decode(row) for row in rows]
    assert {len(text) for text in texts} == {0, 1, 2, 3, 4, 5}
    assert all(text.isprintable() for text in texts)
    again = TextSpace(5, seed=0)
    assert [again.decode(again.sample()) for _ in range(300)] == texts
    with pytest.raises(ValueError, match="neither mask nor probability"):
        space.sample(mask=np.ones(5))  # type: ignore[arg-type]


def test_box_of_bytes() -> None:
    space = TextSpace(10)
    assert repr(space) == "TextSpace(max_bytes=10)"
    assert space == spaces.Box(0, 255, (10,), np.uint8)
    assert space != TextSpace(11)
    assert not is_image_space(space)
    assert get_obs_shape(space) == (10,)
    rows = [space.encode("a"), space.encode("bc")]
    assert [space.decode(row) for row in space.from_jsonable(space.to_jsonable(rows))] == ["a", "bc"]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))])
def test_copies(copied: Any) -> None:
    space = TextSpace(10, seed=3)
    space.sample()
    twin = copied(space)
    assert type(twin) is TextSpace
    assert twin.max_bytes == 10
    assert twin.decode(twin.encode("é\x00")) == "é\x00"
    if copied is not copy.copy:  # which shares the generator
        assert twin.sample().tolist() == space.sample().tolist()


def test_zip_of_a_learner(tmp_path: Any) -> None:
    path = tmp_path / "model.zip"
    space = TextSpace(10)
    save_to_zip_file(path, data={"observation_space": space, "_last_obs": space.encode("é\x00")[None]})
    data, _, _ = load_from_zip_file(path)
    assert data is not None
    assert type(data["observation_space"]) is TextSpace
    assert data["observation_space"].max_bytes == 10
    assert data["observation_space"].decode(data["_last_obs"][0]) == "é\x00"


def decoded(venv: VecEnv, rows: Any) -> list[str]:
    assert isinstance(venv.observation_space, TextSpace)
    assert rows.dtype == np.uint8
    return [venv.observation_space.decode(row) for row in rows]


def play(venv: VecEnv) -> None:
    assert decoded(venv, venv.reset()) == [TEXTS[0]] * 2
    for text in TEXTS[1:]:
        rows, rewards, _, _ = venv.step(np.array([0, 1]))
        assert decoded(venv, rows) == [text] * 2
        assert rewards.dtype.kind == "f"
    venv.close()


@pytest.mark.parametrize("outer", [VecMonitor, lambda venv: VecNormalize(venv, norm_obs=False)])
def test_vectorised_envs(outer: Any) -> None:
    play(outer(DummyVecEnv([Echo, Echo])))


def test_worker_processes() -> None:
    play(SubprocVecEnv([lambda: Monitor(Echo()), lambda: Monitor(Echo())], start_method="fork"))


def test_normalised_rows_are_refused_with_the_remedy() -> None:
    venv = VecNormalize(DummyVecEnv([Echo]))
    venv.reset()
    rows, _, _, _ = venv.step(np.array([0]))
    assert isinstance(venv.observation_space, TextSpace)
    with pytest.raises(TypeError, match="norm_obs=False"):
        venv.observation_space.decode(rows[0])


def test_rollout_buffer_gives_the_rows_back() -> None:
    space = TextSpace(64)
    buffer = RolloutBuffer(len(TEXTS), space, spaces.Discrete(2), n_envs=2)
    zeros, flags = np.zeros(2, np.float32), np.zeros(2)
    for text in TEXTS:
        rows = np.stack([space.encode(text), space.encode(text + "!")])
        tensor = obs_as_tensor(rows, th.device("cpu"))
        assert isinstance(tensor, th.Tensor)
        assert tensor.dtype == th.uint8
        buffer.add(tensor.numpy(), np.zeros((2, 1)), zeros, flags, th.zeros(2), th.zeros(2))
    buffer.compute_returns_and_advantage(th.zeros(2), flags)
    (batch,) = buffer.get()
    texts = [space.decode(row.numpy()) for row in batch.observations]
    assert sorted(texts) == sorted([*TEXTS, *(text + "!" for text in TEXTS)])


def test_policies_that_take_bytes_for_numbers_are_warned_of() -> None:
    env = TextObservationWrapper(gym.make("Blackjack-v1"))
    with pytest.warns(UserWarning, match=r"pass lmpolicy\.LMActorCriticPolicy in place of .MlpPolicy."):
        PPO("MlpPolicy", env, n_steps=8, batch_size=8)
    assert spaces.flatdim(spaces.Box(0, 255, (7,), np.uint8)) == 7
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        PPO(LMActorCriticPolicy, env, n_steps=8, batch_size=8).predict(env.reset(seed=0)[0])
