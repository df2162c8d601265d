"""What text games have in common whose simulator runs in Java."""

from __future__ import annotations

import importlib
import shutil
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from lmpolicy.envs._textworld_games import chosen_game
from lmpolicy.envs.textworld import CHARACTERS, LONGEST, PARTS
from lmpolicy.text.counts import is_count

SPLITS = ("train", "dev", "test")
LONGEST_COMMAND = 200
NO_LIMIT = 10**9
"""Steps after which a game itself ends. ``gymnasium.make`` limits the steps instead."""


class JavaGame(gym.Env):
    """Play a text game whose simulator runs in Java.

    :param package: the package of the simulator.
    :param split: ``"train"``, ``"dev"`` or ``"test"``.
    :param games: number of different games; ``None``: all of the split.
    :param render_mode: ``"ansi"``: :meth:`render` returns what the game last wrote.
    :raises ImportError: if the package is not installed.
    :raises OSError: if there is no Java.
    :raises ValueError: if a parameter is out of range.
    :raises TypeError: for another render mode.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(self, package: str, split: str, games: int | None, render_mode: str | None) -> None:
        self._module = require_java(package)
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}; got {split!r}")
        if games is not None and not is_count(games, 1):
            raise ValueError(f"games is the number of different games, 1 or more; got {games!r}")
        if render_mode not in (None, "ansi"):
            raise TypeError(f'render_mode is "ansi" or None, got {render_mode!r}')
        self.split, self.games, self.render_mode = split, None if games is None else int(games), render_mode
        text: dict[str, spaces.Space[Any]] = {
            part: spaces.Text(LONGEST, min_length=0, charset=CHARACTERS) for part in (*PARTS, "way_back")
        }
        self.observation_space = spaces.Dict(text)
        self.action_space = spaces.Text(LONGEST_COMMAND, charset=CHARACTERS)
        self._game: Any = None
        self._score, self._feedback = 0.0, ""

    @abstractmethod
    def _open(self) -> Any:
        """Start the simulator."""

    @abstractmethod
    def _numbers(self) -> Sequence[int]:
        """List the numbers of the games of the split."""

    @abstractmethod
    def _start(self, number: int) -> tuple[str, dict[str, Any]]:
        """Start a game; return what it says, and what it knows of its state."""

    @abstractmethod
    def _read(self, known: dict[str, Any]) -> tuple[dict[str, str], float, bool, Sequence[str]]:
        """Return goal, room and what is carried, the score, whether the game has ended, and the commands."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Start a game that is drawn at random.

        :param seed: decides which games this reset and the following ones draw. Nothing else is random.
        :param options: ``{"game": i}`` starts the i-th of the split, counted from 0.
        :raises ValueError: if there is no such game.
        """
        super().reset(seed=seed)
        if self._game is None:
            self._game = self._open()
        numbers = self._numbers()[: self.games]
        drawn = int(self.np_random.integers(len(numbers)))
        self._feedback, known = self._start(numbers[chosen_game(options, drawn, len(numbers))])
        observation, self._score, _, info = self._told(known)
        return {**observation, "feedback": ""}, info

    def step(self, action: str) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        """Give the game a command.

        :param action: any text. Where the game does not understand it, its answer says so.
        """
        self._feedback, _, _, known = self._game.step(" ".join(action.split())[:LONGEST_COMMAND])
        before = self._score
        observation, self._score, ended, info = self._told(known)
        return observation, self._score - before, ended, False, info

    def render(self) -> str | None:
        """Return what the game last wrote."""
        return self._feedback if self.render_mode == "ansi" else None

    def close(self) -> None:
        """End the simulator."""
        if self._game is not None:
            self._game.close()
        self._game = None

    def _told(self, known: dict[str, Any]) -> tuple[dict[str, str], float, bool, dict[str, Any]]:
        parts, score, ended, commands = self._read(known)
        texts = {**parts, "feedback": self._feedback, "way_back": ""}
        observation = {part: _printable(text)[:LONGEST] for part, text in texts.items()}
        info = {
            "admissible_commands": tuple(sorted({_printable(command) for command in commands})),  # in any order there
            "score": score,
            "max_score": 1.0,
            "won": ended and score >= 1,
            "lost": ended and score < 1,
        }
        return observation, score, ended, info


def require_java(package: str) -> Any:
    """Import the package of a simulator.

    :param package: as pip calls it.
    :raises ImportError: if it is not installed. The message says how to install it.
    :raises OSError: if there is no Java. The message says what to do.
    """
    try:
        module = importlib.import_module(package.replace("-", "_"))
    except ImportError as error:
        raise ImportError(f'{error}; this env needs: pip install "lmpolicy[{package}]" (and Java)') from error
    if shutil.which("java") is None:
        raise OSError(
            f"{package} runs in Java, and there is no java on the path: install a Java runtime, version 8 or newer, "
            "e.g. apt install default-jre-headless, or conda install openjdk"
        )
    return module


def _printable(text: str) -> str:
    return "".join(character if character in CHARACTERS else "?" for character in text)
