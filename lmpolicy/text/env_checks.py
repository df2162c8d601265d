"""Check that an env can be put into words, and how."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from lmpolicy.text.counts import is_count
from lmpolicy.text.env_results import OLD_GYM

MODES = ("score", "generate")


def check_arguments(env: Any, wrapper: type[gym.Wrapper], action_mode: Any, history: Any, render_mode: Any) -> None:
    """Check the arguments that the wrapper itself uses.

    :param env: what is to be wrapped.
    :param wrapper: the wrapper that puts envs into words.
    :param action_mode: how the policy answers.
    :param history: number of past turns in the prompt.
    :param render_mode: what the wrapper renders.
    :raises TypeError: if ``env`` is not one env of Gymnasium, not yet in words; the message says what to wrap instead.
    :raises ValueError: if another argument is out of range; the message says what it may be.
    """
    _check_single_env(env, wrapper)
    if action_mode not in MODES:
        raise ValueError(f'action_mode must be "score" or "generate", got {action_mode!r}')
    if not is_count(history, 0):
        raise ValueError(f"history is the number of past turns in the prompt, 0 or more; got {history!r}")
    if render_mode not in (None, "ansi"):
        raise ValueError(f'render_mode of this wrapper is "ansi" or None (as the env), got {render_mode!r}')


def _check_single_env(env: Any, wrapper: type[gym.Wrapper]) -> None:
    if not isinstance(env, gym.Env):
        hint = ""
        if hasattr(env, "num_envs"):
            hint = "; wrap each env inside it: make_vec_env(env_id, wrapper_class=TextObservationWrapper)"
        elif isinstance(env, str):
            hint = f"; make it first: gymnasium.make({env!r})"
        elif any(kind.__module__.partition(".")[0] == "gym" for kind in type(env).__mro__):
            hint = f"; {OLD_GYM}"
        raise TypeError(f"TextObservationWrapper wraps a single gymnasium.Env, got {type(env).__name__}{hint}")
    layer: gym.Env | None = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, wrapper):
            raise TypeError("this env is already inside a TextObservationWrapper; wrap it only once")
        layer = layer.env
