"""What all tests share: no network, one thread, and tiny random-init models saved as from the hub."""

from __future__ import annotations

import importlib
import importlib.metadata
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models gain nothing from threads, and SubprocVecEnv workers share the cores."""
    import torch as th

    th.set_num_threads(1)


@pytest.fixture(autouse=True)
def no_process_outlives_its_test() -> Iterator[None]:
    """Workers of a SubprocVecEnv that a test leaves open would stay after the tests, and hold their output open."""
    before = set(multiprocessing.active_children())
    yield
    for child in set(multiprocessing.active_children()) - before:
        child.kill()


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of tiny models by name, see ``lm_tools.MODELS``; read only."""
    from helpers.lm_tools import MODELS, save_model

    root = tmp_path_factory.mktemp("models")
    for name in MODELS:
        save_model(root / name, name)
    return {name: root / name for name in MODELS}


@pytest.fixture(scope="session")
def llama(tiny_models: dict[str, Path]) -> str:
    """The tiny Llama with a chat template."""
    return str(tiny_models["llama"])


@pytest.fixture(scope="session")
def real_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of SmolLM2-135M-Instruct, converted once for all tests."""
    from lmpolicy import models

    entry = models.find("smollm2-135m-instruct")
    assert entry is not None
    assert entry.package is not None
    try:
        importlib.metadata.distribution(entry.package.distribution)
        importlib.metadata.distribution("gguf")
    except importlib.metadata.PackageNotFoundError as error:
        pytest.skip(f"{error}; for the tests of a real model: {entry.package.remedy}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMPOLICY_CACHE", str(tmp_path_factory.mktemp("real")))
        return models.resolve(entry.name)


@pytest.fixture
def learning() -> ModuleType:
    """The command of the learning benchmark."""
    return importlib.import_module("benchmarks.learning.__main__")
