"""Say how a run is trained, in a file that repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch as th
import yaml
from stable_baselines3.common.vec_env import VecEnv

from lmpolicy import __version__
from lmpolicy.cli.values import check_names, check_setting, read_yaml, to_yaml
from lmpolicy.files import whole_file
from lmpolicy.lm.settings import PolicySettings
from lmpolicy.training.settings.env_lookup import import_package, near_ids
from lmpolicy.training.settings.hyperparameters import Hyperparameters
from lmpolicy.training.settings.named_settings import hyperparameters
from lmpolicy.training.settings.script_options import check_device, usual_threads
from lmpolicy.training.settings.task_lookup import find_task
from lmpolicy.wrapper import TextObservationWrapper

FILE = "settings.yaml"
"""Name of the file in the folder of a run."""
HEADER = """\
# lmpolicy train --settings FILE repeats this run. Change what you like.
# What is no plain value, such as a shaped reward, comes from lmpolicy.hyperparameters(env) of the installed version.
"""
OTHERS = ("hyperparameters", "task", "policy")
"""Fields of the settings that are more than a value in the file."""
NO_PLAIN = ("env_id", "env_kwargs", "task", "training_wrapper")
"""Fields of the hyperparameters that have a key of their own in the file, or none."""
SHORT_ANSWER = 16
"""Largest number of tokens of an answer whose log-probabilities are summed. Sums of long ones saturate PPO's clip."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Say all that decides about a run."""

    hyperparameters: Hyperparameters
    """Env, arguments of PPO, and the language model."""
    task: str | None = None
    """Name of the task. None: that of the env."""
    seed: int = 0
    """Seed of envs, model and training."""
    device: str = "auto"
    """Device of the model, as in SB3."""
    threads: int | None = None
    """CPU threads. None: :func:`~lmpolicy.training.settings.script_options.usual_threads`."""
    demonstrations: str | None = None
    """File of turns that a warm start learns from. None: no warm start."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Entries of ``policy_kwargs`` in place of those of the hyperparameters."""

    @classmethod
    def of(cls, env_id: str, task: str | None = None, env_kwargs: Mapping[str, Any] | None = None) -> RunSettings:
        """Return the named settings of an env.

        :param env_id: Gymnasium id. The package of its namespace is imported, where nothing has registered the id.
        :param task: name of a task, see :func:`~lmpolicy.training.settings.task_lookup.find_task`.
        :param env_kwargs: arguments of the env.
        :raises gymnasium.error.NameNotFound: if there is no such env; the message names ids like it.
        """
        import_package(env_id)
        try:
            found = hyperparameters(env_id, **(env_kwargs or {}))
        except gym.error.NameNotFound:
            hint = f": did you mean {' or '.join(near)}?" if (near := near_ids(env_id.rpartition(":")[2])) else "."
            raise gym.error.NameNotFound(
                f"there is no env {env_id!r}{hint} An env of a package is package/Name-v0, where the package registers "
                "it when it is imported, or module:Name-v0"
            ) from None
        if task is not None:  # phrases that the language model may not have read
            found = replace(found, task=find_task(task), score_normalization="token")
        return cls(hyperparameters=found, task=task)

    @classmethod
    def read(cls, path: Path) -> RunSettings:
        """Read what :meth:`write` wrote.

        :param path: the file.
        :raises FileNotFoundError: if it is not there.
        :raises ValueError: if it cannot be read, or a key or value is not known; the message names the nearest.
        """
        try:
            data = read_yaml(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no file {path}: lmpolicy train ENV --dry-run prints one") from None
        except (yaml.YAMLError, UnicodeDecodeError, IsADirectoryError) as error:
            raise ValueError(f"{path} is no file of settings: {error}") from None
        if not isinstance(data, dict) or not isinstance(data.get("env"), str):
            raise ValueError(f"{path} is no file of settings: it must have at least env, such as env: CartPole-v1")
        check_names(data, KEYS, str(path))
        found = cls.of(data["env"], data.get("task"), _mapping(data, "env_kwargs", path))
        changed = found.with_values(_mapping(data, "hyperparameters", path), str(path))
        check_names(policy := _mapping(data, "policy", path), POLICY, f"{path}, policy")
        rest = {name: data[name] for name in OWN if name in data}
        for name, value in rest.items():
            check_setting(name, OWN[name], value, str(path))
        return replace(changed, policy=policy, **rest)

    def with_values(self, values: Mapping[str, Any], place: str) -> RunSettings:
        """Return settings with some of the hyperparameters changed.

        :param values: values by name.
        :param place: where they come from, for messages.
        :raises ValueError: for an unknown name, or a value that does not fit; the message says what does.
        """
        check_names(values, PLAIN, place)
        checked = {name: check_setting(name, PLAIN[name], value, place) for name, value in values.items()}
        if "wrapper_kwargs" in checked:
            check_names(checked["wrapper_kwargs"], WRAPPER, f"{place}, wrapper_kwargs")
        return replace(self, hyperparameters=replace(self.hyperparameters, **checked))

    def changed(self, values: Mapping[str, Any]) -> RunSettings:
        """Return settings with some changed, whatever part they belong to.

        :param values: names of hyperparameters, or else of arguments of the wrapper or of the policy, with values.
        :raises ValueError: as for :meth:`with_values`.
        """
        check_names(values, (*PLAIN, *WRAPPER, *POLICY), "--set")
        own = {name: value for name, value in values.items() if name in PLAIN}
        words = {name: value for name, value in values.items() if name not in own and name in WRAPPER}
        policy = {name: value for name, value in values.items() if name not in own and name not in words}
        if words:
            own["wrapper_kwargs"] = {**self.hyperparameters.wrapper_kwargs, **own.get("wrapper_kwargs", {}), **words}
        return replace(self.with_values(own, "--set"), policy={**self.policy, **policy})

    def check(self, source: Path | None = None) -> None:
        """Refuse values that do not fit each other, or this computer.

        :param source: file that the device is from. None: it was typed.
        :raises ValueError: if there are any; the message says what to type.
        """
        values = self.hyperparameters
        if values.normalize_advantage and 1 in (values.batch_size, self.rollout):
            few, more = (
                ("n_steps=1 with n_envs=1", "n_steps=32") if self.rollout == 1 else ("batch_size=1", "batch_size=32")
            )
            raise ValueError(
                f"{few}: one decision has no spread by which normalize_advantage could scale it. Choose more, as in "
                f"--set {more}, or --set normalize_advantage=false"
            )
        if values.critic_warmup and values.vf_coef == 0:
            raise ValueError(
                f"critic_warmup={values.critic_warmup} trains the critic alone, but with vf_coef=0 there is no critic "
                "to train: --set critic_warmup=0 leaves the warm-up out, --set vf_coef=0.5 trains a critic"
            )
        values.callbacks()  # they refuse what they cannot do
        try:
            check_device(self.device)
        except ValueError as error:
            place = "" if source is None else f"{source} has device: {self.device}, but "
            raise ValueError(f"{place}{error}. --device auto takes what there is") from None

    def computing(self, device: str | None, threads: int | None) -> RunSettings:
        """Return settings for other hardware.

        :param device: device of the model. None: as before.
        :param threads: CPU threads. None: as before.
        """
        return replace(self, device=device or self.device, threads=threads or self.threads)

    def for_free_text(self, tokens: int) -> RunSettings:
        """Return settings for a policy that writes its answers.

        :param tokens: longest answer in tokens.
        """
        found = self.hyperparameters.for_free_text()
        words = {**found.wrapper_kwargs, "action_mode": "generate", "max_new_tokens": tokens}
        policy = {**self.policy, **({"ratio_level": "sum"} if tokens <= SHORT_ANSWER else {})}
        return replace(self, hyperparameters=replace(found, wrapper_kwargs=words), policy=policy)

    @property
    def chooses(self) -> bool:
        """Return whether the policy chooses among phrases. Otherwise it writes."""
        return self.hyperparameters.wrapper_kwargs.get("action_mode", "score") == "score"

    @property
    def env_id(self) -> str:
        """Return the id of the env."""
        return str(self.hyperparameters.env_id)

    @property
    def ppo(self) -> dict[str, Any]:
        """Return the arguments of PPO."""
        arguments = self.hyperparameters.ppo
        arguments["policy_kwargs"] |= self.policy
        if "adapter" in self.policy:  # it brings its own
            del arguments["policy_kwargs"]["lora"]
        return arguments

    @property
    def rollout(self) -> int:
        """Return the env steps of a rollout."""
        return self.hyperparameters.n_envs * self.hyperparameters.n_steps

    @property
    def steps(self) -> int:
        """Return the env steps of training in whole rollouts, as PPO takes them."""
        return -(-self.hyperparameters.total_timesteps // self.rollout) * self.rollout

    def use_threads(self) -> int:
        """Let this process compute with the threads of the run.

        :return: their number.
        """
        th.set_num_threads(self.threads or usual_threads(self.hyperparameters.model))
        return th.get_num_threads()

    def make_env(self, *, training: bool = True, n_envs: int | None = None, **wrapper_kwargs: Any) -> VecEnv:
        """Make the envs.

        :param training: as for :meth:`~lmpolicy.Hyperparameters.make_env`. Those of an evaluation have other seeds.
        :param n_envs: number of copies.
        :param wrapper_kwargs: arguments of the wrapper in place of those that are set.
        """
        seed = self.seed if training else self.seed + 1000
        return self.hyperparameters.make_env(seed, n_envs, training=training, **wrapper_kwargs)

    def make_one(self, **env_kwargs: Any) -> TextObservationWrapper:
        """Make one copy of the env in words, with its own rewards.

        :param env_kwargs: further arguments of the env, such as ``render_mode``.
        """
        settings = self.hyperparameters
        one = replace(settings, env_kwargs={**settings.env_kwargs, **env_kwargs})
        arguments = one.wrapper_arguments
        if arguments.get("action_mode") == "generate":
            arguments.setdefault("tokenizer", one.model)
        return one.put_into_words(one.make(), arguments, training=False)

    def __str__(self) -> str:
        """Return the text of the file."""
        settings = self.hyperparameters
        data = {
            "lmpolicy": __version__,
            "env": self.env_id,
            "env_kwargs": dict(settings.env_kwargs),
            "task": self.task,
            **{name: getattr(self, name) for name in OWN},
            "hyperparameters": {name: _plain(getattr(settings, name)) for name in PLAIN},
            "policy": dict(self.policy),
        }
        return HEADER + to_yaml(data)

    def write(self, folder: Path) -> Path:
        """Write the file.

        :param folder: folder of the run.
        :return: the file.
        """
        with whole_file(folder / FILE) as file:
            file.write(str(self).encode())
        return folder / FILE


OWN = {one.name: str(one.type) for one in fields(RunSettings) if one.name not in OTHERS}
KEYS = ("lmpolicy", "env", "env_kwargs", *OTHERS, *OWN)
PLAIN = {one.name: str(one.type) for one in fields(Hyperparameters) if one.name not in NO_PLAIN}
POLICY = tuple(one.name for one in fields(PolicySettings))
WRAPPER = tuple(TextObservationWrapper.__init__.__kwdefaults__ or ())


def _mapping(data: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = data.get(name) or {}
    if not isinstance(found, dict):
        raise ValueError(f"{path}: {name} is a list of names and values, got {found!r}")
    return found


def _plain(value: Any) -> Any:
    """Return a value as YAML has it."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value
