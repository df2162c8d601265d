"""Name the machine that something was measured on."""

from __future__ import annotations

import platform
from pathlib import Path

import torch as th

GPUS = ("NVIDIA", "Tesla", "GeForce", "Quadro", "AMD Instinct", "AMD Radeon")
"""Beginnings of the names of GPUs, as torch tells them."""


def processor(device: th.device | None = None) -> str:
    """Return the name of the processor, as far as the system tells it; of a GPU where one computes.

    Where the name tells no model ("AMD EPYC", as virtual machines have it), family and model are added: processors with
    other instructions round otherwise, and the same seed then plays other episodes.

    :param device: what computes; default: a CPU.
    """
    if device is not None and device.type == "cuda":
        return th.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    return name_in(info.read_text()) if info.exists() else platform.processor() or platform.machine()


def is_gpu(name: str) -> bool:
    """Return whether what computed is a GPU.

    :param name: what :func:`processor` returned.
    """
    return name.startswith(GPUS)


def name_in(text: str) -> str:
    """Return the name of the first processor that a text in the form of ``/proc/cpuinfo`` lists.

    :param text: lines ``key : value``, a block for each processor.
    """
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name", platform.machine())
    told = any(letter.isdigit() for letter in name) or not {"cpu family", "model"} <= facts.keys()
    return name if told else f"{name} (family {facts['cpu family']}, model {facts['model']})"
