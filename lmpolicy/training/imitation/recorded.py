"""Put recorded episodes of an env into words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym

from lmpolicy.training.imitation.demonstration import UNKNOWN, Demonstration, EnvWords, forget_rewards
from lmpolicy.training.imitation.demonstration_files import counted_reasons
from lmpolicy.wrapper import TextObservationWrapper

MISSING = 'data sets of Minari need the package: pip install "lmpolicy[minari]"'


class RecordedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Show recorded episodes in place of an env, which takes no step.

    :param env: the env that was recorded.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self._steps: Iterator[tuple[Any, float, bool, bool, dict[str, Any]]] = iter(())
        self._first: tuple[Any, dict[str, Any]] = None, {}

    def show(self, episode: Any) -> None:
        """Take the episode that is shown from the next reset on.

        :param episode: a ``minari.EpisodeData``: observations and infos ``(T + 1)``, rewards and ends ``(T)``.
        """
        observations = list(_entries(episode.observations, len(episode.rewards) + 1))
        infos = list(_infos(episode.infos, len(observations)))
        rewards = [float(reward) for reward in episode.rewards]
        ends = [(bool(one), bool(two)) for one, two in zip(episode.terminations, episode.truncations, strict=True)]
        self._first = observations[0], infos[0]
        self._steps = iter(
            [
                (after, reward, *end, info)
                for after, reward, end, info in zip(observations[1:], rewards, ends, infos[1:], strict=True)
            ]
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Show the first observation."""
        return self._first

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Show the next observation, whatever the action is."""
        return next(self._steps)


def read_minari(dataset: Any, env: gym.Env, unknown: str = "refuse") -> tuple[list[Demonstration], Counter[str]]:
    """Put a data set of Minari into words.

    :param dataset: a ``minari.MinariDataset``, or the id of one on this machine.
    :param env: env of the data set in a :class:`~lmpolicy.TextObservationWrapper`.
    :param unknown: ``"refuse"`` or ``"count"``: what to do about an action that no phrase stands for.
    :return: turns, and how many were left out, by reason.
    :raises ImportError: if the package is not installed; the message says how to install it.
    :raises ValueError: if the data set is of another env, or an action has no phrase.
    """
    counted = counted_reasons(unknown, "refuse")
    wrapper = wrapper_in(env)
    if isinstance(dataset, str):
        dataset = _load(dataset)
    _check_spaces(dataset, wrapper)
    recorded = RecordedEnv(wrapper.env)
    words = TextObservationWrapper(recorded, **{**_arguments(wrapper), "training": False})
    turns, skipped, gaps = [], Counter[str](), set()
    for episode in dataset.iterate_episodes():
        recorded.show(episode)
        for place, turn in enumerate(_replay(words, episode)):
            if turn is not None:
                turns.append(turn)
            elif UNKNOWN in counted:
                skipped[UNKNOWN] += 1
                gaps.add(int(episode.id))
            else:
                raise ValueError(
                    f"episode {episode.id}, step {place}: no legal phrase stands for the action "
                    f"{_entry(episode.actions, place)!r}. Make the wrapper with a task that names it, or pass "
                    "unknown='count' to leave such turns out"
                )
    return forget_rewards(turns, gaps), skipped


def _replay(words: TextObservationWrapper, episode: Any) -> Iterator[Demonstration | None]:
    """Return the turns of the episode that the env shows; ``None`` where the action has no phrase."""
    words.reset()
    for place in range(len(episode.rewards)):
        prompt = words.prompt
        if not prompt.actions:
            raise ValueError(
                "the env's actions have no phrases: make the wrapper with action_bins, or with a task that names them"
            )
        phrase = words.phrase_of(_entry(episode.actions, place))
        reward, name = float(episode.rewards[place]), int(episode.id)
        cut = bool(episode.truncations[place]) and not bool(episode.terminations[place])
        known = phrase is not None
        yield Demonstration(prompt=prompt, action=phrase, reward=reward, episode=name, truncated=cut) if known else None
        words.step(phrase or prompt.actions[0])


def _load(name: str) -> Any:
    """Load a data set of this machine by its id."""
    try:
        import minari
    except ImportError as error:
        raise ImportError(f"{error}; {MISSING}") from error
    return minari.load_dataset(name)


def wrapper_in(env: gym.Env) -> TextObservationWrapper:
    """Return the wrapper that puts an env into words.

    :param env: a :class:`~lmpolicy.TextObservationWrapper`, wrapped or not.
    :raises TypeError: if there is no such wrapper.
    """
    EnvWords.of(env)
    inner: Any = env
    while isinstance(inner, gym.Wrapper):
        if isinstance(inner, TextObservationWrapper):
            return inner
        inner = inner.env
    raise TypeError("env must be a single env in TextObservationWrapper, which puts its observations into words")


def _arguments(wrapper: TextObservationWrapper) -> dict[str, Any]:
    """Return the arguments that the wrapper was made with, and its task."""
    return {**wrapper._saved_kwargs, "task": wrapper.task}


def _check_spaces(dataset: Any, wrapper: TextObservationWrapper) -> None:
    """Refuse a data set of another env. Spaces of several parts are not compared, because texts in them differ."""
    pairs = (
        ("actions", dataset.action_space, wrapper.env.action_space),
        ("observations", dataset.observation_space, wrapper.env.observation_space),
    )
    for name, recorded, own in pairs:
        if not isinstance(own, gym.spaces.Dict | gym.spaces.Tuple) and recorded != own:
            raise ValueError(f"the data set is of another env: its {name} are {recorded}, those of the env {own}")


def _entry(values: Any, place: int) -> Any:
    """Return what belongs to one step in values of any space."""
    if isinstance(values, Mapping):
        return {name: _entry(part, place) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_entry(part, place) for part in values)
    return values[place]


def _entries(values: Any, length: int) -> Iterator[Any]:
    return (_entry(values, place) for place in range(length))


def _infos(infos: Any, length: int) -> Iterator[dict[str, Any]]:
    """Return the info of each step; empty ones where none were recorded."""
    return (_entry(infos, place) if infos else {} for place in range(length))
