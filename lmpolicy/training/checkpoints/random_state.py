"""Write the state of random generators as JSON, and set it again."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.vec_env import VecEnv


def random_state() -> dict[str, Any]:
    """Return the state of the generators of Python, NumPy and torch, those of all GPUs included."""
    version, numbers, gauss = random.getstate()
    cuda = th.cuda.get_rng_state_all() if th.cuda.is_available() else []
    return {
        "python": [version, list(numbers), gauss],
        "numpy": np.random.get_state(legacy=False),
        "torch": _text(th.get_rng_state()),
        "cuda": [_text(state) for state in cuda],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Set what :func:`random_state` returned.

    :param state: the state. On a machine with another number of GPUs, theirs are left as they are.
    """
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    np.random.set_state(_arrays(state["numpy"]))
    th.set_rng_state(_tensor(state["torch"]))
    if state["cuda"] and th.cuda.is_available() and th.cuda.device_count() == len(state["cuda"]):
        th.cuda.set_rng_state_all([_tensor(one) for one in state["cuda"]])


def env_random_state(venv: VecEnv) -> list[dict[str, Any] | None]:
    """Return the state of each env's own generator, where the env has one.

    :param venv: vectorised env.
    """
    try:
        found = venv.get_attr("np_random")
    except Exception:  # an env need not have one, and a worker passes on whatever its env raises
        return [None] * venv.num_envs
    return [dict(one.bit_generator.state) if isinstance(one, np.random.Generator) else None for one in found]


def set_env_random_state(venv: VecEnv, states: list[dict[str, Any] | None]) -> None:
    """Set what :func:`env_random_state` returned.

    :param venv: vectorised env with as many envs.
    :param states: the states.
    """
    for number, state in enumerate(states):
        if state is not None:
            generator = np.random.Generator(getattr(np.random, state["bit_generator"])())
            generator.bit_generator.state = _arrays(state)
            venv.set_attr("np_random", generator, indices=number)


def _text(state: th.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _tensor(text: str) -> th.Tensor:
    return th.frombuffer(bytearray(base64.b64decode(text)), dtype=th.uint8)


def _arrays(state: Any) -> Any:
    """Return a state whose lists of numbers are arrays again."""
    if isinstance(state, dict):
        return {name: _arrays(value) for name, value in state.items()}
    return np.array(state) if isinstance(state, list) else state
