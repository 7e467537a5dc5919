"""Worker processes that end when what asked for them is interrupted, raises or is killed.

The module knows how workers hear of it; nothing of what they compute.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import FrameType, TracebackType
from typing import Any, Literal, ParamSpec, TypeVar
from weakref import WeakSet

GRACE_SECONDS = 0.3  # for a worker to leave by an exception, so that a file half-written is cleared away

P = ParamSpec("P")
R = TypeVar("R")

#: This process's ends of all groups' pipes: forked workers have copies of each, of other groups' too.
_ALL_HELD: WeakSet[Connection] = WeakSet()


class WorkerPool:
    """Some of a group's processes. Use as a context, which waits for what was submitted."""

    def __init__(self, executor: ProcessPoolExecutor) -> None:
        self._executor = executor

    def submit(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call a function in one of the processes. Waiting for it raises BrokenProcessPool where the process ended."""
        return self._executor.submit(_called, function, args, kwargs)

    def shutdown(self, *, cancel: bool) -> None:
        """Wait for what runs. cancel: what does not run yet is left out."""
        self._executor.shutdown(wait=True, cancel_futures=cancel)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel=False)


class WorkerGroup:
    """Pools of processes that end together: as soon as its block raises, `close` is called, or this process has gone.

    Workers ignore SIGINT: that of a terminal reaches them too, and what it means is decided here. method: of starting
    them, as `multiprocessing` names it.
    """

    def __init__(self, method: Literal["spawn", "fork"] = "spawn") -> None:
        self._context = get_context(method)
        self._listening, self._held = self._context.Pipe(duplex=False)
        self._pools: list[WorkerPool] = []
        _ALL_HELD.add(self._held)

    def pool(
        self, jobs: int, initializer: Callable[..., None] | None = None, initargs: tuple[Any, ...] = ()
    ) -> WorkerPool:
        """A pool of `jobs` processes, each of which calls initializer(*initargs) first."""
        begin = (self._listening, self._held, os.getpid(), initializer, initargs)
        pool = WorkerPool(ProcessPoolExecutor(jobs, self._context, initializer=_begin, initargs=begin))
        self._pools.append(pool)
        return pool

    def close(self) -> None:
        """End all workers, whatever they do."""
        self._held.close()

    def __enter__(self) -> WorkerGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.close()
        for pool in self._pools:
            pool.shutdown(cancel=True)
        self.close()
        self._listening.close()


class _WorkerState:
    """is_leaving: this process begins nothing new."""

    is_leaving = False


def _begin(
    listening: Connection,
    held: Connection,
    parent: int,
    initializer: Callable[..., None] | None,
    initargs: tuple[Any, ...],
) -> None:
    """Set up a worker."""
    for connection in (held, *_ALL_HELD):  # this process's copies, without which other ends do not hear of the parent's
        connection.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_listen, args=(listening, parent), daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


def _listen(listening: Connection, parent: int) -> None:
    while not listening.poll(0.5) and os.getppid() == parent:
        pass
    _thread.interrupt_main(signal.SIGTERM)
    _end_soon()


def _leave(_number: int, _frame: FrameType | None) -> None:
    if not _WorkerState.is_leaving:
        _WorkerState.is_leaving = True
        threading.Thread(target=_end_soon, daemon=True).start()
        raise SystemExit(1)


def _end_soon() -> None:
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _called(function: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    """What a worker runs. A pool's own loop would catch SystemExit and take the next task."""
    try:
        return function(*args, **kwargs)
    finally:
        if _WorkerState.is_leaving:
            os._exit(1)
