"""Save a learner for others, who do not have the folders of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from lmpolicy.lm.reference import saved_reference
from lmpolicy.models import find
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.sharing.card import public_name


def save_for_others(model: OnPolicyAlgorithm, path: Path) -> None:
    """Save a learner as SB3 does, without the folders of its base model, of adapters and of the log.

    Settings of an adapter to start from, and its weights as they are now, are in the checkpoint.

    :param model: PPO or A2C with a language model as its policy. It goes on as it was.
    :param path: file to write.
    """
    with _without_folders(model):
        model.save(path, exclude=["tensorboard_log"])


@contextmanager
def _without_folders(model: OnPolicyAlgorithm) -> Iterator[None]:
    """Name base model and adapters as others may, while the learner is saved."""
    policy = model.policy
    assert isinstance(policy, LMActorCriticPolicy)
    kwargs, settings = model.policy_kwargs, policy.settings
    named = settings if find(settings.model) else replace(settings, model=public_name(settings.model))
    shown = {name: value for name, value in kwargs.items() if name != "adapter"}
    shown |= {"model": named.model} if "model" in kwargs else {}
    shown |= {"lora": policy.backbone.lora} if "adapter" in kwargs else {}
    shown |= {"reference": saved_reference(settings.reference)} if "reference" in kwargs else {}
    model.policy_kwargs, policy.settings = shown, named
    try:
        yield
    finally:
        model.policy_kwargs, policy.settings = kwargs, settings
