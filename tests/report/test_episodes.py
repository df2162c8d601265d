"""Files of episodes, and the tables that a notebook shows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from helpers.shown_runs import HOSTILE, episode, turn

from lmpolicy.report.episodes import Episodes
from lmpolicy.training.turns import Turn, to_line, write_turns


def test_what_is_not_known_is_not_written(tmp_path: Path) -> None:
    line = json.loads(to_line(Turn(1, 0, [{"role": "user", "content": "a"}], {"left": 1.0}, "left", 1.0, 0.5)))
    old = ["env_step", "env", "messages", "probabilities", "action", "env_reward", "value", "answer"]
    assert list(line) == old  # what turns.jsonl has always had
    full = turn(
        0, parse_error=False, clipped=True, truncated=True, env_id="a", picture="AAAA", advantage=0.5, answer="b"
    )
    write_turns(tmp_path / "episodes.jsonl", [full])
    ((again,),) = Episodes.from_jsonl(tmp_path)
    assert again == Turn(**{**vars(full), "episode_return": 1.0})


def test_an_episode_that_was_written_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    write_turns(path, episode(4, 0, value=1.0))
    write_turns(path, episode(2, 1))
    write_turns(path, episode(3, 0, value=7.0))
    with path.open("a") as file:
        file.write('{"env_step": 1, "mess')  # a program was killed here
    found = Episodes.from_jsonl(path)
    assert sorted(len(turns) for turns in found) == [2, 3]
    assert {turn.value for turns in found for turn in turns if turn.episode == 0} == {7.0}


def test_a_whole_last_line_without_a_line_break_counts(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    write_turns(path, episode(3))
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert [len(turns) for turns in Episodes.from_jsonl(path)] == [3]
    with path.open("a") as file:
        file.write("\n{}")
    with pytest.raises(ValueError, match=r"episodes\.jsonl, line 4 is no turn"):
        Episodes.from_jsonl(path)


BAD: list[tuple[Any, str]] = [
    ([1], "a turn is a JSON object with env_step, messages, probabilities"),
    ({"messages": ...}, "a turn is a JSON object"),
    ({"env_step": "1"}, "env_step is '1'"),
    ({"env_step": True}, "env_step is True"),
    ({"value": "high"}, "value is 'high'"),
    ({"greedy": 1}, "greedy is 1"),
    ({"action": 3}, "action is 3"),
    ({"messages": []}, "messages must be a list of roles and contents"),
    ({"messages": [{"role": "user"}]}, "messages must be"),
    ({"probabilities": [0.5]}, "probabilities must map"),
    ({"probabilities": {"left": "0.5"}}, "probabilities must map"),
    ({"probabilities": {"left": math.nan}}, "probabilities must map"),
    ({"picture": "javascript:alert(1)"}, "picture is no base64"),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[words for _, words in BAD])
def test_lines_that_are_no_turns_are_named(tmp_path: Path, change: Any, words: str) -> None:
    good = json.loads(to_line(turn(0)))
    bad = change
    if isinstance(change, dict):
        bad = {name: value for name, value in {**good, **change}.items() if value is not ...}
    path = tmp_path / "played.jsonl"
    path.write_text("\n".join(map(json.dumps, (good, bad))) + "\n")
    with pytest.raises(ValueError, match=r"played\.jsonl, line 2 is no turn: ") as caught:
        Episodes.from_jsonl(path)
    assert words in str(caught.value)


def test_single_turns_are_no_episodes(tmp_path: Path) -> None:
    write_turns(tmp_path / "turns.jsonl", [turn(0, episode=None, turn=None)])
    with pytest.raises(ValueError, match="single turns, which are no episodes"):
        Episodes.from_jsonl(tmp_path / "turns.jsonl")


def test_they_say_what_they_are(tmp_path: Path) -> None:
    played = Episodes([episode(2), episode(4, 1)])
    assert repr(played) == "Episodes(2 episodes, 6 turns, mean return 3)"
    assert repr(played[1:]) == "Episodes(1 episode, 4 turns, mean return 4)"
    assert played.returns == [2.0, 4.0]
    assert played.save(tmp_path / "new" / "folder") == tmp_path / "new" / "folder" / "episodes.jsonl"
    assert played.save(tmp_path / "mine.jsonl").exists()


def test_a_notebook_shows_text_as_text() -> None:
    hostile = turn(0, messages=[{"role": "user", "content": HOSTILE}], probabilities={HOSTILE: 1.0}, action=HOSTILE)
    page = Episodes([[hostile, turn(1, answer=HOSTILE)], episode(300)])._repr_html_()
    for tag in ("<script", "<img", "<style"):
        assert tag not in page
    assert page.count("&lt;/script&gt;") == 4 * HOSTILE.count("</script>")
    assert "100 more turns are in the file" in page
    assert "<b>right</b> 0.750, left 0.250" in page
    assert "episode 0: 2 turns, return 2" in page
