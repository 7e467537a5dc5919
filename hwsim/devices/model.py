"""The device model: the validated schema of a device file, with cores, memories, links, engines, instructions, dot
units.

It holds the hardware's numbers and where each comes from; it knows no scheme and no program. Numbers are plain values
here; their provenance is kept separately, by path (`Device.evidence`).

Keys contain their units. Rates of L2 and HBM are bytes per second and do not scale with the core clock; rates inside a
core are bytes per core clock cycle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from hwsim.datafiles.base import Name, Names, Provenance, StrictRecord
from hwsim.datafiles.provenance import Level as Level
from hwsim.devices.ranges import (
    Bits,
    ChipBytes,
    CoreBytes,
    Cores,
    Cycles,
    Depth,
    Exponent,
    Extent,
    Factor,
    Index,
    Interval,
    Mhz,
    Microseconds,
    Milliseconds,
    NanCode,
    Nanoseconds,
    PartialCycles,
    PerCycle,
    PerSecond,
    Places,
    SmallBytes,
    Terms,
)
from hwsim.formats import format_of
from hwsim.numerics.units import DotSpec, NanOrder, RoundingName

Place = Name | Names
Title = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$", max_length=400)]  # one line


class SpecialsModel(StrictRecord):
    """Special values of a unit in a device file; see hwsim.numerics.units.Specials."""

    operands: Literal["ieee", "saturate"] = "ieee"
    overflow: Literal["infinity", "saturate"] = "infinity"
    nan_code: NanCode | None = None
    zero: Literal["positive", "ieee"] = "positive"
    flush_operands: bool = False
    flush_results: bool = False


class LaneSpecialsModel(StrictRecord):
    """Special values of the vector unit in a device file; words as of hwsim.numerics.units.Specials.

    The lanes have one mode: operands and overflow are both IEEE's, or both saturate. Zeros have IEEE's signs,
    subnormals count, and a NaN has the code that the matrix unit gives.
    """

    operands: Literal["ieee", "saturate"] = "ieee"
    overflow: Literal["infinity", "saturate"] = "infinity"
    zero: Literal["ieee"] = "ieee"
    flush_operands: Literal[False] = False
    flush_results: Literal[False] = False

    @model_validator(mode="after")
    def _one_mode(self) -> LaneSpecialsModel:
        if (self.operands == "saturate") != (self.overflow == "saturate"):
            raise PydanticCustomError(
                "rule", "the vector unit has one mode: operands ieee and overflow infinity, or both saturate"
            )
        return self


class FusedModel(StrictRecord):
    """A fused dot unit in a device file; see hwsim.numerics.units.FusedUnit."""

    model: Literal["fused"]
    terms: Terms
    fraction_bits: Bits
    floor_exponent: Exponent
    rounding: RoundingName = "RZ"
    result_format: str | None = None
    specials: SpecialsModel = SpecialsModel()


class ExactModel(StrictRecord):
    """An exact dot unit in a device file; see hwsim.numerics.units.ExactUnit."""

    model: Literal["exact"]
    terms: Terms
    rounding: RoundingName = "RNE"
    specials: SpecialsModel = SpecialsModel()


class FmaChainModel(StrictRecord):
    """An FMA-chain unit in a device file; see hwsim.numerics.units.FmaChainUnit."""

    model: Literal["fma_chain"]
    rounding: RoundingName = "RNE"
    nan_order: NanOrder | None = None
    specials: SpecialsModel = SpecialsModel(zero="ieee")


class PairwiseModel(StrictRecord):
    """An adder-tree unit in a device file; see hwsim.numerics.units.PairwiseUnit."""

    model: Literal["pairwise"]
    terms: Terms
    rounding: RoundingName = "RNE"
    specials: SpecialsModel = SpecialsModel(zero="ieee")


class TwoLevelModel(StrictRecord):
    """A two-level dot unit in a device file; see hwsim.numerics.units.TwoLevelUnit."""

    model: Literal["two_level"]
    terms: Terms
    product_fraction_bits: Bits = 24
    sum_fraction_bits: Bits = 32
    accumulator_fraction_bits: Bits = 24
    final_fraction_bits: Bits = 31
    interleaved: bool = False
    accumulator_drop_bits: Bits | None = None
    rounding: RoundingName = "RNE"
    specials: SpecialsModel = SpecialsModel()


class IntegerModel(StrictRecord):
    """An integer dot unit in a device file; see hwsim.numerics.units.IntegerUnit."""

    model: Literal["integer"]
    terms: Terms = 1
    overflow: Literal["wrap", "saturate"] = "wrap"


class BlockScaledModel(StrictRecord):
    """A block-scaled dot unit in a device file; see hwsim.numerics.units.BlockScaledUnit."""

    model: Literal["block_scaled"]
    terms: Terms
    group: Terms
    fraction_bits: Bits
    floor_exponent: Exponent
    zero_exponent: Exponent
    rounding: RoundingName = "RZ"
    specials: SpecialsModel = SpecialsModel()


class CompositeModel(StrictRecord):
    """A composite dot unit in a device file; see hwsim.numerics.units.CompositeUnit."""

    model: Literal["composite"]
    terms: Terms
    inner: FusedModel
    operand_format: Name
    modulus: Terms
    selections: tuple[tuple[Index, ...], ...]
    specials: SpecialsModel = SpecialsModel()


UnitModel = Annotated[
    FusedModel
    | ExactModel
    | FmaChainModel
    | PairwiseModel
    | TwoLevelModel
    | IntegerModel
    | BlockScaledModel
    | CompositeModel,
    Field(discriminator="model"),
]


OF_THE_CLOCK = ("clock_mhz", "sustained_clock_mhz", "power_limit")
TILE = "[1-9][0-9]*x[1-9][0-9]*"


class MmaTiming(StrictRecord):
    """Timing of one `mma` of a program, which covers blocks of the instruction's (m, n, k).

    occupancy = overhead + k_blocks * max(m_blocks * n_blocks * interval, accumulate_latency); completion = start +
    occupancy + drain. Exactly one of issue_interval_cycles and macs_per_cycle gives the interval; with the latter it is
    m * n * k / macs_per_cycle of the instruction as named (with a pattern's N inserted). operand_bytes_per_cycle, by
    memory: bandwidth of a port that feeds operands; the interval is at least the bytes of the instruction's A and B in
    that memory of one core divided by it. tile_macs_per_cycle: the rate for accumulators of that tile size ("64x128", m
    x n elements), for tiles with too few warps per core or too small a block per thread. mn_major_macs_per_cycle: the
    rate by tile ("any": all others) where the instruction needs K-major operands and one in shared memory is MN-major,
    so that it is loaded through registers. Absent: not known.
    """

    issue_interval_cycles: Interval | None = None
    macs_per_cycle: PerCycle | None = None
    operand_bytes_per_cycle: dict[Name, PerCycle] = {}
    tile_macs_per_cycle: dict[Annotated[str, Field(pattern=rf"^{TILE}$")], PerCycle] = {}
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
    """One matrix instruction: shape in elements, operand formats, dot unit, engine, timing (None: no data).

    One entry may describe many instructions (hwsim.devices.patterns): N a multiple of n up to n_last, or one of n_also,
    where the entry's name contains nN; A and B each any of `formats` where it contains .A.B (a and b are then
    examples). k_major_only: operands in shared memory must be K-major (wgmma for all but 16-bit formats). cores: number
    of cores that execute it together (None: one; tcgen05's cta_group::2). Each holds an equal part of the rows of A and
    C, and of the columns of B, which the others read from it; the timing's macs_per_cycle is of all of them.
    """

    engine: Name
    unit: Name
    m: Extent
    n: Extent
    k: Extent
    a: Name
    b: Name
    c: Name
    d: Name
    n_last: Extent | None = None
    n_also: tuple[Extent, ...] = ()
    formats: tuple[Name, ...] = ()
    operand_rounding: RoundingName | None = None  # of 32-bit words to a narrower format (None: low bits ignored)
    largest: Extent | None = None  # largest m, n, k of one program-level mma, elements
    memories: tuple[Place, Place, Place] | None = None  # where A, B and C/D lie: one memory, or a list of allowed ones
    scale_format: Name | None = None  # block scales of A and B: format, and their length in k
    scale_block: Terms | None = None
    scale_input_d: Places | None = None  # largest s of d = a b + c 2^-s (None: c is not scaled)
    scale_input_d_rule: Literal["exact", "RZ", "RNE", "flush"] = "exact"  # c 2^-s below c's normal range
    k_major_only: bool = False
    cores: Cores | None = None
    timing: MmaTiming | None = None

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
        bits_a, bits_b = self.rows * self.k * format_of(self.a).bits, self.k * self.n * format_of(self.b).bits
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


class VectorModel(StrictRecord):
    """The vector unit: rates of elementwise opcodes on UB (Ascend) or registers (GPU).

    In cycles_per_repeat, `widen` is a cast to a wider format where it takes a different time than `cast`.
    """

    engine: Name
    memory: Name
    repeat_bytes: SmallBytes  # bytes of the widest operand that one repeat handles
    overhead_cycles: Cycles
    cycles_per_repeat: dict[Literal["copy", "cast", "widen", "add", "sub", "mul", "scale", "fill"], Interval]
    specials: LaneSpecialsModel = LaneSpecialsModel()


class MemoryModel(StrictRecord):
    """A private memory of each core: bytes available to a program, and the alignment of its buffers."""

    capacity_bytes: CoreBytes
    align_bytes: SmallBytes = 1


class SharedModel(StrictRecord):
    """A memory shared by all cores (HBM, L2), with its bandwidth in bytes per second for reads and writes together.

    write_bytes_per_second: of L2, where its writes are slower; a write counts as the reads that take the same time.

    latency_ns: added to the completion of a transfer after the link's start-up: L2's to every transfer from or to
    global memory, HBM's to a read that needs any byte from it. deferred_write_bytes: of L2, dirty bytes evicted from it
    that may wait until HBM is idle; evictions beyond that slow the transfer that causes them, as do all where it is
    absent. coalesced_reads: of L2, how many cores that read the same lines at the same time cost it as much as one.
    replacement: of L2, its policy: least recently used, or random.
    """

    capacity_bytes: ChipBytes
    bytes_per_second: PerSecond
    write_bytes_per_second: PerSecond | None = None
    line_bytes: SmallBytes = 1
    latency_ns: Nanoseconds | None = None
    coalesced_reads: Depth | None = None
    replacement: Literal["lru", "random"] = "lru"
    deferred_write_bytes: Annotated[int, Field(ge=0, lt=1 << 30)] | None = None


class LinkModel(StrictRecord):
    """A data path between memories of one core, or between a core and global memory ("GM": L2, then HBM).

    A transfer of n bytes occupies its engine for overhead + n / rate, where the rate is bytes_per_cycle or the
    transfer's fair share of a shared memory, and completes startup_cycles later. Bytes are rounded up to whole
    requests. In a file the ends are called `from` and `to` (`source` there is a number's provenance). in_flight_bytes:
    limit on outstanding bytes: a transfer waits while it and the link's incomplete ones would exceed it (one alone may
    always start). conflict_factor (None: 1): factor on the bytes for bank conflicts. fetch_bytes (None: 32-byte
    sectors): granularity of a read that misses in L2, counted from the start of an array's row (TMA: the L2 promotion
    of its tensor map). row_cycles (None: 0): minimum time per row of a tile in global memory (rows converted to
    fractals during the copy). miss_factor (None: 1): factor on the bytes of a read that come from HBM (they take
    longer, with the same number of bytes in flight).
    """

    engine: Name
    source: Name = Field(alias="from")
    target: Name = Field(alias="to")
    bytes_per_cycle: PerCycle
    startup_cycles: Cycles = 0
    overhead_cycles: Cycles = 0
    request_bytes: SmallBytes = 1
    in_flight_bytes: SmallBytes | None = None
    casts: tuple[Name, ...] = ()  # from.to: formats between which a transfer may round on its way (TMA: fp32.tf32)
    conflict_factor: Factor | None = None
    row_cycles: PartialCycles | None = None
    miss_factor: Factor | None = None
    fetch_bytes: SmallBytes | None = None


class EngineModel(StrictRecord):
    """An in-order engine: depth of its queue, and the issue cost per instruction for the stream (0: a hardware
    sequencer issues ahead).
    """

    queue_depth: Depth
    issue_cycles: PartialCycles = 1.0
    sync_cycles: Cycles = 1  # time that a sync instruction occupies the engine


class PowerModel(StrictRecord):
    """The chip's power limit: how long full load may last before the clock drops, and the clock after that.

    clock_mhz: with the matrix unit always busy, by operand format (the others keep their clock).
    """

    after_ms: Milliseconds
    clock_mhz: dict[Name, Mhz]


class FlagsModel(StrictRecord):
    """Hardware flags that synchronise two engines of a core: number per ordered pair. The checker does not enforce it.

    queued: each wait and each signal of an instruction takes a place of its engine's queue beside it.
    unit_bytes: of the unit's result, so many are handed on at a time while it is still at work (Ascend's UnitFlag).
    """

    per_pipe_pair: Depth
    queued: bool = False
    unit_bytes: SmallBytes | None = None


class LibraryModel(StrictRecord):
    """The GEMM library that runs on the chip: the name of a file in configs/libraries (hwsim.libraries.model).

    observations: by their name in that file, what it was seen to do, where that holds for this chip.
    """

    name: Name
    observations: Name | None = None


class DeviceModel(StrictRecord):
    """The validated data of one chip (hwsim.devices.device.Device adds its arithmetic)."""

    schema_version: Literal[1]
    name: Name
    title: Title
    family: Name
    default_format: Name
    cores: Cores
    clock_mhz: Mhz
    sustained_clock_mhz: dict[Name, Mhz] = {}  # matrix unit always busy, by operand format or "default"
    power_limit: PowerModel | None = None
    launch_overhead_us: Microseconds | None = None  # of one kernel, from the host's call to its start
    core_start_us: Microseconds | None = None  # from a kernel's start to its cores' first instruction
    dot_units: dict[Name, UnitModel]
    matrix_instructions: dict[Name, InstructionModel] = Field(alias="instructions")  # by name, or pattern
    native: dict[Name, Name] = {}  # format= of the native scheme -> instruction
    library: LibraryModel | None = None
    vector: VectorModel | None = None
    memories: dict[Name, MemoryModel] = {}
    l2: SharedModel | None = None
    hbm: SharedModel | None = None
    links: dict[Name, LinkModel] = {}
    engines: dict[Name, EngineModel] = {}
    flags: FlagsModel | None = None
    fractal: dict[Literal["rows", "row_bytes"], SmallBytes] = {}  # tiles are padded to whole fractals

    _evidence: dict[str, Provenance] = PrivateAttr(default_factory=dict)
    _citations: dict[str, str] = PrivateAttr(default_factory=dict)
    _sha256: str = PrivateAttr(default="")
    _asked_mhz: float | None = PrivateAttr(default=None)

    @property
    def evidence(self) -> dict[str, Provenance]:
        """Provenance of every number, by dotted path ("links.GM_L1.bytes_per_cycle")."""
        return self._evidence

    @property
    def citations(self) -> dict[str, str]:
        """The file's `sources:` table: short key -> full citation."""
        return self._citations

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of the expanded, validated model."""
        return self._sha256

    @property
    def asked_mhz(self) -> float | None:
        """The core clock set by `hwsim.devices.at_clock`, MHz; None: the file's clocks."""
        return self._asked_mhz

    def canonical(self) -> str:
        """Canonical JSON of the expanded model; `sha256` is its hash."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))

    @cached_property
    def unclocked(self) -> tuple[object, ...]:
        """The values of all fields except those of the clock."""
        return tuple([getattr(self, name) for name in type(self).model_fields if name not in OF_THE_CLOCK])

    # What was worked out of the device, kept with it: filled by hwsim.devices.query, `_fitted` and `_variants` by
    # hwsim.dataflows.instructions. Cached properties, because private attributes would count in comparisons.
    @cached_property
    def _resolved(self) -> dict[str, InstructionModel]:
        return {}

    @cached_property
    def _fitted(self) -> dict[tuple[str, int, int, int], str]:
        return {}

    @cached_property
    def _variants(self) -> dict[str, tuple[str, ...]]:
        return {}

    @cached_property
    def _clocked(self) -> dict[float, Self]:
        return {}

    @cached_property
    def _specs(self) -> dict[str, DotSpec]:
        return {}

    @cached_property
    def _observed(self) -> dict[tuple[str, str], Any]:  # hwsim.libraries.model.observed
        return {}

    @cached_property
    def _levels(self) -> dict[tuple[str, ...], Level]:
        return {}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Any:
        """pydantic's model_copy, without the cached values derived from the original."""
        made = super().model_copy(update=update, deep=deep)
        for name in ("unclocked", "_resolved", "_fitted", "_variants", "_clocked", "_specs", "_levels"):
            made.__dict__.pop(name, None)
        return made

    def instructions(self) -> list[str]:
        """Names of the matrix instructions, in the file's order.

        A name with nN, or with .A.B for the operands' formats, stands for several: `wgmma.m64nNk16.f32.f16.f16` for
        `wgmma.m64n8k16.f32.f16.f16` to `wgmma.m64n256k16.f32.f16.f16` (hwsim.devices.choices says which).
        """
        return list(self.matrix_instructions)
