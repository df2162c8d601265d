"""GGUF files are converted once, exactly, as a whole, and by one process; each obstacle is named."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch as th
from helpers.gguf_files import byte_tokens, write_gguf
from helpers.lm_tools import SHARED, assert_same, make_policy
from transformers import AutoModelForCausalLM, AutoTokenizer

from lmpolicy import models
from lmpolicy.models import checks, converting, progress
from lmpolicy.models.converting import SOURCE

pytest.importorskip("gguf")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of converted models, which is not there yet."""
    monkeypatch.setenv("LMPOLICY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A tiny model."""
    write_gguf(tmp_path / "Tiny.gguf")
    return tmp_path / "Tiny.gguf"


def visible(folder: Path) -> list[str]:
    """Names of all that is in a folder, without locks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_weights_and_tokenizer_are_those_of_the_file(tmp_path: Path, cache: Path) -> None:
    expected = write_gguf(tmp_path / "tiny.gguf", quantised=False)
    folder = models.resolve(tmp_path / "tiny.gguf")
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == th.float32  # as in the file
    for name, array in expected.items():
        assert np.array_equal(model.state_dict()[name].numpy(), array), name
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert set(byte_tokens()) < set(tokenizer.get_vocab())
    assert tokenizer.decode(tokenizer("go in there!")["input_ids"]) == "go in there!"
    assert tokenizer.eos_token == "<|end|>"
    assert tokenizer.chat_template is not None


def test_quantised_weights_are_unpacked_and_rounded(tmp_path: Path, cache: Path) -> None:
    expected = write_gguf(tmp_path / "tiny.gguf", quantised=True)
    model = AutoModelForCausalLM.from_pretrained(models.resolve(tmp_path / "tiny.gguf"))
    assert model.dtype == th.bfloat16
    assert getattr(model.config, "quantization_config", None) is None
    for name, array in expected.items():
        assert th.equal(model.state_dict()[name], th.from_numpy(array).bfloat16()), name


def test_policy_learns_on_a_file(file: Path, cache: Path) -> None:
    policy = make_policy(file, dtype="float32")
    assert policy.backbone.context_length == 256
    assert_same(policy, SHARED[:2])


def test_a_file_is_converted_once(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = models.resolve(file)
    monkeypatch.setattr(converting, "_write", lambda *_: pytest.fail("converted again"))
    assert models.resolve(str(file)) == first
    moved = tmp_path / "other name.GGUF"
    file.rename(moved)
    assert models.resolve(moved) == first  # known by its content


def test_a_changed_file_is_converted_again(file: Path, cache: Path) -> None:
    first = models.resolve(file)
    write_gguf(file, seed=1)
    assert models.resolve(file) != first
    assert len(visible(cache)) == 2


def test_the_copy_says_what_it_was_made_of(file: Path, cache: Path) -> None:
    origin = json.loads((Path(models.resolve(file)) / SOURCE).read_text())
    assert origin["source"] == str(file)
    assert origin["sha256"] == converting._digest_of(file, 0, 0)
    assert origin["dtype"] == "bfloat16"
    assert origin["versions"].keys() == {"lmpolicy", "gguf", "torch", "transformers"}


def test_two_processes_at_once(file: Path, cache: Path) -> None:
    code = "import sys; from lmpolicy import models; print(models.resolve(sys.argv[1]))"
    command = [sys.executable, "-c", code, str(file)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ended = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
    folders = {out.strip() for out, _ in ended}
    assert len(folders) == 1
    assert visible(cache) == [Path(folders.pop()).name]
    assert sum("Converting" in errors for _, errors in ended) == 1  # the other one waited


def test_an_interrupted_conversion_leaves_nothing(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(file: Path, folder: Path, dtype: Any) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(converting, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            models.resolve(file)
    assert visible(cache) == []
    key = converting._digest_of(file, 0, 0)[: converting.KEY]
    (cache / f".{key}-killed").mkdir()  # what a process leaves that is killed
    assert visible(cache) == [f".{key}-killed"]
    folder = Path(models.resolve(file))
    assert visible(cache) == [folder.name]


# Progress


def test_steps_are_shown(file: Path, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models.resolve(file)
    shown = capfd.readouterr().err
    assert "Converting Tiny.gguf, once" in shown
    for step in ("tokenizer", "weights", "writing", "3/3"):
        assert step in shown


def test_steps_are_lines_without_tqdm(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with progress.Steps("Baking", 2) as steps:
        steps.begin("dough")
        steps.begin("oven")
    assert capfd.readouterr().err == "Baking: dough (1 of 2)\nBaking: oven (2 of 2)\n"


# Obstacles


def test_truncated_file(file: Path, cache: Path) -> None:
    data = file.read_bytes()
    for kept in (len(data) // 2, len(data) - 1000, 100, 2):
        file.write_bytes(data[:kept])
        with pytest.raises(models.ModelError, match=r"Tiny\.gguf .* cannot be read, it may be truncated: .* Get the"):
            make_policy(file)
    assert visible(cache) == []


def test_file_with_another_digest(file: Path, cache: Path) -> None:
    digest = converting._digest_of(file, 0, 0)
    assert converting.converted(file, digest).is_dir()
    with pytest.raises(models.ModelError, match=rf"its SHA-256 is {digest}, expected {'0' * 64}\. Buy a new one\."):
        converting.converted(file, "0" * 64, "Buy a new one.")


def test_no_room(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_500_000))
    with pytest.raises(
        models.ModelError, match=r"no room to convert Tiny\.gguf: 50\.\d MB .*, 1\.5 MB are free\. .*CACHE"
    ):
        models.resolve(file)
    assert visible(cache) == []


def test_too_little_memory(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "available_memory", lambda: 1000)
    with pytest.raises(models.ModelError, match=r"the conversion of Tiny\.gguf needs 1\d\d kB .*1\.0 kB are available"):
        models.resolve(file)
    assert visible(cache) == []


def test_without_the_package_gguf(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converting, "find_spec", lambda _: None)
    with pytest.raises(models.ModelError, match=r"reads Tiny\.gguf, is not installed: pip install gguf"):
        make_policy(file)


def test_cache_that_cannot_be_written(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    monkeypatch.setenv("LMPOLICY_CACHE", str(tmp_path / "taken"))
    with pytest.raises(models.ModelError, match=r"taken/models, which cannot be written: .* Set LMPOLICY_CACHE"):
        models.resolve(file)


def test_architecture_that_transformers_does_not_know(tmp_path: Path, cache: Path) -> None:
    write_gguf(tmp_path / "odd.gguf", architecture="oddity")
    with pytest.raises(OSError, match=r"(?s)odd\.gguf.*could not be loaded: .*oddity"):
        make_policy(tmp_path / "odd.gguf")
    assert visible(cache) == []
