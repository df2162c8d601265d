"""Say what a checkpoint holds, and refuse one that is for another base model."""

from __future__ import annotations

import json
from typing import Any

import torch as th

from lmpolicy.lm.backbone import Backbone

FINGERPRINT = "base_fingerprint"
"""Name of the base model's fingerprint in a checkpoint."""


LORA = "lora_settings"
"""Name, in a checkpoint, of the settings of the adapter that the training started from: JSON as bytes."""


def saved_state(backbone: Backbone, state: dict[str, Any], with_lora: bool) -> dict[str, Any]:
    """Return what a checkpoint holds of a policy's state.

    :param backbone: model of the policy.
    :param state: all weights and buffers of the policy, by name.
    :param with_lora: whether it holds the settings of the LoRA as well. ``policy_kwargs`` has them otherwise.
    """
    frozen = backbone.frozen
    kept = {name: value for name, value in state.items() if name.removeprefix("backbone.") not in frozen}
    kept[FINGERPRINT] = backbone.base_fingerprint
    if with_lora:
        kept[LORA] = th.tensor(list(json.dumps(backbone.lora).encode()), dtype=th.uint8)
    return kept


def take_lora(state: dict[str, Any]) -> dict[str, Any] | None:
    """Take the settings of the LoRA out of a state; ``None`` if it holds none.

    :param state: what :func:`saved_state` returned; it is changed in place.
    """
    saved = state.pop(LORA, None)
    return None if saved is None else json.loads(bytes(saved.tolist()))


def check_base(backbone: Backbone, state: dict[str, Any]) -> None:
    """Refuse the state of a policy on another base model, and take the fingerprint out of it.

    :param backbone: model of the policy.
    :param state: what :func:`saved_state` returned; it is changed in place.
    :raises ValueError: if the weights were trained on another base model; the message says how to name the right one.
    """
    mine, saved = backbone.base_fingerprint, state.pop(FINGERPRINT, None)
    # A fully fine-tuned checkpoint holds every weight, so its base model does not matter any more.
    if backbone.frozen and (saved is None or not th.equal(saved.to(mine.device), mine)):
        raise ValueError(
            f"this checkpoint was trained on another base model than {backbone.name!r} as it is here now. Its "
            "adapter means nothing on other weights: restore the model or pin its revision, or name the right one "
            'with PPO.load(path, custom_objects={"policy_kwargs": {..., "model": "the base it was trained on"}})'
        )


def shorten_steps(_: th.optim.Optimizer, state_dict: dict[str, Any]) -> None:
    """Write Adam's step counts as numbers, which Adam reads as well.

    A tensor would take half a kilobyte in a checkpoint. This is a hook on the state dict of the optimizer.

    :param state_dict: state of the optimizer; it is changed in place.
    """
    states = state_dict["state"]
    state_dict["state"] = {
        index: {k: float(v) if k == "step" and isinstance(v, th.Tensor) else v for k, v in state.items()}
        for index, state in states.items()
    }
