"""Record episodes as a data set of Minari."""

from __future__ import annotations

import copy
import importlib
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.report.recording import record_episodes, single_env
from lmpolicy.text.action_masks import MASK
from lmpolicy.training.imitation.recorded import wrapper_in

NAME = re.compile(r"([-\w][-\w/]*[-\w]/)?[-\w]+-v\d+")
MISSING = 'data sets of Minari need two packages: pip install "lmpolicy[minari]"'


def record_minari(
    model: Any,
    env: gym.Env | VecEnv,
    n: int,
    dataset_id: str,
    *,
    deterministic: bool = True,
    seed: int | None = None,
    **about: Any,
) -> Any:
    """Let a model play whole episodes, and keep them as a data set of Minari.

    The data set holds what any learner from data reads: the env's own observations, actions and rewards, and the masks
    of legal actions where the env gives any in its info. :meth:`lmpolicy.Demonstrations.from_minari` puts it into words
    again. It lies where Minari keeps its data sets, see ``MINARI_DATASETS_PATH``.

    Example:
        >>> import gymnasium as gym
        >>> import lmpolicy
        >>> env = lmpolicy.TextObservationWrapper(gym.make("Blackjack-v1"))
        >>> dataset = lmpolicy.record_minari(  # doctest: +SKIP
        ...     lambda prompt, info: "stick", env, 10, "blackjack/stick-v0", author="me", description="always sticks"
        ... )

    :param model: what plays, as for :func:`~lmpolicy.record_episodes`.
    :param env: a :class:`~lmpolicy.TextObservationWrapper`, wrapped or not, or a ``DummyVecEnv`` of one.
    :param n: number of episodes.
    :param dataset_id: name of the data set, such as ``"cartpole/lm-v0"``. There must be none of that name yet.
    :param deterministic: whether a model takes its most likely action instead of sampling one.
    :param seed: seed of the first episode. The others have the seeds after it. ``None``: no seeds.
    :param about: what Minari keeps beside the episodes, see ``minari.create_dataset_from_buffers``: ``author``,
        ``author_email``, ``algorithm_name``, ``code_permalink``, ``description`` and more.
    :return: the ``minari.MinariDataset``.
    :raises ImportError: if Minari or h5py is not installed; the message says how to install both.
    :raises FileExistsError: if there is such a data set; the message says how to delete it.
    :raises TypeError: if Minari cannot store the env's spaces.
    :raises ValueError: if the name is none for Minari.
    """
    minari = _minari()
    _check_name(minari, dataset_id)
    words = wrapper_in(single_env(env))
    inner = words.env
    _check_env(inner)
    words.env = steps = Steps(inner)
    try:
        played = record_episodes(model, env, n, deterministic=deterministic, seed=seed)
    finally:
        words.env = inner
    whole = steps.episodes[: len(played)]  # a person may have left in the middle of one
    seeds = [None if seed is None else seed + number for number in range(len(whole))]
    buffers = [_buffer(one, number, seeds[number]) for number, one in enumerate(whole)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what it would like to know is for its own collection
        return minari.create_dataset_from_buffers(dataset_id, buffers, env=inner, **about)


@dataclass
class _Episode:
    """Hold what an env said in an episode."""

    observations: list[Any]
    masks: list[Any]
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminations: list[bool] = field(default_factory=list)
    truncations: list[bool] = field(default_factory=list)


class Steps(gym.Wrapper[Any, Any, Any, Any]):
    """Keep what an env is told and says, episode by episode.

    :param env: the env inside a :class:`~lmpolicy.TextObservationWrapper`.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.episodes: list[_Episode] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.episodes.append(_Episode([copy.deepcopy(observation)], [copy.deepcopy(info.get(MASK))]))
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step of the env."""
        given = copy.deepcopy(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        episode = self.episodes[-1]
        episode.observations.append(copy.deepcopy(observation))  # some envs fill the same array at every step
        episode.masks.append(copy.deepcopy(info.get(MASK)))
        episode.actions.append(given)
        episode.rewards.append(float(reward))
        episode.terminations.append(bool(terminated))
        episode.truncations.append(bool(truncated))
        return observation, reward, terminated, truncated, info


def _buffer(episode: _Episode, number: int, seed: int | None) -> Any:
    """Return an episode as Minari stores it."""
    known = all(mask is not None for mask in episode.masks)
    return importlib.import_module("minari.data_collector").EpisodeBuffer(
        id=number,
        seed=seed,
        observations=_columns(episode.observations),
        actions=_columns(episode.actions),
        rewards=episode.rewards,
        terminations=episode.terminations,
        truncations=episode.truncations,
        infos={MASK: _columns(episode.masks)} if known else None,
    )


def _columns(values: Sequence[Any]) -> Any:
    """Turn a list of values of a space into a list for each of its parts."""
    first = values[0]
    if isinstance(first, Mapping):
        return {name: _columns([one[name] for one in values]) for name in first}
    if isinstance(first, tuple):
        return tuple(_columns([one[place] for one in values]) for place in range(len(first)))
    return list(values)


def _minari() -> Any:
    """Import Minari, and what it stores data sets with."""
    try:
        importlib.import_module("h5py")
        return importlib.import_module("minari")
    except ImportError as error:
        raise ImportError(f"{error}; {MISSING}") from error


def _check_name(minari: Any, dataset_id: str) -> None:
    """Refuse a name that Minari would refuse after the episodes are played."""
    if not NAME.fullmatch(dataset_id):
        raise ValueError(
            f"{dataset_id!r} is no name of a data set: it has a name, a version and perhaps a namespace of two or more "
            'letters, for instance "cartpole/lm-v0"'
        )
    if dataset_id in minari.list_local_datasets():
        raise FileExistsError(
            f"there is a data set {dataset_id!r}: give another name or version, or delete it with "
            f"minari.delete_dataset({dataset_id!r})"
        )


def _check_env(env: gym.Env) -> None:
    """Refuse an env that Minari would refuse after the episodes are played."""
    serialize_space = importlib.import_module("minari.serialization").serialize_space
    for name, space in (("observations", env.observation_space), ("actions", env.action_space)):
        try:
            serialize_space(space)
        except NotImplementedError as error:
            raise TypeError(
                f"Minari cannot store the {name} of the env ({error}). Wrap the env so that they are Box, Discrete, "
                "MultiDiscrete, MultiBinary, Text, or a Dict or Tuple of these, or keep the episodes in words: "
                "record_episodes(model, env, n, path)"
            ) from error
