"""Rows of token ids: exact through Stable-Baselines3, equal only with the same tokenizer, clear about what is wrong."""

from __future__ import annotations

import contextlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from transformers import AutoTokenizer

from lmpolicy import TokenSpace
from lmpolicy.bundled import BUNDLED
from lmpolicy.models import NamedModel
from lmpolicy.text.spaces import LARGEST_ID, tokenizer_fingerprint
from lmpolicy.text.tokenizer import load_tokenizer


@pytest.mark.parametrize("n_phrases", [0, 3])
def test_round_trip(n_phrases: int) -> None:
    space = TokenSpace(10, 4, "one", n_phrases)
    for ids in ([], [0], [9, 0, 9, 1]):
        row = space.row(ids, 2)
        assert row.dtype == np.int64
        assert space.contains(row)
        assert space.split(row) == (ids, 2 if n_phrases else None)
        assert space.split(row.astype(np.int32)) == space.split(row)
    space.seed(0)
    for _ in range(100):
        row = space.sample()
        assert space.contains(row)
        assert len(space.split(row)[0]) >= 1


@pytest.mark.parametrize(
    "row", [[1, 2, 3], [[1, 2, 3, 4]], [1.0, 2, 3, 4], [10, 0, 0, 0], [-2, 0, 0, 0], ["a", "b", "c", "d"]]
)
def test_what_is_no_row(row: Any) -> None:
    with pytest.raises(ValueError, match="a row of this env is 4 integers, token ids from 0 to 9 and -1 behind"):
        TokenSpace(10, 4, "one").split(np.array(row))


def test_bad_arguments() -> None:
    for length in (0, -1, True, 2.5, "4"):
        with pytest.raises(ValueError, match="max_new_tokens must be a positive integer"):
            TokenSpace(10, length, "one")  # type: ignore[arg-type]
    for ids in (0, LARGEST_ID + 1):
        with pytest.raises(ValueError, match="SB3 carries"):
            TokenSpace(ids, 4, "one")
    with pytest.raises(ValueError, match="5 token ids in a space for max_new_tokens=4"):
        TokenSpace(10, 4, "one").row([1, 2, 3, 4, 5])
    with pytest.raises(ValueError, match="neither mask"):
        TokenSpace(10, 4, "one").sample(mask=np.ones(4))  # type: ignore[arg-type]


def test_equality() -> None:
    space = TokenSpace(10, 4, "one")
    assert space == TokenSpace(10, 4, "one") == pickle.loads(pickle.dumps(space))
    others = [TokenSpace(10, 4, "two"), TokenSpace(11, 4, "one"), TokenSpace(10, 5, "one"), TokenSpace(10, 4, "one", 2)]
    for other in [*others, spaces.Box(space.low, space.high, dtype=np.int64)]:
        assert space != other
    assert repr(TokenSpace(10, 4, "one", 2)) == "TokenSpace(n_ids=10, max_new_tokens=4, 'one', n_phrases=2)"


def test_the_largest_ids_come_back_from_the_buffer_of_sb3() -> None:
    space = TokenSpace(LARGEST_ID, 3, "one")
    buffer = RolloutBuffer(1, spaces.Box(0, 1, (1,)), space, device="cpu")
    row = space.row([LARGEST_ID - 1, LARGEST_ID - 2])
    buffer.add(np.zeros((1, 1)), row[None], np.zeros(1), np.zeros(1), th.zeros(1), th.zeros(1))
    (sample,) = buffer.get(1)
    assert sample.actions.long()[0].tolist() == row.tolist()


def test_fingerprints_tell_tokenizers_apart(tiny_models: dict[str, Path]) -> None:
    one, same, other = (AutoTokenizer.from_pretrained(p) for p in (tiny_models["llama"], tiny_models["gpt2"], BUNDLED))
    assert tokenizer_fingerprint(one) == tokenizer_fingerprint(same)  # the same vocabulary, another template
    assert tokenizer_fingerprint(one) != tokenizer_fingerprint(other)
    other.add_tokens(["brandnew"])
    assert tokenizer_fingerprint(other) != tokenizer_fingerprint(load_tokenizer(None))


def test_loading(llama: str, tmp_path: Path) -> None:
    assert len(load_tokenizer(None)) == len(load_tokenizer(BUNDLED)) == 3072
    tokenizer = load_tokenizer(llama)
    assert load_tokenizer(tokenizer) is tokenizer
    with pytest.raises(OSError, match="Give tokenizer= the hub id or local folder"):
        load_tokenizer(str(tmp_path / "nowhere"))
    with pytest.raises(TypeError, match=r"tokenizer must be a hub id, .* got int"):
        load_tokenizer(3)


def test_code_of_a_tokenizer_does_not_run_and_is_not_asked_about(
    llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, marker = shutil.copytree(llama, tmp_path / "own"), tmp_path / "ran"
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w').close()\nclass Own:\n    pass\n")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    with contextlib.suppress(OSError):  # Transformers refuses it, or takes a class of its own
        load_tokenizer(str(folder))
    assert not marker.exists()


def test_tokenizer_of_a_named_model_has_its_revision(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmpolicy.text import tokenizer as loading

    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(loading, "find", lambda _: NamedModel(name="tiny", context=8, revision="a" * 40))
    monkeypatch.setattr(loading, "resolve", lambda _: llama)
    original = AutoTokenizer.from_pretrained

    def from_pretrained(path: str, **options: Any) -> Any:
        asked.append(options)
        return original(path)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", from_pretrained)
    load_tokenizer("tiny")
    assert asked == [{"revision": "a" * 40, "trust_remote_code": False}]
