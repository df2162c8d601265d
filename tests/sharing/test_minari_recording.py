"""Episodes that are recorded as data sets of Minari, and read again."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers.played import lake

import lmpolicy
from lmpolicy import Demonstrations, TextObservationWrapper
from lmpolicy.training.imitation.playing import StopPlaying

minari = pytest.importorskip("minari")
pytestmark = pytest.mark.filterwarnings("ignore")  # Minari would like to know more about each data set


@pytest.fixture(autouse=True)
def data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Minari keeps its data sets; also where h5py is missing, nothing is written to the home folder."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


needs_h5py = pytest.mark.skipif(
    importlib.util.find_spec("h5py") is None, reason='needs h5py: pip install "lmpolicy[minari]"'
)


class Counter(gym.Env):
    """Observes a dict, fills the same array at every step, takes a pair of numbers, and says what is legal."""

    observation_space = spaces.Dict(place=spaces.Box(0, 9, (2,), np.float32), lamp=spaces.Discrete(2))
    action_space = spaces.MultiDiscrete([2, 2])

    def _look(self) -> tuple[Any, dict[str, Any]]:
        return {"place": self._place, "lamp": int(self._place[0] % 2)}, {"action_mask": self._mask}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._place, self._mask = np.zeros(2, np.float32), np.array([1, 1, 1, 0], np.int8)
        return self._look()

    def step(self, action: Any) -> Any:
        self._place += action
        self._mask[:] = np.roll(self._mask, 1)
        return *(found := self._look())[:1], float(self._place.sum()), False, bool(self._place[0] > 3), found[1]


def random_play(seed: int) -> Any:
    random = np.random.default_rng(seed)
    return lambda prompt, info: prompt.actions[random.integers(len(prompt.actions))]


@needs_h5py
@pytest.mark.parametrize(
    "make",
    [
        lambda: TextObservationWrapper(gym.make("CartPole-v1")),
        lambda: TextObservationWrapper(gym.make("Blackjack-v1"), history=2),
        lake,
        lambda: TextObservationWrapper(Counter()),
    ],
)
def test_what_is_read_again_is_what_was_played(make: Any) -> None:
    env = make()
    dataset = lmpolicy.record_minari(random_play(0), env, 4, "test/random-v0", seed=3, author="me")
    played = lmpolicy.record_episodes(random_play(0), env, 4, seed=3)
    found = Demonstrations.from_minari("test/random-v0", make())
    turns = [turn for episode in played for turn in episode]
    assert [turn.action for turn in found] == [turn.action for turn in turns]
    assert [turn.prompt.messages for turn in found] == [
        tuple((one["role"], one["content"]) for one in turn.messages) for turn in turns
    ]
    assert [turn.prompt.actions for turn in found] == [tuple(turn.probabilities) for turn in turns]
    assert found.rewards() == [[turn.env_reward for turn in episode] for episode in played]
    assert [turn.truncated for turn in found] == [bool(turn.truncated) for turn in turns]
    assert (dataset.total_episodes, dataset.total_steps) == (4, len(turns))
    assert minari.load_dataset("test/random-v0").storage.metadata["author"] == {"me"}


@needs_h5py
def test_it_is_the_env_s_own_data() -> None:
    env = TextObservationWrapper(gym.make("CartPole-v1"))
    inner = env.env
    dataset = lmpolicy.record_minari(lambda prompt, info: "push right", env, 2, "test/right-v1", seed=3)
    assert env.env is inner
    assert dataset.env_spec.id == "CartPole-v1"
    for number, episode in enumerate(dataset.iterate_episodes()):
        observation, _ = inner.reset(seed=3 + number)
        for place, action in enumerate(episode.actions):
            assert np.array_equal(episode.observations[place], observation)
            observation, reward, terminated, _, _ = inner.step(action)
            assert episode.rewards[place] == reward
            assert episode.terminations[place] == terminated
        assert np.array_equal(episode.observations[-1], observation)
        assert terminated


@needs_h5py
def test_a_person_who_leaves_keeps_whole_episodes() -> None:
    turns = iter(range(9))

    def person(prompt: Any, info: Any) -> str:
        if next(turns) == 8:  # an episode of six, and two more turns
            raise StopPlaying
        way = {0: "move down", 4: "move down", 8: "move right", 9: "move down", 13: "move right", 14: "move right"}
        return way[env.unwrapped.s]  # type: ignore[attr-defined]

    env = lake()
    dataset = lmpolicy.record_minari(person, env, 5, "test/person-v0")
    assert (dataset.total_episodes, dataset.total_steps) == (1, 6)


@needs_h5py
def test_mistakes_cost_no_episode() -> None:
    def never(prompt: Any, info: Any) -> str:
        raise AssertionError("it has begun to play")

    env = TextObservationWrapper(gym.make("Blackjack-v1"))
    lmpolicy.record_minari(lambda prompt, info: "stick", env, 1, "test/taken-v0")
    with pytest.raises(FileExistsError, match=r"minari\.delete_dataset\('test/taken-v0'\)"):
        lmpolicy.record_minari(never, env, 1, "test/taken-v0")
    for name in ("no version", "test/noversion", "t/short-v0", "", "-v0 "):
        with pytest.raises(ValueError, match='for instance "cartpole/lm-v0"'):
            lmpolicy.record_minari(never, env, 1, name)

    odd = gym.make("Blackjack-v1")
    odd.observation_space = spaces.Sequence(spaces.Discrete(32))
    with pytest.raises(TypeError, match=r"cannot store the observations.*keep the episodes in words: record_episodes"):
        lmpolicy.record_minari(never, TextObservationWrapper(odd), 1, "test/odd-v0")
    with pytest.raises(TypeError, match="wrap the env in TextObservationWrapper"):
        lmpolicy.record_minari(never, gym.make("Blackjack-v1"), 1, "test/words-v0")


@pytest.mark.parametrize("package", ["minari", "h5py"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    env = TextObservationWrapper(gym.make("Blackjack-v1"))
    with pytest.raises(ImportError, match=r'pip install "lmpolicy\[minari\]"'):
        lmpolicy.record_minari(lambda prompt, info: "stick", env, 1, "test/x-v0")
