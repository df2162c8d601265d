"""Note the episodes of a training, and keep the best of them."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback

from lmpolicy.text.spaces import decode_bytes, row_bytes, utf8
from lmpolicy.training.callbacks import learner_of, policy_of
from lmpolicy.training.imitation.cloning import Rows
from lmpolicy.training.reward_scale import original_rewards, return_divisors


@dataclass(frozen=True)
class Episode:
    """Hold the turns of an episode as the learner stored them.

    :param kind: name of the env among several, ``info["env_id"]``; empty where there is one.
    :param env: index of the env in the VecEnv, which knows how its rewards are scaled.
    :param keys: keys of the prompts, as :func:`lmpolicy.text.spaces.row_keys` returns them; T of them.
    :param actions: indices of phrases, or rows of token ids, as lists; T of them.
    :param rewards: rewards as the env gave them; T of them.
    :param rest: value of what would have followed, in the units of the rewards. 0, unless the episode was cut off.
    """

    kind: str
    env: int
    keys: tuple[bytes, ...]
    actions: tuple[Any, ...]
    rewards: tuple[float, ...]
    rest: float = 0.0

    @property
    def total(self) -> float:
        """Return the sum of the rewards, without discount."""
        return sum(self.rewards)

    def __len__(self) -> int:
        return len(self.keys)

    def returns(self, gamma: float) -> list[float]:
        """Return the discounted return from each turn on.

        :param gamma: discount per env step.
        """
        total, found = self.rest, []
        for reward in reversed(self.rewards):
            total = reward + gamma * total
            found.append(total)
        return found[::-1]

    def to_plain(self) -> dict[str, Any]:
        """Return the episode as JSON has it; each distinct prompt is there once."""
        places = {key: place for place, key in enumerate(dict.fromkeys(self.keys))}
        return {
            "kind": self.kind,
            "env": self.env,
            "prompts": [decode_bytes(key) for key in places],
            "turns": [places[key] for key in self.keys],
            "actions": list(self.actions),
            "rewards": list(self.rewards),
            "rest": self.rest,
        }

    @classmethod
    def from_plain(cls, state: dict[str, Any]) -> Episode:
        """Read what :meth:`to_plain` returned.

        :param state: an episode, read from JSON.
        """
        keys = [utf8(text) for text in state["prompts"]]
        turns = tuple(keys[place] for place in state["turns"])
        return cls(
            state["kind"], state["env"], turns, tuple(state["actions"]), tuple(state["rewards"]), float(state["rest"])
        )


class EpisodeRecorder:
    """Note the steps of a training, and return episodes that end.

    Episodes may span several rollouts. One whose beginning was not seen is left out, and so is one that went on in a
    training without this callback. Those of an :class:`~lmpolicy.Agent`, which is one env, are told apart by their ids.

    :param values_rest: whether the critic values what would have followed where an episode is cut off.
    """

    def __init__(self, values_rest: bool) -> None:
        self.values_rest = values_rest
        self._open: dict[Hashable, list[tuple[bytes, Any, float]]] = {}
        """Turns of the episodes that are running, by index of the env or by id."""
        self._n_envs = 0  # whose running episodes a checkpoint has; an agent's begin anew
        self._following: Any = None  # observations from which the envs go on; None: those of a checkpoint

    def step(self, callback: BaseCallback) -> list[Episode]:
        """Note a step of every env.

        :param callback: callback whose ``_on_step`` is running.
        :return: episodes that ended with the step.
        """
        learner, local = learner_of(callback), callback.locals
        assert learner._last_obs is not None
        rows, starts, dones = np.asarray(learner._last_obs), learner._last_episode_starts, local["dones"]
        actions = np.asarray(local["clipped_actions"]).tolist()  # of these spaces, those that the buffer keeps
        rewards = original_rewards(callback.training_env, local["rewards"])
        ids = local.get("episode_ids", range(len(rows)))
        self._n_envs = 0 if "episode_ids" in local else len(rows)
        if self._n_envs and self._following is not None and self._following is not learner._last_obs:
            self._open.clear()
        self._following = local["new_obs"]  # the same array is what the learner acts on next
        ended = []
        for env, (one, info) in enumerate(zip(ids, local["infos"], strict=True)):
            if starts is not None and starts[env]:
                self._open[one] = []
            if one not in self._open:
                continue
            turns = self._open[one]
            turns.append((row_bytes(rows[env]), actions[env], float(rewards[env])))
            if dones[env]:
                keys, taken, given = zip(*turns, strict=True)
                kind, rest = str(info.get("env_id", "")), self._rest(callback, env, info)
                ended.append(Episode(kind, env, keys, taken, given, rest))
                del self._open[one]
        return ended

    def end_rollout(self, callback: BaseCallback) -> None:
        """Drop the episodes of an agent that were given up without an end.

        :param callback: callback whose ``_on_rollout_end`` is running.
        """
        if "running_ids" in callback.locals:
            self._open = {one: turns for one, turns in self._open.items() if one in callback.locals["running_ids"]}

    def state_dict(self) -> list[Any]:
        """Return the episodes that are running, env by env, as JSON has them; ``None`` for an env without one."""
        running = [self._open.get(env) for env in range(self._n_envs)]
        return [
            None if turns is None else [[decode_bytes(key), action, reward] for key, action, reward in turns]
            for turns in running
        ]

    def load_state_dict(self, state: list[Any]) -> None:
        """Go on with episodes that are running.

        :param state: what :meth:`state_dict` returned.
        """
        self._n_envs, self._following = len(state), None
        self._open = {
            env: [(utf8(text), action, float(reward)) for text, action, reward in turns]
            for env, turns in enumerate(state)
            if turns is not None
        }

    def _rest(self, callback: BaseCallback, env: int, info: dict[str, Any]) -> float:
        """Return the value of what would have followed the last step of an episode."""
        if not self.values_rest or not info.get("TimeLimit.truncated", False):
            return 0.0
        policy = policy_of(callback)
        row = np.asarray(info["terminal_observation"])[None]  # (1, max_bytes)
        with th.no_grad():
            value = float(policy.predict_values(th.from_numpy(row).to(policy.device)))
        return value * float(return_divisors(callback.training_env)[env])


class BestEpisodes:
    """Keep the episodes with the highest sums of rewards, up to a number of turns.

    Of several kinds of envs, each keeps its best: where there is no room, the worst episode goes of the kind that has
    most turns; of equally good ones, the oldest.

    :param max_turns: largest number of turns. One episode of each kind is kept however long it is.
    """

    def __init__(self, max_turns: int) -> None:
        self.max_turns = max_turns
        self.kinds: dict[str, list[Episode]] = {}
        self.seen: dict[str, int] = {}
        """Number of episodes of each kind since the beginning."""
        self.worst: dict[str, float] = {}
        """Lowest sum of rewards of each kind since the beginning."""

    def add(self, episode: Episode) -> None:
        """Keep an episode, if it is among the best.

        :param episode: episode that has ended.
        """
        kind = episode.kind
        kept = self.kinds.setdefault(kind, [])
        insort(kept, episode, key=lambda one: one.total)  # behind its equals, so the oldest of them comes first
        self.seen[kind] = self.seen.get(kind, 0) + 1
        self.worst[kind] = min(episode.total, self.worst.get(kind, episode.total))
        sizes = {name: sum(map(len, episodes)) for name, episodes in self.kinds.items()}
        while sum(sizes.values()) > self.max_turns:
            largest = max((name for name in sizes if len(self.kinds[name]) > 1), key=sizes.__getitem__, default=None)
            if largest is None:
                break
            sizes[largest] -= len(self.kinds[largest].pop(0))

    def episodes(self) -> list[Episode]:
        """Return all that are kept, kind by kind, the worst first."""
        return [episode for kept in self.kinds.values() for episode in kept]

    def best(self, share: float, at_least: float | None) -> list[Episode]:
        """Return a share of the episodes of each kind, its best.

        An episode that is as bad as the worst teaches nothing, and is left out.

        :param share: share of the episodes that were added.
        :param at_least: lowest sum of rewards. ``None``: any.
        """
        found = []
        for kind, kept in self.kinds.items():
            size = max(1, round(share * self.seen[kind]))
            floor = -math.inf if at_least is None else at_least
            found += [one for one in kept[-size:] if one.total > self.worst[kind] and one.total >= floor]
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the episodes and counts, as JSON has them."""
        kept = {kind: [episode.to_plain() for episode in episodes] for kind, episodes in self.kinds.items()}
        return {"kinds": kept, "seen": self.seen, "worst": self.worst}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over episodes and counts.

        :param state: what :meth:`state_dict` returned, read from JSON.
        """
        self.kinds = {kind: [Episode.from_plain(one) for one in kept] for kind, kept in state["kinds"].items()}
        self.seen, self.worst = dict(state["seen"]), dict(state["worst"])


def rows_of(episodes: Sequence[Episode], gammas: NDArray[Any], divisors: NDArray[np.float64]) -> Rows:
    """Return the turns of episodes as the policy takes them, with returns as the critic learns them.

    :param episodes: at least one episode.
    :param gammas: discounts per env step of each env, ``(n_envs,)``.
    :param divisors: numbers by which the rewards of each env are divided, ``(n_envs,)``.
    """
    keys = [key for episode in episodes for key in episode.keys]
    actions = np.array([action for episode in episodes for action in episode.actions], dtype=np.int64)
    returns = [value / divisors[one.env] for one in episodes for value in one.returns(float(gammas[one.env]))]
    return Rows(keys, actions, np.ones(len(keys), dtype=np.float32), np.array(returns, dtype=np.float32))
