"""Log what the language model does while it learns, and show sample turns."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import HumanOutputFormat

from lmpolicy.text.spaces import row_keys
from lmpolicy.training.callbacks import learner_of, policy_of
from lmpolicy.training.turns import Turn, markdown, write_turns
from lmpolicy.training.watching.gradient_norms import GradientNorms
from lmpolicy.training.watching.same_prompts import SamePrompts
from lmpolicy.training.watching.whole_episodes import FILE, WholeEpisodes

EPISODES = 100
"""Number of episodes in a mean of returns, as in SB3."""


class WatchLearning(BaseCallback):
    """Log how the policy behaves and learns, and show sample turns.

    At the end of each rollout, SB3's logger is given the following numbers besides SB3's own. They are about the
    decisions of the rollout:

    ``lm/entropy`` in nats, ``lm/largest_probability`` and ``lm/legal_actions`` are means. ``lm/mutual_information`` is
    that of observation and action in nats, see :func:`lmpolicy.lm.behaviour.mutual_information`; near 0, the policy
    ignores what it reads. ``lm/illegal_rate`` is the share of actions that name no legal phrase.
    ``lm/parse_error_rate`` is logged if the env's info has ``parse_error``. ``lm/prompt_tokens_mean`` and
    ``lm/prompt_tokens_max`` are lengths of prompts. ``lm/truncation_rate`` is the share of prompts that had to be
    shortened. ``lm/cache_mib`` is what the policy remembers between calls, in MiB. ``lm/cache_evictions`` is how many
    entries were dropped since the last rollout to stay within ``cache_bytes``; if there are many, more bytes save time.

    If the policy writes its answers, these numbers take the place of those up to ``lm/parse_error_rate``:
    ``lm/entropy`` is in nats per token. ``lm/answer_tokens_mean`` is the length of an answer. ``lm/unfinished_rate`` is
    the share of answers that were cut off at ``max_new_tokens``. ``lm/parse_error_rate`` is the share of answers that
    name no legal action, and ``lm/clipped_rate`` the share that names a number out of bounds.

    ``time/env_steps_per_second`` and ``time/tokens_per_second`` cover the time since the end of the last rollout, which
    is one rollout and one update. The tokens are those of prompts acted on and of answers, each counted once.

    ``train/policy_gradient_norm`` and ``train/value_gradient_norm`` are norms of the loss's gradient before clipping,
    at the weights of the LM and at those of the value head. They are means over the steps of the last update. With
    ``value_gradient=True``, the value loss is part of both. The first is left out where :class:`~lmpolicy.CriticWarmup`
    does not change the LM. ``train/kl_to_reference`` is the mean divergence over the rows of the last update, if the
    policy has a :class:`~lmpolicy.Reference`; ``train/reference_beta`` is its weight, if that is adapted.

    ``rollout/ep_rew_mean/<env_id>`` and ``rollout/ep_len_mean/<env_id>`` are means over the last 100 episodes of each
    env whose info has ``env_id``.

    ``lm/turns`` is a table of random turns of the rollout, as text in TensorBoard. ``turns.jsonl`` has the same turns,
    one per line, see :class:`lmpolicy.training.turns.Turn`. ``episodes.jsonl`` has whole episodes of the training in
    the same form, and ``prompts.jsonl`` what the policy says to the same prompts again and again.
    :func:`lmpolicy.write_report` makes a page of them.

    The probabilities are those that the rollout acted with, so the model does not run again for turns and episodes. The
    same prompts take one forward pass each time. The guard rails
    of the policy save the whole learner to the same folder, see :class:`lmpolicy.lm.guard.Guard`.

    :param every: number of rollouts from one table of turns to the next, starting with the first rollout. The same for
        episodes and prompts. 0: none of them.
    :param n_turns: number of turns in a table.
    :param folder: folder of the files. Default: the logger's folder if the logger writes files, else no file is
        written.
    :param seed: seed of the choice of turns and prompts, which uses random generators of its own.
    :param verbose: 1: the table is also printed.
    :param n_episodes: number of whole episodes that are recorded each time, over as many rollouts as they take. An
        :class:`~lmpolicy.Agent` has none.
    :param n_prompts: number of prompts of the first rollout that the policy is asked about each time and at the end.
    :raises ValueError: if a number is negative or ``n_turns`` is below 1; the message names the allowed values.
    """

    def __init__(
        self,
        every: int = 10,
        n_turns: int = 8,
        folder: str | Path | None = None,
        seed: int = 0,
        verbose: int = 0,
        *,
        n_episodes: int = 1,
        n_prompts: int = 4,
    ) -> None:
        super().__init__(verbose)
        if isinstance(every, bool) or not isinstance(every, int) or every < 0:
            raise ValueError(f"every is the number of rollouts between two tables, or 0 for none; got {every!r}")
        if isinstance(n_turns, bool) or not isinstance(n_turns, int) or n_turns < 1:
            raise ValueError(f"n_turns must be a positive integer, got {n_turns!r}; every=0 shows no turns")
        for name, value in (("n_episodes", n_episodes), ("n_prompts", n_prompts)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} is a number of 0 or more, recorded every so many rollouts; got {value!r}")
        self.every, self.n_turns, self.n_episodes = every, n_turns, n_episodes
        self._whole, self._prompts = WholeEpisodes(), SamePrompts(n_prompts, seed)
        self.folder = None if folder is None else Path(folder)
        self._random = np.random.default_rng(seed)
        self._rollouts = 0
        self._norms: GradientNorms | None = None
        self._episodes: dict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=EPISODES))
        self._counts: list[int | None] = []
        self._shortened: list[bool | None] = []
        self._resumed = False

    def state_dict(self) -> dict[str, Any]:
        """Return what is counted over rollouts: episodes, tables, shortened prompts."""
        return {
            "rollouts": self._rollouts,
            "random": self._random.bit_generator.state,
            "episodes": {env_id: list(episodes) for env_id, episodes in self._episodes.items()},
            "counts": self._counts,
            "shortened": self._shortened,
            "whole": self._whole.state_dict(),
            "prompts": self._prompts.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from a state.

        :param state: what :meth:`state_dict` returned.
        """
        self._rollouts, self._random.bit_generator.state = state["rollouts"], state["random"]
        for env_id, episodes in state["episodes"].items():
            self._episodes[env_id].extend((returned, length) for returned, length in episodes)
        self._counts, self._shortened, self._resumed = state["counts"], state["shortened"], True
        if "whole" in state:  # checkpoints of version 0.1.0 lack both
            self._whole.load_state_dict(state["whole"])
            self._prompts.load_state_dict(state["prompts"])

    def _on_training_start(self) -> None:
        policy, learner = policy_of(self), learner_of(self)
        self._remove_hooks()  # left by a training that ended with an error
        self._norms = GradientNorms(policy)
        files = [one for one in self.logger.output_formats if not isinstance(one, HumanOutputFormat) or one.own_file]
        folder = self.logger.get_dir() if files else None
        self._place = self.folder or (Path(folder) if folder else None)
        if policy.guard is not None:
            policy.guard.learner, policy.guard.folder = learner, self._place
        starts = learner._last_episode_starts
        fresh = starts is not None and bool(np.all(starts))
        self._whole.begin_training(fresh, self._place, learner._last_obs)
        self._count_from(fresh)
        self._time = time.perf_counter()

    def _count_from(self, fresh: bool) -> None:
        """Find how many prompts were shortened so far.

        The counter of an env goes on over episodes and trainings, so its start is known after a reset, or else at the
        first step.

        :param fresh: whether all envs have just been reset.
        """
        resumed, self._resumed = self._resumed, False
        if resumed and not fresh:
            return
        resets = self.training_env.unwrapped.reset_infos
        self._counts = [info.get("prompt_truncated") if fresh else None for info in resets]
        # Whether the prompt that each env shows now was shortened; None where that is unknown.
        self._shortened = [False if count == 0 else None for count in self._counts]

    def _on_rollout_start(self) -> None:
        self._record_norms()  # of the update before, as PPO has recorded its own numbers by now
        self._first_step = self.num_timesteps
        self._rewards: list[NDArray[Any]] = []
        self._truncations: list[bool] = []
        self._parse_errors: list[bool] = []
        self._clipped: list[bool] = []
        self._answers: list[tuple[str | None, str | None]] = []
        policy_of(self).actor.begin_rollout()
        self._whole.begin_rollout(self.n_episodes if self._is_due and self._place is not None else 0)

    def _on_step(self) -> bool:
        infos, dones = self.locals["infos"], self.locals["dones"]
        # VecNormalize and PerEnvRewardNormalization have this method, at any depth of wrappers.
        original = getattr(self.training_env, "get_original_reward", None)
        rewards = self.locals["rewards"] if original is None else original()
        self._rewards.append(np.array(rewards))  # a copy: SB3 adds the value of cut-off episodes in place
        for number, info in enumerate(infos):
            if "prompt_shortened" in info:  # of an agent, which knows it of the prompt that was acted on
                self._truncations.append(info["prompt_shortened"])
            else:
                self._count_truncated(number, info, bool(dones[number]))
            if "parse_error" in info:
                self._parse_errors.append(bool(info["parse_error"]))
            if "action_clipped" in info:
                self._clipped.append(bool(info["action_clipped"]))
            self._answers.append((info.get("answer"), info.get("action_text")))
            if "env_id" in info and "episode" in info:
                self._episodes[str(info["env_id"])].append((info["episode"]["r"], info["episode"]["l"]))
        self._whole.step(infos, self.locals["new_obs"])
        return True

    def _count_truncated(self, number: int, info: dict[str, Any], done: bool) -> None:
        """Note whether the prompt just acted on was shortened, and learn about the next one from the running count."""
        shortened, before = self._shortened[number], self._counts[number]
        if shortened is not None:
            self._truncations.append(shortened)
        now = info.get("prompt_truncated", 0)
        if done:  # the env has been reset already, and shows the first prompt of the next episode
            before, now = now, self.training_env.unwrapped.reset_infos[number].get("prompt_truncated", now)
        self._shortened[number] = None if before is None else now != before
        self._counts[number] = now

    def _on_rollout_end(self) -> None:
        actor, buffer, record = policy_of(self).actor, learner_of(self).rollout_buffer, self.logger.record
        keys = row_keys(buffer.observations.reshape(-1, buffer.observations.shape[-1]))  # n_steps * n_envs
        statistics = actor.rollout_statistics(keys, buffer.actions.reshape(len(keys), -1))
        for name, value in statistics.items():
            record(name, value)
        rates = {"truncation": self._truncations, "parse_error": self._parse_errors, "clipped": self._clipped}
        for name, seen in ((name, seen) for name, seen in rates.items() if seen):
            record(f"lm/{name}_rate", float(np.mean(seen)))
        for env_id, episodes in self._episodes.items():
            returns, lengths = np.mean(episodes, axis=0)
            record(f"rollout/ep_rew_mean/{env_id}", float(returns))
            record(f"rollout/ep_len_mean/{env_id}", float(lengths))
        self._record_reference()
        now = time.perf_counter()
        tokens = statistics["lm/prompt_tokens_mean"] + statistics.get("lm/answer_tokens_mean", 0)  # per env step
        record("time/env_steps_per_second", len(keys) / (now - self._time))
        record("time/tokens_per_second", len(keys) * tokens / (now - self._time))
        self._time = now
        if self._is_due:
            self._show_turns(keys)
            self._prompts.choose(keys)
            self._ask_same_prompts(self._first_step)
        self._record_episode()
        self._rollouts += 1

    @property
    def _is_due(self) -> bool:
        """Return whether something is shown of this rollout."""
        return self.every > 0 and self._rollouts % self.every == 0

    def _record_episode(self) -> None:
        """Write an episode that has ended in this rollout, if one was watched."""
        if self._place is None or "places" in self.locals:  # an agent's episodes are cut at the end of a rollout
            return
        buffer, dones, ask = learner_of(self).rollout_buffer, self.locals["dones"], policy_of(self).actor.probabilities
        if turns := self._whole.end_rollout(buffer, np.stack(self._rewards), dones, ask, self._first_step):
            write_turns(self._place / FILE, turns)

    def _ask_same_prompts(self, env_step: int) -> None:
        """Write what the policy says now to the same prompts."""
        if self._place is not None and (turns := self._prompts.ask(policy_of(self), env_step)):
            write_turns(self._place / "prompts.jsonl", turns)

    def _show_turns(self, keys: list[bytes]) -> None:
        """Write, log and print a table of random turns."""
        n_envs, buffer = self.training_env.num_envs, learner_of(self).rollout_buffer
        places = self.locals.get("places", range(len(keys)))  # an agent puts its steps into another order
        rewards, values = np.concatenate(self._rewards), buffer.values.reshape(-1)
        chosen = np.sort(self._random.choice(len(keys), min(self.n_turns, len(keys)), replace=False)).tolist()
        probabilities = policy_of(self).actor.probabilities([keys[n] for n in chosen]).tolist()
        turns = [
            Turn.of(
                keys[n],
                shares,
                int(buffer.actions.reshape(len(keys), -1)[n, 0]),
                env_step=self._first_step + int(places[n] // n_envs + 1) * n_envs,
                env=n % n_envs,
                reward=float(rewards[places[n]]),
                value=float(values[n]),
                answer=None if shares else self._answers[places[n]],
            )
            for n, shares in zip(chosen, probabilities, strict=True)
        ]
        table = markdown(turns)
        self.logger.record("lm/turns", table, exclude=("csv", "json", "stdout", "log"))
        if self.verbose:
            print(table)
        if self._place is not None:
            write_turns(self._place / "turns.jsonl", turns)

    def _record_norms(self) -> None:
        for name, norm in (self._norms.means() if self._norms is not None else {}).items():
            self.logger.record(f"train/{name}_gradient_norm", norm)

    def _record_reference(self) -> None:
        reference = policy_of(self).reference
        for name, value in (reference.statistics() if reference is not None else {}).items():
            self.logger.record(name, value)

    def _on_training_end(self) -> None:
        self._record_norms()  # of the last update, after which no rollout begins
        self._record_reference()
        self._ask_same_prompts(self.num_timesteps)
        self._remove_hooks()
        guard = policy_of(self).guard
        if guard is not None:
            guard.learner = guard.folder = None

    def _remove_hooks(self) -> None:
        if self._norms is not None:
            self._norms.remove()
            self._norms = None
