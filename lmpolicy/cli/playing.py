"""Find who plays, and let them play episode after episode."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import get_device, set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv

from lmpolicy.cli.choosing import find_model, named
from lmpolicy.cli.kept_episodes import KeptEpisodes
from lmpolicy.cli.run_settings import FILE, RunSettings
from lmpolicy.cli.runs import Run
from lmpolicy.envs.babyai_bot import babyai_bot
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.report.episodes import Episodes
from lmpolicy.report.recording import record_episodes
from lmpolicy.text.prompt import Prompt
from lmpolicy.training.imitation.playing import Player, play_in_terminal
from lmpolicy.training.settings.script_options import check_device
from lmpolicy.training.settings.task_lookup import near
from lmpolicy.training.turns import Turn
from lmpolicy.wrapper import TextObservationWrapper

PERSON, RANDOM, BOT = "person", "random", "bot"
LARGEST_SEED = 2**32
"""Number from which on NumPy takes no seed for its common generator."""


def settings_for(
    env: str, task: str | None, env_args: Sequence[str], by: str | None
) -> tuple[RunSettings, Path | None]:
    """Return the settings of what is played, and the folder of the run, if it is one.

    :param env: Gymnasium id, or the folder of a run.
    :param task: name of a task.
    :param env_args: arguments of the env as they were typed.
    :param by: who plays. A run reads the env as in its training.
    """
    folder = Path(env)
    if (folder / FILE).is_file():
        if task is not None or env_args:
            raise ValueError(f"--task and --env-arg do not go with a run, which has its own in {folder / FILE}")
        return Run.open(folder).settings, folder
    if by is None or not (Path(by) / FILE).is_file():
        return named(env, task, env_args), None
    trained = RunSettings.read(Path(by) / FILE)
    found = named(env, trained.task if task is None and trained.env_id == env else task, env_args)
    own, words = found.hyperparameters, trained.hyperparameters.wrapper_kwargs
    own = replace(own, wrapper_kwargs={**own.wrapper_kwargs, **words}, model=trained.hyperparameters.model)
    return replace(found, hyperparameters=own), None


def find_player(by: str, settings: RunSettings, env: TextObservationWrapper, device: str | None, seed: int) -> Any:
    """Return who plays.

    :param by: ``"person"``, ``"random"``, ``"bot"``, the folder of a run, ``"module:function"``, or a language model.
    :param settings: settings of the env.
    :param env: the env in words.
    :param device: device of a model.
    :param seed: seed of the weights that a model draws.
    :raises ValueError: if nobody is called that, or a run cannot play the env; the message says who or what can.
    """
    if by == PERSON:
        return play_in_terminal
    if by == RANDOM:
        return _at_random
    if by == BOT:
        return babyai_bot(env)
    if (Path(by) / FILE).is_file():
        return _load(Run.open(Path(by)), settings, device)
    module, colon, name = by.partition(":")
    if colon:
        return _function(module, name)
    if by.isidentifier() and (hint := near(by, (PERSON, RANDOM, BOT))).endswith("?"):
        raise ValueError(f"--by {by}: there is no such player{hint}")
    place = get_device(check_device(device or "auto"))
    policy = replace(settings, hyperparameters=settings.hyperparameters.for_model(find_model(by))).ppo["policy_kwargs"]
    venv = DummyVecEnv([lambda: env])
    set_random_seed(seed % LARGEST_SEED)  # the weights of its critic, whose values are shown
    return LMActorCriticPolicy(venv.observation_space, venv.action_space, lambda _: 0.0, **policy).to(place)


def play_episodes(
    player: Any,
    env: TextObservationWrapper,
    n: int,
    seed: int,
    file: KeptEpisodes | None,
    *,
    deterministic: bool,
    quiet: bool,
) -> Episodes:
    """Play, and keep what was played after each episode.

    :param player: what :func:`lmpolicy.record_episodes` takes.
    :param env: the env in words.
    :param n: largest number of episodes. A person may stop before.
    :param seed: seed of the first episode, and of what a player draws in it. The others have those after it.
    :param file: where each episode is written, or ``None``.
    :param deterministic: whether a model takes its most likely action.
    :param quiet: whether the turns are not printed.
    """
    kept: list[Sequence[Turn]] = []
    for number in range(n):
        set_random_seed((seed + number) % LARGEST_SEED)
        found = record_episodes(player, env, 1, deterministic=deterministic, seed=seed + number)
        if not len(found):
            break
        kept.append([replace(turn, episode=number) for turn in found[0]])
        if not quiet:
            print(_told(kept[-1]))
        if player is play_in_terminal or not quiet:
            print(f"Episode {number + 1}: return {found.returns[0]:g} in {len(found[0])} turns")
        if file is not None:
            file.add(kept[-1])
    return Episodes(kept)


def summary(played: Episodes, path: Path | None) -> dict[str, Any]:
    """Return what was played for a script.

    :param played: the episodes.
    :param path: file that was written.
    """
    written = None if path is None or not len(played) else str(path)
    return {"episodes": len(played), "returns": played.returns, "turns": sum(map(len, played)), "file": written}


def _at_random(prompt: Prompt, info: dict[str, Any]) -> str:
    """Draw any of the legal phrases, from the generator that each episode seeds anew.

    Where answers are written, the phrase is written.
    """
    if not prompt.actions:
        raise ValueError(
            "--by random draws a legal phrase, but answers of this env are numbers or texts without phrases: "
            "--by module:name lets a function of your own play"
        )
    return random.choice(prompt.actions)


def _load(run: Run, settings: RunSettings, device: str | None) -> OnPolicyAlgorithm:
    """Load the model of a run, which chooses or writes as the env asks for."""
    if run.settings.chooses != settings.chooses:
        kind, other = ("chooses", "writes") if run.settings.chooses else ("writes", "chooses")
        raise ValueError(
            f"the model of {run.folder} {kind} its answers, but this env is for one that {other} them: lmpolicy play "
            f"{run.folder} plays the env of its training"
        )
    return run.load(device)


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
