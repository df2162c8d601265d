"""Take whole episodes out of the rollouts of a training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer

from lmpolicy.text.spaces import row_keys
from lmpolicy.training.turns import Turn, last_episode

FILE = "episodes.jsonl"
"""Name of a file of episodes in a folder."""
NOTED = {"parse_error": "parse_error", "clipped": "action_clipped", "env_id": "env_id"}
"""Fields of a turn, and where a step's info has them."""


class WholeEpisodes:
    """Note episodes from their first turn to their last, over as many rollouts as they take.

    The env of an episode is chosen before the episode begins, env after env, so that short episodes are not preferred.
    """

    def __init__(self) -> None:
        self._owed, self._begun, self._before = 0, 0, 0
        self._is_new = True
        self._following: Any = None  # observations from which the envs go on; None: those of a checkpoint
        self._running: list[Turn] = []
        self._infos: list[tuple[str | None, str | None, dict[str, Any]]] = []

    def state_dict(self) -> dict[str, Any]:
        """Return what is noted of the running episode, and how many there were."""
        running = [asdict(turn) for turn in self._running]
        return {"owed": self._owed, "begun": self._begun, "before": self._before, "running": running}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on noting.

        :param state: what :meth:`state_dict` returned.
        """
        self._owed, self._begun = state["owed"], state["begun"]
        self._running, self._following = [Turn(**turn) for turn in state["running"]], None
        self._before, self._is_new = state.get("before", 0), False  # some checkpoints of version 0.1.0 lack it

    def begin_training(self, fresh: bool, folder: Path | None, observations: Any) -> None:
        """Begin a training, or go on with it.

        :param fresh: whether all envs have just been reset.
        :param folder: folder of the files. New episodes have numbers after those that are there.
        :param observations: those that the learner acts on next. If there was another training in between, they are
            not those that the last step led to.
        """
        if fresh or (self._following is not None and self._following is not observations):
            self.drop()
        if self._is_new and folder is not None:
            self._before = 1 + last_episode(folder / FILE)
        self._is_new = False

    def begin_rollout(self, ask_for: int) -> None:
        """Begin a rollout.

        :param ask_for: number of episodes to note from now on, unless some are owed still.
        """
        self._owed = self._owed or ask_for
        if self._infos:  # of a rollout that a callback or an error ended
            self.drop()

    def drop(self) -> None:
        """Drop the running episode, because the envs do not go on with it, or some of its turns are not known."""
        self._running, self._infos = [], []

    def step(self, infos: Sequence[dict[str, Any]], following: Any) -> None:
        """Note what the infos of a step say about the env that is watched.

        :param infos: infos of all envs.
        :param following: observations that the step led to.
        """
        self._following = following
        if self._owed:
            info = infos[self._env(len(infos))]
            known = {field: info[name] for field, name in NOTED.items() if name in info}
            known |= {"truncated": True} if info.get("TimeLimit.truncated", False) else {}
            self._infos.append((info.get("answer"), info.get("action_text"), known))

    def end_rollout(
        self,
        buffer: RolloutBuffer,
        rewards: NDArray[Any],
        dones: NDArray[Any],
        probabilities: Callable[[list[bytes]], th.Tensor],
        first_step: int,
    ) -> list[Turn]:
        """Take the turns of the rollout.

        :param buffer: full rollout buffer, with advantages.
        :param rewards: rewards as the envs gave them, ``(n_steps, n_envs)``.
        :param dones: whether an episode ended with the last step, ``(n_envs,)``.
        :param probabilities: probability of every phrase, ``(N, K)``, by the keys of prompts.
        :param first_step: number of env steps of the training before the rollout.
        :return: turns of an episode that has ended; empty if none has.
        """
        infos, self._infos = self._infos, []
        if not self._owed:
            return []
        n_steps, n_envs = rewards.shape
        env = self._env(n_envs)
        starts = buffer.episode_starts[:, env].astype(bool)
        ends = np.append(starts[1:], bool(dones[env]))
        first = 0 if self._running else int(np.argmax(starts)) if starts.any() else n_steps
        last = next((step for step in range(first, n_steps) if ends[step]), n_steps - 1)
        keys = row_keys(buffer.observations[first : last + 1, env]) if first < n_steps else []
        shares = probabilities(keys).tolist() if keys else []
        for step, key, row in zip(range(first, last + 1), keys, shares, strict=True):
            answer, phrase, known = infos[step]
            turn = Turn.of(
                key,
                row,
                int(buffer.actions.reshape(n_steps, n_envs, -1)[step, env, 0]),
                env_step=first_step + (step + 1) * n_envs,
                env=env,
                reward=float(rewards[step, env]),
                value=float(buffer.values[step, env]),
                answer=None if row else (answer, phrase),
            )
            advantage = float(buffer.advantages[step, env])
            self._running.append(
                replace(
                    turn,
                    episode=self._before + self._begun,
                    turn=len(self._running),
                    advantage=advantage,
                    greedy=False,
                    **known,
                )
            )
        return self._finished() if keys and ends[last] else []

    def _env(self, n_envs: int) -> int:
        """Return the env whose episode is noted."""
        return self._begun % n_envs

    def _finished(self) -> list[Turn]:
        """Return the turns of the running episode, which has ended."""
        turns, self._running = self._running, []
        self._owed, self._begun = self._owed - 1, self._begun + 1
        return with_return(turns)


def with_return(turns: Sequence[Turn]) -> list[Turn]:
    """Note the return of an episode in each of its turns.

    :param turns: turns of one whole episode.
    """
    total = float(sum(turn.env_reward or 0.0 for turn in turns))
    return [replace(turn, episode_return=total) for turn in turns]
