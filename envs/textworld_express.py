"""TextWorldExpress in words: short text games, made anew and fast.

Environment: ``lmpolicy/TextWorldExpress-v0`` (``pip install ".[textworld-express]"``), a Gymnasium env around
the games of TextWorldExpress; see :class:`TextWorldExpressEnv`. Needs a Java runtime (``java``).

Observation text: the goal, the room, what is carried, and what the game answered to the last command, where that is
more than the room.

Action phrases: the commands that the game admits in this state, e.g. ``open fridge``, as they change.

Reward: points gained in this step; a game is worth one, and -1 is for a game that is lost. Terminates when the game is
won or lost; truncated after 50 steps, or ``max_episode_steps`` of ``gymnasium.make``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmpolicy.envs._java_games import NO_LIMIT, JavaGame
from lmpolicy.envs.textworld import TextWorld


class TextWorldExpressEnv(JavaGame):
    """Play a game of TextWorldExpress.

    :param game: ``"cookingworld"``, ``"twc"`` (putting things where they belong), ``"coin"``, ``"mapreader"``,
        ``"arithmetic"``, ``"sorting"``, ``"simonsays"`` or ``"peckingorder"``.
    :param settings: options of the game as TextWorldExpress writes them, e.g. ``"numLocations=3,includeDoors=0"``.
    :param games: number of different games.
    :param split: ``"train"``, ``"dev"`` or ``"test"``.
    :param render_mode: ``"ansi"``: ``render`` returns what the game last wrote.
    """

    def __init__(
        self,
        game: str = "coin",
        *,
        settings: str = "",
        games: int | None = 100,
        split: str = "train",
        render_mode: str | None = None,
    ) -> None:
        super().__init__("textworld-express", split, games, render_mode)
        self.game, self.settings = game, settings

    def _open(self) -> Any:
        simulator = self._module.TextWorldExpressEnv(envStepLimit=NO_LIMIT)
        known = simulator.getGameNames()
        if self.game not in known:
            simulator.close()
            raise ValueError(f"game must be one of {', '.join(known)}; got {self.game!r}")
        simulator.load(self.game, self.settings)
        return simulator

    def _numbers(self) -> Sequence[int]:
        return getattr(self._game, f"getValidSeeds{self.split.capitalize()}")()

    def _start(self, number: int) -> tuple[str, dict[str, Any]]:
        return self._game.reset(seed=number, gameFold=self.split)

    def _read(self, known: dict[str, Any]) -> tuple[dict[str, str], float, bool, Sequence[str]]:
        parts = {
            "objective": known["taskDescription"],
            "description": known["look"],
            "inventory": known["inventory"].replace("Your inventory is currently empty.", "nothing."),
        }
        score = float(known["score"])
        return parts, score, known["tasksuccess"] or known["taskfailure"] or score >= 1, known["validActions"]


class TextWorldExpress(TextWorld):
    """The text task of ``lmpolicy/TextWorldExpress-v0``.

    :param useful_only: whether ``look around``, ``inventory``, ``task`` and ``examine`` are left out, which tell
        nothing new.
    :param list_commands: whether the prompt lists the legal commands, see :class:`~lmpolicy.envs.textworld.TextWorld`.
    """

    reports = ("look around", "inventory", "task", "examine ")

    def __init__(self, useful_only: bool = False, list_commands: bool = True) -> None:
        super().__init__(useful_only, list_commands)

    def action_texts(self, observation: Any, info: dict[str, Any]) -> tuple[str, ...]:
        """Return the commands that the game admits now.

        :param observation: not read.
        :param info: of the env, with ``admissible_commands``.
        """
        commands = info["admissible_commands"]
        useful = tuple(one for one in commands if not one.startswith(self.reports))
        return useful if useful and (self.useful_only or len(commands) > (self.max_actions or 0)) else commands
