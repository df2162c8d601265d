"""lmpolicy: language models as Stable-Baselines3 policies on any Gymnasium environment."""

from typing import TYPE_CHECKING, Any

from lmpolicy.prompt import Prompt
from lmpolicy.task import GenericTask, TextTask
from lmpolicy.text_space import TextSpace
from lmpolicy.wrapper import TextObservationWrapper

if TYPE_CHECKING:
    from lmpolicy.policy import LMActorCriticPolicy

__version__ = "0.1.0"
__all__ = [
    "GenericTask",
    "LMActorCriticPolicy",
    "Prompt",
    "TextObservationWrapper",
    "TextSpace",
    "TextTask",
]


def __getattr__(name: str) -> Any:
    # The policy brings torch and transformers; env workers, which only need the wrapper, must not pay for them.
    if name == "LMActorCriticPolicy":
        from lmpolicy.policy import LMActorCriticPolicy

        return LMActorCriticPolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
