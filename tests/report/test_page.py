"""The file of a page: what is in it, how large it gets, and that no text can leave its place."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers.shown_runs import HOSTILE, data_of, episode, turn, write_run

import lmpolicy
from lmpolicy.report.episodes import Episodes
from lmpolicy.training.turns import Turn


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.found.append((tag, dict(attributes)))


def hostile_run(folder: Path) -> Path:
    messages = [{"role": role, "content": HOSTILE} for role in ("system", "user", "assistant", "user")]
    one = turn(0, messages=messages, probabilities={HOSTILE: 1.0}, action=HOSTILE, answer=HOSTILE, env_id=HOSTILE)
    curves = {HOSTILE.replace(",", "").replace('"', "").split("<!--")[0]: [1.0, 2.0, 3.0]}
    return write_run(folder, [[one]], curves)


def test_all_that_a_page_loads_is_in_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [episode(3)])
    path = lmpolicy.write_report(run)
    assert path == run / "report.html"
    page = path.read_text()
    assert not re.search(
        r"https?:|//|@import|url\(", re.sub(r"^\s*//.*$|http://www.w3.org/2000/svg", "", page, flags=re.M)
    )
    elements = Elements(page)
    assert [tag for tag, _ in elements.found if tag in ("link", "img", "iframe", "base", "form", "object")] == []
    policy = next(one["content"] for tag, one in elements.found if tag == "meta" and "http-equiv" in one)
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    contents = {tag: page.rsplit(f"<{tag}>", 1)[1].split(f"</{tag}>")[0] for tag in ("style", "script")}
    for name, content in (("style-src", contents["style"]), ("script-src", contents["script"])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_no_text_leaves_its_place(tmp_path: Path) -> None:
    path = lmpolicy.write_report({HOSTILE: hostile_run(tmp_path)}, tmp_path / "a.html", title=HOSTILE)
    page = path.read_text()
    plain = lmpolicy.write_report(write_run(tmp_path / "b", [episode(1)])).read_text()
    assert [tag for tag, _ in Elements(page).found] == [tag for tag, _ in Elements(plain).found]
    data = data_of(page)
    assert HOSTILE.replace("\ud800", "\ufffd") in data["texts"]
    start = page.index('type="application/json">')
    assert not re.search("[<>&]", page[start + 24 : page.index("</script>", start)])


def test_every_turn_comes_back(tmp_path: Path) -> None:
    turns = [
        turn(0, advantage=0.123456, answer="I go", parse_error=True, clipped=False),
        turn(1, action=None, env_reward=-1.0, value=None, parse_error=False, clipped=True),
        turn(2, probabilities={"left": None, "right": None}, truncated=True, parse_error=False),
    ]
    data = data_of(lmpolicy.write_report(write_run(tmp_path, [turns, episode(2, 1)])).read_text())
    texts, (run,) = data["texts"], data["runs"]
    first, second = run["episodes"]
    assert [[texts[number] for number in data["lists"][k]] for k in first["k"]] == [["left", "right"]] * 3
    assert first["p"] == [[0.25, 0.75], [0.25, 0.75], [None, None]]
    assert [None if a is None else texts[a] for a in first["a"]] == ["right", None, "right"]
    assert [None if w is None else texts[w] for w in first["w"]] == ["I go", None, None]
    assert (first["v"], first["d"], first["r"]) == ([2.0, None, 0.0], [0.12346, None, None], [1.0, -1.0, 1.0])
    assert first["e"] == [1, 2, 0]
    assert [[(role, texts[text]) for role, text in zip(m[::2], m[1::2], strict=True)] for m in first["m"]] == [
        [(0, "Play."), (1, f"state {place}")] for place in range(3)
    ]
    assert (first["cut"], first["ret"], second["ret"]) == (True, 1.0, 2.0)
    assert not {"w", "d", "e", "g"} & set(second)  # nothing is known of these
    assert run["curves"]["lm/entropy"] == [[1000, 2000, 3000], [0.7, 0.6, 0.1]]
    assert [one["t"] for one in run["prompts"]] == [[0, 1000, 2000]] * 2
    assert run["prompts"][0]["p"] == [[0.5, 0.5], [0.25, 0.75], [0.0, 1.0]]


def long_episodes(count: int, picture: str | None) -> list[list[Turn]]:
    return [
        [
            turn(
                place,
                episode=number,
                env_step=100 * number,
                messages=[{"role": "user", "content": f"episode {number}, state {place}"}],
                picture=None if picture is None else picture + f"{number:04d}{place:04d}",
            )
            for place in range(20)
        ]
        for number in range(count)
    ]


def test_a_page_stays_as_small_as_asked(tmp_path: Path) -> None:
    run = write_run(tmp_path, long_episodes(40, None))
    whole = lmpolicy.write_report(run).stat().st_size
    limit = whole - 20_000
    path = lmpolicy.write_report(run, max_bytes=limit)
    assert path.stat().st_size <= limit
    data = data_of(path.read_text())
    steps = [one["step"] for one in data["runs"][0]["episodes"]]
    assert (steps[0], steps[-1]) == (0, 3900)
    assert 2 <= len(steps) < 40
    assert data["notes"] == [f"{40 - len(steps)} of 40 recorded episodes are left out to keep the page small."]
    smallest = data_of(lmpolicy.write_report(run, max_bytes=1).read_text())
    assert [one["step"] for one in smallest["runs"][0]["episodes"]] == [0, 3900]


def test_pictures_go_before_episodes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "with", long_episodes(6, "A" * 1000))
    plain = lmpolicy.write_report(write_run(tmp_path / "without", long_episodes(6, None))).stat().st_size
    data = data_of(lmpolicy.write_report(run).read_text())
    assert len(data["pictures"]) == 120
    assert data["notes"] == []
    path = lmpolicy.write_report(run, max_bytes=plain + 50_000)  # room for two of the six
    assert path.stat().st_size <= plain + 50_000
    data = data_of(path.read_text())
    assert ["g" in one for one in data["runs"][0]["episodes"]] == [False] * 4 + [True] * 2
    assert data["notes"] == ["Pictures of 4 of 6 episodes are left out to keep the page small."]


def test_where_the_page_goes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [episode(1)])
    assert lmpolicy.write_report(str(run / "episodes.jsonl")) == run / "report.html"
    assert lmpolicy.write_report([run, run]) == run / "report.html"
    assert lmpolicy.write_report({"a": run}, tmp_path / "new" / "page.html").exists()
    played = Episodes([episode(1)])
    with pytest.raises(ValueError, match="name the file to write"):
        lmpolicy.write_report(played)
    assert lmpolicy.write_report([played, run], tmp_path / "both.html").exists()
    (tmp_path / "pages").mkdir()
    assert lmpolicy.write_report(run, tmp_path / "pages") == tmp_path / "pages" / "report.html"
    assert "<title>My run</title>" in lmpolicy.write_report(run, title="My run").read_text()


@pytest.mark.parametrize("size", [0, True, "5 MB", 2.5])
def test_what_is_no_size(tmp_path: Path, size: Any) -> None:
    with pytest.raises(ValueError, match="max_bytes is the size of the page in bytes, for instance 5_000_000"):
        lmpolicy.write_report(write_run(tmp_path, [episode(1)]), max_bytes=size)


@pytest.mark.parametrize(
    ("runs", "words"), [(3, "name the folder of a run"), ([3], "a run is a folder"), ({"a": 3}, "a run")]
)
def test_what_is_no_run(runs: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        lmpolicy.write_report(runs)
