"""TextWorld in words: text adventures with a goal, where every command that works right now is a legal action.

Environment: ``lmpolicy/TextWorld-v0`` (``pip install ".[textworld]"``), a Gymnasium env around games of
Microsoft's TextWorld, which are made on demand; see :class:`TextWorldEnv`.

Observation text: the goal, the room, what is carried, and what the game answered to the last command, where that is
more than the room.

Action phrases: the commands that the game admits in this state, e.g. ``go north``, ``take coin from table``, as they
change. With ``TextWorld(useful_only=True)`` only those that do more than to tell again what the observation says.

Reward: points gained in this step (a quest is worth one, some games more); with ``reward="progress"`` 1 for a step on
the way to the goal and -1 for one away from it. Terminates when the game is won or lost; truncated after 50 steps, or
``max_episode_steps`` of ``gymnasium.make``. An observation is only the room. To tell what was seen before, wrap with
``history=2``, or use ``TextWorld(tell_way_back=True)``, which tells from where the player came.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from lmpolicy.envs._textworld_games import chosen_game, make_games, require_textworld, unscored
from lmpolicy.text.task import TextTask

LONGEST, LONGEST_COMMAND = 8192, 100
"""Largest number of characters of a text in an observation, and of a command. Longer texts are cut."""
STATUS = re.compile(r"-= [^=]* =-\s*\d+/\d+\s*$")
"""The status line behind an answer: room, score and moves."""
CHARACTERS = frozenset(string.printable)
PARTS = ("objective", "description", "inventory", "feedback")
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
REWARDS = ("score", "progress")
DEFAULT_CHALLENGE = "coin_collector"
REPORTS = re.compile(r"look$|inventory$|examine (?!.*cookbook)")
"""Commands that change nothing and tell nothing new. Only a cookbook tells something that the observation does not."""


class TextWorldEnv(gym.Env):
    """Play a game of TextWorld. Where there are several games, each reset draws one.

    Example:
        >>> env = gym.make("lmpolicy/TextWorld-v0", level=3, games=20)  # doctest: +SKIP
        >>> observation, info = env.reset(seed=0)  # doctest: +SKIP
        >>> info["admissible_commands"]  # doctest: +SKIP
        ('go east', 'inventory', 'look')

    Observations are the texts ``objective``, ``description`` (of the room), ``inventory``, ``feedback`` (the game's
    answer to the last command) and ``way_back`` (the direction from which this room was entered; empty in the first).
    An action is a command, any text. ``info`` has ``admissible_commands``, ``score``, ``max_score``, ``won``, ``lost``,
    ``moves``, ``room`` (the room's name) and ``game`` (the file's name).

    :param game: file of a game (.z8 with its .json, as ``tw-make`` writes them), or several files. Default: games of a
        challenge, as the following parameters say. They are made when they are first needed, and kept.
    :param challenge: ``"coin_collector"``, ``"treasure_hunter"``, ``"simple"``, ``"cooking"``, or ``"custom"``.
    :param level: of coin collector (1 to 300) and treasure hunter (1 to 30): short for
        ``challenge_settings={"level": ...}``.
    :param challenge_settings: the challenge's options of ``tw-make``, with underscores, e.g.
        ``{"recipe": 1, "open": True}`` for cooking, ``{"world_size": 5, "nb_objects": 10, "quest_length": 3}`` for
        custom. ``"only_last_action": True`` and other options of the grammar work with all challenges. With
        ``"only_last_action"``, the objective names the goal and not the way.
    :param games: number of different games.
    :param split: ``"train"``, ``"validation"`` or ``"test"``: games with seeds of their own.
    :param reward: ``"score"`` or ``"progress"``. Where every game has a map of its own, ``"progress"`` rewards learning
        the maps by heart, because after a wrong turn the right way is back. For such games, train on the score with
        :class:`lmpolicy.training.shaping.DiscoveryReward`.
    :param folder: folder where games are kept. Default: ``$LMPOLICY_CACHE/textworld``, or
        ``~/.cache/lmpolicy/textworld``.
    :param render_mode: ``"ansi"``: :meth:`render` returns what the game last wrote.
    :raises ImportError: if textworld is not installed.
    :raises ValueError: if a parameter is out of range.
    :raises TypeError: for another render mode.
    :raises FileNotFoundError: if there is no such game.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  # as Gymnasium declares it

    def __init__(
        self,
        game: str | Path | Sequence[str | Path] | None = None,
        *,
        challenge: str = DEFAULT_CHALLENGE,
        level: int | None = None,
        challenge_settings: Mapping[str, Any] | None = None,
        games: int = 1,
        split: str = "train",
        reward: str = "score",
        folder: str | Path | None = None,
        render_mode: str | None = None,
    ) -> None:
        textworld = require_textworld()
        if reward not in REWARDS:
            raise ValueError(f"reward must be one of {', '.join(REWARDS)}; got {reward!r}")
        if render_mode not in (None, "ansi"):
            # Not a ValueError: Stable-Baselines3's make_vec_env asks for "rgb_array" and takes this for a no.
            raise TypeError(f'render_mode is "ansi" or None, got {render_mode!r}')
        if game is None:
            wanted = dict(challenge_settings or {})
            if level is not None:
                wanted["level"] = level
            self.files = make_games(challenge, wanted, games, split, folder)
        else:
            self.files = _existing([game] if isinstance(game, str | Path) else game)
        self.reward, self.render_mode = reward, render_mode
        text: dict[str, spaces.Space[Any]] = {
            part: spaces.Text(LONGEST, min_length=0, charset=CHARACTERS) for part in (*PARTS, "way_back")
        }
        self.observation_space = spaces.Dict(text)
        self.action_space = spaces.Text(LONGEST_COMMAND, charset=CHARACTERS)
        self._requested = textworld.EnvInfos(
            **dict.fromkeys(("objective", "description", "inventory", "feedback", "admissible_commands"), True),
            **dict.fromkeys(("score", "max_score", "won", "lost", "moves"), True),
            intermediate_reward=reward == "progress",
        )
        self._file: Path | None = None
        self._running: Any = None
        self._state: Any = None
        self._score = 0
        self._way_back = ""
        self._commands: list[str] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """Start a game that is drawn at random.

        :param seed: decides which games this reset and the following ones draw. Nothing else is random.
        :param options: ``{"game": i}`` starts the i-th, counted from 0.
        :raises ValueError: if there is no such game.
        """
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(len(self.files)))
        file = self.files[chosen_game(options, drawn, len(self.files))]
        if file != self._file:
            self._start(file)
        self._state, self._score, self._way_back, self._commands = self._running.reset(), 0, "", []
        return self._observe(""), self._info()

    def step(self, action: str) -> tuple[dict[str, str], float, bool, bool, dict[str, Any]]:
        """Give the game a command.

        :param action: any text. Where the game does not understand it, its answer says so.
        """
        # A line break would be read as a second command, and what follows a backslash as one to the interpreter itself.
        command = _plain(" ".join(action.replace("\\", " ").split()))[:LONGEST_COMMAND]
        left = self._room()
        self._state, score, done = self._running.step(command)
        self._commands.append(command)
        if self._room() != left:
            self._way_back = OPPOSITE.get(command.removeprefix("go "), "")
        reward = self._state["intermediate_reward"] if self.reward == "progress" else score - self._score
        self._score = score
        return self._observe(self._state["feedback"]), float(reward), bool(done), False, self._info()

    def render(self) -> str | None:
        """Return what the game last wrote."""
        return self._state["feedback"] if self.render_mode == "ansi" and self._state is not None else None

    def close(self) -> None:
        """End the game that runs."""
        if self._running is not None:
            self._running.close()
        self._running, self._file = None, None

    def winning_commands(self) -> tuple[str, ...]:
        """Return the commands that win from here, as TextWorld itself finds them; empty where there are none.

        The first call begins the game anew and gives it the same commands again. From then on, steps take longer.

        :raises gymnasium.error.ResetNeeded: before the first reset.
        """
        if self._file is None:
            raise gym.error.ResetNeeded("there is no game yet: call reset() first")
        if not self._requested.policy_commands:
            self._requested.policy_commands = True
            self._start(self._file)
            self._state = self._running.reset()
            for command in self._commands:
                self._state, _, _ = self._running.step(command)
        return tuple(self._state["policy_commands"])

    def _start(self, file: Path) -> None:
        """Start the interpreter of a game, in place of the one that runs."""
        self.close()
        with unscored():
            self._running = require_textworld().start(str(file), self._requested)
        self._file = file

    def _room(self) -> str:
        """Return the name of the room, which is the first line of its description."""
        return (self._state["description"] or "").strip().partition("\n")[0]

    def _observe(self, feedback: str) -> dict[str, str]:
        texts = {**{part: self._state[part] for part in PARTS[:3]}, "feedback": STATUS.sub("", feedback)}
        return {**{part: _plain(text or "") for part, text in texts.items()}, "way_back": self._way_back}

    def _info(self) -> dict[str, Any]:
        state = self._state
        assert self._file is not None
        return {
            "admissible_commands": tuple(state["admissible_commands"]),
            "score": self._score,
            "max_score": state["max_score"],
            "won": bool(state["won"]),
            "lost": bool(state["lost"]),
            "moves": state["moves"] or 0,
            "room": self._room(),
            "game": self._file.name,
        }


class TextWorld(TextTask):
    """The text task of ``lmpolicy/TextWorld-v0``.

    :param useful_only: whether ``look``, ``inventory`` and ``examine`` are left out, which tell nothing new. Results
        with it do not compare with results without it.
    :param list_commands: whether the prompt lists the legal commands. A policy that scores the commands reads each of
        them anyway, and without the list a prompt is a third shorter. Free text needs the list.
    :param tell_way_back: whether the prompt says from which direction the room was entered. Otherwise only the past
        turns tell this. With it, a maze needs no ``history``.
    """

    system_prompt = "You play a text adventure. Reach the goal with as few commands as possible."
    max_actions = 64

    def __init__(self, useful_only: bool = False, list_commands: bool = True, tell_way_back: bool = False) -> None:
        super().__init__()
        self.tell_way_back = tell_way_back
        self.useful_only = useful_only
        self.list_actions = list_commands

    def action_texts(self, observation: Any, info: dict[str, Any]) -> tuple[str, ...]:
        """Return the commands that the game admits now.

        :param observation: not read.
        :param info: of the env, with ``admissible_commands``.
        """
        commands = info["admissible_commands"]
        useful = tuple(command for command in commands if not REPORTS.match(command))
        # Where there are too many for one prompt, those that change nothing are left out.
        return useful if useful and (self.useful_only or len(commands) > (self.max_actions or 0)) else commands

    def format_observation(self, observation: Any) -> str:
        """Put goal, room, what is carried and the last answer into words.

        :param observation: ``objective``, ``description``, ``inventory``, ``feedback`` and ``way_back``.
        """
        objective = _sentence(observation["objective"])
        return (f"Goal: {objective} " if objective else "") + self.format_past(observation)

    def format_past(self, observation: Any) -> str:
        """Put room, what is carried and the last answer into words, without the goal.

        The last turn of a prompt tells the goal.

        :param observation: as for :meth:`format_observation`.
        """
        room, carried, answer = (_sentence(observation[part]) for part in PARTS[1:])
        heard = answer.replace(room, "").replace(carried, "").strip()
        told = [f"Room: {room}", carried]
        told += (
            [f"You came from the {observation['way_back']}."] if self.tell_way_back and observation["way_back"] else []
        )
        told += [f"Last answer: {heard}"] if heard else []
        return " ".join(told)


def _existing(games: Sequence[str | Path]) -> list[Path]:
    """Return the files of games, or raise an error that names those that are missing."""
    files = [Path(one) for one in games]
    missing = [str(one) for one in files if not (one.is_file() and one.with_suffix(".json").is_file())]
    if missing or not files:
        raise FileNotFoundError(
            f"no game at {', '.join(missing) or 'any place'}: a game is a .z8 file with its .json beside it, "
            "as tw-make writes them"
        )
    return files


def _plain(text: str) -> str:
    """Replace what is not printable ASCII, as the observation space declares."""
    return "".join(character if character in CHARACTERS else "?" for character in text)[:LONGEST]


def _sentence(text: str) -> str:
    """Put a text on one line, without the marks around a room's name and the prompt sign."""
    return re.sub(r"-= (.*?) =-", r"\1.", " ".join(text.replace(">", " ").split()))
