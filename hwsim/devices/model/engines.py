"""Engines in a device file: their queues, the flags between them, and the vector unit. It knows no matrix unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from hwsim.datafiles.base import Name, StrictRecord
from hwsim.devices.ranges import Cycles, IssueInterval, PartialCycles, SmallBytes, SmallCount

WORD_BITS = 32  # of the additions that stand for arithmetic in software
#: Operations in formats of two words that a vector unit may have to compute by instructions on words.
SoftwareOperation = Literal[
    "add.int64",
    "sub.int64",
    "scale.int64",
    "fma.int64",
    "extract.int64",
    "select.int64",
    "add_row.int64",
    "reduce_add.int64",
    "add.fp64",
    "sub.fp64",
    "mul.fp64",
    "scale.fp64",
    "fma.fp64",
    "add_row.fp64",
    "ldexp.fp64",
    "cast.fp64",
    "exponent.fp64",
    "reduce_max.fp64",
]


class EngineModel(StrictRecord):
    """An in-order engine: depth of its queue, and the issue cost per instruction for the stream (0: a hardware
    sequencer issues ahead).
    """

    queue_depth: SmallCount
    issue_cycles: PartialCycles = 1.0
    sync_cycles: Cycles = 1  # time that a sync instruction occupies the engine


class FlagsModel(StrictRecord):
    """Hardware flags that synchronise two engines of a core: number per ordered pair. The checker does not enforce it.

    queued: each wait and each signal of an instruction takes a place of its engine's queue beside it.
    unit_bytes: of the unit's result, so many are handed on at a time while it is still at work (Ascend's UnitFlag).
    """

    per_pipe_pair: SmallCount
    queued: bool = False
    unit_bytes: SmallBytes | None = None


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


class LanePart(NamedTuple):
    """A part of an elementwise operation: so many `times` the overhead, and for each repeat of elements of `bits` so
    many `cycles`; 1 where the device file gives none.
    """

    times: int
    bits: int
    cycles: float


class VectorModel(StrictRecord):
    """The vector unit: rates of elementwise opcodes on UB (Ascend) or registers (GPU).

    In cycles_per_repeat, `widen` is a cast to a wider format where it takes a different time than `cast`, and `compare`
    a comparison, minimum or maximum where it takes a different time than `add`. software: by opcode and widest format
    ("add.fp64"), how many additions of 32-bit words take the time of an operation that the unit has no instruction for.
    """

    engine: Name
    memory: Name
    repeat_bytes: SmallBytes  # bytes of the widest operand that one repeat handles
    overhead_cycles: Cycles
    cycles_per_repeat: dict[
        Literal["copy", "cast", "widen", "add", "sub", "mul", "scale", "fill", "compare"], IssueInterval
    ]
    software: dict[SoftwareOperation, SmallCount] = {}
    specials: LaneSpecialsModel = LaneSpecialsModel()

    def does(self, opcodes: Iterable[str]) -> bool:
        """Whether the unit has a time for all of these operations."""
        return all(self.time_of(opcode) is not None for opcode in opcodes)

    def time_of(self, opcode: str) -> float | None:
        """Cycles of a repeat of an operation; None where the file gives none."""
        times: Mapping[Any, float] = self.cycles_per_repeat
        return times.get(opcode, times.get("add") if opcode == "compare" else None)

    def steps_of(
        self, opcode: str, formats: Iterable[str], bits: int, *, timed_as: Sequence[str] = (), widens: bool = False
    ) -> list[LanePart]:
        """What the lanes do for an elementwise operation. formats: of the result and the operands; bits: of the widest
        of their elements in memory. timed_as: the operations that take as long together, the operation itself without
        any. widens: whether it converts to a wider format.
        """
        counts: Mapping[Any, int] = self.software
        additions = max([counts.get(f"{opcode}.{format}", 0) for format in formats], default=0)
        if additions:
            return [LanePart(additions, WORD_BITS, self._cycles_of("add"))]
        names = ["widen" if name == "cast" and widens else name for name in timed_as or (opcode,)]
        return [LanePart(1, bits, self._cycles_of(name)) for name in names]

    def _cycles_of(self, opcode: str) -> float:
        cycles = self.time_of(opcode)
        if cycles is None and opcode == "widen":
            cycles = self.time_of("cast")
        return 1.0 if cycles is None else cycles

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As data, by which devices are told apart: a file without `software` is what it was before there was any."""
        data: dict[str, Any] = write(self)
        return data if self.software else {name: value for name, value in data.items() if name != "software"}


class SpecialModel(StrictRecord):
    """The unit of special functions (NVIDIA's MUFU): its engine, the memory of its operands, and results per cycle and
    core. Which functions it has to the bit, configs/special_functions says.
    """

    engine: Name
    memory: Name
    results_per_cycle: SmallCount
