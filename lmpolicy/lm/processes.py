"""Exchange messages and sums between the processes of one training, as torchrun starts them."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import cloudpickle
import torch as th
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

log = logging.getLogger(__name__)

PATIENCE = timedelta(days=30)
"""How long a process waits for a command. The program may do anything between two calls of its policy, and a connection
that is closed ends the wait at once."""
REMEDY = (
    "its own message is above, or the system killed it. Everything that was saved is whole: go on from the newest "
    "checkpoint with lmpolicy.resume"
)


class ProcessError(RuntimeError):
    """Say that another process of the training failed or ended."""


@dataclass(frozen=True)
class Command:
    """Hold what rank 0 asks of another process.

    :param name: what to do.
    :param number: number of the command, which the answer repeats.
    :param policy: number of the policy that is asked.
    :param content: what the command is about.
    :param dropped: numbers of forward passes that no gradient will come for.
    :param closed: numbers of policies that rank 0 does not use any more.
    """

    name: str
    number: int = 0
    policy: int = 0
    content: Any = None
    dropped: tuple[int, ...] = ()
    closed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Answer:
    """Hold what a process answers to rank 0.

    :param number: number of the command.
    :param content: what was computed.
    :param error: what failed, with its traceback; empty if nothing did.
    """

    number: int
    content: Any = None
    error: str = ""


class Processes:
    """Connect rank 0, which runs the program, with the other processes.

    Rank 0 sends commands, and the others answer each in turn. What many numbers are in, weights and gradients, goes by
    the collectives of torch, always after a command. So no process ever waits in a collective for one that has failed
    before it.

    :param rank: number of this process.
    :param size: number of processes.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.lock = threading.RLock()
        self.others = range(1, size)
        self._control = dist.new_group(backend="gloo", timeout=PATIENCE)
        self._last_number = 0
        self._owed: dict[int, deque[int]] = {rank: deque() for rank in self.others}
        self._answers: dict[tuple[int, int], Answer] = {}
        self._ended = False
        self.dropped: deque[int] = deque()
        self.closed: deque[int] = deque()

    def post(self, name: str, policy: int, contents: dict[int, Any], answered: bool = True) -> int:
        """Send a command to other processes.

        :param name: what to do.
        :param policy: number of the policy that is asked.
        :param contents: what the command is about, by rank.
        :param answered: whether the processes answer.
        :return: number of the command.
        :raises ProcessError: if a process has ended.
        """
        with self.lock:
            self._last_number += 1
            dropped, closed = _emptied(self.dropped), _emptied(self.closed)
            for rank in self.others:
                if rank not in contents and not (dropped or closed):
                    continue
                while self._owed[rank]:  # it could not read a command while it waits for its answer to be read
                    self._read_answer(rank)
                asked = rank in contents
                self._send(
                    rank,
                    Command(name if asked else "drop", self._last_number, policy, contents.get(rank), dropped, closed),
                )
                if asked and answered:
                    self._owed[rank].append(self._last_number)
            return self._last_number

    def collect(self, rank: int, number: int) -> Any:
        """Wait for an answer.

        :param rank: process that was asked.
        :param number: number of the command.
        :raises ProcessError: if the process failed or has ended.
        """
        with self.lock:
            while (rank, number) not in self._answers:
                self._read_answer(rank)
            answer = self._answers.pop((rank, number))
        if answer.error:
            raise ProcessError(f"rank {rank} failed.\n{answer.error}")
        return answer.content

    def _read_answer(self, rank: int) -> None:
        answer = self._receive(rank)
        self._owed[rank].popleft()
        self._answers[rank, answer.number] = answer

    def next_command(self) -> Command:
        """Wait for a command of rank 0."""
        return self._receive(0)

    def answer(self, answer: Answer) -> None:
        """Answer rank 0.

        :param answer: what to send.
        """
        self._send(0, answer)

    def broadcast(self, numbers: th.Tensor) -> th.Tensor:
        """Give all processes the numbers of rank 0.

        :param numbers: tensor of the same size in all processes; those of rank 0 are sent, the others are written.
        """
        with _connection("another rank"):
            dist.broadcast(numbers, src=0)
        return numbers

    def add_up(self, numbers: th.Tensor) -> th.Tensor:
        """Give rank 0 the sum over all processes.

        :param numbers: tensor of the same size in all processes, written in rank 0.
        """
        with _connection("another rank"):
            dist.reduce(numbers, dst=0)
        return numbers

    def end(self) -> None:
        """Let the other processes end. Rank 0 calls it when its program ends, whether with an error or without."""
        if self._ended:
            return
        self._ended = True
        for rank in self.others:
            with contextlib.suppress(ProcessError):  # it has ended already
                while self._owed[rank]:
                    self._read_answer(rank)
                self._send(rank, Command("end"))
        dist.destroy_process_group()

    def leave(self) -> None:
        """Close the connections, at the end of a process other than rank 0."""
        dist.destroy_process_group()

    def _send(self, rank: int, message: Any) -> None:
        content = cloudpickle.dumps(message)
        with _connection(f"rank {rank}"):
            dist.send(th.tensor([len(content)]), rank, group=self._control)
            dist.send(th.frombuffer(bytearray(content), dtype=th.uint8), rank, group=self._control)

    def _receive(self, rank: int) -> Any:
        length = th.zeros(1, dtype=th.int64)
        with _connection(f"rank {rank}"):
            dist.recv(length, rank, group=self._control)
            content = th.empty(int(length), dtype=th.uint8)
            dist.recv(content, rank, group=self._control)
        return pickle.loads(content.numpy().tobytes())


def _emptied(numbers: deque[int]) -> tuple[int, ...]:
    """Take all numbers out of a queue, which the garbage collector may add to in the meantime."""
    return tuple(numbers.popleft() for _ in range(len(numbers)))


@contextlib.contextmanager
def _connection(other: str) -> Iterator[None]:
    """Say which process has ended, in place of the message of a closed connection."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessError(f"{other} has ended: {REMEDY}. ({error})") from None


class _Program:
    """Hold what this process knows of the others."""

    processes: Processes | None = None
    made_alone = False  # whether a policy was made before the processes were connected


def n_processes() -> int:
    """Return the number of processes that share the work of this one."""
    return 1 if _Program.processes is None else _Program.processes.size


def launched_size() -> int:
    """Return the number of processes that the launcher has started, 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def begin() -> Processes | None:
    """Connect the processes that the launcher has started.

    :return: ``None`` if this process is the only one.
    :raises RuntimeError: if a policy was made before, or a process has no GPU of its own where there are GPUs; the
        message says what to do.
    """
    if _Program.processes is not None or launched_size() < 2:
        return _Program.processes
    if _Program.made_alone:
        raise RuntimeError(
            "a policy was made before lmpolicy.distributed() was called, and would learn in each process on its own: "
            "call lmpolicy.distributed() first"
        )
    lacking = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if lacking:
        raise RuntimeError(
            f"WORLD_SIZE is {launched_size()}, but {', '.join(lacking)} is not set: start the program with "
            "torchrun --nproc-per-node=W script.py"
        )
    _take_gpu()
    if not dist.is_initialized():
        _connect()
    processes = _Program.processes = Processes(dist.get_rank(), dist.get_world_size())
    if processes.rank == 0:
        atexit.register(processes.end)
    return processes


def _connect() -> None:
    """Let the processes find one another, and not what those before a restart have left behind.

    torchrun keeps the store of addresses when it starts the processes again, and Gloo waits forever for an address that
    is gone.
    """
    store, rank, size = next(rendezvous("env://"))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    backend = "cpu:gloo,cuda:nccl" if th.cuda.is_available() else "gloo"
    own = dist.PrefixStore(f"lmpolicy/{attempt}", store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=size)


def _take_gpu() -> None:
    """Let the GPU with this process's number on its machine be its own."""
    if not th.cuda.is_available():
        return
    place, count = int(os.environ.get("LOCAL_RANK", "0")), th.cuda.device_count()
    if place >= count:
        raise RuntimeError(
            f"process {place} of this machine has no GPU of its own, because there are {count}: start at most {count} "
            f"with torchrun --nproc-per-node={count}, or set CUDA_VISIBLE_DEVICES= to train on CPUs"
        )
    th.cuda.set_device(place)


def running() -> Processes | None:
    """Return the processes that rank 0 shares its work with.

    :return: ``None`` if there are no others, or if this is not rank 0.
    """
    processes = _Program.processes
    if processes is None and launched_size() > 1 and not _Program.made_alone:
        _Program.made_alone = True
        log.warning(
            "%d processes were started, and lmpolicy.distributed() was not called: each trains a policy of its own, "
            "and all write to the same files. Call lmpolicy.distributed() at the beginning of the program.",
            launched_size(),
        )
    return processes if processes is not None and processes.rank == 0 else None
