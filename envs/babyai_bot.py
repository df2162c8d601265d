"""BabyAI's own bot as a player; it knows the whole grid."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from lmpolicy.text.listing import list_phrases
from lmpolicy.text.prompt import Prompt


def babyai_bot(env: gym.Env) -> Callable[[Prompt, dict[str, Any]], str]:
    """Return a player for :meth:`lmpolicy.Demonstrations.from_player`.

    It may also be the expert of :meth:`lmpolicy.Demonstrations.from_policy`: it plans anew from what was really done.
    Ask it once in each turn. Where a box has been opened, minigrid's bot gives up with an error of its own.

    :param env: a level of BabyAI in :class:`lmpolicy.TextObservationWrapper`, wrapped or not.
    :return: takes the prompt and the env's info, and returns a legal phrase. It raises ``ValueError`` where none stands
        for what the bot would do.
    :raises ImportError: if the package is not installed; the message says how to install it.
    :raises TypeError: if the env is not in words.
    :raises ValueError: if the env is no level of BabyAI; the message says who else can play.
    """
    try:
        from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
        from minigrid.utils.baby_ai_bot import BabyAIBot
    except ImportError as error:
        raise ImportError(f'{error}; the bot needs: pip install "lmpolicy[minigrid]"') from error
    level = env.unwrapped
    if not isinstance(level, RoomGridLevel):
        raise ValueError(
            f"the bot plays levels of BabyAI, not {level}: name a function of your own, module:function, which takes "
            "the prompt and the env's info and returns a phrase"
        )
    if not env.has_wrapper_attr("phrase_of"):
        raise TypeError(f"the bot answers in phrases, and {env} has none: wrap it in lmpolicy.TextObservationWrapper")
    bot: Any = None
    offered: dict[str, int] = {}

    def play(prompt: Prompt, info: dict[str, Any]) -> str:
        nonlocal bot, offered
        taken = None
        if "action_text" in info:
            taken = level.actions(offered[info["action_text"]])
        else:  # an episode begins
            with contextlib.redirect_stdout(None):
                bot = BabyAIBot(level)
        wanted = bot.replan(taken)
        offered = env.get_wrapper_attr("legal_actions")
        for phrase, action in offered.items():
            if action == wanted:
                return phrase
        raise ValueError(
            f"the bot would do {wanted.name!r}, but no legal phrase stands for it; legal are: "
            f"{list_phrases(prompt.actions)}. Wrap the level with a task that names all its actions, such as "
            "lmpolicy.envs.MiniGrid()"
        )

    return play
