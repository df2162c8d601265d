"""Run something in a process of its own, which starts with everything imported that takes long to import."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import resource
import select
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEAVY = (
    "pytest",
    "_hypothesis_pytestplugin",
    "anyio.pytest_plugin",
    "hypothesis",
    "numpy",
    "torch",
    "torch.distributions",
    "torch._dynamo",
    "gymnasium.vector",
    "minigrid",
    "safetensors.torch",
    "stable_baselines3",
    "sb3_contrib",
    "transformers",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen2.modeling_qwen2",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.generation.utils",
    "tokenizers",
    "peft",
    "coverage",
)
"""Imported once, before the first process is forked. Nothing of this project is, since it is what changes."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
"""What the tests set before they import anything, and what packages read when they are imported."""
WAITING = 20
"""A process may take this many times its CPU seconds by the clock, since other programs may be running."""


def import_heavy() -> None:
    """Import what every process would import again, and let torch start no threads: they do not survive a fork."""
    os.environ |= ENVIRONMENT
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    import torch as th

    th.set_num_threads(1)


def in_child(work: Callable[[], Any], seconds: float, output: Path) -> tuple[str, Any]:
    """Return how a process ended, ``"done"``, ``"timeout"`` or ``"died"``, and what the work returned in it.

    :param work: what the process does. It may leave any mess behind in its memory.
    :param seconds: CPU time after which the process is ended.
    :param output: file for what the process prints.
    :raises RuntimeError: if the work raised an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer"
        gc.freeze()  # or the child's garbage collector would go through, and so copy, all that was imported
        child = os.fork()
        if child == 0:
            _child(work, seconds, output, answer)
        deadline = time.monotonic() + seconds * WAITING
        status = _wait(child, deadline)
        if status is None:
            return "timeout", None
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
            return "timeout", None
        if not answer.exists():
            return "died", None
        result, error = pickle.loads(answer.read_bytes())
        if error:
            raise RuntimeError(error)
        return "done", result


def _child(work: Callable[[], Any], seconds: float, output: Path, answer: Path) -> None:
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()  # so that the processes that a test starts end with it
        for stream in (1, 2):
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC if stream == 1 else os.O_WRONLY), stream)
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        limit = int(used + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        try:
            found = pickle.dumps((work(), None))
        except Exception:
            found = pickle.dumps((None, traceback.format_exc()))
        whole = answer.with_suffix(".part")
        whole.write_bytes(found)
        whole.replace(answer)
        code = 0
    finally:
        os._exit(code)


def _wait(child: int, deadline: float) -> int | None:
    """Return the status of a process, or None if the process had to be killed."""
    handle, ended = os.pidfd_open(child), False
    try:
        ended = bool(select.select([handle], [], [], max(0.0, deadline - time.monotonic()))[0])
    finally:
        for end, number in ((os.killpg, child), (os.kill, child)):  # nothing that a test started stays
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(number, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        os.close(handle)
    return status if ended else None
