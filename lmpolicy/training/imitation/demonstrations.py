"""Keep what an expert, a person or the agent itself has played, to learn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, overload

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.training.imitation.demonstration import NOTHING, Demonstration, EnvWords, cut_out
from lmpolicy.training.imitation.demonstration_files import read_turns, write_jsonl
from lmpolicy.training.imitation.playing import Player, Predictor, play_as_model, play_episodes
from lmpolicy.training.imitation.recorded import read_minari

T = TypeVar("T", bound="Demonstrations")


class Demonstrations:
    """Hold turns that somebody played; it never changes.

    A turn is a prompt with what was done: the phrase that was taken, or the answer that was written.
    :func:`~lmpolicy.warm_start` learns from them.

    Example:
        >>> import gymnasium as gym
        >>> from lmpolicy import Demonstrations, TextObservationWrapper
        >>> env = TextObservationWrapper(gym.make("Blackjack-v1"))
        >>> def careful(prompt, info):
        ...     return "hit" if "total is 1" in prompt.messages[-1][1] else "stick"
        >>> played = Demonstrations.from_player(env, careful, episodes=10, seed=0)
        >>> len(played.episodes), played[0].action
        (10, 'hit')

    :param turns: any number of turns. Those of one episode are in their order. Episodes are numbered anew.
    :param skipped: how many turns were left out on the way, by reason.
    :raises TypeError: if one of them is no :class:`~lmpolicy.training.imitation.demonstration.Demonstration`.
    """

    def __init__(self, turns: Iterable[Demonstration] = (), skipped: Mapping[str, int] = NOTHING) -> None:
        numbers: dict[int | str, int] = {}
        kept = []
        for turn in turns:
            if not isinstance(turn, Demonstration):
                raise TypeError(f"Demonstrations hold turns (Demonstration), got {type(turn).__name__}")
            name = turn.episode
            number = None if name is None else numbers.setdefault(name, len(numbers))
            kept.append(turn if number == name else replace(turn, episode=number))
        self._turns = tuple(kept)
        self.skipped: Mapping[str, int] = MappingProxyType(dict(skipped))
        """How many turns were left out, by reason."""
        together: dict[int | str, list[int]] = {}
        for place, turn in enumerate(self._turns):
            together.setdefault(f"alone {place}" if turn.episode is None else turn.episode, []).append(place)
        self.episodes: tuple[tuple[int, ...], ...] = tuple(tuple(places) for places in together.values())
        """Places of the turns of each episode. A turn that stands alone is an episode by itself."""

    @classmethod
    def from_jsonl(
        cls: type[T],
        path: str | Path,
        env: gym.Env | VecEnv | None = None,
        *,
        unknown: str = "refuse",
        too_long: str = "refuse",
    ) -> T:
        """Read a file with a turn on each line, in the form of a chat.

        A line has ``messages``; ``actions``, the legal phrases; ``action``, the phrase that was taken, or ``answer``,
        the text that was written. It may have ``weight``, ``reward`` of the step, ``return`` from the turn on,
        ``episode`` and ``truncated``. The answer may also be the last message, from the assistant. Lines of
        ``turns.jsonl`` are read, too.

        :param path: file to read.
        :param env: env that the turns are for. Its phrases take the place of ``actions`` that a line does not have.
            ``None``: turns are only compared with themselves.
        :param unknown: about a turn whose action is no legal phrase. ``"refuse"``: an error. ``"count"``: the turn is
            left out, and counted in :attr:`skipped`.
        :param too_long: the same about a prompt that is too long for the rows of the env.
        :raises ValueError: if a line cannot be read, or its turn is of another env; the message names file and line.
        """
        words = None if env is None else EnvWords.of(env)
        return cls(*read_turns(Path(path), words, unknown, too_long))

    @classmethod
    def from_turns(
        cls: type[T],
        path: str | Path,
        env: gym.Env | VecEnv | None = None,
        *,
        unknown: str = "refuse",
        too_long: str = "refuse",
    ) -> T:
        """Read what :class:`~lmpolicy.WatchLearning` wrote of a training.

        These turns are single ones of many episodes. Correct them by hand, or leave out what was done badly.

        :param path: ``turns.jsonl``, or the folder that it is in.
        :param env: as for :meth:`from_jsonl`.
        :param unknown: as for :meth:`from_jsonl`. Answers that could not be read have no phrase.
        :param too_long: as for :meth:`from_jsonl`.
        :raises ValueError: as for :meth:`from_jsonl`.
        """
        path, words = Path(path), None if env is None else EnvWords.of(env)
        path = path / "turns.jsonl" if path.is_dir() else path
        return cls(*read_turns(path, words, unknown, too_long, only_watched=True))

    @classmethod
    def from_minari(cls: type[T], dataset: Any, env: gym.Env, *, unknown: str = "refuse") -> T:
        """Put a data set of Minari into words.

        The env puts the recorded observations into words, and takes no step.

        :param dataset: a ``minari.MinariDataset``, or the id of one on this machine.
        :param env: the env of the data set in a :class:`~lmpolicy.TextObservationWrapper`.
        :param unknown: about actions that no phrase stands for, as for :meth:`from_jsonl`.
        :raises ImportError: if the package is not installed; the message says how to install it.
        :raises ValueError: if the data set is of another env, or an action has no phrase.
        """
        return cls(*read_minari(dataset, env, unknown))

    @classmethod
    def from_player(cls: type[T], env: gym.Env, play: Player, episodes: int, seed: int | None = None) -> T:
        """Let a function play: an expert, a scripted bot, or a person at the terminal.

        :param env: a :class:`~lmpolicy.TextObservationWrapper`, wrapped or not.
        :param play: is given the prompt and the env's info, and returns a legal phrase or its index; where the policy
            writes, a text. :func:`~lmpolicy.play_in_terminal` asks a person. It raises
            :class:`~lmpolicy.training.imitation.playing.StopPlaying` to end; whole episodes are then kept.
        :param episodes: number of episodes.
        :param seed: seed of the first episode. The others follow from it.
        :raises ValueError: if the player returns what is not legal.
        """
        return cls(play_episodes(env, play, episodes, seed))

    @classmethod
    def from_policy(
        cls: type[T],
        model: Predictor,
        env: gym.Env | VecEnv,
        episodes: int,
        *,
        keep_best: int | float | None = None,
        deterministic: bool = False,
        seed: int | None = None,
        expert: Player | None = None,
    ) -> T:
        """Let a model play, and keep its best episodes, or what an expert would have done in them.

        With an expert, this is a round of DAgger (Ross et al. 2011): the model plays, and each turn is kept with what
        the expert says. So the model learns what to do where its own mistakes lead, which no expert's episodes show.
        Rewards are those of what was played.

        :param model: learner or policy for the env.
        :param env: env in words, or a VecEnv of some. Rewards are kept as the env gives them, without scaling.
        :param episodes: number of episodes that are played.
        :param keep_best: what :meth:`best` is given. ``None``: all are kept.
        :param deterministic: whether the model takes its most likely action instead of sampling one.
        :param seed: seed of the envs. Sampled actions depend on torch's own random numbers besides.
        :param expert: a player as of :meth:`from_player`, which may be a person, too. It needs one env, not a VecEnv.
        :raises ValueError: if the expert says what is not legal.
        """
        played = cls(play_as_model(model, env, episodes, deterministic, seed, expert))
        return played if keep_best is None else played.best(keep_best)

    def save(self, path: str | Path) -> Path:
        """Write a file that :meth:`from_jsonl` reads.

        :param path: file to write. It appears when all of it is written.
        :return: the file.
        """
        return write_jsonl(Path(path), self._turns)

    def split(self: T, fraction: float, seed: int = 0) -> tuple[T, T]:
        """Divide the episodes into two parts at random.

        :param fraction: share of the episodes in the second part, above 0 and below 1. It has at least one episode, and
            so has the first.
        :param seed: seed of the choice.
        :return: the first and the second part; turns stay in their order.
        :raises ValueError: if there are fewer than two episodes, or the fraction is out of range.
        """
        second = set(self.held_out(fraction, seed))
        first = [turn for place, turn in enumerate(self._turns) if place not in second]
        return type(self)(first, self.skipped), type(self)(self._turns[place] for place in sorted(second))

    def held_out(self, fraction: float, seed: int = 0) -> list[int]:
        """Return the places of the turns that are in the second part of :meth:`split`.

        :param fraction: as for :meth:`split`.
        :param seed: as for :meth:`split`.
        :raises ValueError: as for :meth:`split`.
        """
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction < 1:
            raise ValueError(f"fraction is a share of the episodes, above 0 and below 1; got {fraction!r}")
        count = len(self.episodes)
        if count < 2:
            raise ValueError(f"{count} episode cannot be divided into two parts: give more episodes")
        size = min(count - 1, max(1, round(fraction * count)))
        chosen = np.random.default_rng(seed).permutation(count)[:size]
        return [place for number in chosen for place in self.episodes[number]]

    def best(self: T, n: int | float) -> T:
        """Keep the episodes with the highest returns.

        A return is the sum of an episode's rewards, without discount; where they are not known, the ``return`` of its
        first turn.

        :param n: number of episodes; or as a float, their share, above 0 and at most 1. At least one is kept.
        :raises ValueError: if a return is not known, or ``n`` is out of range.
        """
        whole = isinstance(n, int) and not isinstance(n, bool) and n >= 1
        if not whole and not (isinstance(n, float) and 0 < n <= 1):
            raise ValueError(f"best() takes a number of episodes (1, 2, ...) or their share as a float; got {n!r}")
        returns = [self._episode_return(places) for places in self.episodes]
        known = [value for value in returns if value is not None]
        if len(known) < len(returns):
            raise ValueError(
                f"{len(returns) - len(known)} of {len(returns)} episodes have neither rewards nor a return, so "
                "that the best are not known"
            )
        size = int(n) if whole else max(1, round(n * len(known)))
        order = sorted(range(len(known)), key=lambda place: -known[place])  # stable: of equal ones, the first
        places = sorted(place for number in order[:size] for place in self.episodes[number])
        return type(self)((self._turns[place] for place in places), self.skipped)

    def returns(self, gamma: float) -> list[float | None]:
        """Return the discounted return from each turn on.

        It is the sum of the rewards until the end of the episode. Where a reward is not known, or the episode was cut
        off, it is the ``return`` of the turn, or ``None``.

        :param gamma: discount per env step.
        """
        found = [turn.return_ for turn in self._turns]
        for places in self.episodes:
            rewards = self._rewards(places)
            if rewards is None or self._turns[places[-1]].truncated:
                continue
            total = 0.0
            for place, reward in zip(reversed(places), reversed(rewards), strict=True):
                total = found[place] = reward + gamma * total
        return found

    def rewards(self) -> list[list[float]]:
        """Return the rewards of each episode, where all of them are known."""
        found = [self._rewards(places) for places in self.episodes]
        return [rewards for rewards in found if rewards is not None]

    def _rewards(self, places: tuple[int, ...]) -> list[float] | None:
        """Return the rewards of an episode; ``None`` if one is missing, or the turn stands alone."""
        rewards = [reward for place in places if (reward := self._turns[place].reward) is not None]
        alone = self._turns[places[0]].episode is None
        return None if alone or len(rewards) < len(places) else rewards

    def _episode_return(self, places: tuple[int, ...]) -> float | None:
        rewards = self._rewards(places)
        return self._turns[places[0]].return_ if rewards is None else sum(rewards)

    def __add__(self: T, other: Demonstrations) -> T:
        if not isinstance(other, Demonstrations):
            return NotImplemented
        first = len(self.episodes)
        moved = (
            turn if turn.episode is None else replace(turn, episode=first + int(turn.episode)) for turn in other._turns
        )
        return type(self)((*self._turns, *moved), Counter(self.skipped) + Counter(other.skipped))

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[Demonstration]:
        return iter(self._turns)

    @overload
    def __getitem__(self, place: int) -> Demonstration: ...

    @overload
    def __getitem__(self: T, place: slice) -> T: ...

    def __getitem__(self: T, place: int | slice) -> Demonstration | T:
        if isinstance(place, slice):
            return type(self)(cut_out(self._turns, self.episodes, place), self.skipped)
        return self._turns[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Demonstrations) and self._turns == other._turns

    def __hash__(self) -> int:
        return hash(self._turns)

    def __repr__(self) -> str:
        left = "".join(f", {count} left out ({reason})" for reason, count in sorted(self.skipped.items()))
        plural = "" if len(self.episodes) == 1 else "s"
        return f"Demonstrations({len(self)} turns of {len(self.episodes)} episode{plural}{left})"
