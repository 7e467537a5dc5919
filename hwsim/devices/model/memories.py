"""Memories and links in a device file: sizes, rates and latencies. It knows no instruction and no engine's queue."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hwsim.datafiles.base import Name, StrictRecord
from hwsim.devices.ranges import (
    ChipBytes,
    CoreBytes,
    Cycles,
    Factor,
    Nanoseconds,
    PartialCycles,
    PerCycle,
    PerSecond,
    SmallBytes,
    SmallCount,
)

PE = "PE"  # the name of the memory of a systolic array's processing elements


class MemoryModel(StrictRecord):
    """A private memory of each core: bytes available to a program, and the alignment of its buffers.

    scale_copies: how often block scales lie in it, where several parts of a matrix unit read scales of their own.
    """

    capacity_bytes: CoreBytes
    align_bytes: SmallBytes = 1
    scale_copies: SmallCount = 1


class SharedModel(StrictRecord):
    """A memory shared by all cores: HBM or L2."""

    capacity_bytes: ChipBytes
    bytes_per_second: PerSecond  # bandwidth of reads and writes together
    # Of L2, where its writes are slower: a write counts as the reads that take the same time.
    write_bytes_per_second: PerSecond | None = None
    line_bytes: SmallBytes = 1  # of a cache line
    # Added to the completion of a transfer after the link's start-up: L2's to every transfer from or to global memory,
    # HBM's to a read that needs any byte from it.
    latency_ns: Nanoseconds | None = None
    # Of L2: how many cores that read the same lines at the same time cost it as much as one.
    coalesced_reads: SmallCount | None = None
    replacement: Literal["lru", "random"] = "lru"  # of L2, its policy: least recently used, or random
    # Of L2: dirty bytes evicted from it that may wait until HBM is idle. Evictions beyond that slow the transfer that
    # causes them, as do all where it is absent.
    deferred_write_bytes: Annotated[int, Field(ge=0, lt=1 << 30)] | None = None


class LinkModel(StrictRecord):
    """A data path between memories of one core, or between a core and global memory ("GM": L2, then HBM).

    A transfer of n bytes occupies its engine for overhead + n / rate, where the rate is bytes_per_cycle or the
    transfer's fair share of a shared memory, and completes startup_cycles later. In a file the ends are called `from`
    and `to` (`source` there is a number's provenance).
    """

    engine: Name  # that issues its transfers
    source: Name = Field(alias="from")  # memory that is read, or GM
    target: Name = Field(alias="to")  # memory that is written, or GM
    bytes_per_cycle: PerCycle
    startup_cycles: Cycles = 0  # from the end of the transfer's occupancy to its completion
    overhead_cycles: Cycles = 0  # of each transfer
    request_bytes: SmallBytes = 1  # bytes are rounded up to whole requests
    # Limit on outstanding bytes: a transfer waits while it and the link's incomplete ones would exceed it (one alone
    # may always start).
    in_flight_bytes: SmallBytes | None = None
    casts: tuple[Name, ...] = ()  # from.to: formats between which a transfer may round on its way (TMA: fp32.tf32)
    conflict_factor: Factor | None = None  # on the bytes, for bank conflicts (None: 1)
    # Minimum time per row of a tile in global memory: rows converted to fractals during the copy (None: 0).
    row_cycles: PartialCycles | None = None
    # On the bytes of a read that come from HBM: they take longer, with the same number of bytes in flight (None: 1).
    miss_factor: Factor | None = None
    # Granularity of a read that misses in L2, counted from the start of an array's row (TMA: the L2 promotion of its
    # tensor map; None: 32-byte sectors).
    fetch_bytes: SmallBytes | None = None
    # Capacity of the core's cache that its reads pass (GPUs' L1): what warps of a CTA read in the same step comes from
    # L2 once, where it fits, and at the link's rate each time. None: no such cache.
    l1_bytes: SmallBytes | None = None
