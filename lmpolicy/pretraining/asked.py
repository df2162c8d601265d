"""Make a small language model from what a person asked for."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch as th

from lmpolicy.bundled import BUNDLED
from lmpolicy.pretraining.making import MORE, Size, pretrain
from lmpolicy.pretraining.own_mixture import own_mixture, read_wordings
from lmpolicy.pretraining.training import Reading
from lmpolicy.training.script_options import check_device
from lmpolicy.training.task_lookup import find_task


def make(
    env_ids: Sequence[str],
    folder: Path,
    task: str | None,
    wordings: Path | None,
    action_bins: int,
    base: str | None,
    size: Mapping[str, Any],
    threads: int | None,
    device: str,
) -> Reading:
    """Make a model that has read about envs.

    :param env_ids: Gymnasium ids.
    :param folder: folder to write.
    :param task: name of a task. None: the words of each env.
    :param wordings: file of other phrasings.
    :param action_bins: values per dimension of continuous actions.
    :param base: folder of a model to train further, or ``"bundled"``. None: a new model.
    :param size: fields of :class:`~lmpolicy.pretraining.making.Size`; ``None`` for the default.
    :param threads: number of threads. None: all cores.
    :param device: where to train.
    :return: what was read.
    """
    check_device(device)
    mixture = own_mixture(
        env_ids,
        None if task is None else find_task(task),
        wordings=() if wordings is None else read_wordings(wordings),
        action_bins=action_bins,
    )
    usual = Size() if base is None else MORE
    given = {name: value for name, value in size.items() if value is not None}
    if threads is not None:
        th.set_num_threads(threads)
    command = shlex.join(["lmpolicy", *sys.argv[1:]])
    start = BUNDLED if base == "bundled" else base
    return pretrain(mixture, folder, replace(usual, **given), base=start, command=command, device=device)
