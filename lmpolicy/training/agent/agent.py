"""Train a language model in a loop of one's own, with the unmodified PPO of Stable-Baselines3."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.text.task import TextTask
from lmpolicy.training.agent.arguments import (
    check_tokenizer,
    choose_total,
    generate_arguments,
    is_tokenizer,
    joined,
    ppo_arguments,
)
from lmpolicy.training.agent.learning import Learning
from lmpolicy.training.agent.playing import Playing, play
from lmpolicy.training.agent.setup import Saved, Setup, WorldArguments
from lmpolicy.training.agent.task import Methods
from lmpolicy.training.checkpoints.saving import save


class Agent(Methods):
    """Act in a loop of one's own, and learn from its rewards.

    The loop steps the env, or whatever the world is. The agent puts observations into words, lets the language model
    answer, and trains it with the unmodified PPO whenever ``n_steps`` steps have ended. Episodes that go on then are
    bootstrapped with the value of their next prompt. For callbacks and logs, the agent is one env.

    Example:
        >>> import gymnasium as gym
        >>> from lmpolicy import Agent
        >>> env = gym.make("Blackjack-v1")
        >>> agent = Agent.for_env(env, n_steps=64, seed=0)
        >>> observation, info = env.reset(seed=0)
        >>> done = False
        >>> while not done:
        ...     action = agent.act(observation, info)
        ...     observation, reward, terminated, truncated, info = env.step(action)
        ...     agent.assign_reward(reward)
        ...     done = terminated or truncated
        >>> statistics = agent.terminate_episode(truncated, observation=observation)
        >>> statistics["env_steps"] == statistics["length"]
        True

    A subclass may define LlamaGym's ``get_system_prompt``, ``format_observation`` and ``extract_action`` in place of a
    task. With ``extract_action``, the model writes its answers.

    Several episodes may go on side by side, each with an id of its own, also in several threads.

    :param model: name of :mod:`lmpolicy.models`, hub id or folder of the language model; or named settings, see
        :func:`lmpolicy.hyperparameters`; or a learner with one env, as :func:`lmpolicy.load` returns it. ``None``: the
        bundled LM.
    :param task: puts the world into words. As in LlamaGym, a tokenizer may stand here, see ``tokenizer``.
    :param device: device of the learner, as in SB3. ``None`` means ``"auto"``.
    :param generate_config_dict: generate config of LlamaGym. ``max_new_tokens`` and ``temperature`` are used.
    :param ppo_config_dict: PPO config of LlamaGym. Its ``batch_size`` is the number of steps in a rollout.
    :param tokenizer: for agents written for LlamaGym. The model brings its own; another one is reported and not used.
    :param env: an env made as the loop's env is. Its spaces and its bundled task are taken; it is not stepped.
    :param actions: in place of a task: phrases, of which the i-th means action i of ``action_space`` (by default the
        number i); or a mapping from phrase to action; or the key of ``info`` under which the env lists the phrases that
        are legal now (then give ``max_actions``, too).
    :param action_space: space of the world's actions.
    :param observation_space: space of its observations. They are checked against it.
    :param system_prompt: in place of a task: the rules and the goal.
    :param format_observation: in place of a task: a function that puts an observation into words. ``None``: generic
        words where the space is known; else observations are texts.
    :param total_timesteps: env steps of the training from its beginning, over which schedules go. The agent plays on
        without learning afterwards. ``None``: as the settings say, else no end.
    :param callback: callbacks, as for ``learn`` of SB3.
    :param normalize_reward: whether rewards are divided by the spread of the returns, as by ``VecNormalize``. ``None``:
        as the settings say, else no.
    :param algorithm: :class:`~stable_baselines3.PPO` or :class:`~stable_baselines3.A2C`.
    :param log_interval: number of rollouts from one log to the next, as for ``learn``.
    :param tb_log_name: name of the run for TensorBoard, as for ``learn``.
    :param arguments: those of the learner, e.g. ``n_steps``, ``learning_rate``, ``policy_kwargs`` and ``seed``, and
        those of :class:`~lmpolicy.TextObservationWrapper`, e.g. ``history`` and ``action_mode``.
    :raises TypeError: for a model that is no name, or an unknown argument.
    :raises ValueError: if nothing says which actions there are, or an argument is out of range.
    """

    def __init__(
        self,
        model: Any = None,
        task: TextTask | type[TextTask] | None = None,
        device: Any = "auto",
        generate_config_dict: Mapping[str, Any] | None = None,
        ppo_config_dict: Mapping[str, Any] | None = None,
        *,
        tokenizer: Any = None,
        env: gym.Env | None = None,
        actions: str | Sequence[str] | Mapping[str, Any] | None = None,
        action_space: spaces.Space | None = None,
        observation_space: spaces.Space | None = None,
        system_prompt: str = "",
        format_observation: Callable[[Any], str] | None = None,
        total_timesteps: int | None = None,
        callback: Any = None,
        normalize_reward: bool | None = None,
        algorithm: type[OnPolicyAlgorithm] = PPO,
        log_interval: int = 1,
        tb_log_name: str = "Agent",
        **arguments: Any,
    ) -> None:
        if is_tokenizer(task):
            tokenizer, task = task, None
        world = WorldArguments(task, env, actions, action_space, observation_space, system_prompt, format_observation)
        setup = Setup(
            self,
            model,
            world,
            device=device or "auto",
            normalize_reward=normalize_reward,
            algorithm=algorithm,
            callback=callback,
            arguments=joined(generate_arguments(generate_config_dict), ppo_arguments(ppo_config_dict), arguments),
        )
        self.learner = setup.learner
        """Learner of Stable-Baselines3, with its ``policy`` and ``logger``."""
        check_tokenizer(tokenizer, self.learner)
        total = choose_total(self.learner, total_timesteps, setup.planned_steps, setup.callbacks)
        self._task = setup.words.task
        learning = Learning(self.learner, setup.callbacks, total, log_interval, tb_log_name)
        self._playing = Playing(setup.words, setup.observation_space, learning)
        self._lock = threading.RLock()

    @classmethod
    def for_env(cls, env: gym.Env, model: Any = None, task: Any = None, **arguments: Any) -> Agent:
        """Make an agent for an env that a loop of yours steps.

        :param env: the env, not in words. Its spaces and its bundled task are taken.
        :param model: as for the class, like all other arguments.
        :param task: task in place of the bundled one.
        :param arguments: as for the class.
        """
        return cls(model, task, env=env, **arguments)

    @classmethod
    def load(cls, path: str | Path, task: Any = None, *, model: Any = None, **arguments: Any) -> Agent:
        """Make an agent with a learner that was saved, see :func:`lmpolicy.load`.

        :param path: file that :meth:`save` or :func:`lmpolicy.save` wrote.
        :param task: as for the class, like all other arguments. Give them as the agent had them.
        :param model: name of the base model, where it is not in :mod:`lmpolicy.models`; or named settings.
        :param arguments: as for the class. Those of the learner take the place of those in the file.
        """
        return cls(Saved(Path(path), False, model), task, **arguments)

    @classmethod
    def resume(cls, folder: str | Path, task: Any = None, *, model: Any = None, **arguments: Any) -> Agent:
        """Go on with the training of a run, see :func:`lmpolicy.resume`.

        It had the callback :class:`~lmpolicy.Checkpoints`. The loop begins new episodes.

        :param folder: folder of the run.
        :param task: as for the class, like all other arguments. Give them as the run did.
        :param model: what the run was given, where that was settings or a model that writes.
        :param arguments: as for the class, ``callback`` and ``total_timesteps`` among them.
        """
        return cls(Saved(Path(folder), True, model), task, **arguments)

    @property
    def policy(self) -> LMActorCriticPolicy:
        """Return the policy, e.g. for ``agent.policy.export(folder)``."""
        assert isinstance(self.learner.policy, LMActorCriticPolicy)
        return self.learner.policy

    @property
    def num_timesteps(self) -> int:
        """Return the number of steps that the learner has counted."""
        return self.learner.num_timesteps

    @property
    def is_learning(self) -> bool:
        """Return whether the training goes on: no callback has ended it, and ``total_timesteps`` are not reached."""
        return not self._playing.learning.has_ended

    def act(
        self,
        observation: Any,
        info: dict[str, Any] | None = None,
        episode: Hashable = 0,
        *,
        deterministic: bool = False,
        learn: bool | None = None,
    ) -> Any:
        """Choose an action. If a rollout is full, the model is trained before.

        :param observation: what the env shows now.
        :param info: the env's info, if the task's phrases depend on it.
        :param episode: id of the episode. An id that is not running begins a new episode.
        :param deterministic: whether to take the most likely action; only without learning.
        :param learn: False: the episode is only played. The same for all steps of an episode. Default: True as long as
            the training goes on.
        :return: an action of the env.
        :raises RuntimeError: if the last step of the episode has no reward yet.
        :raises ValueError: if the observation does not fit the space, or the two switches do not fit the episode.
        """
        found = self.act_together({episode: observation}, {episode: info}, deterministic=deterministic, learn=learn)
        return found[episode]

    def act_together(
        self,
        observations: Mapping[Hashable, Any],
        infos: Mapping[Hashable, dict[str, Any] | None] | None = None,
        *,
        deterministic: bool = False,
        learn: bool | None = None,
    ) -> dict[Hashable, Any]:
        """Choose actions for several episodes at once, with one pass of the model.

        :param observations: observations by episode id.
        :param infos: infos of the env by episode id.
        :param deterministic: as for :meth:`act`.
        :param learn: as for :meth:`act`.
        :return: actions of the env by episode id.
        :raises ParseError: if an answer names no action, with ``on_parse_error="raise"``. The call can be made again.
        """
        with self._lock:
            return self._playing.act(observations, infos or {}, deterministic, learn)

    def assign_reward(self, reward: float, episode: Hashable = 0) -> None:
        """Reward the last action of an episode. Several rewards for one action add up.

        :param reward: a number.
        :param episode: id of the episode.
        :raises RuntimeError: if the episode has not acted.
        """
        with self._lock:
            self._playing.reward(episode, reward)

    def terminate_episode(
        self,
        truncated: bool = False,
        episode: Hashable = 0,
        *,
        observation: Any = None,
        info: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """End an episode. If a rollout is full, the model is trained.

        :param truncated: whether the episode was cut off and could have gone on, e.g. by a time limit. The value of
            what is missing is then added to the last reward. For it, pass ``observation``. Without, the last step is
            not learnt from, because nothing says what it led to.
        :param episode: id of the episode.
        :param observation: what the env shows at the end.
        :param info: the env's info at the end.
        :return: ``return`` and ``length`` of the episode, ``env_steps`` and ``updates`` so far, ``parse_errors`` where
            the model writes, and what the last update logged (``train/...``) if there was one in this episode.
        :raises RuntimeError: if the episode has not acted, or its last step has no reward.
        """
        with self._lock:
            return self._playing.terminate(episode, truncated, observation, info or {})

    def evaluate(
        self, env: gym.Env, n_episodes: int = 100, deterministic: bool = True, seed: int | None = None
    ) -> tuple[float, float]:
        """Play episodes of an env without learning.

        :param env: an env, not in words.
        :param n_episodes: number of episodes.
        :param deterministic: whether to take the most likely action.
        :param seed: seed of the first reset.
        :return: mean and standard deviation of the returns, as ``evaluate_policy`` of SB3.
        """
        return play(self, env, n_episodes, deterministic, seed, self._task.action_mask)

    def save(self, path: str | Path) -> Path:
        """Save the learner, see :func:`lmpolicy.save`. Running episodes are not saved.

        :param path: file to write.
        :return: the file that was written.
        """
        with self._lock:
            return save(self.learner, path)

    def close(self) -> None:
        """End the training: callbacks are told, and the agent plays on without learning."""
        with self._lock:
            self._playing.end()

    @property
    def current_episode_messages(self) -> list[dict[str, str]]:
        """Return system prompt, observations and answers of the episode that acted last, as chat messages."""
        return self._playing.messages

    @property
    def current_episode_rewards(self) -> list[float]:
        """Return the rewards of the episode that acted last, one per action."""
        return self._playing.rewards
