"""Describe settings, so that results of other settings are told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch as th

from lmpolicy.comparison.experiment import Experiment
from lmpolicy.comparison.methods import LM_ALONE, LM_RANDOM, RAW, WORDS, EnvFacts, Method
from lmpolicy.comparison.sources import own_code
from lmpolicy.models import resolve
from lmpolicy.models.converting import origin_of
from lmpolicy.text.task import TextTask

IRRELEVANT = frozenset(
    ("name", "threshold", "best", "device", "pretraining_steps", "players", "settings", "classic", "policy")
)
"""Fields of an experiment that change nothing in a run, and those that are described for the methods they matter to."""
OF_ENV = ("env_id", "env_kwargs", "task", "wrapper_kwargs")
"""Settings of the language model that are settings of the env, too."""
OF_HELP = ("training_wrapper", "gamma", "learning_rate", "ent_coef", "normalize_reward")
"""Settings of the language model that are its help."""
OF_TRAINING = frozenset(
    (
        *("n_envs", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "learning_rate", "optimizer"),
        *("clip_range", "ent_coef", "vf_coef", "max_grad_norm", "target_kl", "normalize_advantage", "normalize_reward"),
        *("lora", "critic_lr_factor", "value_gradient", "critic_warmup", "reference"),
    )
)
"""Settings of the language model that change no action of one that is not trained; a fresh adapter changes none."""
LEFT_OUT: Mapping[str, Any] = {
    "n_steps": 128,
    "batch_size": 256,
    "n_epochs": 5,
    "learning_rate": (5e-4, 1e-4),
    "optimizer": "Adam",
    "ent_coef": (0.01, 0.01),
    "normalize_advantage": True,
    "score_normalization": MISSING,
}
"""Values with which a setting of the language model is not described, where that is not today's default. They are what
the default was when the first results were made, so that those are still known as what they are. A setting with
:data:`dataclasses.MISSING` is always described."""
WEIGHTS = ".safetensors"
MODEL_FILES = (".json", WEIGHTS, ".jinja")
"""Endings of the files that make a language model."""
LARGEST_READ = 2**26
"""Bytes of a file up to which it is read. Of larger ones, the size counts."""


def fingerprint(experiment: Experiment, method: Method, facts: EnvFacts) -> str:
    """Return a few characters that change with whatever decides about the results of a method.

    :param experiment: what is compared.
    :param method: the method.
    :param facts: what the env says of itself.
    """
    return short_hash(describe_cell(experiment, method, facts))


def describe_cell(experiment: Experiment, method: Method, facts: EnvFacts) -> dict[str, str]:
    """Describe what decides about the results of a method, as short texts by name.

    :param experiment: what is compared.
    :param method: the method.
    :param facts: what the env says of itself.
    """
    found = {
        one.name: getattr(experiment, one.name)
        for one in fields(experiment)
        if one.name not in IRRELEVANT and getattr(experiment, one.name) != _default(one)
    }
    settings = experiment.settings
    own = {one.name: getattr(settings, one.name) for one in fields(settings)}
    for name in OF_ENV:
        found[name] = own[name]
    if method.base != RAW or method.helped:
        found["first prompt"] = facts.prompt
    if facts.code:
        found["code of the env"] = facts.code
    if method.base != WORDS:
        found.pop("play", None)
    if method.base != RAW:
        found.pop("observe", None)
    if method.learns:
        found |= {"steps": method.steps(experiment), "every": experiment.spacing}
    else:
        found.pop("every", None)
    if method.is_lm:
        skipped = {"total_timesteps", *OF_ENV, *(("training_wrapper",) if method.base == LM_ALONE else ())}
        skipped |= set() if method.learns else OF_TRAINING
        changed = {
            one.name: own[one.name]
            for one in fields(settings)
            if own[one.name] != LEFT_OUT.get(one.name, _default(one))
        }
        found |= {name: value for name, value in changed.items() if name not in skipped}
        found["model"] = describe_model(settings.model, method.base == LM_RANDOM)
        if experiment.policy:  # without any, results of before there were entries are still known as what they are
            found["policy"] = {name: _of_policy(name, value) for name, value in experiment.policy.items()}
    elif method.is_classic:
        found["classic"] = experiment.classic_settings
        found |= {name: own[name] for name in OF_HELP} if method.helped else {}
    elif method.base in experiment.players:
        found["player"] = experiment.players[method.base]
    return {name: describe(value) for name, value in sorted(found.items())}


def describe_model(name: str | None, random: bool) -> str:
    """Describe a language model by its name, and by its files where they are here.

    :param name: what a policy takes as ``model``.
    :param random: whether random weights take the place of its own.
    """
    digest = _digest(Path(resolve(name)), MODEL_FILES if not random else [end for end in MODEL_FILES if end != WEIGHTS])
    return f"{name or 'bundled'} {digest}{' with random weights' if random else ''}"


def _of_policy(name: str, value: Any) -> Any:
    """Return an entry of ``policy_kwargs``; an adapter with a digest of its files, where they are here."""
    is_adapter = name == "adapter" and value is not None
    return f"{value} {_digest(Path(value), MODEL_FILES)}" if is_adapter else value


def _digest(folder: Path, endings: Collection[str]) -> str:
    """Return a few characters that change with the files of a model.

    Of a converted copy, with what it was made of: each version of Transformers writes it a little otherwise.
    """
    origin = origin_of(folder)
    if origin is not None:
        return hashlib.sha1(origin.encode()).hexdigest()[:8]
    digest = hashlib.sha1()
    for file in sorted(folder.glob("*")) if folder.is_dir() else ():
        if file.suffix in endings:
            size = file.stat().st_size
            digest.update(f"{file.name} {size}".encode())
            digest.update(file.read_bytes() if size <= LARGEST_READ else b"")
    return digest.hexdigest()[:8]


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Say which settings changed.

    :param before: what :func:`describe_cell` returned then.
    :param now: what it returns now.
    """
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return [f"{name} was {_short(before.get(name))}, is {_short(now.get(name))}" for name in names]


def describe(value: Any) -> str:
    """Describe a value by what it holds; the same in every process.

    :param value: a setting.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, Path):
        return repr(str(value))
    if isinstance(value, np.ndarray | th.Tensor):
        return short_hash(np.asarray(value).tolist())
    if isinstance(value, Mapping):
        inner = ", ".join(f"{describe(key)}: {describe(one)}" for key, one in sorted(value.items(), key=repr))
        return f"{{{inner}}}"
    if isinstance(value, list | tuple | set | frozenset):
        parts = [describe(one) for one in value]
        return f"({', '.join(sorted(parts) if isinstance(value, set | frozenset) else parts)})"
    if is_dataclass(value) and not isinstance(value, type):
        known = {one.name: getattr(value, one.name) for one in fields(value)}
        own = {one.name: known[one.name] for one in fields(value) if known[one.name] != _default(one)}
        return _named(type(value), own)
    if isinstance(value, type):
        return f"{value.__module__}.{_name(value)}"
    function = getattr(value, "func", None)  # of a functools.partial
    if function is not None:
        return _named(function, {"args": value.args, **value.keywords})
    if isinstance(value, Callable) and hasattr(value, "__qualname__"):  # type: ignore[arg-type]
        return f"{value.__module__}.{_name(value)}"
    plain = {key: one for key, one in vars(value).items() if _is_plain(one)} if hasattr(value, "__dict__") else {}
    extra = {"system_prompt": value.system_prompt} if isinstance(value, TextTask) else {}
    return _named(type(value), {**plain, **extra})


def short_hash(settings: Any) -> str:
    """Hash settings to eight hexadecimal digits.

    :param settings: anything whose ``repr`` tells what it is.
    """
    return hashlib.sha1(repr(settings).encode()).hexdigest()[:8]


def _named(kind: Any, inner: Mapping[str, Any]) -> str:
    return f"{_name(kind)}({', '.join(f'{key}={describe(one)}' for key, one in sorted(inner.items()))})"


def _name(kind: Any) -> str:
    """Return the name of a function or a class; of one's own, with what changes with its code."""
    code = own_code(kind)
    return getattr(kind, "__qualname__", type(kind).__qualname__) + (f" {code}" if code else "")


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | tuple | list | dict)


def _default(one: Any) -> Any:
    """Return the default of a field; :data:`dataclasses.MISSING` where there is none."""
    return one.default_factory() if one.default_factory is not MISSING else one.default


def _short(text: str | None, length: int = 80) -> str:
    if text is None:
        return "not set"
    return text if len(text) <= length else f"{text[: length - 3]}..."
