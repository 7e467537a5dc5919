"""Points of a sweep on a dask.distributed cluster: batches to its workers, rows to the journal of this process.

The module knows a scheduler's address and tasks; what one run gives as a row is sweep_pool's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hwsim.errors import InputError, UnsupportedError
from hwsim.host.cache import sources_digest
from hwsim.studies.sweep_journal import SweepJournal, device_digest
from hwsim.studies.sweep_pool import BATCH, Row, SweepTask, row_of

CONNECT_SECONDS = 10.0
EACH = 4  # batches for each thread of the cluster, at least: the last ones come back together


def rows_on_cluster(tasks: Sequence[SweepTask], journal: SweepJournal, address: str) -> Iterator[tuple[str, Row]]:
    """Yield (key, row) of every task in the order in which they are done; each is in the journal by then.

    address: of the scheduler, tcp://host:8786. A batch whose worker dies is run by another one. Raises UnsupportedError
    without dask.distributed, for workers with another hwsim or other device files, and when workers keep dying;
    InputError for an address that does not answer.
    """
    try:
        import distributed  # optional
    except ModuleNotFoundError:
        raise UnsupportedError("--scheduler needs dask.distributed: pip install 'hwsim[sweep]'") from None
    dask: Any = distributed
    try:
        client = dask.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"scheduler {address}: it does not answer ({reason}); give the address that dask-scheduler prints, as "
            "tcp://host:8786"
        ) from error
    with client, client.as_current():
        threads = _checked(client, address)
        size = 1 if tasks[0].exact else max(1, min(BATCH, len(tasks) // (EACH * threads)))
        batches = [tuple(tasks[i : i + size]) for i in range(0, len(tasks), size)]
        futures = client.map(_batch, batches, pure=False)
        places = {task.key: task.device for task in tasks}
        try:
            for _, pairs in dask.as_completed(futures, with_results=True):
                for key, row in pairs:
                    journal.append(places[key], key, row)
                    yield key, row
        except (dask.KilledWorker, dask.CancelledError, dask.comm.CommClosedError) as error:
            raise UnsupportedError(
                "workers of the cluster keep dying, as for want of memory, or its scheduler has gone; finished points "
                "are in the journal: run the sweep again"
            ) from error
        finally:
            client.cancel(futures)


def _checked(client: Any, address: str) -> int:
    """The number of threads of the cluster, whose workers have this hwsim."""
    digests: dict[str, str] = client.run(_digest)
    if not digests:
        raise InputError(f"scheduler {address}: it has no workers; start some with dask worker {address}")
    local_digest = sources_digest()
    others = sorted(worker for worker, digest in digests.items() if digest != local_digest)
    if others:
        raise UnsupportedError(f"another hwsim on {', '.join(others)}; install this one there: its results may differ")
    return max(1, sum(int(threads) for threads in client.nthreads().values()))


def _digest() -> str:
    """The digest of the worker's own hwsim."""
    return sources_digest()


def _batch(tasks: Sequence[SweepTask]) -> list[tuple[str, Row]]:
    """The rows of some tasks, on a worker."""
    for name, digest in {(task.point.device, task.device) for task in tasks}:
        if device_digest(name) != digest:
            raise UnsupportedError(f"device {name} differs on a worker; its file has to be the same there")
    return [(task.key, row_of(task, 1)) for task in tasks]
