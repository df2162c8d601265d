"""Train a learner of Stable-Baselines3 on steps that a loop of one's own has made."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from lmpolicy.training.agent.episodes import Step, Streams
from lmpolicy.training.agent.told_env import ToldEnv

log = logging.getLogger(__name__)


class Learning:
    """Do what ``learn`` of an on-policy learner does, with steps that somebody else makes.

    The learner's own methods do the work: its policy decides, its rollout buffer computes advantages, ``train`` updates
    the weights, and callbacks and logger are called as in ``learn``. Steps enter a rollout when they have ended. The
    rollout is full after ``n_steps`` of them. Then the steps are put into the buffer id by id, which is the order in
    which Stable-Baselines3 hands out those of several envs. So an update draws the same minibatches from episodes in
    lockstep as from as many envs.

    Where an episode goes on after the rollout, the value of its next prompt is added to its last reward, as
    Stable-Baselines3 does at a time limit. The advantages are the same as with ``last_values``.

    :param learner: learner on a :class:`ToldEnv`.
    :param callback: callbacks, as for ``learn``.
    :param total_timesteps: env steps of the training, with those that the learner has made; ``None``: no end.
    :param log_interval: number of rollouts from one log to the next.
    :param tb_log_name: name of the run for TensorBoard.
    """

    def __init__(
        self,
        learner: OnPolicyAlgorithm,
        callback: Any,
        total_timesteps: int | None,
        log_interval: int,
        tb_log_name: str,
    ) -> None:
        self.learner, self.total = learner, sys.maxsize if total_timesteps is None else total_timesteps
        self._asked, self._log_interval, self._tb_log_name = callback, log_interval, tb_log_name
        env = learner.get_env()
        assert env is not None
        assert isinstance(env.unwrapped, ToldEnv)
        self._env, self._told = env, env.unwrapped
        self._streams = Streams()
        self._waiting: deque[tuple[Hashable, Step]] = deque()
        self._callback: BaseCallback | None = None
        self._is_open = False  # whether a rollout has begun
        self.has_ended = learner.num_timesteps >= self.total
        self.updates = 0
        self.statistics: dict[str, Any] = {}  # what the last update logged

    @property
    def random(self) -> np.random.Generator:
        """Return the generator of what an agent draws itself."""
        return self._told.random

    def decide(self, keys: Sequence[Hashable], rows: NDArray[np.uint8]) -> tuple[NDArray[Any], th.Tensor, th.Tensor]:
        """Let the policy act.

        :param keys: ids of the episodes; B of them.
        :param rows: prompts, ``(B, max_bytes)``.
        :return: actions ``(B,)`` or ``(B, W)``, values ``(B, 1)`` and log-probabilities ``(B,)``.
        """
        self._open_rollout()
        for key in keys:
            self._streams.of(key)  # in the order in which they act
        with th.no_grad():
            actions, values, log_probs = self.learner.policy(th.as_tensor(rows, device=self.learner.device))
        return actions.cpu().numpy(), values, log_probs

    def count(self, ended: list[tuple[Hashable, Step]], running: set[Hashable]) -> None:
        """Take steps into the rollout, and update the weights if it is full.

        :param ended: steps that have ended, each with the id of its episode.
        :param running: ids of episodes that go on.
        """
        self._waiting.extend(ended)
        if self._callback is not None and not self._is_open and self.learner.num_timesteps >= self.total:
            self.end()  # the last update was broken off
        while self._waiting and not self.has_ended:
            self._open_rollout()
            key, step = self._waiting.popleft()
            if not self._take(key, step):
                self.end()
            elif self._streams.n_steps == self.learner.n_steps:
                self._update(running)
        if self.has_ended:
            self._waiting.clear()

    def note_episode(self, statistics: dict[str, float]) -> None:
        """Log an episode whose last step is not learnt from.

        :param statistics: its return and length, see :class:`~lmpolicy.training.agent.episodes.Episode`.
        """
        if self._callback is not None:
            self.learner._update_info_buffer([{"episode": statistics}])

    def end(self) -> None:
        """End the training: callbacks are told, and steps that filled no rollout are dropped."""
        if not self.has_ended and self._callback is not None:
            self._callback.on_training_end()
        self.has_ended = True

    def _begin(self) -> None:
        """Set up logger and callbacks, as ``learn`` does."""
        learner = self.learner
        goes_on = learner.num_timesteps > 0
        left = self.total - learner.num_timesteps
        arguments = (self._asked, not goes_on, self._tb_log_name)
        self.total, self._callback = learner._setup_learn(left, *arguments)
        names: dict[str, Any] = {"self": learner, "total_timesteps": self.total, "callback": self._callback}
        names |= {"reset_num_timesteps": not goes_on, "tb_log_name": self._tb_log_name, "progress_bar": False}
        names |= {"log_interval": self._log_interval, "iteration": 0}
        self._callback.on_training_start(names, globals())

    def _open_rollout(self) -> None:
        if self._is_open:
            return
        if self._callback is None:
            self._begin()
        assert self._callback is not None
        self._is_open = True
        self.learner.policy.set_training_mode(False)
        self.learner.rollout_buffer.reset()
        self._callback.on_rollout_start()

    def _take(self, key: Hashable, step: Step) -> bool:
        """Take a step into the rollout, with what callbacks and wrappers make of its reward.

        :return: False if a callback ends the training.
        """
        learner, stream = self.learner, self._streams.of(key)
        assert self._callback is not None
        scaling = learner.get_vec_normalize_env()
        if scaling is not None:
            scaling.returns = stream.discounted
        self._told.tell(step.row if step.next_row is None else step.next_row, step.reward, step.done, step.info)
        new_obs, rewards, dones, infos = self._env.step(step.action)
        if scaling is not None:
            stream.discounted = scaling.returns
        learner.num_timesteps += 1
        learner._last_obs, learner._last_episode_starts = step.row[None], np.array([step.starts])  # for callbacks
        names: dict[str, Any] = {"self": learner, "env": self._env, "callback": self._callback}
        names |= {"rollout_buffer": learner.rollout_buffer, "n_rollout_steps": learner.n_steps}
        names |= {"n_steps": self._streams.n_steps, "actions": step.action, "clipped_actions": step.action}
        names |= {"values": step.value, "log_probs": step.log_prob, "new_obs": new_obs, "episode_ids": [key]}
        self._callback.update_locals({**names, "rewards": rewards, "dones": dones, "infos": infos})
        goes_on = self._callback.on_step()
        learner._last_episode_starts = np.ones(1, dtype=bool)  # a checkpoint has no running episode
        if not goes_on:
            return False
        learner._update_info_buffer(infos, dones)
        if infos[0].get("TimeLimit.truncated", False):
            rewards[0] += learner.gamma * self._values([infos[0]["terminal_observation"]])[0]
        step.rewards = rewards
        self._streams.add(key, step)
        return True

    def _values(self, rows: list[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Return the values of prompts, ``(B,)``."""
        with th.no_grad():
            values = self.learner.policy.predict_values(th.as_tensor(np.stack(rows), device=self.learner.device))
        return values.cpu().numpy().flatten()

    def _update(self, running: set[Hashable]) -> None:
        """Learn from a full rollout, as ``learn`` does after ``collect_rollouts``."""
        learner, callback = self.learner, self._callback
        assert callback is not None
        try:
            self._fill(running)
        finally:  # a rollout that is broken off here is not learnt from
            self._is_open = False
            self._streams.clear(running)
        self.updates += 1
        learner._update_current_progress_remaining(learner.num_timesteps, self.total)
        if self._log_interval is not None and self.updates % self._log_interval == 0:
            learner.dump_logs(self.updates)
        learner.train()
        logged = learner.logger.name_to_value
        self.statistics = {name: value for name, value in logged.items() if name.startswith("train/")}
        if learner.num_timesteps >= self.total:
            self.end()

    def _fill(self, running: set[Hashable]) -> None:
        """Put the steps into the rollout buffer, with the value of what follows the last of each episode.

        :param running: ids of episodes that go on. Callbacks are also told of those whose steps wait for a rollout.
        """
        learner, callback = self.learner, self._callback
        assert callback is not None
        cuts = [step for stream in self._streams for step in stream.cuts()]
        unknown = {id(step): step.next_row for step in cuts if step.following is None and step.next_row is not None}
        known = dict(zip(unknown, self._values([*unknown.values()]), strict=True)) if unknown else {}
        for step in cuts:
            following = step.following
            value = known[id(step)] if following is None else following.value.cpu().numpy().flatten()[0]
            assert step.rewards is not None
            step.rewards[0] += learner.gamma * value
        is_index = isinstance(learner.action_space, spaces.Discrete)
        for number, step in ((number, step) for stream in self._streams for number, step in enumerate(stream.steps)):
            action = step.action.reshape(-1, 1) if is_index else step.action
            starts = np.array([step.starts or number == 0])  # nothing goes on from one id to the next
            assert step.rewards is not None
            learner.rollout_buffer.add(step.row[None], action, step.rewards, starts, step.value, step.log_prob)
        values, dones = th.zeros(1, 1, device=learner.device), np.array([True])
        learner.rollout_buffer.compute_returns_and_advantage(last_values=values, dones=dones)
        places = np.array([place for stream in self._streams for place in stream.places])
        names: dict[str, Any] = {"values": values, "dones": dones, "places": places}
        callback.update_locals({**names, "running_ids": running | {key for key, _ in self._waiting}})
        callback.on_rollout_end()
