"""Say what a checkpoint holds, and refuse one that is for another base model."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch as th
from gymnasium import spaces

from lmpolicy.lm.backbone import Backbone
from lmpolicy.lm.base_model import load_base
from lmpolicy.lm.fingerprint import WEIGHTS, Fingerprint, digest_of_version_1
from lmpolicy.lm.model_settings import to_json
from lmpolicy.lm.settings import PolicySettings
from lmpolicy.text.spaces import TextSpace, TokenSpace

log = logging.getLogger(__name__)

RECORD = "record"
"""Name, in the state of a policy, of what it was made with: JSON as bytes."""
VERSION = 2
"""Version of the record. Checkpoints of version 1 hold the next two entries in its place."""
OLD_FINGERPRINT = "base_fingerprint"
OLD_LORA = "lora_settings"


def make_record(backbone: Backbone, made_with: Mapping[str, Any], from_adapter: bool) -> th.Tensor:
    """Write down what a policy was made with, so that it can be made again from numbers and JSON alone.

    :param backbone: model of the policy.
    :param made_with: arguments of the policy's class: spaces, optimizer and settings.
    :param from_adapter: whether the training started from an adapter.
    :return: JSON as uint8 ``(n,)``.
    """
    optimizer = made_with["optimizer_class"]
    try:
        arguments = to_json(made_with["optimizer_kwargs"], "optimizer_kwargs")
    except ValueError:  # a tensor, for instance; whoever loads the checkpoint is asked for them
        arguments = None
    record = {
        "version": VERSION,
        "base": backbone.fingerprint.to_json(),
        "from_adapter": from_adapter,
        "settings": {one.name: made_with[one.name] for one in fields(PolicySettings)},
        "spaces": [_described(made_with[name]) for name in ("observation_space", "action_space")],
        "optimizer": {"class": f"{optimizer.__module__}.{optimizer.__qualname__}", "arguments": arguments},
    }
    return th.frombuffer(bytearray(json.dumps(record, sort_keys=True).encode()), dtype=th.uint8)


def saved_state(backbone: Backbone, state: Mapping[str, Any], record: th.Tensor) -> dict[str, Any]:
    """Return what a checkpoint holds of a policy's state.

    :param backbone: model of the policy.
    :param state: all weights and buffers of the policy, by name.
    :param record: what :func:`make_record` returned.
    """
    frozen = backbone.frozen
    kept = {name: value for name, value in state.items() if name.removeprefix("backbone.") not in frozen}
    return {**kept, RECORD: record}


def read_record(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record in a policy's state; empty if it holds none.

    :param state: what :func:`saved_state` returned.
    :raises ValueError: if the record cannot be read, or is of a later version of lmpolicy.
    """
    if RECORD not in state:
        return {}
    try:
        record = json.loads(bytes(state[RECORD].tolist()))
        version = record["version"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"the record of what this checkpoint was made with is damaged: {error!r}") from error
    if version != VERSION:
        raise ValueError(
            f"this checkpoint has a record of version {version}, and this lmpolicy reads version {VERSION}: install "
            "the version of lmpolicy that wrote it"
        )
    return record


def lora_to_build(
    state: Mapping[str, Any], settings: PolicySettings, backbone: Backbone | None, has_learnt: bool
) -> Any:
    """Return the LoRA that a policy must be built with before a checkpoint's weights fit.

    This is for trainings that started from an adapter: its folder may be gone or changed when they are loaded.

    :param state: what :func:`saved_state` returned.
    :param settings: settings of the policy.
    :param backbone: model of the policy. ``None``: the adapter is missing, so there is none yet.
    :param has_learnt: whether the policy has learnt anything that would be lost.
    :return: arguments of :class:`peft.LoraConfig`; ``None`` if the policy is built with the right ones.
    :raises RuntimeError: if the policy has an adapter to start from, and the checkpoint was made without one.
    :raises ValueError: if the weights are of an adapter with other settings than the policy's.
    """
    from_adapter, saved = _saved_lora(state)
    other = backbone is None or (saved is not None and saved != backbone.lora)
    if settings.adapter is not None and not from_adapter and other:
        # No ValueError, because SB3's load would look at the optimizer to handle it.
        raise RuntimeError(
            f"this checkpoint was made without adapter={str(settings.adapter)!r}, which is for new policies: leave it "
            "out of policy_kwargs in custom_objects"
        )
    if not from_adapter or not other:
        return None
    if settings.adapter is None or has_learnt:
        mine = None if backbone is None else backbone.lora
        raise ValueError(f"these weights are of an adapter with the settings {saved}, not {mine}")
    return saved


def _saved_lora(state: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return whether a training started from an adapter, and the settings of its LoRA if they are known."""
    if OLD_LORA in state:
        return True, json.loads(bytes(state[OLD_LORA].tolist()))
    record = read_record(state)
    return bool(record.get("from_adapter")), record["settings"]["lora"] if record else None


def weights_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights and buffers in a policy's state.

    :param state: what :func:`saved_state` returned.
    """
    return {name: value for name, value in state.items() if name not in (RECORD, OLD_FINGERPRINT, OLD_LORA)}


def check_base(backbone: Backbone, state: Mapping[str, Any]) -> None:
    """Refuse the state of a policy on another base model, and warn of one that scores phrases otherwise.

    :param backbone: model of the policy.
    :param state: what :func:`saved_state` returned.
    :raises ValueError: if the weights were trained on another base model; the message says in what it differs, and how
        to name the right one.
    """
    record = read_record(state)
    if record:
        found = backbone.fingerprint.differences(Fingerprint(**record["base"]))
        if not backbone.frozen:  # a fully fine-tuned checkpoint holds every weight
            found = [one for one in found if one != WEIGHTS]
    else:
        found = [] if not backbone.frozen or _is_base_of_version_1(backbone, state.get(OLD_FINGERPRINT)) else [WEIGHTS]
    if found:
        raise ValueError(
            f"this checkpoint was trained on another base model than {backbone.name!r} as it is here now: it differs "
            f"in {', '.join(found)}. What was learnt means nothing there: restore the model or pin its revision, or "
            'name the right one with PPO.load(path, custom_objects={"policy_kwargs": {..., "model": "the base it was '
            'trained on"}}) or lmpolicy.load(path, model="the base it was trained on")'
        )
    if record:
        _warn_of_other_scores(backbone.settings, record["settings"])


def _warn_of_other_scores(settings: PolicySettings, saved: Mapping[str, Any]) -> None:
    """Warn that a checkpoint's policy gave phrases other probabilities; its weights fit all the same."""
    for name in ("score_normalization", "temperature"):
        mine, its = getattr(settings, name), saved[name]
        if mine != its:
            log.warning(
                "this checkpoint was trained with %s=%r, and this policy has %r: it gives phrases other probabilities. "
                "lmpolicy.load(path) takes what the checkpoint was trained with; so does PPO.load(path, "
                'custom_objects={"policy_kwargs": {..., %r: %r}})',
                name,
                its,
                mine,
                name,
                its,
            )


def _is_base_of_version_1(backbone: Backbone, saved: th.Tensor | None) -> bool:
    """Return whether a checkpoint of version 1 is for this base. The base is read again, because it was cast."""
    if saved is None:
        return False
    model, _ = load_base(backbone.settings)
    same = digest_of_version_1(model) == bytes(saved.tolist())
    if same:
        log.warning(
            "this checkpoint was written by lmpolicy 0.1.0 and knows its base model, %r, by some of its weights "
            "alone: whether config, tokenizer and chat template are the same cannot be told. Save it again to have "
            "them noted.",
            backbone.name,
        )
    return same


def _described(space: Any) -> dict[str, Any]:
    """Return a space of the policy as values for JSON."""
    if isinstance(space, TextSpace):
        return {"max_bytes": space.max_bytes}
    if isinstance(space, TokenSpace):
        names = ("n_ids", "max_new_tokens", "tokenizer", "n_phrases")
        return {name: getattr(space, name) for name in names}
    return {"n": int(space.n)}


def spaces_of(record: Mapping[str, Any]) -> tuple[spaces.Space, spaces.Space]:
    """Return observation space and action space of a recorded policy.

    :param record: what :func:`read_record` returned.
    """
    observation, action = record["spaces"]
    return TextSpace(**observation), spaces.Discrete(action["n"]) if "n" in action else TokenSpace(**action)


def ignore_frozen_keys(policy: Any, keys: Any) -> None:
    """Do not report frozen base weights as missing; checkpoints never hold them.

    This is a hook on the loading of a state.

    :param policy: policy that has a ``backbone``.
    :param keys: names that are missing and unexpected; it is changed in place.
    """
    weights = policy.backbone.named_parameters()
    idle = {name for name, weight in weights if ".lora_" in name and not weight.requires_grad}
    frozen = policy.backbone.frozen | idle  # older checkpoints lack what does not learn of an adapter
    if policy.reference is None:  # one that the training had before is left out
        keys.unexpected_keys[:] = [name for name in keys.unexpected_keys if not name.startswith("reference.")]
    keys.missing_keys[:] = [name for name in keys.missing_keys if name.removeprefix("backbone.") not in frozen]


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
