"""lmpolicy: language models as Stable-Baselines3 policies on any Gymnasium environment."""

import importlib
from typing import TYPE_CHECKING, Any

from lmpolicy.parse import ParseError, extract_action
from lmpolicy.prompt import Prompt
from lmpolicy.task import GenericTask, TextTask
from lmpolicy.text_space import TextSpace
from lmpolicy.token_space import TokenSpace
from lmpolicy.wrapper import TextObservationWrapper

if TYPE_CHECKING:
    from lmpolicy.callbacks import CriticWarmup, EntropySchedule
    from lmpolicy.guard import GuardWarning, NonFiniteError
    from lmpolicy.multi_env import EnvCopies, PerEnvRewardNormalization, make_multi_env
    from lmpolicy.policy import LMActorCriticPolicy
    from lmpolicy.recipes import Hyperparameters, hyperparameters
    from lmpolicy.watch import WatchLearning

__version__ = "0.1.0"
__all__ = [
    "CriticWarmup",
    "EntropySchedule",
    "EnvCopies",
    "GenericTask",
    "GuardWarning",
    "Hyperparameters",
    "LMActorCriticPolicy",
    "NonFiniteError",
    "ParseError",
    "PerEnvRewardNormalization",
    "Prompt",
    "TextObservationWrapper",
    "TextSpace",
    "TextTask",
    "TokenSpace",
    "WatchLearning",
    "extract_action",
    "hyperparameters",
    "make_multi_env",
]
# These bring torch and transformers; env workers, which only need the wrapper, must not pay for them.
_LAZY = {
    "CriticWarmup": "lmpolicy.callbacks",
    "EntropySchedule": "lmpolicy.callbacks",
    "EnvCopies": "lmpolicy.multi_env",
    "GuardWarning": "lmpolicy.guard",
    "Hyperparameters": "lmpolicy.recipes",
    "LMActorCriticPolicy": "lmpolicy.policy",
    "NonFiniteError": "lmpolicy.guard",
    "PerEnvRewardNormalization": "lmpolicy.multi_env",
    "WatchLearning": "lmpolicy.watch",
    "hyperparameters": "lmpolicy.recipes",
    "make_multi_env": "lmpolicy.multi_env",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
