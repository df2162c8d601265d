"""Programs in several processes, forked as torchrun starts them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch as th

import lmpolicy
from lmpolicy.lm import processes

PATIENCE = 60.0
"""Seconds until a process that does not end is killed, and the test fails."""


class Launched:
    """Processes that run one program, each after its call of :func:`lmpolicy.distributed`.

    :param size: number of processes.
    :param program: what rank 0 runs; the others do not come to it.
    :param folder: where messages and the result are kept.
    :param before: what each rank runs before it calls ``distributed``.
    :param store: port of a store of addresses that outlives the processes, as that of torchrun. ``None``: none.
    """

    def __init__(
        self,
        size: int,
        program: Callable[[], Any],
        folder: Path,
        before: Callable[[int], None] | None = None,
        store: int | None = None,
    ) -> None:
        self._variables = {} if store is None else {"TORCHELASTIC_USE_AGENT_STORE": "True"}
        self.size, self.folder, self._program, self._before = size, folder, program, before
        folder.mkdir(parents=True, exist_ok=True)
        self._port = store or _free_port()
        self.children = [self._fork(rank) for rank in range(size)]

    def _fork(self, rank: int) -> int:
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            with (self.folder / f"messages {rank}").open("w") as file:
                os.dup2(file.fileno(), 2)
                sys.stderr = file
                code = self._run(rank)
                file.flush()
        finally:
            os._exit(code)

    def _run(self, rank: int) -> int:
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self.size, "MASTER_PORT": self._port}
        os.environ.update({name: str(value) for name, value in names.items()} | {"MASTER_ADDR": "127.0.0.1"})
        os.environ.update(self._variables)
        try:
            if self._before is not None:
                self._before(rank)
            lmpolicy.distributed()
            result = self._program()
            th.save(result, self.folder / "result")
        except SystemExit as end:
            return int(end.code or 0)
        except BaseException:
            traceback.print_exc()
            return 1
        finally:  # as at the end of a program
            found = processes.running()
            if found is not None:
                found.end()
        return 0

    def kill(self, rank: int) -> None:
        """Kill a process, which cannot clean up."""
        os.kill(self.children[rank], signal.SIGKILL)

    def codes(self) -> list[int]:
        """Wait for the end of all processes; return their exit codes, negative for signals."""
        until, found = time.monotonic() + PATIENCE, dict.fromkeys(self.children, -999)
        running = set(self.children)
        while running and time.monotonic() < until:
            for child in list(running):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    found[child] = os.waitstatus_to_exitcode(status)
                    running.discard(child)
            with contextlib.suppress(InterruptedError):
                signal.sigtimedwait([signal.SIGCHLD], 0.05)
        for child in running:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        return list(found.values())

    def messages(self, rank: int) -> str:
        """What a process wrote to its standard error."""
        return (self.folder / f"messages {rank}").read_text()

    def result(self) -> Any:
        """What the program returned; its messages if a process failed."""
        codes = self.codes()
        assert codes == [0] * self.size, "\n".join(self.messages(rank) for rank in range(self.size))
        return th.load(self.folder / "result", weights_only=False)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def launched(
    size: int,
    program: Callable[[], Any],
    folder: Path,
    before: Callable[[int], None] | None = None,
    store: int | None = None,
) -> Iterator[Launched]:
    """Start processes, and end those that are left."""
    found = Launched(size, program, folder, before, store)
    try:
        yield found
    finally:
        for child in found.children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def in_processes(size: int, program: Callable[[], Any], folder: Path) -> Any:
    """Return what a program returns in several processes, or in this one if ``size`` is 1."""
    if size == 1:
        return program()
    with launched(size, program, folder / f"{size} processes") as found:
        return found.result()
