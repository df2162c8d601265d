"""Run cells in processes side by side, so that whatever ends one of them, or all, only what is under way is lost."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from lmpolicy.comparison.cells import Cell, Row, run
from lmpolicy.comparison.methods import USUAL, EnvFacts, Method

Done = Callable[[Cell, list[Row]], None]
PRELOADED = ["lmpolicy.comparison.cells"]
"""What the process that all others are forked from imports once."""
REMEDY = (
    "An env that is trained on in several processes is a Gymnasium id, or a class or function of a module that can be "
    "imported: put it, and its task, into a file of its own (not a notebook, not a lambda), or pass processes=1. A "
    'script that calls lmpolicy.compare needs if __name__ == "__main__":'
)


class CellError(RuntimeError):
    """Raised after all cells when some of them failed; those that are complete are kept."""


def run_here(cells: Sequence[Cell], done: Done) -> None:
    """Run cells one after the other in this process.

    :param cells: what is run.
    :param done: takes each complete cell and its rows.
    :raises CellError: at the end, if cells failed.
    """
    import torch as th

    threads, failed = th.get_num_threads(), []
    try:
        for cell in cells:
            try:
                rows = run(replace(cell, free_threads=threads))
            except Exception as error:
                traceback.print_exc()
                failed.append(f"{cell}: {_told(error, cell)}")
            else:
                done(cell, rows)
    finally:
        th.set_num_threads(threads)
    _refuse(failed, len(cells))


def run_in_processes(cells: Sequence[Cell], processes: int, done: Done) -> None:
    """Run cells in processes of their own.

    :param cells: what is run.
    :param processes: how many at a time.
    :param done: takes each complete cell and its rows.
    :raises ValueError: if the env cannot be made in another process; the message says what can be.
    :raises CellError: at the end, if cells failed.
    """
    import torch as th

    context = _context()
    _rehearse(context, cells[0])
    share = max(1, th.get_num_threads() // min(processes, len(cells)))
    waiting, failed = list(cells), []
    running: dict[int, tuple[BaseProcess, Connection, Cell]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                cell = waiting.pop(0)
                process, answers = _start(context, _run_cell, replace(cell, free_threads=share))
                running[process.sentinel] = process, answers, cell
            for sentinel in wait([*running, *(answers for _, answers, _ in running.values())]):
                found = next((key for key, (_, answers, _) in running.items() if sentinel in (key, answers)), None)
                if found is None:
                    continue  # its answer and its end came together
                process, answers, cell = running.pop(found)
                kind, answer = _receive(answers)
                process.join()
                if kind == "rows":
                    done(cell, answer)
                else:
                    failed.append(f"{cell}: {answer or f'its process ended with exit code {process.exitcode}'}")
    finally:
        for process, answers, _ in running.values():
            process.terminate()
            process.join()
            answers.close()
    _refuse(failed, len(cells))


def _refuse(failed: Sequence[str], n_cells: int) -> None:
    """Raise the error at the end of all cells, if some of them failed."""
    if failed:
        raise CellError(
            f"{len(failed)} of {n_cells} cells failed; the others are complete, and the same call tries these again:\n"
            + "\n".join(failed)
        )


def _context() -> BaseContext:
    """Return a way to start processes that copies no threads and imports torch once, where the system has one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _start(context: BaseContext, target: Callable[..., None], cell: Cell) -> tuple[BaseProcess, Connection]:
    """Start a process.

    :raises ValueError: if the cell cannot be sent to it.
    """
    answers, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(cell, theirs), daemon=True)  # type: ignore[attr-defined]
    try:
        with _without_interrupt():
            process.start()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(f"{cell.experiment.name} cannot be sent to another process ({error}). {REMEDY}") from error
    theirs.close()
    return process, answers


@contextlib.contextmanager
def _without_interrupt() -> Iterator[None]:
    """Hold Ctrl-C back while a process starts, so that it and all that it starts never see one.

    Signals that are blocked stay blocked in processes that are started, from their first moment on: also while they
    import, when no code of ours could leave Ctrl-C to the program. Windows knows no such thing.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # a later start of it would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _receive(answers: Connection) -> tuple[str, Any]:
    """Return what a process answered; nothing if it ended without an answer."""
    with answers, contextlib.suppress(EOFError):
        answer: tuple[str, Any] = answers.recv()
        return answer
    return "nothing", None


def _rehearse(context: BaseContext, cell: Cell) -> None:
    """Make the env in another process once, before hours of work are lost."""
    process, answers = _start(context, _make_env, cell)
    try:
        kind, answer = _receive(answers)
        process.join()
    finally:
        process.terminate()
    if kind != "rows":
        raise ValueError(
            f"{cell.experiment.name} cannot be made in another process "
            f"({answer or f'which ended with exit code {process.exitcode}'}). {REMEDY}"
        )


def _make_env(cell: Cell, answers: Connection) -> None:
    _begin()
    try:
        EnvFacts.of(cell.experiment)
        answers.send(("rows", []))
    except Exception as error:
        answers.send(("error", f"{type(error).__name__}: {error}"))


def _run_cell(cell: Cell, answers: Connection) -> None:
    _begin()
    try:
        answers.send(("rows", run(cell, _tell)))
    except Exception as error:
        traceback.print_exc()
        answers.send(("error", _told(error, cell)))


def _told(error: Exception, cell: Cell) -> str:
    """Say what stopped a cell."""
    return f"{type(error).__name__}: {error}{_hint(cell)}"


def _hint(cell: Cell) -> str:
    """Say what an error may come from where a method takes actions that are not legal."""
    if not cell.method.is_classic or cell.method.helped or not cell.facts.phrases_differ:
        return ""
    others = [name for name in USUAL if not Method.of(name).is_classic or Method.of(name).helped]
    return (
        f"\n    {cell.method.name} is not told which actions are legal. If the env refuses the others, name the "
        f"methods without it: {', '.join(others)}"
    )


def _tell(line: str) -> None:
    print(line, flush=True)


def _begin() -> None:
    """Leave Ctrl-C to the program that started this process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, even by ``kill -9``."""
    wait([parent])
    sys.stdout.flush()
    os._exit(1)
