"""The page in a real browser: it loads from the disk, its controls work, and hostile text stays text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.shown_runs import HOSTILE, episode, turn, write_run

import lmpolicy
from benchmarks.common.browser import Browser, browser, find_chromium
from lmpolicy.comparison.figures import spans_magnitudes
from lmpolicy.report.pictures import picture_of

np = pytest.importorskip("numpy")
SHOWN = "document.querySelector('#episodes .pane:nth-child({}) {}').textContent"


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium or Chrome is installed: apt-get install chromium")
    with browser(executable) as opened:
        opened.look(1280, 900)
        yield opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: one with pictures, advantages and answers, and one with the plainest turns."""
    root = tmp_path_factory.mktemp("runs")
    squares = [picture_of(np.full((20, 30, 3), 10 * place, np.uint8)) for place in range(5)]
    first = [turn(place, env_step=500, picture=squares[place], advantage=place / 4) for place in range(5)]
    answers = [
        turn(0, episode=1, env_step=1500, probabilities={}, answer="I go right", parse_error=False, clipped=False),
        turn(1, episode=1, env_step=1500, probabilities={}, answer="No idea", parse_error=True, clipped=False),
        turn(2, episode=1, env_step=1500, probabilities={}, answer="9", parse_error=False, clipped=True),
    ]
    write_run(root / "one", [first, answers])
    write_run(root / "two", [episode(3), episode(4, 1, env_step=2500)])
    lmpolicy.write_report(root / "one")
    lmpolicy.write_report([root / "one", root / "two"], root / "two.html")
    return root


def opened(tab: Browser, path: Path) -> None:
    """Open a page, which must not say or ask for anything."""
    tab.open(path)
    assert tab.run("document.documentElement.dataset.ready") == "true"
    assert tab.errors == []
    assert [one for one in tab.requests if not one.startswith(("file:", "data:"))] == []


def shown(tab: Browser, what: str, pane: int = 1) -> str:
    return tab.run(SHOWN.format(pane, what))


def slide(tab: Browser, place: int, value: int, pane: int = 1) -> None:
    """Move a slider as a person does: its value changes, and it says so."""
    tab.run(
        f"(() => {{ const pane = document.querySelector('#episodes .pane:nth-child({pane})');"
        f"const one = pane.querySelectorAll('input[type=range]')[{place}];"
        f"one.value = {value}; one.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
    )


def test_sliders_show_every_turn(tab: Browser, folder: Path) -> None:
    opened(tab, folder / "one" / "report.html")
    slide(tab, 0, 0)
    assert "1 of 2 · at 500 env steps · return 5 · 5 turns · most likely actions" in shown(tab, ".slide output")
    for place in (0, 3, 4):
        slide(tab, 1, place)
        assert shown(tab, ".message.now pre") == f"state {place}"
        assert shown(tab, ".bars").replace("✓", "") == "left25.0%right75.0%"
        assert shown(tab, ".bars .taken .phrase").startswith("right")
        facts = shown(tab, ".facts")
        assert f"Advantage{place / 4:g}" in facts
        assert f"Return so far{place + 1}" in facts
        assert f"Value{2 - place}".replace("-", "\u2212") in facts
    widths = tab.run("[...document.querySelectorAll('#episodes .bars .fill')].map((one) => one.style.width)")
    assert widths == ["25%", "75%"]
    picture = "document.querySelector('#episodes .picture')"
    assert tab.run(f"{picture}.decode().then(() => {picture}.naturalWidth)") == 30
    assert tab.errors == []


def test_written_answers_and_how_they_were_read(tab: Browser, folder: Path) -> None:
    opened(tab, folder / "one" / "report.html")
    for place, (answer, read) in enumerate(
        [
            ("I go right", "Taken: “right”."),
            ("No idea", "It names no legal action. The env was given “right”."),
            ("9", "A number was out of bounds, and was clipped. Taken: “right”."),
        ]
    ):
        slide(tab, 1, place)
        assert shown(tab, ".turn > div:nth-child(2) pre") == answer
        assert f"How it was read{read}" in shown(tab, ".facts")
    assert tab.run("document.querySelector('#episodes .picture').hidden") is True


def test_keyboard(tab: Browser, folder: Path) -> None:
    opened(tab, folder / "one" / "report.html")
    tab.press("ArrowRight")
    assert shown(tab, ".message.now pre") == "state 1"
    tab.press("ArrowLeft")
    assert shown(tab, ".message.now pre") == "state 0"
    tab.press("ArrowLeft")
    assert shown(tab, ".message.now pre") == "state 0"
    tab.press("ArrowLeft", shift=True)
    assert shown(tab, ".slide output").startswith("1 of 2")
    tab.run("document.querySelectorAll('#episodes input[type=range]')[1].focus()")
    tab.press("End")
    assert shown(tab, ".message.now pre") == "state 4"
    assert tab.run("document.activeElement.getAttribute('aria-valuetext')") == "5 of 5"
    tab.press("ArrowLeft")
    assert shown(tab, ".message.now pre") == "state 3"  # once, by the slider itself
    reached = []
    for _ in range(40):
        tab.press("Tab")
        reached.append(
            tab.run("document.activeElement.tagName + ' ' + document.activeElement.textContent.slice(0, 12)")
        )
    assert {"SUMMARY The same as ", "BUTTON Play", "BUTTON ›"} <= set(reached)


def test_play_goes_on_by_itself(tab: Browser, folder: Path) -> None:
    opened(tab, folder / "one" / "report.html")
    ended = tab.run(
        "new Promise((done) => { const play = document.querySelector('#episodes button.wide'); play.click();"
        "const seen = [play.textContent]; new MutationObserver(() => { seen.push(play.textContent); done(seen); })"
        ".observe(play, { childList: true }); })"
    )
    assert ended == ["Pause", "Play"]
    assert shown(tab, ".slide:nth-of-type(2) output") == "3 of 3"


def test_the_same_prompts_over_the_training(tab: Browser, folder: Path) -> None:
    opened(tab, folder / "one" / "report.html")
    texts = []
    for place in range(3):
        tab.run(
            "(() => { const one = document.querySelectorAll('#prompts input[type=range]')[1];"
            f"one.value = {place}; one.dispatchEvent(new Event('input')); }})()"
        )
        texts.append(tab.run("document.querySelector('#prompts .slide:nth-of-type(2) output').textContent"))
        assert f"right{50 + 25 * place}.0%" in tab.run("document.querySelector('#prompts .bars').textContent").replace(
            "✓", ""
        )
    assert texts == ["0 env steps", "1,000 env steps", "2,000 env steps"]
    assert tab.run("document.querySelectorAll('#prompts .over path').length") == 2


def test_two_runs_move_together_until_told_otherwise(tab: Browser, folder: Path) -> None:
    opened(tab, folder / "two.html")
    assert [shown(tab, "h3", pane) for pane in (1, 2)] == ["one", "two"]
    slide(tab, 1, 2)
    assert [shown(tab, ".message.now pre", pane) for pane in (1, 2)] == ["state 2"] * 2
    slide(tab, 0, 0, pane=2)
    assert shown(tab, ".slide output").startswith("1 of 2")  # the episode nearest in env steps
    tab.run("document.getElementById('together').click()")
    slide(tab, 1, 1, pane=2)
    assert [shown(tab, ".message.now pre", pane) for pane in (1, 2)] == ["state 0", "state 1"]
    assert tab.run("document.querySelectorAll('#curves .charts figure:first-child .curve').length") == 2


def test_curves(tab: Browser, folder: Path) -> None:
    opened(tab, folder / "one" / "report.html")
    names = tab.run("[...document.querySelectorAll('#curves figcaption > span')].map((one) => one.textContent)")
    assert names == ["Return per episode", "Entropy, nats"]
    label = tab.run("document.querySelector('#curves svg').getAttribute('aria-label')")
    assert label == "Return per episode over env steps. one: from 1 to 3."
    path = tab.run("document.querySelector('#curves .curve').getAttribute('d')")
    numbers = [tuple(map(float, point.split())) for point in path[1:].split("L")]
    assert numbers[1][0] - numbers[0][0] == pytest.approx(numbers[2][0] - numbers[1][0], abs=0.11)  # even steps
    assert numbers[0][1] > numbers[1][1] > numbers[2][1]  # a return that grows
    slide(tab, 0, 0)
    assert tab.run("document.querySelector('#curves output').textContent") == "1"  # where that episode was played
    tab.run("document.querySelectorAll('#curves summary').forEach((one) => one.click())")
    table = "document.querySelector('#curves table')"
    assert tab.run(f"new Promise((done) => setTimeout(() => done({table} && {table}.rows.length)))") == 3


@pytest.mark.parametrize(
    ("returns", "ticks"),
    [
        ([-19_800.0, -150.0, -13.0], ["\u221210k", "\u22121,000", "\u2212100"]),  # the cliff
        ([-200.0, -20.0, 8.0], ["\u2212100", "\u221210", "0"]),  # Taxi
        ([-500.0, -300.0, -70.0], ["\u2212400", "\u2212200"]),  # of one magnitude: a linear axis
    ],
)
def test_returns_of_several_magnitudes_have_a_logarithmic_axis(
    tab: Browser, tmp_path: Path, returns: list[float], ticks: list[str]
) -> None:
    run = write_run(tmp_path, [episode(2)], {"rollout/ep_rew_mean": returns})
    opened(tab, lmpolicy.write_report(run))
    wide = spans_magnitudes(returns)
    first = "document.querySelector('#curves .charts figure')"
    assert (tab.run(f"{first}.querySelector('span').textContent") == "Return per episode, logarithmic") is wide
    assert ("logarithmic axis" in tab.run(f"{first}.querySelector('svg').getAttribute('aria-label')")) is wide
    *numbers, _ = tab.run(f"[...{first}.querySelectorAll('text[text-anchor=end]')].map((one) => one.textContent)")
    assert numbers == ticks  # the last one is of env steps
    path = tab.run(f"{first}.querySelector('.curve').getAttribute('d')")
    drawn = [float(point.split()[1]) for point in path[1:].split("L")]
    assert drawn[0] == pytest.approx(148, abs=0.2)  # the worst at the bottom, the best at the top
    assert drawn[2] == pytest.approx(10, abs=0.2)
    lefts = tab.run(f"[...{first}.querySelectorAll('text')].map((one) => one.getBBox().x)")
    assert min(lefts) >= 0  # no number is cut off


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_nothing_overflows_and_all_text_can_be_read(tab: Browser, folder: Path, width: int, dark: bool) -> None:
    tab.look(width, 844, dark, phone=width < 500)
    try:
        opened(tab, folder / "two.html")
        assert tab.run("document.documentElement.scrollWidth") <= width
        contrasts = tab.run(CONTRASTS)
        assert len(contrasts) > 40
        assert min(contrasts) >= 4.5  # AA of WCAG 2
    finally:
        tab.look(1280, 900)


CONTRASTS = """
(() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((one) => one / 255)
      .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const one of document.querySelectorAll("body *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.getClientRects().length || one.disabled || ["SCRIPT", "NOSCRIPT"].includes(one.tagName)) continue;
    const style = getComputedStyle(one);
    const [a, b] = [light(one instanceof SVGElement ? style.fill : style.color), light(behind(one))];
    found.push((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return found;
})()
"""


def test_hostile_text_is_inert(tab: Browser, tmp_path: Path) -> None:
    messages = [{"role": role, "content": HOSTILE} for role in ("system", "user", "assistant", "user")]
    known: dict[str, Any] = {"messages": messages, "probabilities": {HOSTILE: 1.0, "b": 0.0}, "action": HOSTILE}
    turns = [turn(place, answer=HOSTILE, parse_error=True, env_id=HOSTILE, **known) for place in range(2)]
    run = write_run(tmp_path / "run", [turns], {"<img src=x onerror=window.hacked=1>": [1.0, 2.0, 3.0]})
    said = [turn(0, env_step=step, episode=None, answer=HOSTILE, **known) for step in (0, 1)]
    (run / "prompts.jsonl").unlink()
    lmpolicy.training.turns.write_turns(run / "prompts.jsonl", said)  # type: ignore[attr-defined]
    path = lmpolicy.write_report({HOSTILE: run, "b": run}, tmp_path / "report.html", title=HOSTILE)
    opened(tab, path)
    slide(tab, 1, 1)
    tab.run("document.querySelectorAll('summary').forEach((one) => one.click())")
    tab.run("new Promise((done) => setTimeout(done, 50))")
    assert tab.run("typeof window.hacked") == "undefined"
    assert tab.run("document.querySelectorAll('body script').length") == 2
    assert tab.run("document.querySelectorAll('img:not(.picture), body style, [onclick], [onerror]').length") == 0
    assert shown(tab, ".message.now pre") == HOSTILE.replace("\ud800", "\ufffd")
    assert tab.run("document.title").startswith("</script>")
    assert tab.errors == []


def test_the_page_runs_nothing_but_its_own_script(tab: Browser, folder: Path) -> None:
    """If a text did get out, the browser would not run it."""
    page = (folder / "one" / "report.html").read_text()
    path = folder / "broken.html"
    path.write_text(
        page.replace("<footer>", "<footer><script>window.hacked = 1</script><img src=x onerror=window.hacked=1>")
    )
    tab.open(path)
    assert tab.run("typeof window.hacked") == "undefined"
    assert any("Content Security Policy" in error for error in tab.errors)


def test_long_lists_of_phrases_show_the_likeliest(tab: Browser, tmp_path: Path) -> None:
    shares = {f"go to room {place}": place / 1225 for place in range(50)}
    run = write_run(tmp_path, [[turn(0, probabilities=shares, action="go to room 3")]])
    opened(tab, lmpolicy.write_report(run))
    first = tab.run("[...document.querySelectorAll('#episodes .bars')][0].children.length")
    assert first == 11  # the ten likeliest, and the one that was taken
    assert "Less likely: 39 phrases" in shown(tab, ".turn")


def test_ten_thousand_turns(tab: Browser, tmp_path: Path) -> None:
    turns = [turn(place, env_step=place, value=float(place % 97)) for place in range(10_000)]
    opened(tab, lmpolicy.write_report(write_run(tmp_path, [turns])))
    slide(tab, 1, 9_999)
    assert shown(tab, ".message.now pre") == "state 9999"
    assert "Return so far10,000" in shown(tab, ".facts")
