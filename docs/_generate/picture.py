"""Draw the picture at the top of the README: an env, its words, and what the language model chooses.

``make pages`` writes it as ``docs/_static/words.svg``, from what ``python -m benchmarks.quick_start`` wrote about the
agent before and after its training. A test holds the file equal to what is written here.
"""

from __future__ import annotations

import re
import textwrap
from html import escape
from math import cos, radians, sin
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "benchmarks" / "results" / "quick_start.txt"
PICTURE = ROOT / "docs" / "_static" / "words.svg"
STATES = (1, 2, 4)
"""Which of the states in the file are shown."""
WIDTH, ROW, TOP = 960, 128, 62
STEEPER = 6
"""The lean is drawn so many times as large, or it could not be seen."""
INK, GREY, BLUE, LINE, PAPER = "#1a1a1a", "#6b6b6b", "#1f5fb4", "#d9d9d6", "#fdfdfb"
WORDS_AT, BARS_AT, BAR = 190, 590, 178
State = tuple[str, dict[str, float]]


def read(text: str) -> list[tuple[str, list[State]]]:
    """The parts of the file: heading, then words and probabilities of each state."""
    parts = []
    for part in text.strip().split("\n\n"):
        heading, *lines = part.splitlines()
        states = []
        for words, said in zip(lines[::2], lines[1::2], strict=True):
            pairs = re.findall(r"([a-z][a-z ]*) (\d\.\d+)", said)
            states.append((words, {phrase: float(probability) for phrase, probability in pairs}))
        parts.append((heading, states))
    return parts


def written(x: float, y: float, text: str, size: int = 14, colour: str = INK, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{colour}"{more}>{escape(text)}</text>'


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{colour}"/>'


def cart(words: str, y: float) -> list[str]:
    """The cart and its pole, as the words say."""
    lean = re.search(r"leans (left|right) ([\d.]+)", words)
    place = re.search(r"Cart is (left|right) ([\d.]+)", words)
    assert lean is not None
    assert place is not None
    angle, at = (float(found[2]) * (1 if found[1] == "right" else -1) for found in (lean, place))
    x, turn = 95 + at * 62 / 2.4, radians(angle * STEEPER)
    end = f'x2="{x + 52 * sin(turn):.1f}" y2="{y - 52 * cos(turn):.1f}"'
    return [
        f'<line x1="25" y1="{y + 9:g}" x2="165" y2="{y + 9:g}" stroke="{LINE}" stroke-width="2"/>',
        box(x - 15, y - 8, 30, 16, INK),
        f'<line x1="{x:.1f}" y1="{y - 4:g}" {end} stroke="#b08d57" stroke-width="6" stroke-linecap="round"/>',
    ]


def bars(name: str, state: State, y: float, colour: str) -> list[str]:
    """A bar for each phrase."""
    drawn = [written(BARS_AT, y + 11, name, 12, GREY)]
    for index, (phrase, probability) in enumerate(state[1].items()):
        at = y + 20 * index
        drawn += [
            written(BARS_AT + 52, at + 11, phrase, 13),
            box(BARS_AT + 132, at, BAR, 13, "#eeeeeb"),
            box(BARS_AT + 132, at, BAR * probability, 13, colour),
            written(BARS_AT + 132 + BAR + 8, at + 11, f"{probability:.2f}", 12),
        ]
    return drawn


def draw(text: str) -> str:
    """The picture.

    :param text: what the benchmark wrote.
    """
    (_, before), (after_heading, after) = read(text)
    steps = f"{int(re.sub(r'[^0-9]', '', after_heading)):,}".replace(",", " ")
    height = TOP + ROW * len(STATES) + 6
    title = f"CartPole as a language model reads it, and what it chooses before and after {steps} env steps of PPO"
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, DejaVu Sans, Helvetica, Arial, sans-serif">',
        f"<title>{escape(title)}</title>",
        box(0, 0, WIDTH, height, PAPER),
        written(25, 34, "the environment", 15, GREY),
        written(WORDS_AT, 34, "what the language model reads", 15, GREY),
        written(BARS_AT, 34, f"before and after {steps} env steps", 15, GREY),
    ]
    for row, index in enumerate(STATES):
        y = TOP + ROW * row
        words = before[index][0]
        drawn.append(f'<line x1="25" y1="{y - 8}" x2="{WIDTH - 25}" y2="{y - 8}" stroke="{LINE}"/>')
        drawn += cart(words, y + 84)
        lines = textwrap.wrap(words, 44)
        mono = ' font-family="ui-monospace, Menlo, DejaVu Sans Mono, Consolas, monospace"'
        drawn += [written(WORDS_AT, y + 34 + 22 * number, line, 14, INK, mono) for number, line in enumerate(lines)]
        drawn += bars("before", before[index], y + 14, "#9a9a96")
        drawn += bars("after", after[index], y + 64, BLUE)
    return "\n".join([*drawn, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(SOURCE.read_text()))
    print(PICTURE.relative_to(ROOT))
