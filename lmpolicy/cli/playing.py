"""Find who plays, and let them play episode after episode."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv

from lmpolicy.cli.choosing import find_model, named
from lmpolicy.cli.run_settings import FILE, RunSettings
from lmpolicy.cli.runs import Run
from lmpolicy.envs.babyai_bot import babyai_bot
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.report.episodes import Episodes
from lmpolicy.report.recording import record_episodes
from lmpolicy.training.imitation.playing import Player, play_in_terminal
from lmpolicy.training.settings.task_lookup import near
from lmpolicy.training.turns import Turn
from lmpolicy.wrapper import TextObservationWrapper

PERSON, RANDOM, BOT = "person", "random", "bot"


def settings_for(env: str, task: str | None, env_args: Sequence[str]) -> tuple[RunSettings, Path | None]:
    """Return the settings of what is played, and the folder of the run, if it is one.

    :param env: Gymnasium id, or the folder of a run.
    :param task: name of a task.
    :param env_args: arguments of the env as they were typed.
    """
    folder = Path(env)
    if not (folder / FILE).is_file():
        return named(env, task, env_args), None
    if task is not None or env_args:
        raise ValueError(f"--task and --env-arg do not go with a run, which has its own in {folder / FILE}")
    return Run.open(folder).settings, folder


def find_player(by: str, settings: RunSettings, env: TextObservationWrapper, device: str | None) -> Any:
    """Return who plays.

    :param by: ``"person"``, ``"random"``, ``"bot"``, the folder of a run, ``"module:function"``, or a language model.
    :param settings: settings of the env.
    :param env: the env in words.
    :param device: device of a model.
    :raises ValueError: if nobody is called that; the message says who can play.
    """
    if by == PERSON:
        return play_in_terminal
    if by == RANDOM:
        return _at_random(settings.seed)
    if by == BOT:
        return babyai_bot(env)
    if (Path(by) / FILE).is_file():
        return Run.open(Path(by)).load(device)
    module, colon, name = by.partition(":")
    if colon:
        return _function(module, name)
    if by.isidentifier() and (hint := near(by, (PERSON, RANDOM, BOT))).endswith("?"):
        raise ValueError(f"--by {by}: there is no such player{hint}")
    policy = replace(settings, hyperparameters=settings.hyperparameters.for_model(find_model(by))).ppo["policy_kwargs"]
    venv = DummyVecEnv([lambda: env])
    return LMActorCriticPolicy(venv.observation_space, venv.action_space, lambda _: 0.0, **policy)


def play_episodes(
    player: Any, env: TextObservationWrapper, n: int, seed: int, path: Path | None, *, deterministic: bool, quiet: bool
) -> Episodes:
    """Play, and keep what was played after each episode.

    :param player: what :func:`lmpolicy.record_episodes` takes.
    :param env: the env in words.
    :param n: largest number of episodes. A person may stop before.
    :param seed: seed of the first episode.
    :param path: file to write, or ``None``.
    :param deterministic: whether a model takes its most likely action.
    :param quiet: whether the turns are not printed.
    """
    kept: list[Sequence[Turn]] = []
    for number in range(n):
        found = record_episodes(player, env, 1, deterministic=deterministic, seed=seed + number)
        if not len(found):
            break
        kept.append([replace(turn, episode=number) for turn in found[0]])
        if not quiet:
            print(_told(kept[-1]))
        if player is play_in_terminal or not quiet:
            print(f"Episode {number + 1}: return {found.returns[0]:g} in {len(found[0])} turns")
        if path is not None:
            Episodes(kept).save(path)
    return Episodes(kept)


def summary(played: Episodes, path: Path | None) -> dict[str, Any]:
    """Return what was played for a script.

    :param played: the episodes.
    :param path: file that was written.
    """
    written = None if path is None or not len(played) else str(path)
    return {"episodes": len(played), "returns": played.returns, "turns": sum(map(len, played)), "file": written}


def _at_random(seed: int) -> Player:
    """Return a player that draws any of the legal phrases."""
    random = np.random.default_rng(seed)
    return lambda prompt, info: int(random.integers(len(prompt.actions)))


def _function(module: str, name: str) -> Player:
    """Return a function of one's own."""
    try:
        place = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"--by {module}:{name}: {error}. The module is looked for in the current folder, too"
        ) from error
    found = getattr(place, name, None)
    if not callable(found):
        known = [key for key, value in vars(place).items() if callable(value) and not key.startswith("_")]
        raise ValueError(f"--by {module}:{name}: there is no such function{near(name, known)}")
    return found


def _told(turns: Sequence[Turn]) -> str:
    """Return an episode in words."""
    lines = [turns[0].messages[0]["content"]] if len(turns[0].messages) > 1 else []
    for turn in turns:
        lines.append(turn.messages[-1]["content"])
        shares = " | ".join(
            f"{phrase} {share:.2f}" for phrase, share in turn.probabilities.items() if share is not None
        )
        said = "" if turn.answer is None else f"{turn.answer!r} "
        lines.append(f"    {said}-> {turn.action}" + (f"   ({shares})" if shares else ""))
    return "\n".join(lines)
