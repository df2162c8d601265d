"""Read the arguments of an agent: those of its words, of its learner, and of LlamaGym's configs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from lmpolicy.models.near_names import did_you_mean
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.text.env_words import EnvWords
from lmpolicy.text.spaces import tokenizer_fingerprint
from lmpolicy.training.callbacks import CoefficientSchedule
from lmpolicy.training.checkpoints.callback_state import callbacks_in
from lmpolicy.training.settings.hyperparameters import Hyperparameters

log = logging.getLogger(__name__)

WORDS = frozenset({*inspect.signature(EnvWords).parameters, "max_prompt_bytes"} - {"task", "env_space", "rows"})
"""Arguments of :class:`~lmpolicy.TextObservationWrapper` that an agent takes."""
NOT_LEARNER = frozenset(
    {"self", "policy", "env", "device", "_init_setup_model", "args", "kwargs", "monitor_wrapper"}
    | {"supported_action_spaces"}
)
"""Arguments of a learner that the agent gives itself."""
FREE_TEXT: dict[str, Any] = {"n_steps": 128, "learning_rate": 2e-4, "target_kl": 0.05, "history": 16}
"""For agents with an ``extract_action`` of their own, where nothing else is said: small steps, as in
:meth:`~lmpolicy.Hyperparameters.for_free_text`, and the conversation so far, as in LlamaGym."""
PPO_NAMES = {
    "batch_size": "n_steps",
    "mini_batch_size": "batch_size",
    "ppo_epochs": "n_epochs",
    "num_ppo_epochs": "n_epochs",
    "learning_rate": "learning_rate",
    "gamma": "gamma",
    "lam": "gae_lambda",
    "vf_coef": "vf_coef",
    "cliprange": "clip_range",
    "cliprange_value": "clip_range_vf",
    "max_grad_norm": "max_grad_norm",
    "target_kl": "target_kl",
    "seed": "seed",
}
"""Entries of a PPO config of LlamaGym or TRL, and the arguments of Stable-Baselines3's PPO that mean the same."""
WHOLE_DISTRIBUTION: dict[str, tuple[Any, ...]] = {"top_p": (None, 1), "top_k": (None, 0, -1)}
"""Settings of sampling that would cut off a part of the distribution, and their values that cut off nothing."""


def generate_arguments(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Read a generate config of LlamaGym.

    :param config: entries of ``model.generate``; a part before a slash in a name is dropped, as LlamaGym does.
    :return: arguments of an agent.
    :raises ValueError: for an entry that has no counterpart; the message says what to do instead.
    """
    found: dict[str, Any] = {}
    for name, value in ((name.split("/")[-1], value) for name, value in (config or {}).items()):
        if name == "max_new_tokens":
            found["max_new_tokens"] = value
        elif name == "temperature":
            found["policy_kwargs"] = {"temperature": value}
        elif name == "do_sample":
            if not value:
                raise ValueError(
                    "do_sample=False leaves nothing to learn from: PPO compares answers that were sampled. Leave it "
                    "out; to play without sampling: act(observation, learn=False, deterministic=True)"
                )
        elif name in WHOLE_DISTRIBUTION:
            if value not in WHOLE_DISTRIBUTION[name]:
                log.warning(
                    "%s=%r is not used: answers are sampled from the whole distribution, because PPO's ratios are "
                    "wrong where the distribution that is sampled from is not the one that is scored. A smaller "
                    "temperature has a similar effect, and is part of both",
                    name,
                    value,
                )
        else:
            raise ValueError(
                f"the generate config has {name}={value!r}, which has no counterpart here: leave it out. Known are "
                "max_new_tokens, temperature, do_sample=True; top_p and top_k are not used"
            )
    return found


def ppo_arguments(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """Read a PPO config of LlamaGym, or of TRL.

    :param config: the entries. With ``batch_size`` and without ``mini_batch_size``, an update takes a whole rollout
        at a time.
    :return: arguments of an agent.
    :raises ValueError: for an entry that has no counterpart; the message lists those that have.
    """
    config = dict(config or {})
    for name, value in config.items():
        if name not in PPO_NAMES:
            raise ValueError(
                f"the PPO config has {name}={value!r}, which has no counterpart here: leave it out, or pass arguments "
                f"of Stable-Baselines3's PPO by name, Agent(..., n_steps=64). Known are {', '.join(PPO_NAMES)}"
            )
    if "batch_size" in config:
        config.setdefault("mini_batch_size", config["batch_size"])
    return {PPO_NAMES[name]: value for name, value in config.items()}


def settings_arguments(settings: Hyperparameters) -> dict[str, Any]:
    """Return named settings as arguments of an agent.

    :param settings: the settings. A rollout has as many env steps as that of all their envs.
    """
    if settings.training_wrapper is not None:
        log.warning(
            "These settings train with a wrapper around the env, which the agent does not see: step "
            "settings.training_wrapper(env) in your loop to have its rewards"
        )
    return {**settings.ppo, "n_steps": settings.n_steps * settings.n_envs, **settings.wrapper_kwargs}


def joined(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of which later ones take the place of earlier ones; ``policy_kwargs`` entry by entry.

    :param parts: arguments.
    """
    found: dict[str, Any] = {}
    for part in parts:
        kwargs = {**found.get("policy_kwargs", {}), **(part.get("policy_kwargs") or {})}
        found = {**found, **part, **({"policy_kwargs": kwargs} if kwargs else {})}
    return found


def split(arguments: Mapping[str, Any], algorithm: type[OnPolicyAlgorithm]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell the arguments of words from those of the learner.

    :param arguments: arguments by name.
    :param algorithm: class of the learner.
    :raises TypeError: for an argument of neither; the message names those that are spelt like it.
    """
    kinds = [kind for kind in algorithm.__mro__ if issubclass(kind, OnPolicyAlgorithm)]  # some pass on **kwargs
    of_learner = {name for kind in kinds for name in inspect.signature(kind).parameters} - NOT_LEARNER
    unknown = sorted(set(arguments) - WORDS - of_learner)
    if unknown:
        hint = did_you_mean(unknown[0], sorted(WORDS | of_learner), most=3)
        raise TypeError(
            f"an agent takes no argument {', '.join(map(repr, unknown))}"
            + (f": {hint}" if hint else "")
            + f" Besides its own, it takes those of {algorithm.__name__} and of TextObservationWrapper, but for "
            "word_dropout, training and render_mode, which only a wrapped env has; settings of the policy are entries "
            "of policy_kwargs"
        )
    words = {name: value for name, value in arguments.items() if name in WORDS}
    return words, {name: value for name, value in arguments.items() if name in of_learner}


def check_model(model: Any) -> None:
    """Refuse a model that is no name.

    :param model: what the user gives as model.
    :raises TypeError: if it is an object of Transformers or TRL, or anything else; the message says what to pass.
    """
    if model is None or isinstance(model, str | Path | Hyperparameters | OnPolicyAlgorithm):
        return
    inner = getattr(model, "pretrained_model", model)  # of TRL's models with a value head
    name = getattr(getattr(inner, "config", None), "_name_or_path", None) or "owner/name"
    raise TypeError(
        f"model is the name or the folder of a language model, settings, or a learner; got {type(model).__name__}: "
        f"pass model={name!r}. The model is loaded here, with LoRA and a value head of its own, so that checkpoints "
        'know their base; quantised: policy_kwargs={"quantization": "8bit"}'
    )


def choose_total(learner: OnPolicyAlgorithm, asked: int | None, planned: int | None, callbacks: Any) -> int | None:
    """Return the env steps of a training from its beginning, and refuse schedules without an end.

    :param learner: the learner.
    :param asked: what the user says; ``None``: nothing.
    :param planned: what the settings say; ``None``: nothing. Where the learner has made them all, it only plays.
    :param callbacks: those of the training, as for ``learn``.
    :return: env steps; ``None``: no end.
    :raises ValueError: if a schedule needs the number, or all of the steps that the user says are made.
    """
    total = planned if asked is None else asked
    if total is None:
        if moving := _moving(learner, callbacks):
            raise ValueError(
                f"{' and '.join(moving)} changes over the training, so pass total_timesteps=..., the number of env "
                "steps that you plan"
            )
    elif isinstance(total, bool) or not isinstance(total, int) or total < 1:
        raise ValueError(f"total_timesteps is a positive number of env steps, or None; got {total!r}")
    elif total <= learner.num_timesteps:
        if asked is not None:
            raise ValueError(
                f"total_timesteps={total} counts from the beginning, and this learner has made {learner.num_timesteps} "
                "env steps: pass more to train on; to play only: act(observation, learn=False)"
            )
        log.warning(
            "The learner has made %d env steps, and its settings plan %d, so the agent plays without learning. To "
            "train on: total_timesteps=..., counted from the beginning",
            learner.num_timesteps,
            total,
        )
    return total


def _moving(learner: OnPolicyAlgorithm, callbacks: Any) -> list[str]:
    """Return the names of schedules that change over a training."""
    schedules = {"learning_rate": learner.lr_schedule, "clip_range": getattr(learner, "clip_range", None)}
    own = [one for one in callbacks_in(callbacks).values() if isinstance(one, CoefficientSchedule)]
    return [
        *(name for name, one in schedules.items() if callable(one) and one(1.0) != one(0.0)),
        *(type(one).__name__ for one in own if one.start != one.end),
    ]


def callback_list(own: list[BaseCallback], asked: Any) -> Any:
    """Return the callbacks of a training.

    :param own: those of the settings.
    :param asked: those of the user, as for ``learn``.
    """
    if asked is None:
        return own or None
    if not own:
        return asked
    if callable(asked) and not isinstance(asked, BaseCallback):
        asked = ConvertCallback(asked)
    return [*own, *(asked if isinstance(asked, list | tuple) else [asked])]


def is_tokenizer(value: Any) -> bool:
    """Return whether a value is a tokenizer of Transformers.

    :param value: any value.
    """
    return hasattr(value, "get_vocab") and hasattr(value, "decode")


def check_tokenizer(tokenizer: Any, learner: OnPolicyAlgorithm) -> None:
    """Refuse what is no tokenizer, and report one that is not used.

    :param tokenizer: what the user gives; ``None``: nothing.
    :param learner: the learner, whose model has a tokenizer.
    :raises TypeError: if it is something else.
    """
    policy = learner.policy
    assert isinstance(policy, LMActorCriticPolicy)
    if tokenizer is not None and not is_tokenizer(tokenizer):
        raise TypeError(
            f"tokenizer is a tokenizer of Transformers, as for agents of LlamaGym, got {tokenizer!r}: leave it "
            "out, because the model brings its own"
        )
    if tokenizer is not None and tokenizer_fingerprint(tokenizer) != tokenizer_fingerprint(policy.backbone.tokenizer):
        log.warning(
            "The tokenizer %r is not used: the model %r brings its own", type(tokenizer).__name__, policy.settings.model
        )
