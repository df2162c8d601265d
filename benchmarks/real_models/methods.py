"""The methods: what acts, with which language model, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.learning.tasks import EXPERT
from lmpolicy import Hyperparameters
from lmpolicy.comparison.methods import LM, LM_FROZEN, LM_RANDOM, RANDOM, RAW

MODEL, BUNDLED = "smollm2-135m-instruct", "bundled"
TOKENS = 32
"""Tokens that may be written before an action is chosen."""


@dataclass(frozen=True)
class Method:
    """A method of the benchmark: one of ``lmpolicy.compare`` with one language model."""

    base: str
    """Name in ``lmpolicy.compare``."""
    meaning: str
    colour: str
    model: str = BUNDLED
    """Language model, which is also the name of the part's folder."""
    reasons: bool = False
    """Whether the model writes before it chooses."""


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
        LM, f"SmolLM2 writes up to {TOKENS} tokens of its own, then chooses an action", "#b0305c", MODEL, reasons=True
    ),
}
"""By name in tables and figures."""


def settings_for(model: str, reasons: bool) -> Callable[[Hyperparameters], Hyperparameters]:
    """What makes the settings of a method from those of the bundled LM.

    :param model: language model.
    :param reasons: whether it writes before it chooses.
    """

    def change(settings: Hyperparameters) -> Hyperparameters:
        settings = settings if model == BUNDLED else settings.for_model(model)
        if not reasons:
            return settings
        writing = {"action_mode": "generate", "close_with_phrase": True, "tokenizer": model, "max_new_tokens": TOKENS}
        # As for_free_text, but its rates belong to answers that must be learnt to be readable; here they always are.
        return replace(settings, wrapper_kwargs={**settings.wrapper_kwargs, **writing}, ent_coef=(0.0, 0.0))

    return change
