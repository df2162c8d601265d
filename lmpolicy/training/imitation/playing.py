"""Play episodes, and note what was read and done: by a function, by a person, or by a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from lmpolicy.text.action_readers import legal_phrase
from lmpolicy.text.prompt import Prompt
from lmpolicy.training.imitation.demonstration import Demonstration, EnvWords
from lmpolicy.training.reward_scale import original_rewards

Choice = str | int | np.integer[Any]
Player = Callable[[Prompt, dict[str, Any]], Choice]
"""Takes a prompt and the env's info; returns a legal phrase or its index, or a text where the policy writes."""


class StopPlaying(Exception):  # noqa: N818 - it is no error, as StopIteration is none
    """Say that the player plays no more. The running episode is dropped."""


class Predictor(Protocol):
    """Define what plays as a model: a learner, or a policy."""

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        """Return actions for a batch of observations."""


def play_in_terminal(prompt: Prompt, info: dict[str, Any]) -> str:
    """Ask a person at the terminal for an action.

    It prints the last message of the prompt and the legal phrases with their numbers, and reads a line: a phrase in
    upper or lower case, or its number. Anything else is asked for again. The first prompt of an episode is printed as a
    whole. Ctrl-D and Ctrl-C end the game.

    Example:
        >>> played = Demonstrations.from_player(env, play_in_terminal, episodes=5)  # doctest: +SKIP

    :param prompt: what the agent reads.
    :param info: the env's info.
    :return: a legal phrase; the line itself where there are no phrases.
    :raises StopPlaying: if there are no more lines, or at Ctrl-C.
    """
    begins = "action_text" not in info and "answer" not in info
    for role, content in prompt.messages if begins else prompt.messages[-1:]:
        print(content if role == "user" else f"\n[{role}] {content}\n")
    if prompt.actions:
        print("  ".join(f"{number}: {phrase}" for number, phrase in enumerate(prompt.actions)))
    known = {phrase.casefold(): phrase for phrase in prompt.actions}
    numbers = {str(number): phrase for number, phrase in enumerate(prompt.actions)}
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            raise StopPlaying from None
        if not prompt.actions and line:
            return line
        chosen = line if line in prompt.actions else known.get(line.casefold(), numbers.get(line))
        if chosen is not None:
            return chosen
        print(f"{line!r} is none of them; type one of the actions or its number (Ctrl-D ends)")


def play_episodes(env: gym.Env, play: Player, episodes: int, seed: int | None) -> Iterator[Demonstration]:
    """Let a function play.

    :param env: a :class:`~lmpolicy.TextObservationWrapper`, wrapped or not.
    :param play: see :data:`Player`.
    :param episodes: number of episodes.
    :param seed: seed of the first episode.
    :return: turns of the whole episodes.
    :raises TypeError: if the env is a VecEnv, or not in words.
    """
    check_count(episodes)
    if isinstance(env, VecEnv):
        raise TypeError("a function plays one env at a time: pass an env in TextObservationWrapper, not a VecEnv")
    EnvWords.of(env)
    for episode in range(episodes):
        _, info = env.reset(seed=seed if episode == 0 else None)
        try:
            yield from _play_one(env, play, info, episode)
        except StopPlaying:
            return


def _play_one(env: gym.Env, play: Player, info: dict[str, Any], episode: int) -> list[Demonstration]:
    """Play an episode that has just begun."""
    turns: list[Demonstration] = []
    terminated = truncated = False
    while not terminated and not truncated:
        prompt = env.get_wrapper_attr("prompt")
        _, reward, terminated, truncated, info = env.step(play(prompt, info))
        turns.append(_turn(prompt, info, reward, episode, truncated and not terminated))
    return turns


def play_as_model(
    model: Predictor,
    env: gym.Env | VecEnv,
    episodes: int,
    deterministic: bool,
    seed: int | None,
    expert: Player | None = None,
) -> list[Demonstration]:
    """Let a model play.

    Where several envs run side by side, each plays its part of the episodes, so that short ones are not preferred.

    :param model: learner or policy.
    :param env: env in words, or a VecEnv of some.
    :param episodes: number of episodes.
    :param deterministic: whether the model takes its most likely action.
    :param seed: seed of the envs.
    :param expert: says what should be done at each turn, in place of what the model does.
    :return: turns, one episode after the other.
    """
    check_count(episodes)
    if not hasattr(model, "predict"):
        raise TypeError(f"model must be a learner or a policy, which has predict(); got {type(model).__name__}")
    if expert is not None and isinstance(env, VecEnv):
        raise TypeError("an expert watches one env: pass an env in TextObservationWrapper, not a VecEnv")
    space = EnvWords.of(env).observation_space
    venv = env if isinstance(env, VecEnv) else DummyVecEnv([lambda: env])
    if seed is not None:
        venv.seed(seed)
    rows, starts = np.asarray(venv.reset()), np.ones(venv.num_envs, dtype=bool)
    left = [(episodes + place) // venv.num_envs for place in range(venv.num_envs)]
    running: list[list[Demonstration]] = [[] for _ in left]
    done: list[Demonstration] = []
    known = venv.reset_infos
    while any(left):
        prompts = [Prompt.from_json(space.decode(row)) for row in rows]
        try:
            said = None if expert is None else expert(prompts[0], known[0])
        except StopPlaying:
            return done
        actions, _ = model.predict(rows, episode_start=starts, deterministic=deterministic)
        observations, scaled, starts, infos = venv.step(actions)
        rewards, rows = original_rewards(venv, scaled), np.asarray(observations)
        for place in (place for place, count in enumerate(left) if count):
            info = infos[place]
            cut = bool(starts[place] and info.get("TimeLimit.truncated", False))
            name = f"{place} {left[place]}"
            turn = _turn(prompts[place], info, rewards[place], name, cut)
            running[place].append(turn if expert is None else _corrected(turn, said))
            if starts[place]:
                done += running[place]
                running[place], left[place] = [], left[place] - 1
        known = venv.reset_infos if starts[0] else infos
    return done


def _corrected(turn: Demonstration, choice: Choice | None) -> Demonstration:
    """Return a turn with what an expert says should be done.

    :raises TypeError: if it is neither a phrase nor an index; where the policy writes, if it is no text.
    :raises ValueError: if it is not legal.
    """
    if not turn.prompt.actions:
        if not isinstance(choice, str):
            raise TypeError(f"the expert says {choice!r}: where the policy writes, it must say the text of the answer")
        return replace(turn, action=None, answer=choice)
    try:
        return replace(turn, action=legal_phrase(choice, turn.prompt.actions), answer=None)
    except (TypeError, ValueError) as error:
        raise type(error)(f"the expert says {choice!r}: {error}") from None


def _turn(prompt: Prompt, info: dict[str, Any], reward: Any, episode: int | str, truncated: bool) -> Demonstration:
    """Note a turn by what the wrapper says about it."""
    # What the env was given for an answer that could not be read is not what the answer says.
    action = None if info.get("parse_error") else info.get("action_text")
    return Demonstration(
        prompt=prompt,
        action=action,
        answer=info.get("answer"),
        reward=float(reward),
        episode=episode,
        truncated=truncated,
    )


def check_count(episodes: Any) -> None:
    """Refuse what is no number of episodes.

    :param episodes: number of episodes.
    :raises ValueError: if it is no positive integer.
    """
    if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
        raise ValueError(f"episodes must be a positive number, got {episodes!r}")
