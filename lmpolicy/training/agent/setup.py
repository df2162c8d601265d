"""Make what an agent consists of: words, a learner on told steps, and callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.text.env_checks import check_arguments
from lmpolicy.text.env_words import EnvWords
from lmpolicy.text.task import TextTask
from lmpolicy.training.agent.arguments import FREE_TEXT, callback_list, check_model, joined, settings_arguments, split
from lmpolicy.training.agent.task import Methods, MethodsTask, action_space_of, bind, choose_task, own_methods
from lmpolicy.training.agent.told_env import Anything, ToldEnv, World
from lmpolicy.training.checkpoints.resuming import resume
from lmpolicy.training.checkpoints.safe_loading import load
from lmpolicy.training.settings.hyperparameters import Hyperparameters
from lmpolicy.wrapper import TextObservationWrapper


@dataclass(frozen=True)
class Saved:
    """Name a learner on the disk."""

    path: Path
    """File of a learner, or folder of a run."""
    resumes: bool
    """Whether it is a run that goes on."""
    model: Any
    """Base model, where the file does not say enough."""


@dataclass(frozen=True)
class WorldArguments:
    """Hold what an agent is told about its world."""

    task: TextTask | type[TextTask] | None
    env: gym.Env | None
    actions: str | Sequence[str] | Mapping[str, Any] | None
    action_space: spaces.Space | None
    observation_space: spaces.Space | None
    system_prompt: str
    format_observation: Callable[[Any], str] | None

    @property
    def is_silent(self) -> bool:
        """Return whether nothing is told."""
        return self.task is self.env is self.actions is self.action_space is None


class Setup:
    """Make the parts of an agent.

    :param agent: the agent, whose class may have methods in place of a task.
    :param model: as for :class:`~lmpolicy.Agent`; or a learner on the disk.
    :param world: what is told about the world.
    :param device: as for :class:`~lmpolicy.Agent`, like all parameters below.
    :param normalize_reward: as there.
    :param algorithm: as there.
    :param callback: as there.
    :param arguments: as there.
    """

    words: EnvWords
    learner: OnPolicyAlgorithm
    observation_space: spaces.Space | None
    planned_steps: int | None

    def __init__(
        self,
        agent: Methods,
        model: Any,
        world: WorldArguments,
        *,
        device: Any,
        normalize_reward: bool | None,
        algorithm: type[OnPolicyAlgorithm],
        callback: Any,
        arguments: Mapping[str, Any],
    ) -> None:
        own = own_methods(type(agent))
        source = model.model if isinstance(model, Saved) else model
        check_model(source)
        settings = source if isinstance(source, Hyperparameters) else None
        self.planned_steps = None if settings is None else settings.total_timesteps
        given: Mapping[str, Any] = FREE_TEXT if "extract_action" in own else {}
        if settings is not None:
            given = {**given, **settings_arguments(settings)}
        words, of_learner = split(joined(given, arguments), algorithm)
        name = settings.model if settings is not None else source
        self._make_words(agent, own, world, settings, None if isinstance(name, OnPolicyAlgorithm) else name, words)
        scales = (
            normalize_reward if normalize_reward is not None else settings is not None and settings.normalize_reward
        )
        env: VecEnv = ToldEnv(self.rows, self.words.reader.action_space)
        if scales:
            env = VecNormalize(env, norm_obs=False)
        self.callbacks = callback_list([] if settings is None else settings.callbacks(), callback)
        if isinstance(model, Saved | OnPolicyAlgorithm):  # what was trained has arguments of its own
            of_learner = split(arguments, algorithm)[1]
        if isinstance(model, Saved):
            self.learner = _from_disk(model, name, env, algorithm, device, self.callbacks, of_learner)
        elif isinstance(model, OnPolicyAlgorithm):
            self.learner = _adopted(model, env, of_learner)
        else:
            kwargs = {"model": None if name is None else str(name), **of_learner.pop("policy_kwargs", {})}
            _check_rollout(of_learner, algorithm)
            if "n_steps" in of_learner and issubclass(algorithm, PPO):
                of_learner.setdefault("batch_size", min(64, of_learner["n_steps"]))  # 64 is SB3's default
            self.learner = algorithm(LMActorCriticPolicy, env, device=device, policy_kwargs=kwargs, **of_learner)
        if isinstance(env, VecNormalize):
            env.gamma = self.learner.gamma

    def _make_words(
        self,
        agent: Methods,
        own: Sequence[str],
        world: WorldArguments,
        settings: Hyperparameters | None,
        model: Any,
        arguments: dict[str, Any],
    ) -> None:
        env, chosen, made = world.env, world.task, None
        mode = arguments.setdefault("action_mode", "generate" if "extract_action" in own else "score")
        anything = World(None, Anything())
        check_arguments(env or anything, TextObservationWrapper, mode, arguments.get("history", 0), None)
        if settings is not None:
            chosen = settings.task if chosen is None and world.actions is None else chosen
            if env is None and (world.is_silent or chosen is settings.task):
                env = made = settings.make()
        base = choose_task(chosen, env, world.actions, world.system_prompt, world.format_observation)
        space = action_space_of(world.action_space, env, base, own)
        observations = world.observation_space
        if observations is None and env is not None:
            observations = env.observation_space
        task = MethodsTask(agent, own, base) if own else base
        around = World(observations, space) if env is None else env
        self.rows = bind(task, around, arguments.pop("max_prompt_bytes", 2048))
        if made is not None:
            made.close()
        if mode == "generate":
            arguments.setdefault("tokenizer", None if model is None else str(model))
            if "extract_action" in own and world.action_space is None and env is None:
                _choose_fallback(agent, arguments)
        self.words = EnvWords(task, space, self.rows, **arguments)
        self.observation_space = observations


def _choose_fallback(agent: Methods, arguments: dict[str, Any]) -> None:
    """Choose what the world is given for an answer that names no action, where no space says what there is."""
    rule = arguments.get("on_parse_error", "penalize")
    if rule == "raise" or (rule == "penalize" and arguments.get("fallback_action") is not None):
        return
    problem: str | Exception = "returns None"
    if rule == "penalize":
        try:
            found = agent.extract_action("")
        except Exception as error:
            found, problem = None, error
        if found is not None:
            arguments["fallback_action"] = found  # it finds an action in any answer
            return
        hint = f"(extract_action('') {problem if isinstance(problem, str) else f'raised {problem!r}'})"
    else:
        hint = '(on_parse_error="random" draws from the action space, and none is given)'
    raise ValueError(
        f"nothing says what your env is given for an answer that names no action {hint}: pass fallback_action=..., an "
        'action that is always possible; or action_space=... or env=...; or on_parse_error="raise"'
    )


def _from_disk(
    saved: Saved,
    model: Any,
    env: VecEnv,
    algorithm: type[OnPolicyAlgorithm],
    device: Any,
    callbacks: Any,
    arguments: dict[str, Any],
) -> OnPolicyAlgorithm:
    if not saved.resumes:
        name = None if model is None else str(model)
        return load(saved.path, env, algorithm, model=name, device=device, **arguments)
    if arguments:
        raise TypeError(f"a resumed run has its own {', '.join(arguments)}: leave it out, or use Agent.load")
    return resume(saved.path, env, callbacks, device)


def _adopted(learner: OnPolicyAlgorithm, env: VecEnv, arguments: dict[str, Any]) -> OnPolicyAlgorithm:
    """Take over a learner that was made elsewhere.

    :raises TypeError: if it has no language model, or arguments are given for it.
    :raises ValueError: if it has several envs, or other spaces.
    """
    if not isinstance(learner.policy, LMActorCriticPolicy):
        raise TypeError(
            f"an agent acts with LMActorCriticPolicy, and this learner has {type(learner.policy).__name__}: pass the "
            "name of a language model"
        )
    if arguments:
        raise TypeError(f"the learner has its own {', '.join(arguments)}: leave it out, or pass a model in its place")
    if learner.n_envs != 1:
        steps = learner.n_envs * learner.n_steps
        raise ValueError(
            f"this learner collects {learner.n_steps} steps in each of {learner.n_envs} envs; an agent has one stream "
            f"of steps: save it, and load it with lmpolicy.Agent.load(path, task, n_steps={steps})"
        )
    learner.set_env(env, force_reset=True)
    return learner


def _check_rollout(arguments: dict[str, Any], algorithm: type[OnPolicyAlgorithm]) -> None:
    """Check the length of a rollout before Stable-Baselines3 fails on it.

    :raises ValueError: if it is no number of steps that can be learnt from.
    """
    least = 2 if issubclass(algorithm, PPO) else 1
    for name in ("n_steps", "batch_size"):
        value = arguments.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(
                f"{name} must be an integer of at least {least}, got {value!r}; it comes from batch_size and "
                "mini_batch_size of a PPO config, if you gave one"
            )
