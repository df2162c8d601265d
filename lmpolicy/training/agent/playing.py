"""Play the episodes of a loop of one's own, and hand their steps to the learner."""

from __future__ import annotations

import copy
import logging
from collections.abc import Hashable, Mapping
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lmpolicy.text.action_masks import MASK, find_action_masks, masked
from lmpolicy.text.action_readers import ReadAnswer
from lmpolicy.text.env_words import EnvWords, Reading
from lmpolicy.text.misfits import misfit
from lmpolicy.training.agent.episodes import Episode, Step
from lmpolicy.training.agent.learning import Learning

log = logging.getLogger(__name__)


class Playing:
    """Play episodes side by side.

    :param words: words of the world.
    :param space: space of its observations; ``None``: unknown.
    :param learning: what trains on the steps.
    """

    def __init__(self, words: EnvWords, space: spaces.Space | None, learning: Learning) -> None:
        self.words, self.space, self.learning = words, space, learning
        self._episodes: dict[Hashable, Episode] = {}
        self._last: Episode | None = None
        self._has_left_out = False

    def act(
        self,
        observations: Mapping[Hashable, Any],
        infos: Mapping[Hashable, dict[str, Any] | None],
        deterministic: bool,
        learn: bool | None,
    ) -> dict[Hashable, Any]:
        """Choose actions, see :meth:`lmpolicy.Agent.act_together`.

        Nothing changes before all observations have been read, so a mistake in one of them can be put right. What
        stops it later, such as Ctrl-C in an update, leaves the same call to make again: steps are counted once, and
        an episode has read what it has answered.
        """
        learns = {key: self._learns(key, learn, deterministic) for key in observations}
        read = {key: self._read(key, one, infos.get(key)) for key, one in observations.items()}
        ended = []
        for key, (reading, shortened, info) in read.items():
            one = self._begun(key)
            if one is None:
                self._episodes[key] = Episode(learns[key], reading, shortened, updates=self.learning.updates)
            elif one.step is not None and not one.step.is_counted:
                ended.append((key, one.ended_step(info, reading.row, done=False)))
        self._count(ended)
        return self._decide(read, deterministic)

    def reward(self, key: Hashable, reward: Any) -> None:
        """Reward the last action of an episode, see :meth:`lmpolicy.Agent.assign_reward`."""
        array = np.asarray(reward)
        if array.shape != () or array.dtype.kind not in "biuf":
            raise TypeError(f"a reward is one number, got {reward!r}: 0.0 if the step earned nothing")
        self._running(key, "assign_reward").reward(float(array))

    def terminate(self, key: Hashable, truncated: bool, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        """End an episode, see :meth:`lmpolicy.Agent.terminate_episode`."""
        one = self._running(key, "terminate_episode")
        if not isinstance(truncated, bool | np.bool_):
            raise TypeError(f"truncated is True or False, got {truncated!r}: terminate_episode(truncated, episode=id)")
        leaves_out = bool(truncated) and observation is None
        if not one.is_rewarded and not leaves_out:
            raise RuntimeError(
                f"the last action of episode {key!r} has no reward yet: assign_reward(reward), 0.0 if it earned nothing"
            )
        row = None
        if observation is not None:
            assert one.answer is not None
            self._check(observation, info)
            row = self.words.after(one.reading, one.answer, observation, info, ended=True).row
            info = {**info, "terminal_observation": row}
        del self._episodes[key]
        if one.step is not None and one.step.is_counted:  # by an act that was broken off
            self.learning.note_episode(one.statistics)
        elif one.step is not None and leaves_out:
            self._leave_out(one)
        elif one.step is not None:
            info = {**info, "TimeLimit.truncated": bool(truncated), "prompt_truncated": self.words.composer.shortened}
            self._count([(key, one.ended_step(info, row, done=True))])
        return self._statistics(one)

    def end(self) -> None:
        """End the training."""
        self.learning.end()
        self._count([])

    @property
    def messages(self) -> list[dict[str, str]]:
        """Return the messages of the episode that acted last."""
        return [] if self._last is None else self._last.messages

    @property
    def rewards(self) -> list[float]:
        """Return the rewards of the episode that acted last."""
        return [] if self._last is None else self._last.rewards

    def _learns(self, key: Hashable, learn: bool | None, deterministic: bool) -> bool:
        """Return whether a step is learnt from.

        :raises RuntimeError: if the last step has no reward.
        :raises ValueError: if the two switches do not fit the episode.
        """
        one, ended = self._begun(key), self.learning.has_ended
        if one is not None and not one.is_rewarded:
            raise RuntimeError(
                f"episode {key!r} acts again, but its last action has no reward: assign_reward(reward, episode={key!r}"
                ") after every action, 0.0 if it earned nothing; episodes side by side need ids of their own: "
                "act(observation, episode=...)"
            )
        learns = (one.learns if one is not None else not ended) if learn is None else learn
        if learns and ended:
            raise ValueError("the training has ended, so learn=True has no effect: leave it out")
        if one is not None and learns != one.learns:
            raise ValueError(
                f"episode {key!r} began with learn={one.learns}, and an episode is learnt from as a whole or not at "
                "all: leave learn out, or play under another id, act(observation, episode=..., learn=False)"
            )
        if learns and deterministic:
            raise ValueError(
                "deterministic=True is for playing, because PPO learns from sampled actions: pass learn=False with it"
            )
        return learns

    def _read(self, key: Hashable, observation: Any, info: Any) -> tuple[Reading, bool, dict[str, Any]]:
        """Put an observation into words.

        :return: the words, whether they had to be shortened, and the info of the step that led to them.
        """
        info = {} if info is None else info
        self._check(observation, info)
        if self.words.needs_masks and info.get(MASK) is None:
            raise ValueError(
                "your env says by action_masks() which actions are legal, and info has no mask: pass it along, "
                'agent.act(observation, {**info, "action_mask": env.action_masks()}), or set action_mask = False on '
                "the task to ignore it"
            )
        one, before = self._begun(key), self.words.composer.shortened
        if one is None:
            reading = self.words.first(observation, info)
        else:
            assert one.answer is not None
            reading = self.words.after(one.reading, one.answer, observation, info, ended=False)
        return (
            reading,
            self.words.composer.shortened > before,
            {**info, "prompt_truncated": self.words.composer.shortened},
        )

    def _check(self, observation: Any, info: Any) -> None:
        """Refuse what is no observation of the world.

        :raises TypeError: if the info is no dict.
        :raises ValueError: if the observation is built differently than its space.
        """
        if not isinstance(info, dict):
            raise TypeError(f"info is the dict that the env returns beside its observation, got {info!r}")
        problem = "" if self.space is None else misfit(self.space, observation)
        if problem or self.space is None:
            is_pair = isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict)
            hint = "; env.reset() returns two values: observation, info = env.reset()" if is_pair else ""
            if problem or is_pair:
                raise ValueError(f"no observation of {self.space or 'this world'}: {problem or 'a pair'}{hint}")

    def _begun(self, key: Hashable) -> Episode | None:
        """Return an episode that has acted; ``None`` if there is none of this id."""
        one = self._episodes.get(key)
        return None if one is None or one.answer is None else one

    def _running(self, key: Hashable, method: str) -> Episode:
        """Return a running episode.

        :raises RuntimeError: if there is none of this id; the message lists those that run.
        """
        one = self._begun(key)
        if one is None:
            running = ", ".join(repr(other) for other in self._episodes if self._begun(other)) or "none"
            raise RuntimeError(
                f"{method}: episode {key!r} is not running. An episode begins with act(observation, info, episode=id) "
                f"and ends with terminate_episode; running now: {running}"
            )
        return one

    def _count(self, ended: list[tuple[Hashable, Step]]) -> None:
        """Hand steps to the learner. If the training has ended, the running episodes are played on without it."""
        running = {key for key, one in self._episodes.items() if one.learns}
        for _, step in ended:
            step.is_counted = True
        self.learning.count(ended, running)
        if self.learning.has_ended:
            for one in self._episodes.values():
                one.learns, one.step = False, None

    def _decide(self, read: Mapping[Hashable, tuple[Reading, bool, Any]], deterministic: bool) -> dict[Hashable, Any]:
        """Choose the actions of episodes, given what :meth:`_read` returned for each.

        No episode has acted before all answers have been read, see :meth:`act`.
        """
        decided: dict[Hashable, tuple[Step | None, ReadAnswer]] = {}
        for learns in (True, False):
            asked = [key for key in read if self._episodes[key].learns is learns]
            if not asked:
                continue
            rows = np.stack([read[key][0].row for key in asked])
            if learns:
                actions, values, log_probs = self.learning.decide(asked, rows)
            else:
                actions, _ = self.learning.learner.policy.predict(rows, deterministic=deterministic)
            for place, key in enumerate(asked):
                step, at = None, slice(place, place + 1)
                if learns:
                    starts = self._episodes[key].answer is None
                    step = Step(rows[place], actions[at], values[at], log_probs[at], starts)
                decided[key] = step, self._answer(key, actions[place], read[key][0].legal)
        for key, (step, answer) in decided.items():
            reading, shortened, _ = read[key]
            self._last = self._episodes[key]
            self._last.answered(reading, shortened, answer, step)
        # Copies, so that a loop that changes its action leaves the phrase's alone.
        return {key: copy.deepcopy(decided[key][1].action) for key in read}

    def _answer(self, key: Hashable, action: Any, legal: Mapping[str, Any]) -> ReadAnswer:
        """Read the answer of an episode."""
        try:
            return self.words.reader.read(action, legal, self.learning.random)
        except Exception as error:  # on_parse_error="raise"
            error.add_note(
                f"This is the answer of episode {key!r}. No episode of the call has acted: make the same call again, "
                "or end the episode with terminate_episode"
            )
            raise

    def _leave_out(self, one: Episode) -> None:
        """Drop the last step of an episode that was cut off: nothing says what the step led to."""
        if not self._has_left_out:
            self._has_left_out = True
            log.warning(
                "An episode was cut off at an observation that was not shown, so its last step is not learnt from. To "
                "learn from it: terminate_episode(truncated, observation=observation). Not reported again"
            )
        self.learning.note_episode(one.statistics)

    def _statistics(self, one: Episode) -> dict[str, Any]:
        """Return what :meth:`lmpolicy.Agent.terminate_episode` returns."""
        learning, summary = self.learning, one.statistics
        found = {"return": summary["r"], "length": summary["l"], "env_steps": learning.learner.num_timesteps}
        found |= {"updates": learning.updates}
        if one.answer is not None and "parse_error" in one.answer.info:
            found |= {"parse_errors": one.parse_errors}
        return {**found, **(learning.statistics if learning.updates > one.updates else {})}


class Acts(Protocol):
    """Define what is needed to play."""

    def act(self, observation: Any, info: Any, episode: Hashable, *, deterministic: bool, learn: bool) -> Any:
        """Choose an action."""

    def assign_reward(self, reward: float, episode: Hashable) -> None:
        """Reward the last action."""

    def terminate_episode(self, *, episode: Hashable) -> dict[str, Any]:
        """End an episode."""


def play(
    agent: Acts, env: gym.Env, n_episodes: int, deterministic: bool, seed: int | None, heeds_masks: bool = True
) -> tuple[float, float]:
    """Play episodes without learning, see :meth:`lmpolicy.Agent.evaluate`.

    :param agent: who plays.
    :param env: as there, like all parameters below.
    :param n_episodes: as there.
    :param deterministic: as there.
    :param seed: as there.
    :param heeds_masks: whether the env is asked which actions are legal.
    """
    returns, key, masks = [], object(), find_action_masks(env) if heeds_masks else None
    for _ in range(n_episodes):
        (observation, info), seed, done = env.reset(seed=seed), None, False
        while not done:
            action = agent.act(observation, masked(info, masks), key, deterministic=deterministic, learn=False)
            observation, reward, terminated, truncated, info = env.step(action)
            agent.assign_reward(float(reward), key)
            done = terminated or truncated
        returns.append(agent.terminate_episode(episode=key)["return"])
    return float(np.mean(returns)), float(np.std(returns))
