"""A quick comparison for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.quick_comparison import QUICK, SMALL, settings

from lmpolicy.comparison import comparing
from lmpolicy.comparison.comparing import compare


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Compare quickly; ``run.cells`` lists the cells that were run."""
    started: list[str] = []
    plain = comparing.run_here

    def run_here(cells: Any, done: Any) -> None:
        started.extend(map(str, cells))
        plain(cells, done)

    monkeypatch.setattr(comparing, "run_here", run_here)

    def run(env: Any = None, **arguments: Any) -> Any:
        started.clear()
        given = {"seeds": [0], "classic": SMALL, "folder": tmp_path / "found", **QUICK, **arguments}
        return compare(settings() if env is None else env, **given)

    run.cells = started  # type: ignore[attr-defined]
    return run
