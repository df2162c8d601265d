"""Evaluate every method at the same env steps, on the same episodes, without a trace in its training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy.comparison.stopwatch import Spent, Stopwatch
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.text.spaces import TokenSpace
from lmpolicy.training.checkpoints.random_state import random_state, set_random_state

log = logging.getLogger(__name__)

LONG = 2_000
"""Number of env steps after which an episode may be one that never ends."""


def succeeded(reward: float, truncated: bool, info: dict[str, Any]) -> bool:
    """Check whether an episode that ends with this step has reached its goal.

    :param reward: reward of its last step. Grids pay for success alone.
    :param truncated: whether time was up.
    :param info: the env's info. Where it has ``won`` or ``is_success``, that counts.
    """
    return bool(info.get("won", info.get("is_success", reward > 0 and not truncated)))


class Successes:
    """Keep of each episode whether it reached its goal: a callback of Stable-Baselines3's ``evaluate_policy``."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def __call__(self, local: dict[str, Any], _: dict[str, Any]) -> None:
        """Look at a step of an env.

        :param local: local variables of ``evaluate_policy``.
        """
        if local["done"]:
            info = local["info"]
            self.found.append(float(succeeded(local["reward"], info.get("TimeLimit.truncated", False), info)))


class AnswerTokens:
    """Count the tokens of written answers: a callback of Stable-Baselines3's ``evaluate_policy``."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def __call__(self, local: dict[str, Any], _: dict[str, Any]) -> None:
        """Look at a step of an env.

        :param local: local variables of ``evaluate_policy``.
        """
        space = local["env"].action_space
        if isinstance(space, TokenSpace):
            self.found.append(len(space.split(local["actions"][local["i"]])[0]))


class Patience:
    """Warn once of an episode that goes on and on: a callback of Stable-Baselines3's ``evaluate_policy``."""

    def __init__(self) -> None:
        self._warned = False

    def __call__(self, local: dict[str, Any], _: dict[str, Any]) -> None:
        """Look at a step of an env.

        :param local: local variables of ``evaluate_policy``.
        """
        if not self._warned and local["current_lengths"][local["i"]] >= LONG and not local["done"]:
            self._warned = True
            log.warning(
                "An episode of an evaluation has lasted for %d env steps and goes on. If it may never end, stop here, "
                "and give the env a time limit: max_episode_steps=1000 is an argument of gymnasium.make",
                LONG,
            )


class CountedOnly:
    """Let a language model read only what those envs show whose episodes still count.

    Stable-Baselines3's ``evaluate_policy`` plays on in all envs until the last has played its share, and one episode
    that never ends holds up fifty. Those that have are shown another env's prompt, which is remembered and not read
    again, and take their first phrase. So there are as many draws as before, and all that counts stays the same.

    :param model: learner with a language model that chooses among phrases.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._played = self._asked = np.zeros(0, dtype=int)

    def __call__(self, local: dict[str, Any], _: dict[str, Any]) -> None:
        """Look at a step of an env.

        :param local: local variables of ``evaluate_policy``, which counts on in the same arrays.
        """
        self._played, self._asked = local["episode_counts"], local["episode_count_targets"]

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[NDArray[Any], Any]:
        """Choose actions.

        :param observation: rows of prompts, one for each env.
        :param state: as in Stable-Baselines3.
        :param episode_start: as in Stable-Baselines3.
        :param deterministic: whether the most likely actions are chosen.
        """
        over = self._played >= self._asked
        if not over.any():
            found: tuple[NDArray[Any], Any] = self._model.predict(observation, state, episode_start, deterministic)
            return found
        shown = np.where(over[:, None], observation[~over][:1], observation)
        actions, state = self._model.predict(shown, state, episode_start, deterministic)
        return np.where(over, 0, actions), state


def evaluate(
    player: Any, env: VecEnv, episodes: int, sampled: bool, success: bool = False, seed: int | None = None
) -> dict[str, str]:
    """Play episodes and return their numbers.

    :param player: has ``predict``, as models of Stable-Baselines3 have.
    :param env: envs with the env's own rewards.
    :param episodes: number of episodes, which the envs share evenly.
    :param sampled: whether actions are sampled. False: the most likely.
    :param success: whether to count how often an episode reaches its goal, in place of its rewards.
    :param seed: seed of the envs and of the draws. The generators of the process then go on as if nothing had been
        played. None: the envs go on where they are.
    :return: ``episodes``, ``sampled``, ``mean_return``, ``std_return`` and ``mean_length``; and ``mean_tokens`` of an
        answer where answers are written.
    """
    counted, tokens = Successes(), AnswerTokens()
    watching: list[Callable[[dict[str, Any], dict[str, Any]], None]] = [counted, tokens, Patience()]
    # Where the envs go on from here the next time, they must play as if they were all read.
    if (
        seed is not None
        and isinstance(getattr(player, "policy", None), LMActorCriticPolicy)
        and not isinstance(env.action_space, TokenSpace)
    ):
        player = CountedOnly(player)
        watching.append(player)

    def count(local: dict[str, Any], others: dict[str, Any]) -> None:
        for one in watching:
            one(local, others)

    with _seeded(env, seed):
        returns, lengths = evaluate_policy(
            player, env, episodes, deterministic=not sampled, return_episode_rewards=True, callback=count
        )
    found = counted.found if success else returns
    lasted = np.asarray(lengths)
    numbers = {"mean_return": np.mean(found), "std_return": np.std(found), "mean_length": np.mean(lasted)}
    if tokens.found:
        numbers["mean_tokens"] = np.mean(tokens.found)
    return {
        "episodes": str(lasted.size),
        "sampled": str(int(sampled)),
        **{key: f"{value:.6g}" for key, value in numbers.items()},
    }


@contextmanager
def _seeded(env: VecEnv, seed: int | None) -> Iterator[None]:
    """Seed envs and generators, and give the generators back as they were."""
    if seed is None:
        yield
        return
    before = random_state()
    env.seed(seed)
    set_random_seed(seed)
    try:
        yield
    finally:
        set_random_state(before)


class GridEvaluation(BaseCallback):
    """Measure at exact env steps, so that all methods are measured at the same ones.

    Checkpoints of a training keep what is left of the grid, the time, and what was found.

    A method is measured at the first step of the envs at which so many env steps were taken, with the policy that acts
    there, in the middle of a rollout as well. With n envs, this is less than n env steps later. The time that it takes
    does not count as training.

    :param grid: env steps, the first of which may be 0. The end of the training is not among them, because the last
        update follows it.
    :param measure: takes an entry of the grid, the env steps that were taken, and the time of training.
    :param found: list that ``measure`` adds to. Its entries are texts, numbers, lists and dicts.
    """

    def __init__(
        self, grid: Sequence[int], measure: Callable[[int, int, Spent], None], found: list[Any] | None = None
    ) -> None:
        super().__init__()
        self._left, self._measure = list(grid), measure
        self._found = [] if found is None else found
        self._watch = Stopwatch()

    def spent(self) -> Spent:
        """Return the time of training so far."""
        return self._watch.spent()

    def state_dict(self) -> dict[str, Any]:
        """Return how far the measuring is."""
        return {"left": list(self._left), "found": list(self._found), **self.spent()._asdict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another callback stopped.

        :param state: what :meth:`state_dict` returned.
        """
        self._left[:], self._found[:] = state["left"], state["found"]
        self._watch = Stopwatch(Spent(state["seconds"], state["cpu_seconds"]))

    def _on_training_start(self) -> None:
        self._watch.start()
        self._on_step()

    def _on_step(self) -> bool:
        while self._left and self.num_timesteps >= self._left[0]:
            spent = self._watch.stop()
            self._measure(self._left.pop(0), self.num_timesteps, spent)
            self._watch.start()
        return True


class RandomActions:
    """Draw any action of a space.

    :param env: envs.
    :param seed: seed of the draws.
    """

    def __init__(self, env: VecEnv, seed: int) -> None:
        self._space, self._n = env.action_space, env.num_envs
        self._space.seed(seed)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[NDArray[Any], Any]:
        """Draw actions.

        :param observation: not read.
        :param state: returned as it is.
        :param episode_start: not read.
        :param deterministic: not read.
        """
        return np.array([self._space.sample() for _ in range(self._n)]), state


class Masked:
    """Let a model of ``MaskablePPO`` choose among the actions that are legal now.

    :param model: the model.
    :param env: envs with ``action_masks``.
    """

    def __init__(self, model: Any, env: VecEnv) -> None:
        self._model, self._env = model, env

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[NDArray[Any], Any]:
        """Choose actions.

        :param observation: of the envs.
        :param state: as in Stable-Baselines3.
        :param episode_start: as in Stable-Baselines3.
        :param deterministic: whether the most likely actions are chosen.
        """
        masks = np.stack(self._env.env_method("action_masks"))
        found: tuple[NDArray[Any], Any] = self._model.predict(
            observation, state, episode_start, deterministic, action_masks=masks
        )
        return found
