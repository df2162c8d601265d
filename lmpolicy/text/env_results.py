"""Check what an env returns, so that an env of another API is named and not misread."""

from __future__ import annotations

import re
import traceback
from typing import Any

import gymnasium as gym
import numpy as np

WRAPPER_MODULES = (
    *("gymnasium.core", "gymnasium.wrappers", "gymnasium.utils.passive_env_checker"),
    *("stable_baselines3.common", "sb3_contrib.common", "lmpolicy.training"),
)
"""Modules with wrappers that take apart what an env returns."""
_PREFIXES = tuple(f"{module}." for module in WRAPPER_MODULES)
RESET = "(observation, info)"
STEP = "(observation, reward, terminated, truncated, info)"
OLD_GYM = (
    'envs of the old gym need a converter: pip install "shimmy[gym-v21]", then '
    "shimmy.GymV21CompatibilityV0(env=env), or GymV26CompatibilityV0 from gym 0.26 on"
)
_ARGUMENTS = re.compile(r"reset\(\) (got an unexpected keyword|missing \d+ required) .*'(seed|options)'")


def reset_env(env: gym.Env, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
    """Reset an env, and check what it returns.

    :param env: the wrapped env.
    :param seed: as in Gymnasium.
    :param options: as in Gymnasium.
    :return: observation and info.
    :raises TypeError: if it returns no such pair, or takes other arguments; the message says what to do.
    """
    given = {} if options is None else {"options": options}  # as Stable-Baselines3 calls envs that know no options
    try:
        result: Any = env.reset(seed=seed, **given)
    except (TypeError, ValueError, AttributeError) as error:
        _explain(error, env, "reset", RESET)
        raise
    _check_tuple(result, env, "reset", RESET)
    observation, info = result
    _check_info(info, env, "reset")
    return observation, info


def step_env(env: gym.Env, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Step an env, and check what it returns.

    :param env: the wrapped env.
    :param action: its action.
    :return: observation, reward as a float, terminated, truncated and info.
    :raises TypeError: if it returns no such tuple; the message says what it is, and what to do.
    """
    try:
        result: Any = env.step(action)
    except (TypeError, ValueError, AttributeError) as error:
        _explain(error, env, "step", STEP)
        raise
    _check_tuple(result, env, "step", STEP)
    observation, reward, terminated, truncated, info = result
    _check_info(info, env, "step")
    return observation, _number(reward, env), bool(terminated), bool(truncated), info


def _explain(error: Exception, env: gym.Env, method: str, wanted: str) -> None:
    """Explain the error of a wrapper that could not call the env within it, or not use what it returned.

    Wrappers such as Monitor and TimeLimit take the results apart before this package sees them. Errors of the env
    itself are left as they are.
    """
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__", ""))
    is_outside = module != type(env.unwrapped).__module__ and f"{module}.".startswith((f"{__name__}.", *_PREFIXES))
    if not is_outside:
        return
    lacking = _ARGUMENTS.search(str(error))
    if lacking is not None:
        old = f"; {OLD_GYM}" if lacking[2] == "seed" else ""
        raise TypeError(f"{error}: give reset the arguments seed=None, options=None{old}") from error
    if module == __name__:
        return
    raise TypeError(
        f"{module} could not use what {method} of {type(env.unwrapped).__name__} returned ({error}): return "
        f"{wanted} with a number as reward and a dict as info; {OLD_GYM}"
    ) from error


def _check_tuple(result: Any, env: gym.Env, method: str, wanted: str) -> None:
    if isinstance(result, tuple) and len(result) == wanted.count(",") + 1:
        return
    what = f"a tuple of {len(result)} values" if isinstance(result, tuple) else f"one {type(result).__name__}"
    raise TypeError(f"{method} of {type(env.unwrapped).__name__} returned {what}, not {wanted}; {OLD_GYM}")


def _check_info(info: Any, env: gym.Env, method: str) -> None:
    if not isinstance(info, dict):
        hint = f"; {OLD_GYM}" if method == "reset" and info is not None else ""
        raise TypeError(
            f"{method} of {type(env.unwrapped).__name__} returned {type(info).__name__} as info: return a dict, "
            f"{{}} if there is nothing to say{hint}"
        )


def _number(reward: Any, env: gym.Env) -> float:
    """Return a reward as a float.

    SubprocVecEnv makes an int64 array of int rewards, and reward shaping cannot write fractions into that.
    """
    array = np.asarray(reward)
    if array.shape != () or array.dtype.kind not in "biuf":
        what = f"an array of shape {array.shape}" if isinstance(reward, np.ndarray) else repr(reward)
        raise TypeError(
            f"step of {type(env.unwrapped).__name__} returned {what} as reward: return one number, "
            + ("reward.item()" if array.size == 1 and array.shape else "0.0 if there is none")
        )
    return float(array)
