"""The layers of the code: who may import whom, what stays light, and how long files and functions get."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.source_code import (
    ROOT,
    Sources,
    find_circle,
    function_lengths,
    imports_of,
    lies_in,
    own_imports,
    read_sources,
)

MAX_ROOT_FILES = 8
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 45
LAYERS: dict[str, Sequence[str]] = {
    "lmpolicy.bundled": (),
    "lmpolicy.cache": (),
    "lmpolicy.starting": (),
    "lmpolicy.files": (),
    "lmpolicy.models": ("lmpolicy.bundled", "lmpolicy.cache"),
    "lmpolicy.text": ("lmpolicy.models",),
    "lmpolicy.envs": ("lmpolicy.text", "lmpolicy.bundled", "lmpolicy.cache"),
    "lmpolicy.wrapper": ("lmpolicy.text", "lmpolicy.envs"),
    "lmpolicy.lm": ("lmpolicy.text.prompt", "lmpolicy.text.spaces", "lmpolicy.models", "lmpolicy.files"),
    "lmpolicy.learners": (),
    "lmpolicy.policy": ("lmpolicy.lm", "lmpolicy.learners", "lmpolicy.text"),
    "lmpolicy.training": (
        "lmpolicy.text",
        "lmpolicy.envs",
        "lmpolicy.wrapper",
        "lmpolicy.lm",
        "lmpolicy.learners",
        "lmpolicy.policy",
        "lmpolicy.models",
        "lmpolicy.bundled",
        "lmpolicy.files",
    ),
}
"""What each layer may import of the project, besides itself."""
TOP = (
    "lmpolicy.pretraining",
    "lmpolicy.comparison",
    "lmpolicy.report",
    "lmpolicy.sharing",
    "lmpolicy.cli",
    "lmpolicy.__main__",
)
"""May import all of the package; no layer imports these."""
OUTSIDE = ("benchmarks", "examples", "tests", "helpers")
"""May import everything; what users install imports none of it."""
LIGHT = ("lmpolicy.models", "lmpolicy.text", "lmpolicy.envs", "lmpolicy.wrapper")
"""Layers that workers of a vectorised env import; see :data:`HEAVY`."""
HEAVY = frozenset({"torch", "transformers", "stable_baselines3", "peft", "tokenizers"})
"""Packages that take seconds and hundreds of megabytes to import; one worker per env pays for each."""
LM_OF_SB3 = "stable_baselines3.common.distributions"
"""The only module of Stable-Baselines3 for ``lmpolicy.lm``, which knows neither learners nor envs."""


def layer_of(module: str) -> str | None:
    """The layer that a module belongs to."""
    return next((layer for layer in (*LAYERS, *TOP, *OUTSIDE) if lies_in(module, layer)), None)


def forbidden_imports(sources: Sources) -> list[str]:
    """Imports that the table of layers does not allow."""
    found = []
    for module in sources:
        layer = layer_of(module)
        if layer is None or layer in OUTSIDE:
            continue
        allowed = (layer, *LAYERS[layer]) if layer in LAYERS else ("lmpolicy",)
        for target, one in own_imports(module, sources):
            if not any(lies_in(target, package) for package in allowed):
                found.append(f"{module}:{one.line} imports {target}")
    return found


def learner_imports(sources: Sources) -> list[str]:
    """Imports of Stable-Baselines3 in ``lmpolicy.lm`` beyond its distributions."""
    return [
        f"{module}:{one.line} imports {one.target}"
        for module in sources
        if lies_in(module, "lmpolicy.lm")
        for one in imports_of(module, sources)
        if lies_in(one.target, "stable_baselines3") and not lies_in(one.target, LM_OF_SB3)
    ]


def heavy_imports(sources: Sources) -> list[str]:
    """Imports of heavy packages that light layers make when they are imported."""
    return [
        f"{module}:{one.line} imports {one.target}"
        for module in sources
        if layer_of(module) in LIGHT
        for one in imports_of(module, sources)
        if one.when == "module" and one.target.split(".")[0] in HEAVY
    ]


def long_functions(sources: Sources) -> list[str]:
    """Functions of the package that are longer than they may be."""
    return [
        f"{module}.{name}: {lines} lines of code"
        for module, source in sources.items()
        if lies_in(module, "lmpolicy")
        for name, lines in function_lengths(source).items()
        if lines > MAX_FUNCTION_LINES
    ]


def long_files(sources: Sources) -> list[str]:
    """Files of the package that are longer than they may be."""
    lengths = {module: len(source.splitlines()) for module, source in sources.items() if lies_in(module, "lmpolicy")}
    return [f"{module}: {lines} lines" for module, lines in lengths.items() if lines > MAX_FILE_LINES]


@pytest.fixture(scope="module")
def project() -> Sources:
    return read_sources()


# The project


def test_all_code_is_read(project: Sources) -> None:
    assert {"lmpolicy", "lmpolicy.wrapper", "lmpolicy.envs", "lmpolicy.envs.cart_pole", "examples.cartpole"} <= {
        *project
    }
    assert any(lies_in(module, "benchmarks") for module in project)


def test_every_module_has_a_layer(project: Sources) -> None:
    strangers = [module for module in project if layer_of(module) is None and module != "lmpolicy"]
    assert strangers == [], "name the layer of new folders, and what it may import, in LAYERS or TOP"


def test_imports_go_down_only(project: Sources) -> None:
    found = forbidden_imports(project)
    assert not found, "\n".join(found)


def test_no_modules_import_each_other_in_a_circle(project: Sources) -> None:
    circle = find_circle(project)
    assert not circle, " imports ".join(circle)


def test_the_language_model_knows_no_learner(project: Sources) -> None:
    found = learner_imports(project)
    assert not found, "\n".join(found)


def test_env_workers_import_nothing_heavy(project: Sources) -> None:
    found = heavy_imports(project)
    assert not found, "\n".join(found)


def test_few_files_at_the_root(project: Sources) -> None:
    files = sorted(path.name for path in (ROOT / "lmpolicy").glob("*.py"))
    assert len(files) <= MAX_ROOT_FILES, files


def test_functions_are_short(project: Sources) -> None:
    found = long_functions(project)
    assert not found, "\n".join(found)


def test_files_are_short(project: Sources) -> None:
    found = long_files(project)
    assert not found, "\n".join(found)


def test_every_system_can_have_the_names_of_files() -> None:
    folders = ("lmpolicy", "envs", "examples", "tests", "benchmarks")
    paths = [path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*")]
    assert len(paths) > 1_000
    assert not [path for path in paths if set('"<>:|?*\\') & set(path)], "Windows refuses them"


# The rules can fail: each on a few lines of code that break it


def package(**modules: str) -> dict[str, str]:
    """A package of small modules; the dots in their names are written as ``__``."""
    names = ("bundled", "models", "text", "envs", "lm", "training")
    folders = ("lmpolicy", *(f"lmpolicy.{name}" for name in names))
    known = dict.fromkeys((*folders, "lmpolicy.wrapper", "lmpolicy.policy"), "")
    return {**known, **{name.replace("__", "."): source for name, source in modules.items()}}


@pytest.mark.parametrize(
    ("module", "source", "is_allowed"),
    [
        ("lmpolicy.text.task", "import numpy", True),
        ("lmpolicy.text.task", "from lmpolicy.text.prompt import Prompt", True),
        ("lmpolicy.text.task", "from .prompt import Prompt", True),
        ("lmpolicy.text.task", "from lmpolicy.models import find", True),
        ("lmpolicy.text.task", "from lmpolicy.envs import task_for", False),
        ("lmpolicy.text.task", "from ..envs import task_for", False),
        ("lmpolicy.text.task", "from lmpolicy import wrapper", False),
        ("lmpolicy.text.task", "from lmpolicy import Prompt", False),
        ("lmpolicy.text.task", "def f():\n    if 1:\n        import lmpolicy.policy", False),
        ("lmpolicy.text.task", "class C:\n    from lmpolicy.policy import X", False),
        (
            "lmpolicy.text.task",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lmpolicy.policy",
            False,
        ),
        ("lmpolicy.bundled", "from lmpolicy.text.prompt import Prompt", False),
        ("lmpolicy.models.names", "from lmpolicy.bundled import BUNDLED", True),
        ("lmpolicy.models.names", "from lmpolicy.lm.settings import PolicySettings", False),
        ("lmpolicy.envs.textworld", "from lmpolicy.models import find", False),
        ("lmpolicy.envs.taxi", "from lmpolicy.text.task import TextTask", True),
        ("lmpolicy.envs.taxi", "from lmpolicy.envs import words", True),
        ("lmpolicy.envs.taxi", "from envs import words", False),
        ("lmpolicy.envs.taxi", "from lmpolicy.wrapper import X", False),
        ("lmpolicy.wrapper", "from lmpolicy.envs import task_for", True),
        ("lmpolicy.wrapper", "from lmpolicy.lm import trie", False),
        ("lmpolicy.lm.trie", "from lmpolicy.text.prompt import Prompt", True),
        ("lmpolicy.lm.trie", "from lmpolicy.text import prompt", True),
        ("lmpolicy.lm.trie", "from lmpolicy.text.task import TextTask", False),
        ("lmpolicy.lm.trie", "from lmpolicy.text import task", False),
        ("lmpolicy.policy", "from lmpolicy.lm.trie import Trie", True),
        ("lmpolicy.policy", "from lmpolicy.training import callbacks", False),
        ("lmpolicy.training.callbacks", "from lmpolicy.policy import X", True),
        ("lmpolicy.training.callbacks", "from lmpolicy.pretraining import corpus", False),
        ("lmpolicy.training.callbacks", "from lmpolicy.report import page", False),
        ("lmpolicy.training.callbacks", "import benchmarks.learning", False),
        ("lmpolicy.pretraining.corpus", "from lmpolicy.training import callbacks", True),
        ("lmpolicy.pretraining.corpus", "from lmpolicy import Prompt", True),
        ("lmpolicy.pretraining.corpus", "import examples.cartpole", False),
        ("lmpolicy", "from lmpolicy.training.callbacks import X", True),
        ("benchmarks.speed", "from lmpolicy.pretraining import corpus\nimport examples.cartpole", True),
    ],
)
def test_the_table_tells_right_from_wrong(module: str, source: str, is_allowed: bool) -> None:
    modules = package(lmpolicy__text__prompt="", lmpolicy__text__task="", lmpolicy__pretraining__corpus="")
    assert (forbidden_imports({**modules, module: source}) == []) is is_allowed


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("import lmpolicy.lm.b", "import lmpolicy.lm.a"),
        ("from . import b", "from .a import X"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lmpolicy.lm.b import X", "from . import a"),
        ("def f():\n    from lmpolicy.lm.b import X", "from lmpolicy.lm import a"),
    ],
)
def test_a_circle_is_found(first: str, second: str) -> None:
    modules = package(lmpolicy__lm__a=first, lmpolicy__lm__b=second)
    assert set(find_circle(modules)) == {"lmpolicy.lm.a", "lmpolicy.lm.b"}
    assert find_circle({**modules, "lmpolicy.lm.b": ""}) == []


def test_a_circle_of_scripts_is_found() -> None:
    modules = {"benchmarks.speed": "from _tables import X", "benchmarks._tables": "import speed"}
    assert set(find_circle(modules)) == set(modules)
    packages = {"lmpolicy.envs.speed": "from _tables import X", "lmpolicy.envs._tables": "import speed"}
    assert find_circle(packages) == []  # another package of that name


@pytest.mark.parametrize(
    ("source", "is_allowed"),
    [
        (f"from {LM_OF_SB3} import CategoricalDistribution", True),
        ("from stable_baselines3.common import distributions", True),
        ("from stable_baselines3.common.base_class import BaseAlgorithm", False),
        ("import stable_baselines3", False),
        ("def f():\n    from stable_baselines3 import PPO", False),
    ],
)
def test_a_learner_in_the_language_model_is_found(source: str, is_allowed: bool) -> None:
    assert (learner_imports(package(lmpolicy__lm__guard=source)) == []) is is_allowed
    assert learner_imports(package(lmpolicy__policy=source)) == []


@pytest.mark.parametrize(
    ("source", "is_allowed"),
    [
        ("import torch as th", False),
        ("try:\n    from transformers import AutoTokenizer\nexcept ImportError:\n    pass", False),
        ("def f():\n    import torch", True),
        ("import typing\nif typing.TYPE_CHECKING:\n    import torch\n", True),
        ("import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    import torch", False),
        ("import torchless", True),
    ],
)
def test_a_heavy_import_is_found(source: str, is_allowed: bool) -> None:
    for module in ("lmpolicy.text.task", "lmpolicy.envs.taxi", "lmpolicy.wrapper"):
        assert (heavy_imports({module: source}) == []) is is_allowed
    assert heavy_imports({"lmpolicy.policy": source}) == []


def test_lines_of_code_are_counted() -> None:
    source = '''
class C:
    """Of a class."""

    @property
    def one(self):  # 1
        """Over two
        lines."""
        # a comment

        text = """2
        # 3, no comment

        5"""

        def inner(  # 6
            a,  # 7
        ):
            return a  # 9

        return text  # 10
'''
    assert function_lengths(source) == {"C.one": 10, "C.one.inner": 4}


def test_long_code_is_found() -> None:
    longest = "def f():\n" + "    pass\n" * (MAX_FUNCTION_LINES - 1)
    longest_file = "x = 1\n" * MAX_FILE_LINES
    for source, extra, rule in ((longest, "    pass\n", long_functions), (longest_file, "x = 1\n", long_files)):
        for module in ("lmpolicy.policy", "lmpolicy.envs.taxi"):
            assert rule({module: source}) == []
            assert len(rule({module: source + extra})) == 1
        assert rule({"benchmarks.speed": source + extra}) == []


def test_names_of_modules(tmp_path: Path) -> None:
    for path in ("lmpolicy/__init__.py", "lmpolicy/lm/trie.py", "envs/__init__.py", "envs/taxi.py", "examples/a.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    names = {"lmpolicy", "lmpolicy.lm.trie", "lmpolicy.envs", "lmpolicy.envs.taxi", "examples.a"}
    assert set(read_sources(tmp_path)) == names
