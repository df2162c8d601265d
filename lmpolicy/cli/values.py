"""Read values that a person wrote, and refuse what does not fit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from lmpolicy.training.settings.task_lookup import near

POSITIVE = ("n_envs", "total_timesteps", "n_steps", "batch_size", "n_epochs", "threads")
SHARES = ("gamma", "gae_lambda")
NOT_NEGATIVE = ("seed", "learning_rate", "clip_range", "vf_coef", "critic_lr_factor", "critic_warmup")
ABOVE_ZERO = ("max_grad_norm", "target_kl")
NEEDED = {
    "int": "a whole number",
    "int | None": "a whole number or null",
    "float": "a number",
    "float | None": "a number or null",
    "bool": "true or false",
    "str": "a text",
    "str | None": "a text or null",
    "tuple[float, float]": "a number, or the two at the beginning and at the end, as in [0.001, 0.0]",
    "Mapping[str, Any]": "names and values, as in {r: 16}",
    "Mapping[str, Any] | None": "names and values, as in {beta: 0.1}, or null",
}
"""What a value must be, by the annotation of its field."""
NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*[eE][-+]?\d+|\.\d[\d_]*([eE][-+]?\d+)?)$")
"""Numbers that YAML 1.1, which PyYAML reads, takes for texts: 1e-4 and 1.5e3, for it wants a point and a sign."""


class Reader(yaml.SafeLoader):
    """Read YAML in which 1e-4 is a number."""


class Writer(yaml.SafeDumper):
    """Write YAML for :class:`Reader`, with quotation marks around a text such as 1e-4."""


for one in (Reader, Writer):
    one.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+.0123456789"))


def read_yaml(text: str) -> Any:
    """Read a text in YAML.

    :param text: what was typed, or stands in a file.
    :raises yaml.YAMLError: if it is none.
    """
    return yaml.load(text, Loader=Reader)


def to_yaml(data: Mapping[str, Any]) -> str:
    """Write names and values so that :func:`read_yaml` returns the same.

    :param data: plain values.
    """
    return yaml.dump(data, Dumper=Writer, sort_keys=False, default_flow_style=None, width=100)


def read_pairs(pairs: Iterable[str], option: str) -> dict[str, Any]:
    """Read ``name=value`` pairs; the values are written as in YAML.

    :param pairs: what was typed.
    :param option: name of the option, for messages.
    :raises ValueError: if one is none; the message shows how it is written.
    """
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{option} takes name=value, as in {option} n_steps=64; got {pair!r}")
        try:
            found[name.strip()] = read_yaml(text)
        except yaml.YAMLError:
            raise ValueError(f"{option} {name}: {text!r} is no value; put quotes around a text") from None
    return found


def check_names(values: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Refuse names that are not known.

    :param values: values by name.
    :param known: names that there are.
    :param place: where they come from, for the message.
    :raises ValueError: for an unknown one; the message names the nearest.
    """
    known = list(dict.fromkeys(known))
    for name in values:
        if name not in known:
            raise ValueError(f"{place}: there is no setting {name!r}{near(str(name), known)}")


def check_setting(name: str, kind: str, value: Any, place: str) -> Any:
    """Return a value as its setting has it.

    :param name: name of the setting.
    :param kind: annotation of its field, one of :data:`NEEDED`.
    :param value: what was read.
    :param place: where it comes from, for the message.
    :raises ValueError: if it does not fit; the message says what does.
    """
    if kind.startswith("tuple"):
        pair = value if isinstance(value, list | tuple) else [value, value]
        numbers = [_number(one) for one in pair]
        if len(numbers) == 2 and None not in numbers:
            return tuple(_in_range(name, one, place) for one in numbers)
    elif kind.startswith("Mapping"):
        if isinstance(value, dict) or (value is None and kind.endswith("None")):
            return value
    elif value is None and kind.endswith("None"):
        return None
    elif kind.startswith("float"):
        if (number := _number(value)) is not None:
            return _in_range(name, number, place)
    else:
        wanted = {"int": int, "bool": bool}.get(kind.removesuffix(" | None"), str)
        if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
            return _in_range(name, value, place)
    raise ValueError(f"{place}: {name} is {NEEDED[kind]}; got {value!r}")


def _number(value: Any) -> float | None:
    """Return a finite number, or nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _in_range(name: str, value: Any, place: str) -> Any:
    if name in POSITIVE and value < 1:
        raise ValueError(f"{place}: {name} must be 1 or more; got {value}")
    if name in SHARES and not 0 <= value <= 1:
        raise ValueError(f"{place}: {name} is from 0 to 1; got {value}")
    if name in NOT_NEGATIVE and value < 0:
        raise ValueError(f"{place}: {name} must be 0 or more; got {value}")
    if name in ABOVE_ZERO and value <= 0:
        raise ValueError(f"{place}: {name} must be above 0; got {value}")
    return value
