"""Time and peak memory of methods, side by side."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch as th
from torch.profiler import ProfilerActivity, profile

from benchmarks.scoring.methods import Method

ONCE = 8.0
"""Seconds: a call that takes longer is not repeated."""

PIECES = 5.0
"""Seconds: of a method in many equal pieces, as many are run in each repetition as this is enough for."""

CHEAP, MOST = 1.0, 5
"""A round of short calls is noisy: one of fewer than so many seconds is repeated more often, so many times at most."""

MIB = 2**20
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Result:
    """What was measured of one method.

    :param seconds: per call, one number per repetition; a single one if a call takes too long to be repeated.
    :param peak: MiB at the peak beyond what was there before; ``None`` where the system does not tell.
    :param extrapolated_from: ``"n/N"`` if only n of N pieces were run and the rest was reckoned in.
    """

    seconds: list[float]
    peak: float | None
    extrapolated_from: str

    def median(self) -> float:
        """Median seconds."""
        return median(self.seconds)

    def ratio(self, other: Result) -> float:
        """Median of the ratios to another method within each repetition."""
        count = max(len(self.seconds), len(other.seconds))
        own, others = (r.seconds * (count if len(r.seconds) == 1 else 1) for r in (self, other))
        return median(mine / theirs for mine, theirs in zip(own, others, strict=True))


def compare(methods: list[Method], backward: bool, repetitions: int, parameters: list[th.Tensor]) -> dict[str, Result]:
    """Measure methods in turn, so that whatever slows the machine down for a while slows all of them.

    :param methods: what to measure.
    :param backward: with gradients.
    :param repetitions: after a first call of each, which warms up and tells the peak memory.
    :param parameters: their gradients are dropped between calls.
    """
    device = parameters[0].device
    seconds: dict[str, list[float]] = {}
    peaks, counts, single, total = {}, {}, set(), 0.0
    for method in methods:
        peaks[method.name], first = peak_memory(partial(timed, method, 1, backward, parameters), device)
        counts[method.name] = min(len(method.pieces), max(1, int(PIECES / first)))
        seconds[method.name] = []
        total += first
        if first > ONCE:
            seconds[method.name].append(first * _share(method, 1))
            single.add(method.name)
    for repetition in range(repetitions * max(1, min(MOST, int(CHEAP / total)))):
        turn = repetition % len(methods)
        for method in methods[turn:] + methods[:turn]:
            if method.name not in single:
                count = counts[method.name]
                seconds[method.name].append(timed(method, count, backward, parameters) * _share(method, count))
    return {
        method.name: Result(seconds[method.name], peaks[method.name], _extent(method, counts[method.name]))
        for method in methods
    }


def timed(method: Method, count: int, backward: bool, parameters: Iterable[th.Tensor]) -> float:
    """Seconds of the first ``count`` pieces of a method."""
    parameters = list(parameters)
    _synchronize(parameters[0].device)
    start = time.perf_counter()
    for index in range(count):
        method.run(index, backward)
    _synchronize(parameters[0].device)
    seconds = time.perf_counter() - start
    for parameter in parameters:
        parameter.grad = None
    return seconds


def _share(method: Method, count: int) -> float:
    """What the time of the first ``count`` pieces is multiplied with."""
    return sum(method.sizes) / sum(method.sizes[:count])


def _extent(method: Method, count: int) -> str:
    total = len(method.pieces)
    return "" if count == total else f"{count}/{total}"


def peak_memory(call: Callable[[], float], device: th.device) -> tuple[float | None, float]:
    """Call, and tell how far memory rose above what was there before.

    :param call: what to call.
    :param device: where the memory is.
    :return: MiB, or ``None`` where the system does not tell; what the call returned.
    """
    gc.collect()
    if device.type == "cuda":
        th.cuda.synchronize(device)
        th.cuda.reset_peak_memory_stats(device)
        before = th.cuda.memory_allocated(device)
        result = call()
        return (th.cuda.max_memory_allocated(device) - before) / MIB, result
    resident = _reset_peak()
    result = call()
    return (None if resident is None else (_status("VmHWM") - resident) / MIB), result


def peak_of_tensors(call: Callable[[], float], device: th.device) -> float:
    """Call, and tell how much memory tensors made by it hold at the peak.

    Unlike the size of the process, this does not depend on how the C library cuts up its heap.

    :param call: what to call.
    :param device: where the memory is.
    :return: MiB.
    """
    if device.type == "cuda":
        peak, _ = peak_memory(call, device)
        assert peak is not None
        return peak
    with _silent(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    assert profiler.profiler is not None
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(changes)) / MIB


@contextmanager
def _silent() -> Iterator[None]:
    """No standard error output for a while, that of C++ included: the profiler may write there when it starts."""
    saved = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _reset_peak() -> float | None:
    """Set the peak of this process to what it holds now, and return that in bytes; Linux only."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed goes back to the system, or it would hide a rise
        CLEAR.write_text("5")
        return _status("VmRSS")
    except (OSError, AttributeError):
        return None


def _status(name: str) -> float:
    """A memory size of this process in bytes."""
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return 1024.0 * int(lines[name].split()[0])


def _synchronize(device: th.device) -> None:
    if device.type == "cuda":
        th.cuda.synchronize(device)
