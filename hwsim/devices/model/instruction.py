"""Matrix instructions in a device file: shape, formats, dot unit and time. It knows no memory and no link."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from hwsim.datafiles.base import Name, NameList, StrictRecord
from hwsim.devices.ranges import BinaryPlaces, Cores, Cycles, Elements, IssueInterval, PerCycle
from hwsim.formats import format_of
from hwsim.numerics.sparsity import stored_bits
from hwsim.numerics.units import RoundingName, Terms

MemoryPlaces = Name | NameList
TILE = "[1-9][0-9]*x[1-9][0-9]*"


class MmaTiming(StrictRecord):
    """Timing of one `mma` of a program, which covers blocks of the instruction's (m, n, k).

    occupancy = overhead + k_blocks * max(m_blocks * n_blocks * interval, accumulate_latency); completion = start +
    occupancy + drain. Exactly one of issue_interval_cycles and macs_per_cycle gives the interval; with the latter it is
    m * n * k / macs_per_cycle of the instruction as named (with a pattern's N inserted). Absent: not known.
    """

    issue_interval_cycles: IssueInterval | None = None
    macs_per_cycle: PerCycle | None = None
    # By memory: bandwidth of a port that feeds operands. The interval is at least the bytes of the instruction's A and
    # B in that memory of one core, divided by it.
    operand_bytes_per_cycle: dict[Name, PerCycle] = {}
    # The rate for accumulators of that tile size ("64x128", m x n elements): tiles with too few warps per core or too
    # small a block per thread.
    tile_macs_per_cycle: dict[Annotated[str, Field(pattern=rf"^{TILE}$")], PerCycle] = {}
    # The rate by tile ("any": all others) where the instruction needs K-major operands and one in shared memory is
    # MN-major, so that it is loaded through registers.
    mn_major_macs_per_cycle: dict[Annotated[str, Field(pattern=rf"^({TILE}|any)$")], PerCycle] = {}
    overhead_cycles: Cycles = 0
    drain_cycles: Cycles = 0
    accumulate_latency_cycles: Cycles = 0

    @model_validator(mode="after")
    def _one_interval(self) -> MmaTiming:
        if (self.issue_interval_cycles is None) == (self.macs_per_cycle is None):
            raise PydanticCustomError("one_of", "exactly one of issue_interval_cycles and macs_per_cycle is needed")
        return self


class InstructionModel(StrictRecord):
    """One matrix instruction, or a pattern of many (hwsim.devices.patterns).

    A pattern's name contains nN where N is free, and .A.B where the operands' formats are free.
    """

    engine: Name  # that executes it
    unit: Name  # dot unit, one of the device's dot_units
    m: Elements  # elements, over all cores that execute it together
    n: Elements  # elements; of a pattern the smallest, of which each N is a multiple
    k: Elements  # elements
    a: Name  # format of A; of a pattern an example
    b: Name  # format of B; of a pattern an example
    c: Name  # format of the accumulator
    d: Name  # format of the result
    n_last: Elements | None = None  # pattern: the largest N
    n_also: tuple[Elements, ...] = ()  # pattern: further N that are no multiple of n
    formats: tuple[Name, ...] = ()  # pattern: the formats that A and B may have, each on its own
    operand_rounding: RoundingName | None = None  # of 32-bit words to a narrower format (None: low bits ignored)
    largest: Elements | None = None  # largest m, n, k of one program-level mma, elements
    # Where A, B and C/D lie: one memory, or a list of allowed ones.
    memories: tuple[MemoryPlaces, MemoryPlaces, MemoryPlaces] | None = None
    scale_format: Name | None = None  # of the block scales of A and B
    # A holds two of every four elements along K (of 32 bits: one of two) and their positions. k counts all of them; a
    # step of the unit takes as many stored elements as without sparsity, in their order (docs/numerics.md).
    sparsity: Literal["2:4"] | None = None
    scale_block: Terms | None = None  # length in k of a block with one scale
    scale_memory: Name | None = None  # from which it reads block scales (None: any)
    scale_input_d: BinaryPlaces | None = None  # largest s of d = a b + c 2^-s (None: c is not scaled)
    scale_input_d_rule: Literal["exact", "RZ", "RNE", "flush"] = "exact"  # c 2^-s below c's normal range
    k_major_only: bool = False  # operands in shared memory must be K-major (wgmma for all but 16-bit formats)
    # Cores that execute it together (None: one; 2: tcgen05's cta_group::2). Each holds an equal part of the rows of A
    # and C, and of the columns of B, which the others read from it; the timing's macs_per_cycle is for all of them.
    cores: Cores | None = None
    timing: MmaTiming | None = None  # None: no data

    @property
    def core_count(self) -> int:
        """Number of cores that execute the instruction together."""
        return self.cores or 1

    @property
    def rows(self) -> int:
        """Rows of A and C of the instruction on one core."""
        return self.m // self.core_count

    @property
    def macs_per_cycle(self) -> Fraction:
        """Peak multiply-accumulates of one core per cycle, operands in their usual memories. Raises ValueError without
        timing data.
        """
        return self.rows * self.n * self.k / self.interval_cycles()

    @model_validator(mode="after")
    def _last_n(self) -> InstructionModel:
        if self.n_last is not None and self.n_last < self.n:
            raise PydanticCustomError("rule", "n_last is at least n")
        return self

    @model_validator(mode="after")
    def _whole_rows(self) -> InstructionModel:
        if self.m % self.core_count:
            raise PydanticCustomError("rows", "m is a multiple of cores")
        return self

    def places(self, operand: int) -> tuple[str, ...]:
        """Memories that may hold operand 0 (A), 1 (B) or 2 (C/D); empty: any."""
        if self.memories is None:
            return ()
        place = self.memories[operand]
        return (place,) if isinstance(place, str) else place

    def _place(self, operand: int) -> str:
        places = self.places(operand)
        return places[0] if len(places) == 1 else ""

    def interval_cycles(
        self,
        in_memory: tuple[str, str] | None = None,
        tile: tuple[int, int] | None = None,
        needs_transpose: bool = False,
    ) -> Fraction:
        """Issue interval: cycles from one instruction to the next, exact (decimals of the file as written).

        in_memory: memories of A and B, for the ports that feed them (default: the memory of each, if only one is
        possible). tile: m, n of the accumulators. needs_transpose: whether it needs K-major operands and an operand is
        MN-major. Raises ValueError without timing data.
        """
        if self.timing is None:
            raise ValueError("no timing data")
        time = self.timing
        name = "any" if tile is None else f"{tile[0]}x{tile[1]}"
        of_tile = time.tile_macs_per_cycle.get(name)
        if needs_transpose:
            of_tile = time.mn_major_macs_per_cycle.get(name, time.mn_major_macs_per_cycle.get("any", of_tile))
        rate = time.macs_per_cycle if of_tile is None else of_tile
        first, second = in_memory or (self._place(0), self._place(1))
        stored_a = format_of(self.a).bits if self.sparsity is None else stored_bits(self.a)
        bits_a, bits_b = self.rows * self.k * stored_a, self.k * self.n * format_of(self.b).bits
        ports = [
            (bits_a * (first == memory), bits_b * (second == memory), limit)
            for memory, limit in time.operand_bytes_per_cycle.items()
        ]
        return _interval(self.m * self.n * self.k, rate, time.issue_interval_cycles, self.core_count, tuple(ports))


@lru_cache(maxsize=4096)
def _interval(
    macs: int, rate: float | None, cycles: float | None, cores: int, ports: tuple[tuple[int, int, float], ...]
) -> Fraction:
    """Cycles for `macs` at `rate`, or `cycles`; at least what the ports need. ports: bits of A, bits of B over all
    cores, bytes per cycle.
    """
    interval = Fraction(str(cycles)) if rate is None else macs / Fraction(str(rate))
    for bits_a, bits_b, limit in ports:
        interval = max(interval, (bits_a + Fraction(bits_b, cores)) / 8 / Fraction(str(limit)))
    return interval
