"""One chip as a device file describes it: its clock and cores, and its units, memories, links and engines by name."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from hwsim.datafiles.base import Name, SourcedFile, StrictRecord
from hwsim.datafiles.provenance import Level
from hwsim.devices.model.costs import AreaModel, EnergyModel
from hwsim.devices.model.engines import EngineModel, FlagsModel, SpecialModel, VectorModel
from hwsim.devices.model.instruction import InstructionModel
from hwsim.devices.model.memories import LinkModel, MemoryModel, SharedModel
from hwsim.devices.ranges import Cores, Mhz, Microseconds, Milliseconds, SmallBytes, Watts
from hwsim.numerics.units import DotSpec, Unit

Capability = Annotated[str, Field(pattern=r"^[1-9]\d?\.\d$")]  # NVIDIA's compute capability: "9.0"
Title = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$", max_length=400)]  # one line
DotUnit = Annotated[Unit, Field(discriminator="model")]
LEFT_OUT = ("energy", "area", "special", "compute_capability")  # parts that a file without them does not name
OF_THE_CLOCK = ("clock_mhz", "sustained_clock_mhz", "power_limit", "board_power")


@dataclass(frozen=True, slots=True)
class DeviceOrigin:
    """Where a device came from; equal devices may differ in it.

    path: of its file, as it was given; "" where a name found the device. changed_from: the device whose numbers a study
    changed, None for a device as its file has it. measured: the device whose clock, cores and board the clocks under
    load were measured with, where they were worked out from its clocks.
    """

    path: str = field(default="", compare=False)
    changed_from: Any = field(default=None, compare=False, repr=False)
    measured: Any = field(default=None, compare=False, repr=False)


class PowerStage(StrictRecord):
    """A drop of the clock: after how long under full load, and the clock from then on.

    clock_mhz: with the matrix unit always busy, by operand format. Of a format that is not there, hwsim.devices.power
    says the clock by a 16-bit format's.
    """

    after_ms: Milliseconds
    clock_mhz: dict[Name, Mhz]


class PowerModel(PowerStage):
    """The chip's power limit: the first drop of the clock, and where one was seen a later one."""

    later: PowerStage | None = None

    @property
    def stages(self) -> tuple[PowerStage, ...]:
        """The drops, the first one first."""
        return (self,) if self.later is None else (self, self.later)


class BoardModel(StrictRecord):
    """The board's power: the limit under which its clocks under load were measured, and what flows whatever runs."""

    watts: Watts
    static_watts: Watts

    @model_validator(mode="after")
    def _has_power_for_work(self) -> Self:
        if self.static_watts >= self.watts:
            raise PydanticCustomError("rule", "static_watts is less than watts: no power is left for work")
        return self


class LibraryModel(StrictRecord):
    """The GEMM library that runs on the chip: the name of a file in configs/libraries (hwsim.libraries.model).

    observations: by their name in that file, what it was seen to do, where that holds for this chip.
    """

    name: Name
    observations: Name | None = None


class DeviceModel(SourcedFile):
    """The validated data of one chip (hwsim.devices.device.Device adds its arithmetic)."""

    schema_version: Literal[1]
    name: Name
    title: Title
    family: Name
    # which instructions of PTX there are; NVIDIA's chips alone. No number depends on it, and no hash
    compute_capability: Capability | None = None
    default_format: Name
    cores: Cores
    clock_mhz: Mhz
    sustained_clock_mhz: dict[Name, Mhz] = {}  # matrix unit always busy, by operand format or "default"
    power_limit: PowerModel | None = None
    board_power: BoardModel | None = None
    launch_overhead_us: Microseconds | None = None  # of one kernel, from the host's call to its start
    core_start_us: Microseconds | None = None  # from a kernel's start to its cores' first instruction
    dot_units: dict[Name, DotUnit]
    matrix_instructions: dict[Name, InstructionModel] = Field(alias="instructions")  # by name, or pattern
    native: dict[Name, Name] = {}  # format= of the native scheme -> instruction
    library: LibraryModel | None = None
    vector: VectorModel | None = None
    special: SpecialModel | None = None
    memories: dict[Name, MemoryModel] = {}
    l2: SharedModel | None = None
    hbm: SharedModel | None = None
    links: dict[Name, LinkModel] = {}
    engines: dict[Name, EngineModel] = {}
    flags: FlagsModel | None = None
    fractal: dict[Literal["rows", "row_bytes"], SmallBytes] = {}  # tiles are padded to whole fractals
    energy: EnergyModel | None = None
    area: AreaModel | None = None

    _asked_mhz: float | None = PrivateAttr(default=None)
    _asked_watts: float | None = PrivateAttr(default=None)
    _origin: DeviceOrigin = PrivateAttr(default=DeviceOrigin())

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As data, by which devices are told apart: a file without a part is what it was before there was any."""
        data: dict[str, Any] = write(self)
        return {name: value for name, value in data.items() if value is not None or name not in LEFT_OUT}

    @property
    def asked_mhz(self) -> float | None:
        """The core clock set by `hwsim.devices.at_clock`, MHz; None: the file's clocks."""
        return self._asked_mhz

    @property
    def asked_watts(self) -> float | None:
        """The limit of the board's power set by `hwsim.devices.at_power`, W; None: the board's own."""
        return self._asked_watts

    @property
    def most_watts(self) -> float | None:
        """What its board may draw: its own watts, or a lower limit that was asked for; None without board power."""
        if self.board_power is None:
            return None
        watts = self.board_power.watts
        return watts if self.asked_watts is None else min(watts, self.asked_watts)

    @property
    def argument(self) -> str:
        """What a command line takes for this device: the path of its file, as it was given, or its name. Quoted for a
        shell.
        """
        return shlex.quote(self._origin.path or self.name)

    @property
    def is_defined_by_its_file(self) -> bool:
        """Whether the device is of a user's file that cites no source: it is no chip's, and the file is its definition.

        A file that extends a device of hwsim has its sources.
        """
        return bool(self._origin.path) and not self.citations

    @property
    def file(self) -> str:
        """The path of its file, as it was given; "" where a name found the device."""
        return self._origin.path

    @property
    def changed_from(self) -> Self | None:
        """The device whose numbers a study changed; None for a device as its file has it."""
        base: Self | None = self._origin.changed_from
        return base

    @property
    def measured(self) -> Self:
        """The device with whose clock, cores and board the clocks under load were measured: this one, or the one from
        which its clocks follow (hwsim.devices.power).
        """
        base: Self | None = self._origin.measured
        return self if base is None else base

    def canonical(self) -> str:
        """Canonical JSON of the expanded model; `sha256` is its hash."""
        return json.dumps(
            self.model_dump(mode="json", by_alias=True, exclude={"compute_capability"}),
            sort_keys=True,
            separators=(",", ":"),
        )

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
        copied = super().model_copy(update=update, deep=deep)
        for name in ("unclocked", "_resolved", "_fitted", "_variants", "_clocked", "_specs", "_levels"):
            copied.__dict__.pop(name, None)
        return copied

    def instructions(self) -> list[str]:
        """Names of the matrix instructions, in the file's order.

        A name with nN, or with .A.B for the operands' formats, stands for several: `wgmma.m64nNk16.f32.f16.f16` for
        `wgmma.m64n8k16.f32.f16.f16` to `wgmma.m64n256k16.f32.f16.f16` (hwsim.devices.choices says which).
        """
        return list(self.matrix_instructions)
