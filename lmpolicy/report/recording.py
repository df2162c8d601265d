"""Play whole episodes, and keep each turn for people to look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from lmpolicy.report.episodes import Episodes, place_of
from lmpolicy.report.pictures import picture_of
from lmpolicy.report.players import Player, Tap, player_of
from lmpolicy.training.imitation.playing import StopPlaying, check_count
from lmpolicy.training.imitation.recorded import wrapper_in
from lmpolicy.training.turns import Turn
from lmpolicy.training.watching.whole_episodes import with_return
from lmpolicy.wrapper import TextObservationWrapper


def record_episodes(
    model: Any,
    env: gym.Env | VecEnv,
    n: int,
    path: str | Path | None = None,
    *,
    deterministic: bool = True,
    seed: int | None = None,
) -> Episodes:
    """Let a model play whole episodes, and keep each turn.

    A turn has what was read, the probability of each legal phrase, what was done, the critic's value, and the reward.
    Where the env was made with ``render_mode="rgb_array"``, it has a small picture, too. :func:`lmpolicy.write_report`
    makes a page of the file, :meth:`lmpolicy.Demonstrations.from_jsonl` reads it, and a notebook shows the episodes as
    a table.

    Example:
        >>> import gymnasium as gym
        >>> import lmpolicy
        >>> env = lmpolicy.TextObservationWrapper(gym.make("Blackjack-v1"))
        >>> played = lmpolicy.record_episodes(lambda prompt, info: "stick", env, 3, seed=0)
        >>> len(played), played[0][0].action
        (3, 'stick')

    :param model: learner or policy with a language model; another learner of SB3, which reads the env's own
        observations, scaled by the ``VecNormalize`` that it was trained or loaded with, and whose actions are named by
        the env's phrases; anything with ``predict``; or a function of the prompt and the env's info, as in
        :meth:`lmpolicy.Demonstrations.from_player`.
    :param env: a :class:`~lmpolicy.TextObservationWrapper`, wrapped or not, or a ``DummyVecEnv`` of one.
    :param n: number of episodes.
    :param path: file to write, one turn on each line; or a folder, in which it is ``episodes.jsonl``. The file appears
        when all episodes are played. ``None``: none is written.
    :param deterministic: whether a model takes its most likely action instead of sampling one.
    :param seed: seed of the first episode. The others have the seeds after it, so that two models that are given the
        same seed begin each episode alike. ``None``: no seeds.
    :return: the episodes.
    :raises TypeError: if the env is not a single one in words, or the model cannot play.
    :raises ValueError: if ``n`` is no positive integer, or the model was trained on other observations.
    :raises FileExistsError: if ``path`` is a file of a training, before anything is played.
    """
    check_count(n)
    path = None if path is None else place_of(path)
    env = single_env(env)
    words = wrapper_in(env)
    episodes: list[list[Turn]] = []
    with _tapped(words) as tap:
        player = player_of(model, words, tap, deterministic)
        steps = model.num_timesteps if isinstance(model, BaseAlgorithm) else 0
        known: dict[str, Any] = {"env_step": steps, "env": 0, "greedy": None if _is_function(model) else deterministic}
        for number in range(n):
            try:
                turns = _play(player, env, words, None if seed is None else seed + number, known | {"episode": number})
            except StopPlaying:
                break
            episodes.append(with_return(turns))
    found = Episodes(episodes)
    if path is not None:
        found.save(path)
    return found


def _play(
    player: Player, env: gym.Env, words: TextObservationWrapper, seed: int | None, known: dict[str, Any]
) -> list[Turn]:
    """Play one episode."""
    _, info = env.reset(seed=seed)
    player.begin()
    turns: list[Turn] = []
    terminated = truncated = False
    while not terminated and not truncated:
        prompt, picture = words.prompt, _picture(words)
        choice = player.choose(words, info)
        _, reward, terminated, truncated, info = env.step(choice.given)
        turns.append(
            Turn(
                messages=[{"role": role, "content": content} for role, content in prompt.messages],
                probabilities=choice.probabilities,
                action=info.get("action_text"),
                env_reward=float(reward),
                value=choice.value,
                answer=info.get("answer"),
                turn=len(turns),
                parse_error=info.get("parse_error"),
                clipped=info.get("action_clipped"),
                truncated=True if truncated and not terminated else None,
                env_id=info.get("env_id"),
                picture=picture,
                **known,
            )
        )
    return turns


def _picture(words: TextObservationWrapper) -> str | None:
    """Return what the env shows now, if it was made to show pictures."""
    return picture_of(words.env.render()) if words.env.render_mode == "rgb_array" else None


def _is_function(model: Any) -> bool:
    return not hasattr(model, "predict")


def single_env(env: gym.Env | VecEnv) -> gym.Env:
    """Return the one env that is meant.

    :param env: an env, or a ``DummyVecEnv`` of one.
    :raises TypeError: if there are several; the message says how to make one.
    """
    if not isinstance(env, VecEnv):
        return env
    inner = env.unwrapped
    if isinstance(inner, DummyVecEnv) and inner.num_envs == 1:
        return inner.envs[0]
    raise TypeError(
        "episodes are recorded in one env at a time: pass an env in TextObservationWrapper, or a DummyVecEnv of one, "
        "such as settings.make_env(n_envs=1, training=False)"
    )


@contextmanager
def _tapped(words: TextObservationWrapper) -> Iterator[Tap]:
    """Let the env's own observations be seen while a block runs."""
    inner = words.env
    words.env = tap = Tap(inner)
    try:
        yield tap
    finally:
        words.env = inner
