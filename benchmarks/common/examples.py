"""Load the examples as modules, so that benchmarks measure what the examples train with."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "examples"


@cache
def load_example(name: str) -> ModuleType:
    """Load ``examples/NAME.py`` as a module.

    :param name: name of the example, without ``.py``.
    """
    spec = importlib.util.spec_from_file_location(f"{name}_example", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
