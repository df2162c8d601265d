"""Who plays, with which seed and on which device, and that no file is lost."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import ENV, TINY, lmpolicy, succeed
from helpers.shown_runs import turn

from lmpolicy import Demonstrations
from lmpolicy.cli.kept_episodes import KeptEpisodes
from lmpolicy.cli.playing import find_player, play_episodes, settings_for
from lmpolicy.cli.run_settings import RunSettings
from lmpolicy.report.episodes import Episodes
from lmpolicy.text.prompt import Prompt

WORDS = ["--task", "bulbs:Words"]
RANDOM = ["play", ENV, *WORDS, "--by", "random"]


@pytest.fixture(scope="module")
def writing(project: Path) -> str:
    """A run that writes its answers, in words of its own and with a history."""
    changed = ["-s", "history=1"]
    return str(succeed("train", ENV, *WORDS, *TINY, "--generate", 4, *changed, "--json").facts["run"])


@pytest.fixture(scope="module")
def choosing(project: Path) -> str:
    """A run that chooses phrases."""
    return str(succeed("train", ENV, *TINY, "--output", "choosing", "--json").facts["run"])


# Files


def keep(path: Path, **how: bool) -> KeptEpisodes:
    return KeptEpisodes.at(path, **{"append": False, "overwrite": False, **how})


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("years of play")
    with pytest.raises(FileExistsError, match=r"mine\.jsonl is there already: .*--append .*--overwrite"):
        keep(path)
    with pytest.raises(ValueError, match="do not go together"):
        keep(path, append=True, overwrite=True)
    with pytest.raises(ValueError, match="holds no episodes to add to"):
        keep(path, append=True)
    assert path.read_text() == "years of play"
    path.write_text("years of play\n")
    with pytest.raises(ValueError, match="is no turn"):
        keep(path, append=True)


def test_a_file_is_replaced_when_the_first_episode_is_over(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("years of play")
    file = keep(path, overwrite=True)
    assert path.read_text() == "years of play"
    for number in range(3):
        file.add([turn(0), turn(1)])
        assert len(Episodes.from_jsonl(path)) == number + 1
    assert [one[0].episode for one in Episodes.from_jsonl(path)] == [0, 1, 2]


def test_episodes_are_added_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    keep(path, append=True).add([turn(0)])
    before = path.read_bytes()
    keep(path, append=True).add([turn(0), turn(1)])
    assert path.read_bytes().startswith(before)
    assert [len(turns) for turns in Episodes.from_jsonl(path)] == [1, 2]


def test_a_last_turn_without_a_line_break_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    keep(path).add([turn(0), turn(1)])
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    keep(path, append=True).add([turn(0)])
    assert [len(turns) for turns in Episodes.from_jsonl(path)] == [2, 1]


def test_a_folder_takes_a_file_and_another_name_is_a_file(tmp_path: Path) -> None:
    assert keep(tmp_path).path == tmp_path / "episodes.jsonl"
    file = keep(tmp_path / "new" / "demos")
    file.add([turn(0)])
    assert (tmp_path / "new" / "demos").is_file()
    with pytest.raises(FileExistsError, match=r"demos is a file, so .* cannot be written"):
        keep(tmp_path / "new" / "demos" / "mine.jsonl")


@pytest.mark.parametrize("name", ["", "episodes.jsonl", "turns.jsonl", "settings.yaml"])
@pytest.mark.parametrize("how", [{}, {"overwrite": True}, {"append": True}])
def test_the_files_of_a_training_are_never_written(name: str, how: dict[str, bool], tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").touch()
    with pytest.raises(ValueError, match="is a file of the training"):
        keep(tmp_path / name, **how)
    assert keep(tmp_path / "mine.jsonl", **how).path == tmp_path / "mine.jsonl"


def test_the_file_that_is_told_is_one_to_learn_from(project: Path) -> None:
    assert succeed(*RANDOM, "--output", "demos", "--json").facts["file"] == "demos"
    assert "1 episode," in (done := succeed(*RANDOM, "--output", "demos", "--append")).out
    assert done.out.rstrip().endswith("in demos")
    assert len(Demonstrations.from_jsonl("demos").episodes) == 2
    assert "demonstrations: demos\n" in succeed("train", ENV, "--demonstrations", "demos", "--dry-run").out
    assert "is there already" in lmpolicy(*RANDOM, "--output", "demos").err
    assert len(Demonstrations.from_jsonl("demos").episodes) == 2


# Seeds and devices


@pytest.mark.parametrize("by", ["random", "own"])
def test_the_seed_decides_what_a_player_draws(by: str, project: Path) -> None:
    """Models draw from the common generators; so do these players."""
    settings, _ = settings_for(ENV, "bulbs:Words", (), None)

    def own(prompt: Prompt, info: dict[str, Any]) -> str:
        return random.choice(prompt.actions)

    def played(seed: int, n: int) -> list[list[str | None]]:
        how: dict[str, Any] = {"deterministic": True, "quiet": True}
        player = own if by == "own" else find_player(by, settings, env, None, seed)
        return [[one.action for one in turns] for turns in play_episodes(player, env, n, seed, None, **how)]

    env = settings.make_one()
    assert played(1, 2) == played(1, 2)
    assert played(1, 2) != played(3, 2)
    assert played(1, 2)[1:] == played(2, 1), "an episode is the same, whichever came before it"
    assert len(played(2**32, 1)) == 1


def test_a_model_that_samples_plays_the_same_twice(project: Path) -> None:
    sampled = ["play", ENV, *WORDS, "--by", "bundled", "--sampled", "--episodes", 4, "--seed", 3, "--json"]
    first, second = (succeed(*sampled, "--output", name) for name in ("first.jsonl", "second.jsonl"))
    assert first.facts["returns"] == second.facts["returns"]
    assert Path("first.jsonl").read_text() == Path("second.jsonl").read_text()


def test_a_model_plays_on_the_device_that_was_asked_for(project: Path) -> None:
    settings, _ = settings_for(ENV, None, (), "bundled")
    env = settings.make_one()
    assert find_player("bundled", settings, env, "meta", 0).device.type == "meta"
    with pytest.raises(ValueError, match="--device cudda does not work here"):
        find_player("bundled", settings, env, "cudda", 0)


# Runs that write, and output for a script


def test_random_play_writes_where_answers_are_written(writing: str, project: Path) -> None:
    facts = succeed("play", writing, "--by", "random", "--episodes", 2, "--output", "written.jsonl", "--json").facts
    assert facts["turns"] == 12
    for line in Path("written.jsonl").read_text().splitlines():
        one = json.loads(line)
        assert one["answer"] == one["action"]
        assert one["parse_error"] is False


def test_random_play_without_phrases_is_refused() -> None:
    settings = RunSettings.of("Blackjack-v1")
    player = find_player("random", settings, settings.make_one(), None, 0)
    with pytest.raises(ValueError, match=r"draws a legal phrase, but .*--by module:name"):
        player(Prompt((("user", "?"),), ()), {})


def test_a_run_reads_an_env_as_in_its_training(writing: str, choosing: str) -> None:
    settings, run = settings_for(ENV, None, (), writing)
    trained = RunSettings.read(Path(writing) / "settings.yaml")
    assert run is None
    assert settings.task == "bulbs:Words"
    assert settings.hyperparameters.wrapper_kwargs == trained.hyperparameters.wrapper_kwargs
    assert settings_for(ENV, "generic", (), writing)[0].task == "generic"
    assert succeed("play", ENV, "--by", writing, "--json").facts["turns"] == 6
    assert succeed("play", "Blackjack-v1", "--by", writing, "--json").facts["turns"] >= 1
    for env, by in ((choosing, writing), (writing, choosing)):
        done = lmpolicy("play", env, "--by", by)
        assert done.code == 1
        assert f"lmpolicy play {by} plays the env of its training" in done.err


def test_a_person_leaves_the_output_to_the_json(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda _: "0")
    done = succeed("play", ENV, *WORDS, "--episodes", 1, "--json")
    assert done.facts["turns"] == 6
    assert "Say whether the bulb is on." in done.err
