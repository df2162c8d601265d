"""Which edits of one's own code are told, and that nothing else is."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import pytest

from benchmarks.learning.tasks import BY_NAME, experiment
from lmpolicy import TextTask
from lmpolicy.comparison.fingerprints import describe
from lmpolicy.comparison.sources import own_code

CODE = '''
"""A module."""
import functools
import gymnasium as gym

def make(length=7):
    """Make it."""
    return gym.make("CartPole-v1", max_episode_steps=length)  # remark

class Base:
    def act(self, seen):
        return seen > 0

class Rule(Base):
    """A rule."""
    limit = 3
    ways = {"up": (1, len), "down": [2, lambda: 5]}
    other = Base()

    def predict(self, seen):
        return seen > self.limit

    @property
    def name(self):
        return "rule"

    @functools.cached_property
    def age(self):
        return 7

    @staticmethod
    def helper():
        return 1

def factory(env, seed):
    return Rule()

def around(steps):
    return lambda: gym.make("CartPole-v1", max_episode_steps=steps)

made = around(20)
one, other = lambda: 1, lambda: (lambda: 2)
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that writes one's own module with its edits, and imports it."""
    numbers = iter(range(99))

    def load(*edits: tuple[str, str]) -> ModuleType:
        code = CODE
        for before, after in edits:
            assert before in code
            code = code.replace(before, after, 1)
        name = f"own_module_{next(numbers)}"
        path = tmp_path / f"{name}.py"
        path.write_text(code)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return load


NAMES = ("make", "Rule", "factory", "made", "one", "other")


@pytest.mark.parametrize(
    ("edit", "changed"),
    [
        (("length=7", "length=8"), {"make"}),
        (("> self.limit", "< self.limit"), {"Rule", "factory"}),
        (("limit = 3", "limit = 4"), {"Rule", "factory"}),
        (('return "rule"', 'return "other"'), {"Rule", "factory"}),
        (("return 7", "return 8"), {"Rule", "factory"}),
        (("return 1", "return 2"), {"Rule", "factory"}),
        (("seen > 0", "seen < 0"), {"Rule", "factory"}),  # of its base
        (("(1, len)", "(3, len)"), {"Rule", "factory"}),
        (("return Rule()", "return Base()"), {"factory"}),
        (("around(20)", "around(21)"), {"made"}),
        (("lambda: 1,", "lambda: 3,"), {"one"}),
        (("lambda: 2", "lambda: 4"), {"other"}),
        (('"""Make it."""', '"""Make the env."""'), set()),
        (("# remark", "# another"), set()),
        (("import functools", "import functools\n\n\n"), set()),
        (("limit = 3", "limit = 3  # of all"), set()),
    ],
)
def test_edits_that_are_told(module: Any, edit: tuple[str, str], changed: set[str]) -> None:
    before, after = module(), module(edit)
    assert {name for name in NAMES if own_code(getattr(before, name)) != own_code(getattr(after, name))} == changed
    assert all(own_code(getattr(before, name)) for name in NAMES)


def test_the_same_code_in_another_process_is_the_same(module: Any) -> None:
    """No address in the memory is told, nor what Python notes of a class when it copies an instance."""
    one = module()
    before = own_code(one.Rule)
    copy.copy(one.Rule())
    pickle.dumps(one.Rule())
    assert "__slotnames__" in vars(one.Rule)
    assert own_code(one.Rule) == before
    assert [own_code(getattr(module(), name)) for name in NAMES] == [
        own_code(getattr(module(), name)) for name in NAMES
    ]


def test_code_whose_text_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As at a prompt: the compiled code tells."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))

    def made(text: str) -> Any:
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(text, space)
        return space["one"]

    assert own_code(made("def one(): return 1")) == own_code(made("def one(): return 1"))
    assert own_code(made("def one(): return 1")) != own_code(made("def one(): return 2"))
    assert own_code(made("one = lambda: [i for i in 'a']")) != own_code(made("one = lambda: [i for i in 'b']"))


def test_code_of_packages_is_not_told() -> None:
    """Their versions tell; and results that are there stay known."""
    assert [own_code(one) for one in (gym.make, gym.Env, TextTask, TextTask.bind, dict, print, partial)] == [None] * 7
    for task in BY_NAME.values():
        what = experiment(task)
        assert own_code(type(what.settings.task)) is None
        assert own_code(what.settings.training_wrapper) is None


def test_settings_tell_own_code(module: Any) -> None:
    before, after = module(), module(("seen > self.limit", "seen < self.limit"))
    after.Rule.__module__ = before.Rule.__module__
    assert describe(before.Rule) != describe(after.Rule)
    assert describe({"rule": before.Rule()}) != describe({"rule": after.Rule()})
    assert describe(partial(before.make, 3)) != describe(partial(module(("length=7", "length=8")).make, 3))
    assert describe(before.Rule().predict) != describe(after.Rule().predict)
