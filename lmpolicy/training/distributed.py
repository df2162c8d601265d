"""Let several processes train one policy."""

from __future__ import annotations

import signal
import sys
import threading

from lmpolicy.lm.processes import ProcessError, begin
from lmpolicy.lm.worker import serve


def distributed() -> int:
    """Let all processes that ``torchrun`` has started compute for one program.

    Call it at the beginning of the program, before a model or an env is made. In the first process, it returns, and the
    program goes on as if it were alone: there is one set of envs, one optimizer, one log. The other processes stay in
    this call. They score prompts, sample answers and compute gradients for the first, each with a part of the batch,
    and they end when it ends. So a training gives the same numbers with any number of processes, up to the rounding of
    sums, and only the first process writes files.

    With one process, or without ``torchrun``, nothing is done.

    Example:
        >>> # torchrun --nproc-per-node=4 script.py
        >>> import lmpolicy
        >>> lmpolicy.distributed()
        1

    :return: number of processes.
    :raises RuntimeError: if a policy was made before, if a process has no GPU of its own where there are GPUs, or if
        the processes were started in another way than by ``torchrun``; the message says what to do.
    """
    processes = begin()
    if processes is None:
        return 1
    if processes.rank == 0:
        return processes.size
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is for rank 0 to report
    try:
        serve(processes)
    except ProcessError as error:
        print(f"rank {processes.rank} stops: {error}", file=sys.stderr)
        sys.exit(1)
    processes.leave()
    sys.exit(0)
