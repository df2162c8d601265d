"""Train language models as Stable-Baselines3 policies on any Gymnasium environment."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not Path(__path__[0], "envs").is_dir():
    __path__.append(str(Path(__path__[0]).parent))  # in the source tree, envs/ lies beside this folder

from lmpolicy import starting  # noqa: F401 - first: Ctrl-C from now on
from lmpolicy.text.parsing import ParseError, extract_action
from lmpolicy.text.prompt import Prompt
from lmpolicy.text.spaces import TextSpace, TokenSpace
from lmpolicy.text.task import GenericTask, TextTask
from lmpolicy.wrapper import TextObservationWrapper

if TYPE_CHECKING:
    from lmpolicy.comparison.classic_settings import ClassicSettings
    from lmpolicy.comparison.comparing import compare
    from lmpolicy.comparison.result import Comparison
    from lmpolicy.comparison.word_features import WordFeatures
    from lmpolicy.lm.guard import NonFiniteError
    from lmpolicy.lm.judging import GuardWarning
    from lmpolicy.lm.reference import Reference
    from lmpolicy.lm.settings import PolicySettings
    from lmpolicy.policy import LMActorCriticPolicy
    from lmpolicy.report.explaining import explain
    from lmpolicy.report.page import write_report
    from lmpolicy.report.recording import record_episodes
    from lmpolicy.sharing.hub import load_from_hub, package_for_hub, push_to_hub
    from lmpolicy.sharing.minari_recording import record_minari
    from lmpolicy.training.agent.agent import Agent
    from lmpolicy.training.callbacks import CriticWarmup, EntropySchedule, ReferenceSchedule
    from lmpolicy.training.checkpoints.checkpoints import Checkpoints
    from lmpolicy.training.checkpoints.resuming import resume
    from lmpolicy.training.checkpoints.safe_loading import load
    from lmpolicy.training.checkpoints.saving import new_run, save
    from lmpolicy.training.distributed import distributed
    from lmpolicy.training.groups.episode_groups import EpisodeGroups
    from lmpolicy.training.groups.group_advantages import GroupAdvantages
    from lmpolicy.training.imitation.demonstration import Demonstration
    from lmpolicy.training.imitation.demonstrations import Demonstrations
    from lmpolicy.training.imitation.own_experience import ExpertIteration, SelfImitation
    from lmpolicy.training.imitation.playing import play_in_terminal
    from lmpolicy.training.imitation.warm_start import WarmStart, warm_start
    from lmpolicy.training.multi_env import PerEnvRewardNormalization, make_multi_env
    from lmpolicy.training.per_env_advantages import PerEnvAdvantages
    from lmpolicy.training.random_play import RandomPlay
    from lmpolicy.training.settings.env_settings import EnvCopies
    from lmpolicy.training.settings.hyperparameters import Hyperparameters
    from lmpolicy.training.settings.named_settings import hyperparameters
    from lmpolicy.training.settings.script_options import ScriptOptions, check_device
    from lmpolicy.training.watching.watching import WatchLearning

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "Checkpoints",
    "ClassicSettings",
    "Comparison",
    "CriticWarmup",
    "Demonstration",
    "Demonstrations",
    "EntropySchedule",
    "EnvCopies",
    "EpisodeGroups",
    "ExpertIteration",
    "GenericTask",
    "GroupAdvantages",
    "GuardWarning",
    "Hyperparameters",
    "LMActorCriticPolicy",
    "NonFiniteError",
    "ParseError",
    "PerEnvAdvantages",
    "PerEnvRewardNormalization",
    "PolicySettings",
    "Prompt",
    "RandomPlay",
    "Reference",
    "ReferenceSchedule",
    "ScriptOptions",
    "SelfImitation",
    "TextObservationWrapper",
    "TextSpace",
    "TextTask",
    "TokenSpace",
    "WarmStart",
    "WatchLearning",
    "WordFeatures",
    "check_device",
    "compare",
    "distributed",
    "explain",
    "extract_action",
    "hyperparameters",
    "load",
    "load_from_hub",
    "make_multi_env",
    "new_run",
    "package_for_hub",
    "play_in_terminal",
    "push_to_hub",
    "record_episodes",
    "record_minari",
    "resume",
    "save",
    "warm_start",
    "write_report",
]
# These import torch and transformers. Env workers only need the wrapper and must not pay for that.
_LAZY = {
    "Agent": "lmpolicy.training.agent.agent",
    "Checkpoints": "lmpolicy.training.checkpoints.checkpoints",
    "ClassicSettings": "lmpolicy.comparison.classic_settings",
    "Comparison": "lmpolicy.comparison.result",
    "CriticWarmup": "lmpolicy.training.callbacks",
    "Demonstration": "lmpolicy.training.imitation.demonstration",
    "Demonstrations": "lmpolicy.training.imitation.demonstrations",
    "EntropySchedule": "lmpolicy.training.callbacks",
    "ReferenceSchedule": "lmpolicy.training.callbacks",
    "EnvCopies": "lmpolicy.training.settings.env_settings",
    "EpisodeGroups": "lmpolicy.training.groups.episode_groups",
    "ExpertIteration": "lmpolicy.training.imitation.own_experience",
    "GroupAdvantages": "lmpolicy.training.groups.group_advantages",
    "GuardWarning": "lmpolicy.lm.judging",
    "Hyperparameters": "lmpolicy.training.settings.hyperparameters",
    "LMActorCriticPolicy": "lmpolicy.policy",
    "NonFiniteError": "lmpolicy.lm.guard",
    "PerEnvAdvantages": "lmpolicy.training.per_env_advantages",
    "PerEnvRewardNormalization": "lmpolicy.training.multi_env",
    "PolicySettings": "lmpolicy.lm.settings",
    "RandomPlay": "lmpolicy.training.random_play",
    "Reference": "lmpolicy.lm.reference",
    "ScriptOptions": "lmpolicy.training.settings.script_options",
    "SelfImitation": "lmpolicy.training.imitation.own_experience",
    "WarmStart": "lmpolicy.training.imitation.warm_start",
    "WatchLearning": "lmpolicy.training.watching.watching",
    "WordFeatures": "lmpolicy.comparison.word_features",
    "check_device": "lmpolicy.training.settings.script_options",
    "compare": "lmpolicy.comparison.comparing",
    "distributed": "lmpolicy.training.distributed",
    "explain": "lmpolicy.report.explaining",
    "hyperparameters": "lmpolicy.training.settings.named_settings",
    "load": "lmpolicy.training.checkpoints.safe_loading",
    "load_from_hub": "lmpolicy.sharing.hub",
    "make_multi_env": "lmpolicy.training.multi_env",
    "new_run": "lmpolicy.training.checkpoints.saving",
    "package_for_hub": "lmpolicy.sharing.hub",
    "play_in_terminal": "lmpolicy.training.imitation.playing",
    "push_to_hub": "lmpolicy.sharing.hub",
    "record_episodes": "lmpolicy.report.recording",
    "record_minari": "lmpolicy.sharing.minari_recording",
    "resume": "lmpolicy.training.checkpoints.resuming",
    "save": "lmpolicy.training.checkpoints.saving",
    "warm_start": "lmpolicy.training.imitation.warm_start",
    "write_report": "lmpolicy.report.page",
}


if not TYPE_CHECKING:  # a type checker would take every misspelt name for one of Any

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return getattr(importlib.import_module(_LAZY[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
