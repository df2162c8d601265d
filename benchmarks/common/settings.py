"""Settings that a command line has in place of those of an experiment."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from lmpolicy import Hyperparameters
from lmpolicy.comparison.comparing import REPORTED
from lmpolicy.models.near_names import did_you_mean

Changes = tuple[tuple[str, Any], ...]
"""Names of settings with their values, sorted by name."""
LORA = ("r", "lora_alpha", "last_layers")
"""What is a setting of LoRA: integers."""
WORDS: Mapping[str, type] = {"history": int, "word_dropout": float}
"""What is a setting of the wrapper, and its kind."""
DEFAULTS = {one.name: one.default for one in fields(Hyperparameters) if one.name not in ("env_id", "total_timesteps")}
EXAMPLES: Mapping[type, tuple[str, str]] = {
    bool: ("true or false", "true"),
    int: ("an integer", "32"),
    float: ("a number", "0.001"),
    tuple: ("a number, or a pair of them in brackets", "'[0.001, 0]'"),
    str: ("a word in quotation marks", "'\"word\"'"),
}
"""By kind of a setting: what its values are, and one of them."""


class SettingError(argparse.ArgumentTypeError, ValueError):
    """A command line has what is no setting, or no value of it; the message tells what there is."""


def setting(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE of a command line.

    :param text: name of a setting of :class:`~lmpolicy.Hyperparameters`, of :data:`LORA` or of :data:`WORDS`, and a
        value as JSON, e.g. ``n_steps=32`` or ``learning_rate=[1e-3, 0]``.
    :return: name and value; a list is a tuple.
    :raises SettingError: if it is no setting, or no value that suits it.
    """
    name, _, value = text.partition("=")
    known = [*LORA, *WORDS, *DEFAULTS]
    if name not in known:
        raise SettingError(f"{text!r} names no setting: {did_you_mean(name, known) or 'there are ' + ', '.join(known)}")
    kind = int if name in LORA else WORDS[name] if name in WORDS else type(DEFAULTS[name])
    meaning, example = EXAMPLES.get(kind, ("JSON", "null"))
    try:
        found = json.loads(value)
    except ValueError:
        raise SettingError(f"{text!r} is no JSON: {name} is {meaning}, e.g. {name}={example}") from None
    if not _suits(found, kind):
        raise SettingError(f"{text!r}: {name} is {meaning}, e.g. {name}={example}")
    return name, tuple(found) if isinstance(found, list) else found


def sorted_changes(given: Iterable[tuple[str, Any]]) -> Changes:
    """Sort settings by name; of one that is given twice, the last value counts.

    :param given: what :func:`setting` has read.
    """
    return tuple(sorted(dict(given).items()))


def tuning_seed(text: str | int) -> int:
    """Read a seed by which settings may be chosen.

    :param text: a number.
    :raises argparse.ArgumentTypeError: if it is a seed that is reported.
    """
    seed = int(text)
    if seed in REPORTED:
        raise argparse.ArgumentTypeError(f"seed {seed} is reported; settings are chosen by others, such as 0 to 4")
    return seed


def label_of(change: tuple[str, Any]) -> str:
    """NAME=VALUE without spaces, as :func:`setting` reads it.

    :param change: name and value.
    """
    return f"{change[0]}={json.dumps(change[1], separators=(',', ':'))}"


def _suits(value: Any, kind: type) -> bool:
    if kind is tuple and isinstance(value, list):
        return len(value) == 2 and all(_suits(one, float) for one in value)
    if kind in (float, tuple):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return kind not in EXAMPLES or type(value) is kind


def changed(settings: Hyperparameters, changes: Mapping[str, Any]) -> Hyperparameters:
    """Put values in place of those of settings.

    Where a setting is a pair, the value at the beginning and at the end of the training, a single number replaces the
    first one, and the second one changes in proportion.

    :param settings: of an experiment.
    :param changes: what :func:`setting` has read.
    """
    given = dict(changes)
    lora = {**given.pop("lora", settings.lora), **_taken(given, LORA)}
    words = {**given.pop("wrapper_kwargs", settings.wrapper_kwargs), **_taken(given, WORDS)}
    for name, value in given.items():
        before = getattr(settings, name)
        if isinstance(before, tuple) and not isinstance(value, tuple):
            begin, end = before
            given[name] = (value, value * end / begin if begin else value)
    return replace(settings, lora=lora, wrapper_kwargs=words, **given)


def _taken(given: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Take out what has one of some names."""
    return {name: given.pop(name) for name in names if name in given}
