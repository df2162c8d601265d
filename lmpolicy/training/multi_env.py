"""One learner for several envs: as text, different envs have equal spaces and fit into one VecEnv."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from lmpolicy.files import whole_file
from lmpolicy.text.spaces import TextSpace, TokenSpace
from lmpolicy.training.copyable_wrapper import CopyableVecEnvWrapper
from lmpolicy.training.monitor_files import monitor_file, monitored
from lmpolicy.training.settings.env_settings import SPACE_ARGUMENTS, EnvCopies, EnvSettings


def make_multi_env(
    envs: Mapping[Any, int] | Sequence[EnvSettings],
    seed: int | None = None,
    *,
    normalize_reward: bool = True,
    training: bool = True,
    gamma: float = 0.99,
    vec_env_cls: Callable[[list[Callable[[], gym.Env]]], VecEnv] | None = None,
    monitor_dir: str | Path | None = None,
    **wrapper_kwargs: Any,
) -> VecEnv:
    """Make copies of different envs in words, side by side in one VecEnv.

    Example:
        >>> from lmpolicy import EnvCopies, make_multi_env
        >>> env = make_multi_env({"CartPole-v1": 4, "Blackjack-v1": 2}, seed=0)
        >>> env.num_envs, env.observation_space, int(env.action_space.n)
        (6, TextSpace(max_bytes=2048), 2)
        >>> lakes = [EnvCopies("FrozenLake-v1", 8, {"is_slippery": wet}, name=f"wet {wet}") for wet in (True, False)]
        >>> make_multi_env(lakes).get_attr("env_id", [0, 8])
        ['wet True', 'wet False']

    All rows have the same length. The action space is as wide as that of the env with most phrases; an env with fewer
    phrases never offers the other indices, and the policy gives them probability 0. Every ``info``
    of a step or reset holds ``env_id``, the name of the env. The returns in ``info["episode"]`` are the env's own,
    without training wrapper or scaling.

    To evaluate on one of the envs, make it with the same spaces and its own rewards::

        options = {"n_actions": int(env.action_space.n), "max_prompt_bytes": env.observation_space.max_bytes}
        one = make_vec_env("Blackjack-v1", 10, wrapper_class=TextObservationWrapper, wrapper_kwargs=options)
        evaluate_policy(model, one)  # also: PPO.load(path, env=one)

    :param envs: ids (or callables that make an env) with their numbers of copies, or a sequence of :class:`EnvCopies`
        and named settings (:func:`lmpolicy.hyperparameters`). Named settings give env, number of copies, task,
        training wrapper and arguments of the wrapper; their arguments of PPO are not used.
    :param seed: seed of the first copy. The others have the seeds after it.
    :param normalize_reward: whether to scale the rewards of each env by the spread of its returns, see
        :class:`PerEnvRewardNormalization`.
    :param training: False: with the envs' own rewards, for evaluation. They are not scaled, and there are neither
        training wrappers nor penalties of parse errors.
    :param gamma: the discount of the learner, used to scale rewards.
    :param vec_env_cls: e.g. ``SubprocVecEnv``. Default: ``DummyVecEnv``.
    :param monitor_dir: folder for one file per copy with its episodes (return, length, time, ``env_id``). Files that
        are there are gone on with, for :func:`lmpolicy.resume`: give each run a folder of its own. A resumed run plays
        what came after its checkpoint again, so episodes that had ended since are in a file twice.
    :param wrapper_kwargs: arguments of :class:`TextObservationWrapper` for all envs. ``n_actions`` makes the action
        space wider, e.g. to continue with other envs later. Default of ``max_prompt_bytes``: the largest of all envs.
    :raises TypeError: if ``envs`` is something else.
    :raises ValueError: if there is no env, or if two have the same name (give one of them another name), or if some
        are answered in another way than others, or if ``monitor_dir`` has files of another program (name another one).
    :raises Exception: what making or wrapping an env raises, with a note that names the env.
    """
    kinds = _kinds(envs)
    given = {argument: wrapper_kwargs.pop(argument) for argument in SPACE_ARGUMENTS if argument in wrapper_kwargs}
    names, sizes, answers = zip(*(_probe(kind, wrapper_kwargs, given) for kind in kinds), strict=True)
    _check_kinds(names, answers)
    common = {argument: max(size[argument] for size in sizes) for argument in sizes[0]}
    makers: list[Callable[[], gym.Env]] = []
    for kind, name in zip(kinds, names, strict=True):
        for _ in range(kind.n_envs):
            file = None if monitor_dir is None else monitor_file(monitor_dir, len(makers))
            arguments = {**wrapper_kwargs, **kind.wrapper_arguments, **common}
            makers.append(partial(_make, kind, name, arguments, training, file))
    venv = (vec_env_cls or DummyVecEnv)(makers)
    venv.seed(seed)  # for the first reset
    return PerEnvRewardNormalization(venv, gamma=gamma) if normalize_reward and training else venv


def _check_kinds(names: Sequence[str], answers: Sequence[str]) -> None:
    """Refuse envs with the same name, and envs that are answered in different ways."""
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(
            f"the name {repeated[0]!r} stands for several envs, so that their returns could not be told apart: ask for "
            f"more copies of one, or name each, e.g. EnvCopies(..., name='{repeated[0]}, slippery')"
        )
    if len(set(answers)) > 1:
        raise ValueError(
            f"one policy answers in one way, but {names[0]!r} takes {answers[0]} and another env does not: pass "
            "action_mode, tokenizer, max_new_tokens and close_with_phrase to make_multi_env, so that they are the same "
            "for all envs"
        )


class PerEnvRewardNormalization(CopyableVecEnvWrapper):
    """Scale rewards as ``VecNormalize`` does, with separate statistics for each env.

    Each reward is divided by the standard deviation of the running discounted returns of all copies of its env, and
    then clipped. With one statistic for all envs, the env with the largest returns would make the rewards of the
    others vanish. For one env, the result equals ``VecNormalize(venv, norm_obs=False)``. This class is not a
    ``VecNormalize``, so that the ``eval_env`` of an ``EvalCallback`` need not be wrapped the same way.

    :param venv: envs with an attribute ``env_id`` that is equal for copies of the same env, as :func:`make_multi_env`
        makes them.
    :param training: whether statistics are updated.
    :param clip_reward: largest absolute value of a scaled reward.
    :param gamma: the discount of the learner.
    :param epsilon: small number that is added to the variance, so that the variance is never 0.
    """

    def __init__(
        self,
        venv: VecEnv,
        training: bool = True,
        clip_reward: float = 10.0,
        gamma: float = 0.99,
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__(venv)
        self.training, self.clip_reward, self.gamma, self.epsilon = training, clip_reward, gamma, epsilon
        self.env_ids: list[str] = venv.get_attr("env_id")
        self.ret_rms = {name: RunningMeanStd() for name in dict.fromkeys(self.env_ids)}
        self._members = {name: np.flatnonzero([one == name for one in self.env_ids]) for name in self.ret_rms}
        self.returns = np.zeros(self.num_envs)
        self.old_reward = np.array([])

    def reset(self) -> VecEnvObs:
        """Start all episodes."""
        self.returns = np.zeros(self.num_envs)
        observations = self.venv.reset()
        self.reset_infos = self.venv.reset_infos  # a VecEnvWrapper has a list of its own, which stays empty
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step, and scale its rewards."""
        observations, rewards, dones, infos = self.venv.step_wait()
        self.old_reward = rewards
        if self.training:
            self.returns = self.returns * self.gamma + rewards
            for name, members in self._members.items():
                self.ret_rms[name].update(self.returns[members])
        scaled = self.normalize_reward(rewards)
        self.returns[dones] = 0
        self.reset_infos = self.venv.reset_infos
        return observations, scaled, dones, infos

    def normalize_reward(self, reward: NDArray[Any]) -> NDArray[np.float32]:
        """Scale rewards without updating the statistics.

        :param reward: one number per copy, ``(n_envs,)``.
        """
        return np.clip(reward / self._scale(), -self.clip_reward, self.clip_reward).astype(np.float32)

    def unnormalize_reward(self, reward: NDArray[Any]) -> NDArray[Any]:
        """Undo the scaling, except where it was clipped.

        :param reward: one number per copy, ``(n_envs,)``.
        """
        return reward * self._scale()

    def get_original_reward(self) -> NDArray[Any]:
        """Return the rewards of the last step before scaling, ``(n_envs,)``."""
        return self.old_reward.copy()

    def save(self, path: str | Path) -> None:
        """Write arguments and statistics as JSON, in a file that is written whole.

        :param path: the file.
        """
        settings = {name: getattr(self, name) for name in ("training", "clip_reward", "gamma", "epsilon")}
        statistics = {
            name: {"mean": float(rms.mean), "var": float(rms.var), "count": float(rms.count)}
            for name, rms in self.ret_rms.items()
        }
        with whole_file(path) as file:
            file.write(f"{json.dumps({**settings, 'statistics': statistics}, indent=2)}\n".encode())

    @classmethod
    def load(cls, path: str | Path, venv: VecEnv) -> PerEnvRewardNormalization:
        """Scale the rewards of envs with saved statistics.

        :param path: a file that :meth:`save` wrote.
        :param venv: envs without scaling, e.g. from :func:`make_multi_env` with ``normalize_reward=False``. They may be
            fewer kinds of envs than in the file, with other numbers of copies.
        :raises ValueError: if the file has no statistics of an env. Give the env the name that it had, or begin with
            new statistics.
        """
        settings = json.loads(Path(path).read_text())
        statistics = settings.pop("statistics")
        env = cls(venv, **settings)
        for name, rms in env.ret_rms.items():
            if name not in statistics:
                raise ValueError(
                    f"{path} has no statistics of {name!r}, only of {', '.join(map(repr, statistics))}: give the env "
                    "the name it had, or begin with new statistics, PerEnvRewardNormalization(venv)"
                )
            saved = statistics[name]
            rms.mean, rms.var, rms.count = np.array(saved["mean"]), np.array(saved["var"]), saved["count"]
        return env

    def _scale(self) -> NDArray[np.float64]:
        """Return the standard deviation of the returns for each copy, ``(n_envs,)``."""
        return np.sqrt(np.array([float(self.ret_rms[name].var) for name in self.env_ids]) + self.epsilon)


class _NamedEnv(gym.Wrapper):
    """Put the name of the env into every info.

    Monitor is around this wrapper, and writes the name into its file.
    """

    def __init__(self, env: gym.Env, env_id: str) -> None:
        super().__init__(env)
        self.env_id = env_id

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "env_id": self.env_id}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "env_id": self.env_id}


def _kinds(envs: Any) -> list[EnvSettings]:
    """Return the envs in their order."""
    if isinstance(envs, str) or not isinstance(envs, Mapping | Sequence):
        raise TypeError(
            "envs is a mapping from id to number of copies, e.g. {'CartPole-v1': 4}, or a sequence of EnvCopies; got "
            f"{envs!r}"
        )
    items = itertools.starmap(EnvCopies, envs.items()) if isinstance(envs, Mapping) else map(_kind, envs)
    kinds: list[EnvSettings] = list(items)
    if not kinds:
        raise ValueError("there is no env: pass at least one, e.g. {'CartPole-v1': 4, 'Blackjack-v1': 4}")
    return kinds


def _kind(one: Any) -> EnvSettings:
    if not isinstance(one, EnvSettings):
        raise TypeError(f"envs holds EnvCopies or Hyperparameters, got {one!r}: EnvCopies('CartPole-v1', n_envs=4)")
    return one


def _probe(
    kind: EnvSettings, wrapper_kwargs: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[str, dict[str, int], str]:
    """Tell the name of an env, the sizes of its spaces and how it is answered. Errors show before workers start."""
    wanted = kind.name if isinstance(kind, EnvCopies) else None
    try:
        env = _make(kind, "", {**wrapper_kwargs, **kind.wrapper_arguments, **given}, training=True)
    except Exception as error:
        error.add_note(f"while making {wanted or kind.env_id!r} for make_multi_env")
        raise
    default = kind.env_id if isinstance(kind.env_id, str) else type(env.unwrapped).__name__
    space = env.action_space
    assert isinstance(space, spaces.Discrete | TokenSpace)
    assert isinstance(env.observation_space, TextSpace)
    env.close()
    sizes = {"max_prompt_bytes": env.observation_space.max_bytes}
    if isinstance(space, spaces.Discrete):
        return wanted or default, {**sizes, "n_actions": int(space.n)}, "the index of a phrase"
    answer = f"{space.max_new_tokens} tokens of tokenizer {space.tokenizer}"
    if not space.n_phrases:
        return wanted or default, sizes, answer
    return wanted or default, {**sizes, "n_actions": space.n_phrases}, f"{answer} and then a phrase"


def _make(
    kind: EnvSettings, name: str, wrapper_kwargs: Mapping[str, Any], training: bool, file: Path | None = None
) -> gym.Env:
    """Make one copy, ready for a VecEnv."""
    env: gym.Env = monitored(_NamedEnv(kind.make(), name), file)
    return kind.put_into_words(env, wrapper_kwargs, training=training)
