"""Make a small language model from what a person asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch as th

from lmpolicy.bundled import BUNDLED
from lmpolicy.models import resolve
from lmpolicy.pretraining.making import MORE, Size, pretrain
from lmpolicy.pretraining.mixture import Mixture
from lmpolicy.pretraining.own_mixture import own_mixture, read_wordings
from lmpolicy.pretraining.training import Reading
from lmpolicy.training.settings.script_options import check_device
from lmpolicy.training.settings.task_lookup import find_task

OF_A_NEW_MODEL = ("vocabulary", "sample", "width", "layers", "heads")
"""Fields of a size that a model has which is trained further."""


def asked_mixture(env_ids: Sequence[str], task: str | None, wordings: Path | None, action_bins: int) -> Mixture:
    """Find what a model is to read about envs.

    :param env_ids: Gymnasium ids.
    :param task: name of a task. None: the words of each env.
    :param wordings: file of other phrasings.
    :param action_bins: values per dimension of continuous actions.
    """
    return own_mixture(
        env_ids,
        None if task is None else find_task(task),
        wordings=() if wordings is None else read_wordings(wordings),
        action_bins=action_bins,
    )


def make(
    mixture: Mixture,
    folder: Path,
    size: Mapping[str, Any],
    *,
    base: str | None = None,
    usual: Size | None = None,
    threads: int | None = None,
    device: str = "cpu",
    **others: Any,
) -> Reading:
    """Make a model that has read a mixture.

    :param mixture: what it reads.
    :param folder: folder to write.
    :param size: fields of :class:`~lmpolicy.pretraining.making.Size`; ``None`` for the default.
    :param base: folder of a model to train further, or ``"bundled"``. None: a new model.
    :param usual: defaults of ``size``. None: those for one env, or for more training of a base.
    :param threads: number of threads. None: all cores.
    :param device: where to train.
    :param others: arguments of :func:`~lmpolicy.pretraining.making.pretrain`.
    :return: what was read.
    :raises OSError: if there is no such base; the message says how to get it.
    :raises ValueError: if a size does not fit, or is that of a new model, but there is a base.
    """
    check_device(device)
    given = [f"--{name}" for name in OF_A_NEW_MODEL if base is not None and size.get(name) is not None]
    if given:
        raise ValueError(
            f"{' and '.join(given)} cannot be chosen with --base, whose tokenizer and layers the model keeps: leave "
            "that out, or leave --base out for a new model"
        )
    if threads is not None:
        th.set_num_threads(threads)
    usual = usual or (Size() if base is None else MORE)
    chosen = replace(usual, **{name: value for name, value in size.items() if value is not None})
    start = None if base is None else BUNDLED if base == "bundled" else resolve(base)
    return pretrain(mixture, folder, chosen, base=start, device=device, **others)
