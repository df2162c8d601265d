"""Let groups of episodes start from the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from lmpolicy.text.spaces import TextSpace
from lmpolicy.training.copyable_wrapper import CopyableVecEnvWrapper


@dataclass(eq=False)
class Episode:
    """Hold what is known of an episode of a group."""

    peers: list[Episode] = field(repr=False)
    """All episodes that started from the same seed, this one included."""
    seed: int
    """Seed that the env was reset with."""
    rewards: list[float] = field(default_factory=list)
    """Rewards so far, which :class:`~lmpolicy.GroupAdvantages` notes."""
    steps: int = 0
    """Number of steps so far."""
    ended: bool = False
    """Whether the episode is complete, by itself or by a time limit."""

    @property
    def is_known(self) -> bool:
        """Whether all rewards are known. Where a training is broken off, the learner drops the step that it is at."""
        return len(self.rewards) == self.steps


class EpisodeGroups(CopyableVecEnvWrapper):
    """Let ``group_size`` episodes start from the same seed, for advantages that compare them.

    The copies of the env are split into groups of ``group_size``. The copies of a group share one row of seeds: each
    seed is given to the next copies of the group that begin an episode, until ``group_size`` episodes have started
    from it. No copy waits for another one. A copy with short episodes plays more of them, and may play a seed twice,
    so the episodes of a seed are near each other in time, however different their lengths are.

    The seed also sets the random numbers of the env after the start. Two episodes of a seed with the same actions are
    equal, so what differs in their returns comes from the actions.

    Stable-Baselines3 resets an env that has ended without a seed. This wrapper resets it once more with its seed, so
    each episode takes two resets.

    Example:
        >>> import lmpolicy
        >>> env = lmpolicy.EpisodeGroups(lmpolicy.hyperparameters("CartPole-v1").make_env(), group_size=4, seed=0)
        >>> rows = env.reset()
        >>> [bool((rows[i] == rows[0]).all()) for i in range(8)]
        [True, True, True, True, False, False, False, False]

    :param venv: copies of one env in words, e.g. from :meth:`lmpolicy.Hyperparameters.make_env`. Scaled rewards may be
        inside or outside of this wrapper.
    :param group_size: number of episodes that start from a seed. The number of copies is a multiple of it.
    :param seed: seed of the seeds. Together with the seed that the learner gives to its env, it decides about all
        episodes. ``None``: the learner's seed alone, or chance if the learner has none.
    :param training: whether to group. ``False``, for an evaluation whose env is wrapped like that of the training: each
        episode has a start of its own.
    :raises TypeError: if ``venv`` is no vectorised env in words; the message says how to make one.
    :raises ValueError: if there are no two episodes in a group, the copies do not fit into groups, a group has copies
        of different envs, or the seed is negative; the message names what fits.
    """

    def __init__(self, venv: VecEnv, group_size: int, seed: int | None = None, *, training: bool = True) -> None:
        _check(venv, group_size, training)
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ValueError(f"seed is a whole number from 0 on, or None for the learner's alone, got {seed!r}")
        super().__init__(venv)
        self.group_size = group_size
        self._alike = group_size if training else 1
        self.current: list[Episode] = []
        """The running episode of each copy."""
        self.stepped: list[Episode] = []
        """The episode of each copy that the last step belonged to."""
        self.cut_off: dict[int, Any] = {}
        """Last observations of episodes that a time limit ended in the last step, by copy."""
        self._given: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self._base = [0 if seed is None else seed, 0 if seed is not None else _chance()]
        self._rows = [_SeedRow(group, self._alike) for group in range(self.num_envs // self._alike)]
        self._moved = False

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Begin the seeds anew.

        :param seed: as in Stable-Baselines3.
        """
        seeds = self.venv.seed(seed)
        self._base[1] = _chance() if seeds[0] is None else seeds[0]
        self._rows = [_SeedRow(group, self._alike) for group in range(len(self._rows))]
        self._moved = False
        return seeds

    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Set the options of the next reset, which are used once as in Stable-Baselines3.

        :param options: for all copies, or one for each. The options of a group are equal.
        :raises ValueError: if the options of a group differ, because then its episodes would not start alike, or if
            there are not as many as copies.
        """
        given = deepcopy(options) if isinstance(options, list) else [deepcopy(options or {}) for _ in self._given]
        if len(given) != self.num_envs:
            raise ValueError(
                f"there are options for {len(given)} of {self.num_envs} copies: pass one dict, or one for each"
            )
        for start in range(0, self.num_envs, self._alike):
            if any(one != given[start] for one in given[start : start + self._alike]):
                raise ValueError(
                    f"the options of copies {start} to {start + self._alike - 1} differ, so that their episodes "
                    "would not start alike: pass equal options for the copies of a group"
                )
        self._given = given
        self.venv.set_options(options)

    def reset(self) -> VecEnvObs:
        """Start all episodes. After a step, they start from new seeds."""
        observations = np.array(self.venv.reset())
        for row in self._rows:
            row.restart(anew=self._moved)
        self._moved, self.stepped, self.cut_off, self.current = False, [], {}, []
        for number in range(self.num_envs):
            self.current.append(self._next_episode(number))
            observations[number] = self._begin(number, self._given[number])
        self._given = [{} for _ in range(self.num_envs)]
        self.venv.unwrapped.reset_infos = list(self.reset_infos)
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step, and start episodes with their seeds where others have ended."""
        observations, rewards, dones, infos = self.venv.step_wait()
        self._moved, self.stepped, self.cut_off = True, list(self.current), {}
        for episode in self.stepped:
            episode.steps += 1
        ended = np.flatnonzero(dones).tolist()
        observations = np.array(observations)
        for number in ended:
            self.current[number].ended = True
            if infos[number].get("TimeLimit.truncated", False):
                self.cut_off[number] = infos[number]["terminal_observation"]
            self.current[number] = self._next_episode(number)
            observations[number] = self._begin(number, {})
        self.venv.unwrapped.reset_infos = list(self.reset_infos)  # where callbacks look for them
        return observations, rewards, dones, infos

    def _next_episode(self, number: int) -> Episode:
        row = self._rows[number // self._alike]
        place, peers = row.take()
        seed = int(np.random.SeedSequence([*self._base, row.group, place]).generate_state(1)[0]) % 2**31
        episode = Episode(peers, seed)
        peers.append(episode)
        return episode

    def _begin(self, number: int, options: dict[str, Any]) -> NDArray[Any]:
        """Reset a copy with the seed of its episode."""
        arguments = {"seed": self.current[number].seed, **({"options": options} if options else {})}
        ((row, info),) = self.venv.env_method("reset", indices=[number], **arguments)
        self.reset_infos[number] = info
        return row


class _SeedRow:
    """Say from which seed the next episode of a group starts.

    :param group: number of the group.
    :param group_size: number of episodes that start from a seed.
    """

    def __init__(self, group: int, group_size: int) -> None:
        self.group, self.group_size = group, group_size
        self._first = self._place = 0  # of the seeds in the row
        self._peers: list[Episode] = []

    def restart(self, anew: bool) -> None:
        """Drop the episodes that were running.

        :param anew: whether to go on to seeds that no episode has started from.
        """
        self._first = self._place + 1 if anew else self._first
        self._place, self._peers = self._first, []

    def take(self) -> tuple[int, list[Episode]]:
        """Return the place of the next episode's seed in the row, and the episodes that started from it so far."""
        if len(self._peers) == self.group_size:
            self._place, self._peers = self._place + 1, []
        return self._place, self._peers


def groups_around(venv: VecEnv) -> EpisodeGroups | None:
    """Find the wrapper that groups episodes.

    :param venv: vectorised env with its wrappers.
    :return: ``None`` if there is none.
    """
    while isinstance(venv, VecEnvWrapper):
        if isinstance(venv, EpisodeGroups):
            return venv
        venv = venv.venv
    return None


def _check(venv: Any, group_size: Any, training: bool) -> None:
    if not isinstance(venv, VecEnv) or not isinstance(venv.observation_space, TextSpace):
        raise TypeError(
            f"EpisodeGroups takes copies of an env in words, got {venv!r}: make them with "
            "lmpolicy.hyperparameters(env_id).make_env(), or with make_vec_env and wrapper_class=TextObservationWrapper"
        )
    if groups_around(venv) is not None:
        raise ValueError("the envs are in EpisodeGroups already: wrap them once")
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 2:
        raise ValueError(
            f"group_size is the number of episodes that are compared, 2 or more, got {group_size!r}: an episode alone "
            "has nothing to be compared with"
        )
    if not training:
        return
    sizes = [size for size in range(2, venv.num_envs + 1) if venv.num_envs % size == 0]
    if group_size not in sizes:
        fitting = f"pass group_size={' or '.join(map(str, sizes))}, or make" if sizes else "make"
        raise ValueError(
            f"{venv.num_envs} copies of the env cannot be split into groups of {group_size}: {fitting} a multiple of "
            f"{group_size} copies, make_env(n_envs={group_size * max(1, venv.num_envs // group_size)})"
        )
    names: list[str] = venv.get_attr("env_id") if venv.has_attr("env_id") else []  # of make_multi_env
    for start in range(0, len(names), group_size):
        if len(set(names[start : start + group_size])) > 1:
            raise ValueError(
                f"copies {start} to {start + group_size - 1} are of different envs ({', '.join(sorted(set(names)))}), "
                f"whose returns cannot be compared: make a multiple of {group_size} copies of each"
            )


def _chance() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])
