"""Blocks of a page that show what the code above them prints.

``python tests/helpers/shown_outputs.py docs/guide/foreign-envs.md`` writes them anew.
"""

from __future__ import annotations

import re
import sys
import textwrap
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

SHOWN = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
"""Code, and what it prints."""
SECTION = re.compile(r"^## (.*)$", flags=re.MULTILINE)
WIDTH = 100


def shown(page: str) -> list[tuple[str, str, str]]:
    """The section, the code and the output of each pair of blocks."""
    heads = [(match.start(), match[1]) for match in SECTION.finditer(page)]
    found = []
    for match in SHOWN.finditer(page):
        section = [name for start, name in heads if start < match.start()][-1]
        found.append((section, match[1], match[2]))
    return found


def printed(code: str, namespace: dict[str, Any] | None = None) -> str:
    """What a block of code prints."""
    out = StringIO()
    with redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        exec(compile(code, "block", "exec"), {"__name__": "__main__"} if namespace is None else namespace)
    return out.getvalue()


def wrapped(text: str) -> str:
    """The text as a page shows it."""
    lines = (
        textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False) or [""] for line in text.splitlines()
    )
    return "".join(f"{line}\n" for group in lines for line in group)


def rewrite(path: Path) -> None:
    """Run the blocks of a page, and write what they print."""
    text = path.read_text()
    for _, code, output in shown(text):
        before = f"```python\n{code}```\n\n```text\n"
        text = text.replace(f"{before}{output}```", f"{before}{wrapped(printed(code))}```")
    path.write_text(text)


if __name__ == "__main__":
    rewrite(Path(sys.argv[1]))
