"""Compute advantages in the rollout buffer by comparing episodes, with the critic or without one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray

from lmpolicy.lm.judging import GuardWarning
from lmpolicy.training.groups.advantage_checks import (
    GROUPED,
    GRPO,
    LEAVE_ONE_OUT,
    MIXTURE,
    RLOO,
    check_arguments,
    check_learner,
)
from lmpolicy.training.groups.baselines import (
    Floats,
    Ints,
    LeaveOneOut,
    Part,
    discounted,
    gae,
    group_advantage,
    parts_of,
    return_of_running,
)
from lmpolicy.training.groups.episode_groups import Episode, EpisodeGroups, groups_around
from lmpolicy.training.learners_buffer import LearnersBuffer

KAPPA = 4.0
EPSILON = 1e-8


class GroupAdvantages(LearnersBuffer):
    """Compute advantages by comparing episodes.

    The learner stays PPO of Stable-Baselines3, which takes this class as ``rollout_buffer_class``. Returns, on which
    PPO trains the critic, stay those of Stable-Baselines3.

    ``"rloo"``: each env step of an episode has the same advantage, the return of the episode less the mean return of
    the other episodes from the same seed (REINFORCE leave-one-out, Ahmadian et al., 2024). The envs are in
    :class:`~lmpolicy.EpisodeGroups`.

    ``"grpo"``: the return less the mean of all episodes from the seed, divided by their standard deviation (group
    relative policy optimisation, Shao et al., 2024). With ``divide_by_std=False``, it is Dr. GRPO (Liu et al., 2025).

    ``"leave-one-out"``: the advantage of an env step is the return from there on, less the mean return from there on of
    the other episodes that passed the same prompt. The whole own episode is left out. A prompt that no other episode
    passed is compared with the mean over all env steps of the other episodes. Only episodes that ended in the rollout
    are compared with.

    ``"mixture"``: generalised advantage estimation as in Stable-Baselines3, with (n V_others + kappa V_critic) /
    (n + kappa) in place of the critic's value. V_others is the mean return of the n other episodes that passed the
    prompt.

    All returns are discounted with the learner's ``gamma``, as PPO's are. ``gae_lambda`` is for the mixture alone.

    The first three need no critic: pass ``vf_coef=0``, and the value head is not trained. An episode that a time limit
    ends is complete for them. (Stable-Baselines3 adds the critic's value of what would have followed to its last
    reward. A value head that was never trained says 0. Of returns of groups, this class takes the value off again.)

    ``rollout/compared_share`` in the log is the share of env steps that had another episode to be compared with. The
    others have the advantage 0 without a critic, and the critic's in the mixture.

    Example:
        >>> import lmpolicy
        >>> from stable_baselines3 import PPO
        >>> settings = lmpolicy.hyperparameters("CartPole-v1")
        >>> arguments = {**settings.ppo, "vf_coef": 0.0, "rollout_buffer_class": lmpolicy.GroupAdvantages}
        >>> env = lmpolicy.EpisodeGroups(settings.make_env(), group_size=8, seed=0)
        >>> model = PPO(
        ...     lmpolicy.LMActorCriticPolicy, env, rollout_buffer_kwargs={"baseline": "rloo"}, **arguments
        ... )

    :param buffer_size: as in Stable-Baselines3, which passes this one and those up to ``n_envs``.
    :param observation_space: as in Stable-Baselines3.
    :param action_space: as in Stable-Baselines3.
    :param device: as in Stable-Baselines3.
    :param gae_lambda: as in Stable-Baselines3.
    :param gamma: as in Stable-Baselines3.
    :param n_envs: as in Stable-Baselines3.
    :param baseline: ``"rloo"``, ``"grpo"``, ``"leave-one-out"`` or ``"mixture"``. The default needs neither groups nor
        a critic.
    :param kappa: number of episodes that the critic counts as in the mixture, above 0. Default: 4.
    :param divide_by_std: whether advantages are divided by a standard deviation: that of the returns of a group, or
        that of all advantages of the rollout where prompts are compared. Default: with ``"grpo"`` alone. PPO's
        ``normalize_advantage`` divides too, by the deviation within a minibatch, and takes off the mean: switch one of
        the two off.
    :param unfinished: what becomes of an episode that goes on after the rollout. ``"baseline"``: its return is that so
        far and the baseline of what follows. ``"zero"``: its env steps have advantage 0. The default is ``"baseline"``,
        because long episodes are cut most often: where they are the best ones, the policy would learn from the bad ones
        alone.
    :raises ValueError: for a value out of range, groups without :class:`~lmpolicy.EpisodeGroups`, or a mixture with
        ``vf_coef=0``; the message says what to pass.
    :raises TypeError: if the learner is not PPO.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: th.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        *,
        baseline: str = LEAVE_ONE_OUT,
        kappa: float | None = None,
        divide_by_std: bool | None = None,
        unfinished: str = "baseline",
    ) -> None:
        check_arguments(baseline, kappa, divide_by_std, unfinished)
        self.baseline, self.kappa = baseline, KAPPA if kappa is None else float(kappa)
        self.divide_by_std = baseline == GRPO if divide_by_std is None else divide_by_std
        self.unfinished = unfinished
        self._stepped: list[list[Episode]] = []
        self._warned = False
        super().__init__(buffer_size, observation_space, action_space, device, gae_lambda, gamma, n_envs)

    def _groups(self) -> EpisodeGroups:
        venv = None if self.learner is None else self.learner.env
        groups = None if venv is None else groups_around(venv)
        if groups is None:
            raise ValueError(
                f"baseline={self.baseline!r} compares episodes from the same seed, but the envs are not grouped: pass "
                "lmpolicy.EpisodeGroups(env, group_size=...) as env, or baseline='leave-one-out', which needs no groups"
            )
        return groups

    def reset(self) -> None:
        """Begin a rollout.

        :raises ValueError: if learner, envs and baseline do not go together; the message says what to pass.
        """
        super().reset()
        self._stepped = []
        # What Stable-Baselines3 adds to the last rewards of episodes that a time limit ends.
        self._bootstrapped = np.zeros((self.buffer_size, self.n_envs))
        if self.learner is not None:
            check_learner(self.learner, self.baseline)
            if self.baseline in GROUPED and self.learner.env is not None:
                self._groups()

    def add(
        self,
        obs: NDArray[Any],
        action: NDArray[Any],
        reward: NDArray[Any],
        episode_start: NDArray[Any],
        value: th.Tensor,
        log_prob: th.Tensor,
    ) -> None:
        """Store an env step of each copy.

        :param obs: as in Stable-Baselines3.
        :param action: as in Stable-Baselines3.
        :param reward: as in Stable-Baselines3.
        :param episode_start: as in Stable-Baselines3.
        :param value: as in Stable-Baselines3.
        :param log_prob: as in Stable-Baselines3.
        """
        if self.baseline in GROUPED:
            groups = self._groups()
            for number, row in groups.cut_off.items():
                self._bootstrapped[self.pos, number] = self.gamma * self._value_of(row)
            known = np.asarray(reward, np.float32) - self._bootstrapped[self.pos]
            for episode, own in zip(groups.stepped, known.tolist(), strict=True):
                episode.rewards.append(own)  # a callback may change it until the rollout is complete
            self._stepped.append(groups.stepped)
        super().add(obs, action, reward, episode_start, value, log_prob)

    @th.no_grad()
    def _value_of(self, row: NDArray[Any]) -> float:
        learner = self.learner
        assert learner is not None
        return float(learner.policy.predict_values(learner.policy.obs_to_tensor(row)[0]))  # type: ignore[operator]

    def compute_returns_and_advantage(self, last_values: th.Tensor, dones: NDArray[Any]) -> None:
        """Compute advantages, and returns for the critic.

        :param last_values: the critic's values after the last step, ``(n_envs, 1)`` or ``(n_envs,)``.
        :param dones: whether the last step ended an episode, ``(n_envs,)``.
        """
        super().compute_returns_and_advantage(last_values, dones)
        parts = list(parts_of(self.episode_starts, np.asarray(dones, dtype=bool)))
        if self.baseline in GROUPED:
            advantages, compared = self._by_group(parts)
        else:
            last = last_values.detach().cpu().numpy().reshape(-1).astype(np.float64)
            advantages, compared = self._by_prompt(parts, last)
        self.advantages = advantages.astype(np.float32)
        self.log("rollout/compared_share", float(compared.mean()))

    def _by_group(self, parts: list[Part]) -> tuple[Floats, NDArray[np.bool_]]:
        """Compare the returns of episodes from the same seed."""
        advantages, compared = np.zeros(self.rewards.shape), np.zeros(self.rewards.shape, dtype=bool)
        rewards = self.rewards - self._bootstrapped
        for part in parts:
            episode = self._stepped[part.start][part.env]
            episode.rewards[part.start - part.stop :] = rewards[part.steps].tolist()
        for part in parts:
            episode = self._stepped[part.start][part.env]
            peers = [other for other in episode.peers if other.ended and other is not episode]
            others = [other.rewards for other in peers if other.is_known]
            if not others or not episode.is_known or self._is_dropped(part):
                continue
            if part.ended:
                own = discounted(episode.rewards, self.gamma)
            else:
                own = return_of_running(episode.rewards, others, self.gamma)
            advantages[part.steps] = group_advantage(
                own,
                [discounted(other, self.gamma) for other in others],
                leave_out=self.baseline == RLOO,
                divide_by_std=self.divide_by_std,
            )
            compared[part.steps] = True
        return advantages, compared

    def _by_prompt(self, parts: list[Part], last_values: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Compare returns from the same prompt on, and mix in the critic if asked for."""
        prompts, last_prompts = self._prompts()
        none = np.zeros(self.rewards.shape)
        returns = gae(self.rewards, parts, none, none[0], self.gamma, 1.0)
        means = LeaveOneOut(returns, prompts, parts).means(last_prompts)
        if self.baseline == MIXTURE:
            both = (means.prompt * means.count + self.kappa * self.values) / (means.count + self.kappa)
            last = (means.last_prompt * means.last_count + self.kappa * last_values) / (means.last_count + self.kappa)
            advantages = gae(self.rewards, parts, both, last, self.gamma, self.gae_lambda)
            compared = means.count > 0
        else:
            self._check_critic()
            both = np.where(means.count > 0, means.prompt, means.overall)
            last = np.where(means.last_count > 0, means.last_prompt, means.last_overall)
            compared = means.compared
            advantages = gae(self.rewards, parts, both, last, self.gamma, 1.0) * compared
        for part in filter(self._is_dropped, parts):
            advantages[part.steps] = 0.0
        if self.divide_by_std:
            advantages /= float(np.std(advantages)) + EPSILON
        return advantages, compared

    def _is_dropped(self, part: Part) -> bool:
        return self.unfinished == "zero" and not part.ended

    def _prompts(self) -> tuple[Ints, Ints]:
        """Number the distinct prompts of the rollout, and find those after the last step among them."""
        numbers: dict[bytes, int] = {}
        rows = self.observations.reshape(self.buffer_size * self.n_envs, -1)
        prompts = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows], dtype=np.int64)
        following = getattr(self.learner, "_last_obs", None)  # the learner has made its last step
        if following is None:
            last = np.full(self.n_envs, -1)
        else:
            last = np.array([numbers.get(row.tobytes(), -1) for row in np.asarray(following, rows.dtype)])
        return prompts.reshape(self.buffer_size, self.n_envs), last.astype(np.int64)

    def _check_critic(self) -> None:
        """Warn of a critic that is not trained any more, but says something at time limits."""
        if not self._warned and self.learner is not None and vars(self.learner)["vf_coef"] == 0 and self.values.any():
            self._warned = True
            warnings.warn(
                "vf_coef=0, but the critic was trained before or begins with random weights, and its values enter the "
                "last rewards of episodes that a time limit ends. Pass baseline='mixture' with vf_coef above 0 to go "
                "on training it. Harmless if no episode is cut off",
                GuardWarning,
                stacklevel=2,
            )
