"""Every figure of a result is in a committed file, or is known to be in none.

``tests/helpers/claims.py`` says how a page names the file of a figure. What no comment binds to a file is listed in
``figures_without_file.toml``, by page and section: settings, limits of an env, and results that no file holds.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path

import pytest
from helpers import claims
from helpers.source_code import ROOT

GUIDES = (
    "choose-a-way",
    "faq",
    "foreign-envs",
    "group-advantages",
    "macro-worlds",
    "models",
    "own-loop",
    "several-processes",
    "which-settings",
)
FINDINGS = ("grids-and-coins", "households", "thinking", "toy-text", "wordings")
PAGES = (
    "README.md",
    "docs/mutants.md",
    "docs/results.md",
    "docs/findings.md",
    *(f"docs/findings/{name}.md" for name in FINDINGS),
    "docs/speed.md",
    "docs/tuning.md",
    "lmpolicy/bundled/MODEL_CARD.md",
    *(f"docs/guide/{name}.md" for name in GUIDES),
)
BOUND = (*PAGES, "docs/trials.md")
"""Pages of which some figures name their file; of the last one, not all."""
LISTED = tomllib.loads((Path(__file__).parent / "figures_without_file.toml").read_text())
KINDS = {"no_result", "by_hand", "no_file"}


def read(page: str) -> list[claims.Block]:
    return claims.blocks(ROOT / page)


@pytest.mark.parametrize("page", BOUND)
def test_figures_are_those_of_their_files(page: str) -> None:
    wrong = [f"{block.section}: {line}" for block in read(page) for line in block.wrong]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES)
def test_every_figure_has_a_file_or_is_listed(page: str) -> None:
    """Name the file of a new figure in a comment, or list the figure; take a figure off the list that is gone."""
    left: dict[str, Counter[str]] = defaultdict(Counter)
    for block in read(page):
        left[block.section].update(block.left())
    listed = {section: Counter(chain(*lists.values())) for section, lists in LISTED[page].items()}
    for section in sorted({*left, *listed}):
        new, gone = left[section] - listed.get(section, Counter()), listed.get(section, Counter()) - left[section]
        assert not new, f"{page}, {section}: no file is named for {', '.join(new)}"
        assert not gone, f"{page}, {section}: not there any more, or with a file now: {', '.join(gone)}"


@pytest.mark.parametrize("page", PAGES)
def test_tables_that_another_test_compares(page: str) -> None:
    for block in read(page):
        named = claims.CHECKED.match(block.marker)
        if named:
            assert Path(page).name in (ROOT / named[1]).read_text()


def test_the_list_is_of_known_kinds() -> None:
    assert set(LISTED) == set(PAGES)
    assert {kind for sections in LISTED.values() for lists in sections.values() for kind in lists} <= KINDS


def test_most_figures_of_results_have_a_file() -> None:
    bound = sum(len(block.bound) for page in PAGES for block in read(page))
    without = sum(len(lists.get("no_file", [])) for sections in LISTED.values() for lists in sections.values())
    assert bound > 10 * without


PAGE = """
# Title

CartPole ends at {end} of 500 in {time} minutes. Without a file: 7.
<!-- from
numbers.csv [task=cartpole]: {end} = after
numbers.csv: {time} ~ max(minutes)
-->

<!-- table numbers.csv by task
after: {{after}} ({{minutes}})
share: {{share*100}} %
-->

| env | after | share | note |
|---|---|---|---|
| cartpole | {cell} | 25 % | 3, 4 |
| lake ᵃ | – (1.0) | | |

<!-- from
numbers.csv: 4 = sum(minutes)
-->
"""
FILE = "task,after,minutes,share\ncartpole,407.3,2.54,0.2512\nlake,not reached,1,0.5\n"


def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **figures: str) -> list[claims.Block]:
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    claims.read.cache_clear()
    (tmp_path / "numbers.csv").write_text(FILE)
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(**{"end": "407", "time": "2.6", "cell": "407.3 (2.5)", **figures}))
    found = claims.blocks(page)
    claims.read.cache_clear()
    return found


def test_what_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence, table = checked(tmp_path, monkeypatch)
    assert sentence.wrong == table.wrong == []
    assert sentence.left() == ["500", "7"]
    assert table.left() == ["3"]


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"end": "408"}, "408, but numbers.csv says after = 407.3"),
        ({"end": "407.4"}, "407.4, but numbers.csv says after = 407.3"),
        ({"time": "2.8"}, "2.8, but numbers.csv says max(minutes) = 2.54"),
        ({"cell": "407.3 (2.6)"}, "cartpole, after: 2.6, but numbers.csv says 2.54"),
        ({"cell": "– (2.5)"}, "cartpole, after: –, but numbers.csv says 407.3"),
        ({"cell": "407.3"}, "is not of the form '{after} ({minutes})'"),
    ],
)
def test_what_does_not(figures: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [line for block in checked(tmp_path, monkeypatch, **figures) for line in block.wrong]
    assert len(wrong) == 1
    assert message in wrong[0]


def test_numbers_of_a_text() -> None:
    text = "About 20 480 steps, 26,349 documents, -0.047 at SmolLM2-135M, v1, 1e-3, 95 % (3 of 5), 8 x 8, 500, 500."
    assert claims.NUMBER.findall(claims.plain(text)) == [
        *("20 480", "26,349", "-0.047", "95", "3", "5", "8", "8", "500", "500")
    ]


def test_rounding() -> None:
    assert claims.agrees("0.07", 0.075)
    assert claims.agrees("0.08", 0.075)
    assert not claims.agrees("0.07", 0.0751)
    assert claims.agrees("20 480", 20480.0)
    assert claims.agrees("–", None)
    assert not claims.agrees("3", None)
