"""The page on environments of other packages shows what its code prints, and how many tokens that is."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.shown_outputs import WIDTH, printed, shown, wrapped

import lmpolicy
from lmpolicy.text.tokenizer import load_tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "foreign-envs.md"
TEXT = PAGE.read_text()
BLOCKS = shown(TEXT)
NEEDS = {
    "highway-env": ("highway_env", "highway"),
    "Atari games": ("ale_py", "atari"),
    "MuJoCo": ("mujoco", "mujoco"),
    "PettingZoo": ("pettingzoo", "pettingzoo"),
    "TextWorldExpress": ("textworld_express", "textworld-express"),
    "ScienceWorld": ("scienceworld", "scienceworld"),
}
"""The module and the extra of each section."""
TOKENS = {name: int(count) for name, count in re.findall(r"^\| \[(.*?)\]\(.*\| (\d+) \|$", TEXT, re.MULTILINE)}

FIRST = {
    (section, code)
    for section, code in {section: code for section, code, _ in reversed(BLOCKS)}.items()
    if section in TOKENS
}
"""The first block of each package, whose tokens the page counts."""


def needs(section: str) -> None:
    """Skip where the package of a section is missing."""
    if section not in NEEDS:
        return
    module, extra = NEEDS[section]
    pytest.importorskip(module, reason=f'needs: pip install "lmpolicy[{extra}]"')
    if extra in ("textworld-express", "scienceworld") and shutil.which("java") is None:
        pytest.skip("needs Java: install a Java runtime, so that java is on the path")


def test_every_package_has_a_section_and_a_number() -> None:
    assert set(TOKENS) == set(NEEDS) <= {section for section, _, _ in BLOCKS}
    assert len(BLOCKS) == TEXT.count("```python") == TEXT.count("```text")


@pytest.mark.parametrize(("section", "code", "output"), BLOCKS, ids=lambda one: one[:20] if "\n" not in one else "")
@pytest.mark.filterwarnings("ignore:.*out of date", "ignore:.*settotalmass")
def test_the_page_shows_what_the_code_prints(section: str, code: str, output: str) -> None:
    needs(section)
    if "render_mode" in code and importlib.util.find_spec("pygame") is None:
        pytest.skip('needs: pip install "lmpolicy[examples]"')
    namespace: dict[str, Any] = {"__name__": "__main__"}
    assert wrapped(printed(code, namespace)) == output
    assert max(map(len, output.splitlines())) <= WIDTH
    if (section, code) in FIRST:
        env = namespace["env"]
        assert isinstance(env, lmpolicy.TextObservationWrapper)
        tokenizer = load_tokenizer(None)
        assert TOKENS[section] == len(tokenizer(env.prompt.messages[-1][1])["input_ids"])
