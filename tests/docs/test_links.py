"""Links between pages, to files and to headings lead somewhere, and a figure's file is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "lmpolicy/bundled/MODEL_CARD.md")]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    """A page without its code blocks, and with the pages that it includes."""
    text = page.read_text()
    included = re.findall(r"^```\{include\} (\S+)", text, flags=re.MULTILINE)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return "\n".join([text, *(text_of((page.parent / name).resolve()) for name in included)])


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for link in LINK.findall(text):
        if re.match(r"\w+://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        # The site's builder copies files that pages link to, and knows no folders.
        there = target.is_file() if (ROOT / "docs") in page.parents else target.exists()
        if not there or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_every_page_is_reached() -> None:
    """Each page of the site is in a table of contents, so that a reader finds it."""
    listed = set()
    for page in PAGES:
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE):
            names = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / f"{name}.md").resolve() for name in names}
    pages = {page for page in PAGES if (ROOT / "docs") in page.parents}
    assert pages - listed == {ROOT / "docs" / "index.md"}


def test_figures_name_their_file() -> None:
    """A section of results with a table of numbers says which file they are from."""
    for name in ("results.md", "speed.md"):
        text = (ROOT / "docs" / name).read_text()
        for section in re.split(r"^#{2,3} ", text, flags=re.MULTILINE)[1:]:
            if re.search(r"^\|.*\d", section, flags=re.MULTILINE):
                assert "benchmarks/results/" in section, section.splitlines()[0]
