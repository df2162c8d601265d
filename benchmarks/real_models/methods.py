"""The methods: what acts, with which language model, and how it is trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from benchmarks.common.settings import Changes, changed, label_of, setting
from benchmarks.learning.tasks import EXPERT
from benchmarks.real_models.settings import load_as
from lmpolicy import Hyperparameters, models
from lmpolicy.comparison.methods import LM, LM_FROZEN, LM_RANDOM, RANDOM, RAW

MODEL, BUNDLED = "smollm2-135m-instruct", "bundled"
TOKENS = 32
"""Tokens that may be written before an action is chosen."""
REASONING = "reasoning"
IN_FOLDERS, IN_LABELS = str.maketrans('":', "';"), str.maketrans("';", '":')
"""What stands, in names of folders, for two characters of JSON that Windows has in no name; and the way back."""
LAST = re.compile(r"last-([1-9]\d*)")
LOADED: Mapping[str, Mapping[str, Any]] = {"4bit": {"quantization": "4bit"}, "float32": {"dtype": "float32"}}
"""Entries of ``policy_kwargs`` by variant."""


@dataclass(frozen=True)
class Method:
    """A method of the benchmark: one of ``lmpolicy.compare`` with one language model."""

    base: str
    """Name in ``lmpolicy.compare``."""
    meaning: str
    colour: str
    model: str = BUNDLED
    """Language model, with which the name of the part's folder begins."""
    variant: str = ""
    """What is other than in the settings that suit the model, which is in the name of the folder, too."""

    @property
    def is_trained_lm(self) -> bool:
        """Whether ``--set`` changes what it does."""
        return self.base in (LM, LM_RANDOM)


METHODS = {
    "smollm2": Method(LM, "SmolLM2-135M-Instruct, LoRA and value head trained by PPO", "#1f5fa8", MODEL),
    "random-weights": Method(LM_RANDOM, "the same architecture with random weights, trained alike", "#7a52a8", MODEL),
    "frozen": Method(
        LM_FROZEN,
        "SmolLM2 as it is; training its value head alone would change no action, so it is measured once",
        "#6b7a8f",
        MODEL,
    ),
    "bundled": Method(LM, "the bundled LM, with the named settings", "#35a7a0"),
    "classic": Method(
        RAW, "PPO with a small network on the env's own observations; on the words where these are text", "#d9730d"
    ),
    "random": Method(RANDOM, "random play among the legal actions", "#c0392b"),
    "expert": Method(EXPERT, "a scripted expert; of BabyAI, its bot, which knows the whole grid", "#444444"),
    "reasoning": Method(
        LM, f"SmolLM2 writes up to {TOKENS} tokens of its own, then chooses an action", "#b0305c", MODEL, REASONING
    ),
    "all-layers": Method(LM, "SmolLM2 with adapters in all 30 layers", "#8a6d1d", MODEL, "all-layers"),
    "4bit": Method(LM, "SmolLM2 with its base model in 4 bits", "#3b8a4a", MODEL, "4bit"),
    "float32": Method(LM, "SmolLM2 with its base model in float32", "#d36fb0", MODEL, "float32"),
}
"""By name in tables and figures; besides, there are last-1, last-2 and so on."""
USUAL = tuple(METHODS)[: tuple(METHODS).index(REASONING) + 1]
"""Methods that are run unless others are asked for."""
MORE_COLOURS = ("#5aa9e6", "#7fb069", "#e6aa68", "#9c6ade", "#ca3c25", "#1d7874")
"""Of methods that are in no list."""


def method_named(name: str) -> Method:
    """Find a method.

    :param name: one of :data:`METHODS`, or last-K.
    :raises ValueError: if there is none; the message tells which there are.
    """
    if name in METHODS:
        return METHODS[name]
    if last := LAST.fullmatch(name):
        meaning = f"SmolLM2 with adapters in the last {last[1]} layers"
        return Method(LM, meaning, MORE_COLOURS[int(last[1]) % len(MORE_COLOURS)], METHODS["smollm2"].model, name)
    raise ValueError(f"no such method: {name}; there are {', '.join(METHODS)} and last-K, such as last-8")


def settings_for(model: str, variant: str = "", changes: Changes = ()) -> Callable[[Hyperparameters], Hyperparameters]:
    """What makes the settings of a method from those of the bundled LM.

    :param model: language model.
    :param variant: what is other than in the settings that suit the model.
    :param changes: settings that the command line has in place of those.
    """

    def change(settings: Hyperparameters) -> Hyperparameters:
        settings = settings if model == BUNDLED else settings.for_model(model)
        return changed(_vary(settings, model, variant), dict(changes))

    return change


def _vary(settings: Hyperparameters, model: str, variant: str) -> Hyperparameters:
    if variant == REASONING:
        writing = {"action_mode": "generate", "close_with_phrase": True, "tokenizer": model, "max_new_tokens": TOKENS}
        # As for_free_text, but its rates belong to answers that must be learnt to be readable; here they always are.
        return replace(settings, wrapper_kwargs={**settings.wrapper_kwargs, **writing}, ent_coef=(0.0, 0.0))
    if variant == "all-layers":
        return replace(settings, lora=dict(models.PRETRAINED["lora"]))
    if last := LAST.fullmatch(variant):
        return replace(settings, lora={**settings.lora, "last_layers": int(last[1])})
    return load_as(settings, LOADED[variant]) if variant else settings


def folder_of(method: Method, changes: Changes) -> str:
    """Name of the folder of all methods with these settings: model, variant and changes.

    :param method: a method.
    :param changes: settings that the command line has in place of its own.
    """
    name = f"{method.model}-{method.variant}" if method.variant else method.model
    labels = [label_of(change).translate(IN_FOLDERS) for change in changes]
    return "+".join([name, *labels]) if method.is_trained_lm else name


def read_folder(name: str) -> tuple[str, str, Changes]:
    """Read model, variant and changes from the name of a folder.

    :param name: of :func:`folder_of`.
    :raises ValueError: if it is none.
    """
    kind, *labels = name.translate(IN_LABELS).split("+")
    for method in METHODS.values():
        if kind == method.model or kind.startswith(f"{method.model}-"):
            variant = kind.removeprefix(method.model).removeprefix("-")
            if variant and variant != REASONING:
                method_named(variant)
            return method.model, variant, tuple(map(setting, labels))
    raise ValueError(f"{name} is no folder of a language model")


def name_of(key: str, changes: Changes) -> str:
    """Name of a method in tables and figures.

    :param key: its name without changes.
    :param changes: settings that the command line has in place of its own.
    """
    return ", ".join([key, *map(label_of, changes)]) if method_named(key).is_trained_lm else key


def described(names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Meanings and colours of methods, in the order of the table.

    :param names: of :func:`name_of`.
    """
    known = [*METHODS]
    order = sorted({*names}, key=lambda name: (_place(name.partition(", ")[0], known), name))
    meanings, colours, further = {}, {}, cycle(MORE_COLOURS)
    for name in order:
        key, _, label = name.partition(", ")
        method = method_named(key)
        meanings[name] = f"{method.meaning}; {label}" if label else method.meaning
        colours[name] = next(further) if label else method.colour
    return meanings, colours


def _place(key: str, known: list[str]) -> int:
    return known.index(key) if key in known else len(known)
