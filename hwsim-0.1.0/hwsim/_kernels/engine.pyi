from collections.abc import Callable, Mapping
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray

TICKS_PER_CYCLE: Final[int]
RATE_BITS: Final[int]
FIRST_SEMAPHORE: Final[int]
OK: Final[int]
DEADLOCK: Final[int]
LEAK: Final[int]
TOO_LONG: Final[int]
CAUSE_NONE: Final[int]
CAUSE_EMPTY: Final[int]
CAUSE_QUEUE_FULL: Final[int]
CAUSE_IN_FLIGHT: Final[int]
COLUMNS: Final[dict[str, int]]
ORDER_COLUMNS: Final[dict[str, int]]
ROW_COLUMNS: Final[tuple[str, ...]]

class Outcome(TypedDict):
    status: int
    end: int
    executed: NDArray[np.int64]
    account: NDArray[np.int64]
    stalled: NDArray[np.int64]
    group_end: NDArray[np.int64]
    semaphore: NDArray[np.int64]
    blocked: NDArray[np.int64]
    counters: tuple[int, int, int, int]
    rows: NDArray[np.int64]
    lost: int
    started: int

class Machine:
    def __init__(
        self,
        l2_capacity: int,
        l2_rate: int,
        hbm_rate: int,
        has_hbm: bool,
        arrays: NDArray[np.int64],
        miss_ticks: int = 0,
        deferred_bytes: int = 0,
        l2_random: bool = False,
    ) -> None: ...
    def flush(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    def run(
        self,
        tables: Mapping[str, NDArray[np.int64]],
        trace: int,
        take: Callable[[NDArray[np.int64]], None] | None = None,
        group: int = -1,
        first: int = 0,
        last: int = 1 << 62,
    ) -> Outcome: ...

def in_order(
    tables: Mapping[str, NDArray[np.int64]],
    first_stream: int,
    streams: int,
    core: int,
    arrays: int,
    period: int,
    budget: int,
) -> bool: ...
def check_places(
    tables: Mapping[str, NDArray[np.int64]],
    first_stream: int,
    streams: int,
    first_core: int,
    cores: int,
    semaphores: int,
    zeroing: int,
    period: int,
) -> NDArray[np.int64] | None: ...
