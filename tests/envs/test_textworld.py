"""TextWorld as a Gymnasium env and in words; what plays real games needs the extra ``textworld``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from lmpolicy import Demonstrations, LMActorCriticPolicy, Prompt, TextObservationWrapper
from lmpolicy.envs import TextWorld, task_for
from lmpolicy.envs._textworld_games import main, make_games, unscored
from lmpolicy.envs.experts import TextWorldExpert
from lmpolicy.envs.textworld import OPPOSITE, TextWorldEnv
from lmpolicy.training.shaping import DiscoveryReward

ID = "lmpolicy/TextWorld-v0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("textworld")
    return tmp_path_factory.mktemp("games")


def make(folder: Path, **kwargs: Any) -> gym.Env:
    return gym.make(ID, folder=folder, **{"level": 3, **kwargs})


def solution(file: Path) -> list[str]:
    """The shortest way to win a game, by TextWorld itself."""
    import textworld

    with unscored():
        game = textworld.start(str(file), textworld.EnvInfos(policy_commands=True))
    return game.reset()["policy_commands"]


# --- the package ---------------------------------------------------------------------------------


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(ImportError, match=r'pip install "lmpolicy\[textworld\]"'):
        gym.make(ID, level=1, folder=tmp_path)


def test_import_does_not_load_the_package() -> None:
    code = "import sys, lmpolicy; sys.exit('textworld' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- experts --------------------------------------------------------------------------------------


def test_the_expert_wins_as_textworld_itself_does(folder: Path) -> None:
    env = TextObservationWrapper(make(folder, games=2))
    played = Demonstrations.from_player(env, TextWorldExpert(env), episodes=4, seed=0)
    assert [rewards[-1] for rewards in played.rewards()] == [1] * 4
    files = make_games("coin_collector", {"level": 3}, 2, "train", folder)
    taken = {tuple(played[turn].action for turn in turns) for turns in played.episodes}
    assert taken <= {tuple(solution(file)) for file in files}


def test_winning_commands_go_on_from_where_the_game_stands(folder: Path) -> None:
    env: Any = make(folder, level=3)
    game = env.unwrapped
    with pytest.raises(gym.error.ResetNeeded, match=r"reset\(\)"):
        game.winning_commands()
    _, info = env.reset(seed=0)
    (file,) = game.files
    first, *rest = solution(file)
    (wrong, *_) = [one for one in info["admissible_commands"] if one.startswith("go ") and one != first] or ["look"]
    env.step(first)
    observation, *_, info = env.step("look")
    before = observation, info
    assert game.winning_commands() == tuple(rest), "asked for the first time in the middle of a game"
    assert (game._observe(game._state["feedback"]), game._info()) == before
    for command in rest:
        *_, reward, terminated, _, info = env.step(command)
    assert (reward, terminated, info["won"]) == (1, True, True)
    env.reset()
    env.step(wrong)
    way = game.winning_commands()
    for command in way:
        *_, info = env.step(command)
    assert info["won"]


def test_the_expert_says_where_a_game_is_lost(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env: Any = make(folder, level=3)
    _, info = env.reset(seed=0)
    monkeypatch.setattr(TextWorldEnv, "winning_commands", lambda self: ())
    with pytest.raises(ValueError, match="cannot be won any more"):
        TextWorldExpert(env)(Prompt(messages=[("user", "?")], actions=("look",)), info)


# --- games ----------------------------------------------------------------------------------------


def test_games_are_made_from_seeds_and_kept(folder: Path) -> None:
    train = make_games("coin_collector", {"level": 3}, 2, "train", folder)
    times = [file.stat().st_mtime_ns for file in train]
    for level, games in ((3, 2), (np.int64(3), np.int64(2))):
        assert make_games("coin_collector", {"level": level}, games, "train", folder) == train  # type: ignore[arg-type]
    assert [file.stat().st_mtime_ns for file in train] == times
    test = make_games("coin_collector", {"level": 3}, 2, "test", folder)
    assert not set(train) & set(test)
    again = make_games("coin_collector", {"level": 3}, 1, "train", folder / "again")
    assert again[0].with_suffix(".json").read_bytes() == train[0].with_suffix(".json").read_bytes()
    assert len({file.with_suffix(".json").read_bytes() for file in train + test}) == 4
    assert {file.suffix for file in folder.iterdir() if file.is_file()} == {".z8", ".json"}


def test_a_long_wait_is_announced(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from lmpolicy.envs import _textworld_games as games

    monkeypatch.setattr(games, "_make", lambda challenge, settings, seed, file: file.touch())
    make_games("coin_collector", {"level": 4}, 5, "train", folder / "few")
    assert not caplog.records
    make_games("coin_collector", {"level": 4}, 11, "train", folder / "few")
    make_games("coin_collector", {"level": 4}, 11, "train", folder / "few")
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == [6]


def test_a_map_without_such_a_quest_is_drawn_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from textworld.generator.chaining import QuestGenerationError

    from lmpolicy.envs import _textworld_games as games

    seeds: list[int] = []
    plain = games._try

    def fails_twice(challenge: str, settings: Any, seed: int, file: Path) -> None:
        seeds.append(seed)
        if len(seeds) < 3:
            raise QuestGenerationError
        plain(challenge, settings, seed, file)

    monkeypatch.setattr(games, "_try", fails_twice)
    (file,) = make_games("coin_collector", {"level": 2}, 1, "test", folder)
    assert file.is_file()
    assert file.name.endswith("-1000000.z8")
    assert seeds == [1_000_000, 11_000_000, 21_000_000]
    monkeypatch.setattr(games, "ATTEMPTS", 1)
    seeds.clear()
    with pytest.raises(QuestGenerationError):
        make_games("coin_collector", {"level": 1}, 1, "train", folder)


def test_options_of_the_challenges(folder: Path) -> None:
    cooking = {"recipe": 1, "take": 1, "open": True, "only_last_action": True}
    files = make_games("cooking", cooking, 1, "train", folder)
    files += make_games("custom", {"world_size": 2, "nb_objects": 3, "quest_length": 2}, 1, "train", folder)
    files += make_games("simple", {"rewards": "dense", "goal": "detailed"}, 1, "train", folder)
    for file in files:
        env = gym.make(ID, game=file)
        observation, info = env.reset(seed=0)
        assert info["game"] == file.name
        assert env.observation_space.contains(observation)
        env.close()
    assert len(solution(files[1])) == 2


def test_the_goal_instead_of_the_way(folder: Path) -> None:
    told = [
        make(folder, challenge_settings=settings).reset()[0]["objective"]
        for settings in ({}, {"only_last_action": True})
    ]
    assert len(told[1]) < len(told[0])


def test_command_makes_games(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["treasure_hunter", "--level", "1", "--split", "test", "--folder", str(folder)])
    file = Path(capsys.readouterr().out.strip())
    assert file.is_file()
    assert file.name.startswith("treasure_hunter-")
    with pytest.raises(SystemExit):
        main(["treasure_hunter", "--folder", str(folder)])
    assert "--level" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"challenge": "chess"}, "challenge must be one of coin_collector, cooking, custom, simple, treasure_hunter"),
        (
            {"challenge": "cooking", "level": None, "challenge_settings": {"recipee": 1}},
            "its options are cook, cut, drop, go",
        ),
        ({"level": None}, "--level"),
        ({"level": "high"}, "invalid int value"),
        ({"games": 0}, "games is how many"),
        ({"split": "dev"}, "split must be one of train, test, read, validation"),
        ({"reward": "points"}, "reward must be one of score, progress; got 'points'"),
    ],
)
def test_wrong_arguments(folder: Path, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextWorldEnv(folder=folder, **{"level": 3, **kwargs})


def test_render_modes_as_stable_baselines3_asks_for_them(folder: Path) -> None:
    with pytest.raises(TypeError, match='render_mode is "ansi" or None'):
        TextWorldEnv(folder=folder, level=3, render_mode="human")
    env = make_vec_env(ID, 2, env_kwargs={"folder": folder, "level": 3}, wrapper_class=TextObservationWrapper)
    assert env.reset().shape[0] == 2


def test_no_such_game(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="as tw-make writes them"):
        TextWorldEnv(game=folder / "none.z8")


# --- env ------------------------------------------------------------------------------------------


def test_gymnasium_finds_nothing_to_complain_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make(folder, render_mode="ansi").unwrapped
    # On a few random texts, Jericho, which runs the games, crashes or answers differently the second time.
    monkeypatch.setattr(env.action_space, "sample", lambda *_, **__: "look")
    check_env(env)


def test_solution_wins(folder: Path) -> None:
    env = make(folder)
    _, info = env.reset(seed=0)
    *way, last = solution(folder / info["game"])
    for command in way:
        assert command in info["admissible_commands"]
        _, reward, terminated, truncated, info = env.step(command)
        assert (reward, terminated, truncated, info["won"]) == (0, False, False, False)
    _, reward, terminated, _, info = env.step(last)
    assert (reward, terminated, info["won"], info["lost"], info["score"]) == (1, True, True, False, info["max_score"])


def test_progress_is_rewarded_and_the_way_back_is_not(folder: Path) -> None:
    env = make(folder, reward="progress")
    _, info = env.reset(seed=0)
    first = solution(folder / info["game"])[0]
    back = f"go {OPPOSITE[first.split()[1]]}"
    assert [env.step(command)[1] for command in (first, back, "look", first)] == [1, -1, 0, 1]


def test_new_rooms_are_rewarded_once_and_the_way_back_is_known(folder: Path) -> None:
    env = DiscoveryReward(make(folder))
    observation, info = env.reset(seed=0)
    assert info["room"] in observation["description"]
    first, second, *_ = way = solution(folder / info["game"])
    back = f"go {OPPOSITE[first.split()[1]]}"
    assert observation["way_back"] == ""
    # The last command takes the coin, for the game's own point.
    expected = [(first, 1), ("look", 0), (back, 0), (first, 0), (second, 1), *((command, 1) for command in way[2:])]
    for command, reward in expected:
        observation, rewarded, *_ = env.step(command)
        assert (command, rewarded) == (command, reward)
        if command in (first, "look"):
            assert observation["way_back"] == back.split()[1]
        if command == back:
            assert observation["way_back"] == first.split()[1]
    assert env.reset()[0]["way_back"] == ""


def test_seed_decides_which_games(folder: Path) -> None:
    env = make(folder, games=4)

    def drawn(seed: int) -> list[str]:
        return [env.reset(seed=seed)[1]["game"], *(env.reset()[1]["game"] for _ in range(6))]

    assert drawn(1) == drawn(1)
    assert len(set(drawn(1))) > 1
    assert drawn(1) != drawn(2)
    assert env.reset(options={"game": 2})[1]["game"].endswith("-2.z8")
    for game in (4, -1, "2"):
        with pytest.raises(ValueError, match=r'options=\{"game": i\} starts the i-th of 4 games, counted from 0; got'):
            env.reset(options={"game": game})


def test_time_limit_and_odd_commands(folder: Path) -> None:
    env = make(folder, max_episode_steps=3)
    env.reset(seed=0)
    for command in ("", "xyzzy \U0001f600\n\nlook", "go " * 1000):
        observation, reward, terminated, truncated, _ = env.step(command)
        assert env.observation_space.contains(observation)
        assert reward == 0
    assert (terminated, truncated) == (False, True)


@pytest.mark.parametrize("command", ["go\\x", "\\Tlook", "look\\}"])
def test_a_backslash_is_no_command_to_the_interpreter(folder: Path, command: str) -> None:
    env = make(folder)
    answers = []
    for text in (command, command.replace("\\", " ")):
        env.reset(seed=0)
        answers.append(env.step(text)[0])
    assert answers[0] == answers[1]


# --- wrapped --------------------------------------------------------------------------------------


def test_prompt_tells_all_and_offers_what_the_game_admits(folder: Path) -> None:
    env = TextObservationWrapper(make(folder))
    assert isinstance(env.task, TextWorld)
    assert isinstance(task_for(env.env), TextWorld)
    _, info = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert env.prompt.actions == info["admissible_commands"]
        _, _, terminated, truncated, info = env.step(int(rng.integers(len(env.prompt.actions))))
        assert "/" not in env.prompt.messages[-1][1]  # no status line
        if terminated or truncated:
            _, info = env.reset()


def test_trains_by_choosing_and_by_writing(folder: Path) -> None:
    for mode in ({}, {"action_mode": "generate", "max_new_tokens": 8}):
        env = TextObservationWrapper(make(folder, games=2), **mode)
        PPO(LMActorCriticPolicy, env, n_steps=16, batch_size=16, n_epochs=1, device="cpu").learn(16)
