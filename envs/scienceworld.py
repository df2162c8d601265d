"""ScienceWorld in words: experiments of a primary school, in a house with things to heat, mix and grow.

Environment: ``lmpolicy/ScienceWorld-v0`` (``pip install ".[scienceworld]"``), a Gymnasium env around the
experiments of ScienceWorld; see :class:`ScienceWorldEnv`. Needs a Java runtime (``java``).

Observation text: the goal, the room, what is carried, and what the game answered to the last command, where that is
more than the room.

Action phrases: of the commands that the game admits in this state (up to a thousand) those that are not for naught, see
:meth:`ScienceWorld.action_texts`. The prompt does not list them: a policy that scores them reads each of them anyway.
Prompts need ``max_prompt_bytes=32768``, because the phrases travel with them.

Reward: points gained in this step; an experiment is worth one, and -1 is for focusing on something wrong. Terminates
when the experiment is done or has failed; truncated after 100 steps, or ``max_episode_steps`` of ``gymnasium.make``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from lmpolicy.envs._java_games import NO_LIMIT, JavaGame
from lmpolicy.envs.textworld import TextWorld

CONTACT = re.compile(r"\b(terminal|anode|cathode)\b")
EVERYWHERE = frozenset({"the agent", "a substance called air"})
"""What is in every room, and not told."""


class ScienceWorldEnv(JavaGame):
    """Do an experiment of ScienceWorld.

    :param task: name of an experiment, e.g. ``"boil"`` or ``"find-living-thing"``.
    :param simplifications: what is made easier, as ScienceWorld writes it; ``"easy"``: all that it can make easier.
    :param games: number of different variations; ``None``: all of the split.
    :param split: ``"train"``, ``"dev"`` or ``"test"``.
    :param render_mode: ``"ansi"``: ``render`` returns what the game last wrote.
    """

    def __init__(
        self,
        task: str = "find-living-thing",
        *,
        simplifications: str = "easy",
        games: int | None = None,
        split: str = "train",
        render_mode: str | None = None,
    ) -> None:
        super().__init__("scienceworld", split, games, render_mode)
        self.task, self.simplifications = task, simplifications

    def _open(self) -> Any:
        simulator = self._module.ScienceWorldEnv("", envStepLimit=NO_LIMIT)
        known = simulator.task_names
        if self.task not in known:
            simulator.close()
            raise ValueError(f"task must be one of {', '.join(known)}; got {self.task!r}")
        simulator.load(self.task, 0, self.simplifications)
        return simulator

    def _numbers(self) -> Sequence[int]:
        return getattr(self._game, f"get_variations_{self.split}")()

    def _start(self, number: int) -> tuple[str, dict[str, Any]]:
        self._game.load(self.task, number, self.simplifications)
        return self._game.reset()

    def _read(self, known: dict[str, Any]) -> tuple[dict[str, str], float, bool, Sequence[str]]:
        parts = {
            "objective": known["taskDesc"].removeprefix("Task Description:"),
            "description": _in_sentences(known["look"]),
            "inventory": _in_sentences(known["inv"]),
        }
        score = known["score"] / 100
        return parts, score, abs(score) >= 1, known["valid"]


class ScienceWorld(TextWorld):
    """The text task of ``lmpolicy/ScienceWorld-v0``."""

    system_prompt = "You do an experiment in a house. Reach the goal with as few commands as possible."
    max_actions = 1024

    needless: ClassVar[tuple[str, ...]] = ("look ", "inventory", "reset ", "task", "wait1", "mix ")
    """Commands that tell nothing new, or only stir."""
    carrying: ClassVar[tuple[str, ...]] = ("move ", "pour ", "dunk ", "use ")
    """Commands for two things, which are offered where the first one is carried."""

    def __init__(self) -> None:
        super().__init__(list_commands=False)

    def action_texts(self, observation: Any, info: dict[str, Any]) -> tuple[str, ...]:
        """Return the commands that the game admits now, without those that are for naught.

        Left out are commands that only look, those that move, pour or use what is not carried (pick it up first), and
        those that connect anything else than two electric contacts.

        :param observation: not read.
        :param info: of the env, with ``admissible_commands``.
        """
        commands = info["admissible_commands"]
        carried = [one.removeprefix("put down ") for one in commands if one.startswith("put down ")]
        held = tuple(f"{verb}{thing} " for thing in carried for verb in self.carrying)
        left = (one for one in commands if not one.startswith(self.needless))
        left = (one for one in left if not one.startswith(self.carrying) or one.startswith(held))
        return tuple(
            one for one in left if "connect " not in one or len(CONTACT.findall(one)) == 1 + ("dis" not in one)
        )


def _in_sentences(text: str) -> str:
    """Write the lists of ScienceWorld, one thing a line, as sentences; air and the agent are everywhere."""
    sentences: list[list[str]] = []
    for line in text.splitlines():
        thing = " ".join(line.split()).rstrip(".")
        if line.startswith("\t") and sentences:
            sentences[-1] += [] if thing in EVERYWHERE else [thing]
        elif thing:
            sentences.append([thing])
    return " ".join(f"{head} {'; '.join(things)}." if things else f"{head}." for head, *things in sentences)
