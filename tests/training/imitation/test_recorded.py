"""Data sets of Minari in words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.played import WAY, expert_games, lake
from stable_baselines3.common.env_util import make_vec_env

from lmpolicy import Demonstrations, GenericTask, TextObservationWrapper, TextTask

minari = pytest.importorskip("minari")
EpisodeData = minari.dataset.episode_data.EpisodeData


class Recorded:
    """A data set that is kept in memory, for the storages of Minari need further packages."""

    def __init__(self, env: gym.Env, episodes: list[Any]) -> None:
        self.action_space, self.observation_space, self.episodes = env.action_space, env.observation_space, episodes

    def iterate_episodes(self) -> Any:
        return iter(self.episodes)


def recorded(
    number: int, observations: Any, actions: Any, rewards: list[float], cut: bool = False, infos: Any = None
) -> Any:
    """An episode as Minari returns it."""
    ends = np.arange(len(rewards)) == len(rewards) - 1
    some = {} if infos is None else infos
    return EpisodeData(number, observations, actions, np.array(rewards), ends & (not cut), ends & cut, some)


TILES = [0, 4, 8, 9, 13, 14]
EXPERT = (np.array([*TILES, 15]), np.array([WAY[tile] for tile in TILES]), [0.0] * 5 + [1.0])
LOST = (np.array([0, 4, 5]), np.array([1, 2]), [0.0, 0.0])


@pytest.fixture
def games() -> Any:
    env = gym.make("FrozenLake-v1", is_slippery=False)
    return Recorded(env, [recorded(0, *EXPERT), recorded(1, *LOST, cut=True)])


@pytest.mark.parametrize("options", [{}, {"history": 2}, {"task": None, "max_prompt_bytes": 3000}])
def test_a_data_set_reads_as_if_it_had_been_played(games: Any, options: dict[str, Any]) -> None:
    found = Demonstrations.from_minari(games, lake(**options))
    assert found[:6] == expert_games(1, **options)
    assert found.rewards() == [[0, 0, 0, 0, 0, 1], [0, 0]]
    assert [one.truncated for one in found] == [False] * 7 + [True]


@pytest.mark.filterwarnings("ignore")
def test_a_data_set_on_the_disk_is_named_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py", reason="Minari keeps data sets in HDF5 files: pip install h5py")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    observations, actions, rewards = EXPERT
    ends = [False] * 5
    one = EpisodeBuffer(
        observations=list(observations),
        actions=list(actions),
        rewards=rewards,
        terminations=[*ends, True],
        truncations=[*ends, False],
    )
    env = gym.make("FrozenLake-v1", is_slippery=False)
    minari.create_dataset_from_buffers(dataset_id="lake/test-v0", buffer=[one], env=env)
    assert Demonstrations.from_minari("lake/test-v0", lake()) == expert_games(1)


def test_the_env_itself_takes_no_step(games: Any) -> None:
    env = lake()
    env.reset(seed=0)
    env.step("move right")
    before = env.prompt
    Demonstrations.from_minari(games, env)
    assert env.prompt == before
    assert env.unwrapped.s == 1  # type: ignore[attr-defined]


def test_actions_without_a_phrase_are_refused_or_counted(games: Any) -> None:
    class NoWayRight(TextTask):
        action_texts = {"west": 0, "south": 1, "north": 3}  # noqa: RUF012

    env = lake(task=NoWayRight())
    with pytest.raises(
        ValueError, match=r"episode 0, step 2: no legal phrase stands for the action .*2.*unknown='count'"
    ):
        Demonstrations.from_minari(games, env)
    found = Demonstrations.from_minari(games, env, unknown="count")
    assert found.skipped == {"unknown phrase": 4}
    assert [one.action for one in found] == ["south"] * 4
    assert found.rewards() == [], "episodes that lack a turn"
    with pytest.raises(ValueError, match="unknown must be"):
        Demonstrations.from_minari(games, env, unknown="drop")


def test_a_data_set_of_another_env_is_refused(games: Any) -> None:
    with pytest.raises(
        ValueError, match=r"another env: its observations are Discrete\(16\), those of the env Discrete\(64\)"
    ):
        Demonstrations.from_minari(games, TextObservationWrapper(gym.make("FrozenLake8x8-v1")))
    with pytest.raises(ValueError, match="another env: its actions are"):
        Demonstrations.from_minari(games, TextObservationWrapper(gym.make("Blackjack-v1")))
    with pytest.raises(TypeError, match="single env in TextObservationWrapper"):
        Demonstrations.from_minari(games, make_vec_env(lake, 1))  # type: ignore[arg-type]


class Rich(gym.Env):
    """Observes a dict, takes a pair of numbers, and says in its info what is legal."""

    observation_space = spaces.Dict({"place": spaces.Discrete(3), "wind": spaces.Box(-1, 1, (1,))})
    action_space = spaces.MultiDiscrete([2, 2])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        raise AssertionError("the env takes no step")


class RichTask(TextTask):
    max_actions = 2

    def format_observation(self, observation: Any) -> str:
        return f"place {observation['place']}, wind {float(observation['wind'][0]):.1f}"

    def action_texts(self, observation: Any, info: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return {"stay": np.array([0, 0]), str(info["way"]): np.array([1, int(observation["place"])])}


def test_observations_and_infos_of_several_parts() -> None:
    observations = {"place": np.array([0, 1, 2]), "wind": np.array([[0.5], [-0.5], [0]], dtype=np.float32)}
    infos = {"way": np.array(["up", "on", "off"])}
    env = Rich()
    one = recorded(0, observations, np.array([[1, 0], [0, 0]]), [1.0, 2.0], infos=infos)
    found = Demonstrations.from_minari(Recorded(env, [one]), TextObservationWrapper(env, RichTask()))
    assert [turn.prompt.messages[-1][1].splitlines()[0] for turn in found] == [
        "place 0, wind 0.5",
        "place 1, wind -0.5",
    ]
    assert [turn.action for turn in found] == ["up", "stay"]


def test_numbers_need_bins() -> None:
    env = gym.make("Pendulum-v1")
    one = recorded(0, np.zeros((3, 3), dtype=np.float32), np.array([[2.0], [0.0]], dtype=np.float32), [0.0, 0.0])
    data = Recorded(env, [one])
    writing = TextObservationWrapper(env, GenericTask(), action_mode="generate")
    with pytest.raises(ValueError, match="have no phrases: make the wrapper with action_bins"):
        Demonstrations.from_minari(data, writing)
    binned = TextObservationWrapper(env, GenericTask(), action_bins=5)
    found = Demonstrations.from_minari(data, binned)
    assert [turn.prompt.actions.index(str(turn.action)) for turn in found] == [4, 2]


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ImportError, match=r'pip install "lmpolicy\[minari\]"'):
        Demonstrations.from_minari("lake/test-v0", lake())
