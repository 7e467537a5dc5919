"""The array behind an instruction: its size, the operand that stays in it, and the memories around it.

It knows a device's instructions and memories; it knows no GEMM and no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hwsim.dataflows.elementwise import bytes_of
from hwsim.devices import instruction
from hwsim.devices.device import Device
from hwsim.devices.model.memories import PE
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.mapping import Tile

SIDES = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}  # of each operand
STREAMED = {"a": "n", "b": "m", "c": "k"}  # the side that passes by, by the operand that stays
OPERANDS = {"weights": "b", "outputs": "c", "inputs": "a"}  # that stay, by the option's words
MEMORIES = {"a": "IFMAP", "b": "FILTER", "c": "OFMAP"}  # beside the array
SLOTS = 2  # of each memory beside the array: transfers run while the array works


@dataclass(frozen=True, slots=True)
class PeArray:
    """unit: the matrix instruction. engine: that executes it. stays: the operand in the PEs, "a", "b" or "c".

    sides: m, n and k of the instruction; the streamed one is 1. element_bytes: of A, B and C.
    """

    unit: str
    engine: str
    stays: str
    sides: Mapping[str, int]
    element_bytes: Mapping[str, int]

    @classmethod
    def of(cls, device: Device, unit: str) -> PeArray:
        """The array of an instruction. Raises UnsupportedError for one that no systolic array executes."""
        model = instruction(device, unit)
        places = {operand: model.places(index) for index, operand in enumerate(SIDES)}
        inside = [operand for operand, memories in places.items() if memories == (PE,)]
        wanted = {operand: (PE if operand in inside else memory,) for operand, memory in MEMORIES.items()}
        if len(inside) != 1 or places != wanted:
            forms = "[IFMAP, PE, OFMAP], [IFMAP, FILTER, PE] or [PE, FILTER, OFMAP]"
            raise UnsupportedError(f"device {device.name}: {unit} needs memories: {forms}")
        (stays,) = inside
        sides = {"m": model.m, "n": model.n, "k": model.k}
        if sides[STREAMED[stays]] != 1:
            raise UnsupportedError(f"device {device.name}: {unit} needs {STREAMED[stays]}: 1, the side that streams")
        formats = {"a": model.a, "b": model.b, "c": model.d}
        sizes = {operand: bytes_of(format) for operand, format in formats.items()}
        return cls(unit, model.engine, stays, MappingProxyType(sides), MappingProxyType(sizes))

    def is_fold(self, tile: Tile) -> bool:
        """Whether a tile has the array's sides, with any length of the streamed one."""
        return tile == self.tile(getattr(tile, self.streamed))

    @property
    def streamed(self) -> str:
        """The side that passes by: "m", "n" or "k"."""
        return STREAMED[self.stays]

    def tile(self, length: int) -> Tile:
        """The tile with that many elements of the streamed side."""
        return Tile(**{**self.sides, self.streamed: length})

    def bytes_in(self, operand: str, tile: Tile) -> int:
        """Bytes of an operand's tile."""
        first, second = SIDES[operand]
        rows, cols = getattr(tile, first), getattr(tile, second)
        return int(rows * cols * self.element_bytes[operand])

    @property
    def rows_are_shared(self) -> bool:
        """Whether several arrays share the rows of C, and not its columns."""
        return self.stays == "a"

    @property
    def reused(self) -> str:
        """The operand that streams past every tile of the shared side."""
        return "b" if self.rows_are_shared else "a"

    @property
    def resident(self) -> str:
        """The other one of A and B, of whose tiles each array has a share."""
        return "a" if self.rows_are_shared else "b"

    def resident_slots(self, tile: Tile, sizes: tuple[int, int, int], cores: int) -> int:
        """Tiles of an array's share of that operand, with all of their K. sizes: m, n, k of the GEMM."""
        m, n, k = sizes
        tiles = -(-m // tile.m) if self.rows_are_shared else -(-n // tile.n)
        return -(-tiles // cores) * -(-k // tile.k)

    def fits_resident(self, device: Device, tile: Tile, sizes: tuple[int, int, int]) -> bool:
        """Whether the memory of that operand holds these tiles."""
        taken = self.resident_slots(tile, sizes, device.cores) * self.bytes_in(self.resident, tile)
        return taken <= device.memories[MEMORIES[self.resident]].capacity_bytes

    def panel_slots(self, tile: Tile, sizes: tuple[int, int, int]) -> int:
        """Tiles of the reused operand that stay beside the array: all of its K, twice where another one comes after it.

        sizes: m, n, k of the GEMM.
        """
        m, n, k = sizes
        extent, length = (m, tile.m) if self.reused == "a" else (n, tile.n)
        return min(-(-extent // length), SLOTS) * -(-k // tile.k)

    def fits_panel(self, device: Device, tile: Tile, sizes: tuple[int, int, int]) -> bool:
        """Whether the memory of the reused operand holds these tiles."""
        taken = self.panel_slots(tile, sizes) * self.bytes_in(self.reused, tile)
        return taken <= device.memories[MEMORIES[self.reused]].capacity_bytes

    def most_length(self, device: Device, pe_tiles: int) -> int:
        """The most elements of the streamed side that the memories hold, at least 1.

        Raises InputError for more tiles in the PEs than there is room for, UnsupportedError for memories too small for
        any tile.
        """
        unit_tile = self.tile(1)
        inside, room = self.bytes_in(self.stays, unit_tile), device.memories[PE].capacity_bytes
        if room < pe_tiles * inside:
            raise InputError(f"pe_tiles = {pe_tiles}; allowed: at most {room // inside} (memory PE of {device.name})")
        lengths = []
        for operand, memory in MEMORIES.items():
            tiles = device.memories[memory].capacity_bytes // SLOTS // self.bytes_in(operand, unit_tile)
            if tiles < 1:
                least = SLOTS * self.bytes_in(operand, unit_tile)
                raise UnsupportedError(f"device {device.name}: memory {memory} needs at least {least} bytes")
            if self.streamed in SIDES[operand]:
                lengths.append(tiles)
        return min(lengths)


def instructions_by_operand(device: Device, unit: str) -> dict[str, str]:
    """The device's instructions with the formats of `unit`, by the operand in the PEs; `unit` first.

    Raises UnsupportedError where `unit` itself is none of a systolic array.
    """
    reference, units = instruction(device, unit), {PeArray.of(device, unit).stays: unit}
    for name, model in device.matrix_instructions.items():
        same = (model.a, model.b, model.c, model.d) == (reference.a, reference.b, reference.c, reference.d)
        if same and model.timing is not None:
            try:
                units.setdefault(PeArray.of(device, name).stays, name)
            except UnsupportedError:
                continue
    return units
