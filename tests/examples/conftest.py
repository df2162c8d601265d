"""Examples as modules, and what they printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from types import ModuleType

import pytest
from helpers.examples import Finished, load, run


@pytest.fixture(scope="module", autouse=True)
def _games_are_made_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMPOLICY_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def example(request: pytest.FixtureRequest) -> ModuleType:
    """An example as a module, with a rollout and an update that take seconds."""
    return load(request.param)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Finished]:
    """Runs an example by its name, the first time that it is asked for."""

    @cache
    def run_once(name: str) -> Finished:
        module, folder, printed = load(name), tmp_path_factory.mktemp(name) / "new" / "folder", StringIO()
        with redirect_stdout(printed):
            run(module, folder)
        return Finished(module, folder / "1", printed.getvalue())

    return run_once
