"""lmpolicy: language models as Stable-Baselines3 policies on any Gymnasium environment."""

import importlib
from typing import TYPE_CHECKING, Any

from lmpolicy.prompt import Prompt
from lmpolicy.task import GenericTask, TextTask
from lmpolicy.text_space import TextSpace
from lmpolicy.wrapper import TextObservationWrapper

if TYPE_CHECKING:
    from lmpolicy.callbacks import CriticWarmup, EntropySchedule
    from lmpolicy.policy import LMActorCriticPolicy
    from lmpolicy.recipes import Hyperparameters, hyperparameters

__version__ = "0.1.0"
__all__ = [
    "CriticWarmup",
    "EntropySchedule",
    "GenericTask",
    "Hyperparameters",
    "LMActorCriticPolicy",
    "Prompt",
    "TextObservationWrapper",
    "TextSpace",
    "TextTask",
    "hyperparameters",
]
# These bring torch and transformers; env workers, which only need the wrapper, must not pay for them.
_LAZY = {
    "CriticWarmup": "lmpolicy.callbacks",
    "EntropySchedule": "lmpolicy.callbacks",
    "Hyperparameters": "lmpolicy.recipes",
    "LMActorCriticPolicy": "lmpolicy.policy",
    "hyperparameters": "lmpolicy.recipes",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
