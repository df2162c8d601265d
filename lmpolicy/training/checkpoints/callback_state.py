"""Keep what callbacks count, so that a resumed training goes on with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

from stable_baselines3.common.callbacks import BaseCallback, CallbackList

SB3_COUNTERS = (
    "best_mean_reward",
    "evaluations_length",
    "evaluations_results",
    "evaluations_successes",
    "evaluations_timesteps",
    "last_best_mean_reward",
    "last_mean_reward",
    "last_time_trigger",
    "n_calls",
    "n_episodes",
    "no_improvement_evals",
)
"""What the callbacks of SB3 count. They have no method that tells it."""


@runtime_checkable
class HasState(Protocol):
    """Define what a callback needs so that a resumed training goes on with what it counted."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the callback counted, as numbers, texts, lists and dicts."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what another callback of the class counted; the next training is not a new one.

        :param state: what :meth:`state_dict` returned, read from JSON.
        """


def callbacks_in(root: Any) -> dict[str, BaseCallback]:
    """Return all callbacks of a training by name: class and number among those of the class.

    :param root: what is passed to ``learn``: a callback or a list. Callbacks that others hold count, too.
    """
    counts: Counter[str] = Counter()
    found: dict[str, BaseCallback] = {}
    for one in _walk(root, set()):
        name = type(one).__name__
        counts[name] += 1
        found[f"{name} {counts[name]}"] = one
    return found


def _walk(one: Any, seen: set[int]) -> Iterator[BaseCallback]:
    """Return the callbacks in a callback or in a list of callbacks."""
    parts = one if isinstance(one, list | tuple) else [one]
    for callback in (part for part in parts if isinstance(part, BaseCallback) and id(part) not in seen):
        seen.add(id(callback))
        if type(callback) is not CallbackList:
            yield callback
        for name, value in vars(callback).items():
            if name != "parent":
                yield from _walk(value, seen)


def callback_states(root: Any) -> dict[str, Any]:
    """Return what all callbacks of a training count, by name.

    :param root: as for :func:`callbacks_in`.
    """
    return {name: _state(callback) for name, callback in callbacks_in(root).items()}


def load_callback_states(root: Any, states: dict[str, Any]) -> list[str]:
    """Put back what :func:`callback_states` returned.

    :param root: as for :func:`callbacks_in`.
    :param states: the states.
    :return: names of callbacks that a state was kept of, but that are not there now.
    """
    callbacks = callbacks_in(root)
    for name in callbacks.keys() & states.keys():
        callback, state = callbacks[name], states[name]
        for counter, value in state["counters"].items():
            setattr(callback, counter, value)
        if isinstance(callback, HasState) and state["own"] is not None:
            callback.load_state_dict(state["own"])
    return sorted(name for name in states.keys() - callbacks.keys() if states[name]["own"] is not None)


def _state(callback: BaseCallback) -> dict[str, Any]:
    counters = {name: getattr(callback, name) for name in SB3_COUNTERS if name in vars(callback)}
    return {"counters": counters, "own": callback.state_dict() if isinstance(callback, HasState) else None}
