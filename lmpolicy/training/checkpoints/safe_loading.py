"""Load a checkpoint from numbers and JSON alone, so that nothing in the file can run."""

from __future__ import annotations

import inspect
import json
import logging
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch as th
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import LinearSchedule, check_for_correct_spaces, get_device

from lmpolicy.files import check_archive
from lmpolicy.lm.checkpoints import OLD_LORA, RECORD, read_record, spaces_of
from lmpolicy.lm.reference import BASE, START
from lmpolicy.models import find
from lmpolicy.policy import LMActorCriticPolicy
from lmpolicy.training.groups.group_advantages import GroupAdvantages
from lmpolicy.training.per_env_advantages import PerEnvAdvantages

log = logging.getLogger(__name__)

PICKLED = ":serialized:"
"""Key under which SB3 keeps a pickle among the JSON of a checkpoint. Its value is never looked at."""
STATES = ("policy", "policy.optimizer")
"""Names of the state dicts that are read."""
NOT_READ = frozenset(("self", "policy", "env", "device", "policy_kwargs", "tensorboard_log", "_init_setup_model"))
"""Arguments of a learner that are not taken from the file. ``tensorboard_log`` would name a folder to write to."""
HOW = {"PPO": "leave out algorithm=", "A2C": "pass algorithm=A2C, from stable_baselines3"}
"""How to load what a learner has written."""
COUNTERS = (
    "num_timesteps",
    "_total_timesteps",
    "_num_timesteps_at_start",
    "_episode_num",
    "_n_updates",
    "_current_progress_remaining",  # on which schedules depend
)
NUMBER = r"-?[\d.]+(?:e[-+]?\d+)?"
BUFFERS = {buffer.__module__: buffer for buffer in (GroupAdvantages, PerEnvAdvantages)}
"""Rollout buffers of this package, by their modules."""
CONSTANT = re.compile(rf"ConstantSchedule\(val=({NUMBER})\)")
LINEAR = re.compile(rf"LinearSchedule\(start=({NUMBER}), end=({NUMBER}), end_fraction=({NUMBER})\)")

HARMLESS_LORA = frozenset(
    (
        "r",
        "lora_alpha",
        "lora_dropout",
        "target_modules",
        "exclude_modules",
        "last_layers",
        "layers_to_transform",
        "layers_pattern",
        "modules_to_save",
        "rank_pattern",
        "alpha_pattern",
        "fan_in_fan_out",
        "bias",
        "use_rslora",
        "use_dora",
        "lora_bias",
        "task_type",
        "init_lora_weights",
        "trainable_token_indices",
        "target_parameters",
        "ensure_weight_tying",
    )
)
"""Arguments of a LoRA that only say which weights there are. Others may import a module by its name."""
HARMLESS_ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
"""Values of ``attn_implementation`` that load no code from the hub."""
HARMLESS_MODEL_KWARGS = ("subfolder", "device_map", "variant")


def load(
    path: str | Path,
    env: Any = None,
    algorithm: type[OnPolicyAlgorithm] = PPO,
    *,
    model: str | None = None,
    policy_kwargs: Mapping[str, Any] | None = None,
    policy_class: type[LMActorCriticPolicy] = LMActorCriticPolicy,
    device: th.device | str = "auto",
    **arguments: Any,
) -> OnPolicyAlgorithm:
    """Load a checkpoint without running anything that is in it.

    ``PPO.load`` unpickles parts of the file, and a pickle can run any code. This function reads its numbers and JSON
    alone, so it is for checkpoints of others. What is kept as a pickle only, such as the last observation, is left out:
    training goes on with a new episode.

    Example:
        >>> import lmpolicy
        >>> model = lmpolicy.load("blackjack.zip", env=env)  # doctest: +SKIP

    :param path: file that ``model.save`` wrote; ``.zip`` may be left out.
    :param env: env to train on. ``None``: the model can predict.
    :param algorithm: learner that wrote the checkpoint, :class:`~stable_baselines3.PPO` or
        :class:`~stable_baselines3.A2C`.
    :param model: name of the base model. It must be given if the checkpoint names one that is not in
        :mod:`lmpolicy.models`, because such a name can point anywhere.
    :param policy_kwargs: settings of the policy in place of those in the checkpoint. ``trust_remote_code`` is never
        taken from the checkpoint.
    :param policy_class: class of the policy, if it is a subclass of yours.
    :param device: device of the learner, as in SB3.
    :param arguments: arguments of the learner in place of those in the checkpoint, for instance ``learning_rate`` or
        ``tensorboard_log``.
    :return: learner with the weights, the optimizer and the counters of the checkpoint.
    :raises FileNotFoundError: if there is no such file.
    :raises ValueError: if the file is no checkpoint, holds Python objects where numbers should be, or needs an argument
        that only a pickle holds; the message names it.
    """
    data, states = _read(Path(path), get_device(device))
    if issubclass(algorithm, PPO | A2C) and issubclass(algorithm, PPO) != ("clip_range" in data):
        writer = "PPO" if "clip_range" in data else "A2C"
        raise ValueError(f"{path} was written by {writer}, and {algorithm.__name__} learns otherwise: {HOW[writer]}")
    record = read_record(states["policy"])
    settings = _settings(data, record, states["policy"], model, dict(policy_kwargs or {}))
    learner = algorithm(
        policy_class,
        env,
        device=device,
        policy_kwargs=settings,
        _init_setup_model=False,
        **{**_arguments(algorithm, data, arguments), **arguments},
    )
    if record:
        learner.observation_space, learner.action_space = spaces_of(record)
    if env is not None:
        assert learner.env is not None
        check_for_correct_spaces(learner.env, learner.observation_space, learner.action_space)
    elif record:
        learner.n_envs = 1
    else:
        raise ValueError(f"{path} was written by lmpolicy 0.1.0, which noted the spaces in pickles only: pass env=")
    learner._setup_model()
    learner.set_parameters(states, exact_match=True, device=device)
    vars(learner).update({name: data[name] for name in COUNTERS if isinstance(data.get(name), int | float)})
    return learner


def _read(path: Path, device: th.device) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the JSON of a checkpoint, and its state dicts by name."""
    path = path if path.exists() or path.suffix else path.with_name(f"{path.name}.zip")
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive)
            data = json.loads(archive.read("data"))
            states = {}
            for name in STATES:
                with archive.open(f"{name}.pth") as file:
                    states[name] = th.load(file, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is damaged, or no checkpoint: {error}") from error
    except Exception as error:  # of zip, JSON, and the unpickler of torch, which refuses all but tensors
        raise ValueError(
            f"{path} is no checkpoint of numbers and JSON: {error}\nIf you trust whoever wrote it, PPO.load(path) says "
            "whether it is a checkpoint at all"
        ) from error
    if not isinstance(data, dict) or not all(isinstance(state, dict) for state in states.values()):
        raise ValueError(f"{path} is no checkpoint of a learner")
    return data, states


def _settings(
    data: Mapping[str, Any],
    record: Mapping[str, Any],
    state: Mapping[str, Any],
    model: str | None,
    given: dict[str, Any],
) -> dict[str, Any]:
    """Return the ``policy_kwargs`` to build the policy with."""
    stored = record.get("settings", data.get("policy_kwargs"))
    if not isinstance(stored, dict) or PICKLED in stored:
        raise ValueError(f"the settings of the policy are in a pickle, without a {RECORD}: pass policy_kwargs=")
    stored = dict(stored)
    if OLD_LORA in state:
        stored["lora"] = json.loads(bytes(state[OLD_LORA].tolist()))
    stored.pop("adapter", None)  # its settings are in the checkpoint, and its weights have been trained since
    if isinstance(stored.get("reference"), dict) and stored["reference"].get("of") != BASE:
        stored["reference"] = {**stored["reference"], "of": START}  # its weights are in the checkpoint, too
    if stored.pop("trust_remote_code", False):
        log.warning("the checkpoint asks for trust_remote_code=True, which is ignored: pass it in policy_kwargs=")
    if model is not None:
        given["model"] = model
    name = stored.get("model")
    if "model" not in given and find(name) is None:
        raise ValueError(
            f"the checkpoint names the base model {name!r}, which is not in lmpolicy.models and could be anything: "
            f"pass model={name!r} if you know it, or the place where that model is"
        )
    if given.get("model", name) != name:
        stored.pop("revision", None)
    for part, is_harmless in (("lora", _harmless_lora), ("model_kwargs", _harmless_model_kwargs)):
        if part not in given and isinstance(stored.get(part), dict):
            odd = sorted(key for key, value in stored[part].items() if not is_harmless(key, value))
            if odd:
                raise ValueError(
                    f"the checkpoint sets {', '.join(odd)} in {part}, which may load code: pass "
                    f"policy_kwargs={{{part!r}: {stored[part]!r}}} if you agree with it"
                )
    return {**stored, **_optimizer(record, given), **given}


def _harmless_lora(name: str, value: Any) -> bool:
    return name in HARMLESS_LORA and (name != "init_lora_weights" or isinstance(value, bool))


def _harmless_model_kwargs(name: str, value: Any) -> bool:
    return name in HARMLESS_MODEL_KWARGS or (name == "attn_implementation" and value in HARMLESS_ATTENTION)


def _optimizer(record: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return class and arguments of the optimizer; nothing where they were not noted, for the learner's default."""
    if "optimizer_class" in given or "optimizer" not in record:
        return {}
    noted = record["optimizer"]
    kind = getattr(th.optim, noted["class"].rpartition(".")[2], None)
    is_torchs = isinstance(kind, type) and issubclass(kind, th.optim.Optimizer)
    if not is_torchs or not noted["class"].startswith("torch.optim.") or noted["arguments"] is None:
        raise ValueError(
            f"the checkpoint was trained with the optimizer {noted['class']}, which is not read from it: pass "
            'policy_kwargs={"optimizer_class": ..., "optimizer_kwargs": {...}}'
        )
    return {"optimizer_class": kind, "optimizer_kwargs": noted["arguments"]}


def _arguments(algorithm: type, data: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the learner that the checkpoint holds as JSON."""
    found, lacking = {}, []
    for name in inspect.signature(algorithm).parameters:
        stored = data.get(name, data.get(f"_{name}"))
        if name in NOT_READ or name in given or stored is None:
            continue
        if not isinstance(stored, dict) or PICKLED not in stored:
            found[name] = stored
        elif name == "rollout_buffer_class" and stored.get("__module__") == "stable_baselines3.common.buffers":
            continue  # the default
        elif name == "rollout_buffer_class" and stored.get("__module__") in BUFFERS:
            found[name] = BUFFERS[str(stored["__module__"])]
        elif (schedule := _schedule(stored)) is not None:
            found[name] = schedule
        else:
            lacking.append(name)
    if lacking:
        raise ValueError(
            f"the checkpoint holds {', '.join(lacking)} as a pickle only, for instance because it is a function: pass "
            f"{', '.join(f'{name}=...' for name in lacking)}"
        )
    return found


def _schedule(stored: Mapping[str, Any]) -> Any:
    """Return a schedule of SB3 from its description; ``None`` for other functions."""
    kind = str(stored.get(":type:")).rpartition(".")[2].rstrip("'>")
    text = str(stored.get("value_schedule", ""))
    if kind in ("ConstantSchedule", "LinearSchedule"):
        text = f"{kind}({', '.join(f'{name}={stored.get(name)}' for name in _fields(kind))})"
    if constant := CONSTANT.fullmatch(text):
        return float(constant[1])
    if linear := LINEAR.fullmatch(text):
        return LinearSchedule(*map(float, linear.groups()))
    return None


def _fields(kind: str) -> tuple[str, ...]:
    return ("val",) if kind == "ConstantSchedule" else ("start", "end", "end_fraction")
