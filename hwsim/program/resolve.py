"""Resolves the names in a program for a device: the memory of a tile, the link of a copy, sizes in bytes and blocks.

The checker and the timing machine share it, so that both interpret a program in the same way. It knows neither time nor
bits, and decides nothing: what is missing is None, and the caller decides what that means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hwsim.formats import format_of
from hwsim.host.multiples import round_up
from hwsim.program.identity_cache import IdentityCache
from hwsim.program.ir import (
    FUSED_AS,
    MIXED_FORMATS,
    TIMED_AS,
    AnyTile,
    GlobalArray,
    GlobalTile,
    Instr,
    Kernel,
    LocalTile,
)

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel, LinkModel

GM: Literal["GM"] = "GM"  # the name of global memory in a device's links
Links = dict[tuple[str, str, str], list[tuple[str, "LinkModel"]]]  # by engine, source and target: name, link
_LINKS: IdentityCache[Links] = IdentityCache(16, 16)  # of so many devices


def _links_of(device: Device) -> Links:
    """The links of a device, kept from kernel to kernel."""
    links = _LINKS.get(device.links)
    if links is None:
        links = {}
        for name, link in device.links.items():
            links.setdefault((link.engine, link.source, link.target), []).append((name, link))
        _LINKS.put(links, 1, device.links)
    return links


class Scope:
    """One kernel of a program with the arrays that it uses and the device it is for."""

    def __init__(self, kernel: Kernel, arrays: tuple[GlobalArray, ...], device: Device) -> None:
        self.kernel, self.device = kernel, device
        self.arrays = {array.name: array for array in arrays}
        self.buffers = {buffer.name: buffer for buffer in kernel.buffers}
        self.links = _links_of(device)

    def memory(self, tile: AnyTile) -> str:
        """The name of the memory that holds a tile; GM for a tile of a global array. KeyError: no such buffer."""
        return self.buffers[tile.buffer].memory if isinstance(tile, LocalTile) else GM

    def format(self, tile: AnyTile) -> str:
        """The format of a tile's elements. KeyError: no such array."""
        return self.arrays[tile.array].format if isinstance(tile, GlobalTile) else tile.format

    def bits(self, tile: AnyTile) -> int:
        """Bits of one element of a tile in its memory."""
        place = self.arrays[tile.array] if isinstance(tile, GlobalTile) else self.buffers[tile.buffer]
        return place.element_bits or format_of(self.format(tile)).bits

    def stored(self, tile: AnyTile) -> tuple[int, int]:
        """(lines, elements per line): the contiguous lines of a tile in memory."""
        if isinstance(tile, GlobalTile) and self.arrays[tile.array].order == "columns":
            return tile.cols, tile.rows
        return tile.rows, tile.cols

    def bytes(self, tile: AnyTile) -> int:
        """Bytes of a tile's elements, with each line padded to whole bytes."""
        lines, length = self.stored(tile)
        return lines * -(-length * self.bits(tile) // 8)

    def padded_bytes(self, tile: LocalTile) -> int:
        """Bytes that a tile needs in a core's memory: padded to whole fractals on a device that has them.

        The vector unit's memory is linear: nothing is padded there.
        """
        return self.reach_bytes(tile.buffer, tile.rows, tile.cols, tile.format)

    def reach_bytes(self, buffer: str, rows: int, cols: int, format: str) -> int:
        """The same of rows x cols elements in a slot of `buffer`."""
        bits = self.buffers[buffer].element_bits or format_of(format).bits
        vector, row_bytes = self.device.vector, -(-cols * bits // 8)
        if vector is not None and self.buffers[buffer].memory == vector.memory:
            return rows * row_bytes
        fractal = self.device.fractal
        return round_up(rows, fractal.get("rows", 1)) * round_up(row_bytes, fractal.get("row_bytes", 1))

    def link(self, copy: Instr) -> tuple[str, LinkModel] | None:
        """The device's link for a copy or converting copy: same engine, source and target memory; or None."""
        source, target = copy.operand("source"), copy.writes[0]
        links = self.links.get((copy.engine, self.memory(source), self.memory(target)), [])
        if copy.opcode == "cast":
            conversion = f"{self.format(source)}.{self.format(target)}"
            links = [(name, link) for name, link in links if conversion in link.casts]
        return links[0] if links else None

    def is_vector(self, instr: Instr) -> bool:
        """Whether `instr` runs on the vector unit: elementwise, or a copy within its memory."""
        vector = self.device.vector
        if vector is None or instr.engine != vector.engine or instr.opcode in ("mma", "sync"):
            return False
        return instr.opcode != "copy" or all(
            self.memory(tile) == vector.memory for tile in (*instr.writes, *instr.reads)
        )

    def timed_as(self, instr: Instr) -> tuple[str, ...]:
        """The operations with times in device files that take as long as an elementwise instruction together."""
        if instr.has("multiplier"):
            return FUSED_AS
        operations = TIMED_AS.get(instr.opcode, (instr.opcode,))
        return (*operations, "cast") if instr.opcode in MIXED_FORMATS and self.changes_kind(instr) else operations

    def changes_kind(self, instr: Instr) -> bool:
        """Whether the source is an integer and the result a float, or the other way round."""
        source, target = instr.operand("source"), instr.writes[0]
        return format_of(self.format(source)).is_integer != format_of(self.format(target)).is_integer

    def place(self, index: int, instr: Instr) -> str:
        """The text by which messages name an instruction: kernel, position in the kernel, engine, opcode, label."""
        label = f" '{instr.label}'" if instr.label else ""
        return f"kernel '{self.kernel.name}', instruction {index}: {instr.opcode}{label} on {instr.engine}"


def mma_shape(instr: Instr) -> tuple[int, int, int]:
    """(m, n, k) of an mma in elements, from its tiles."""
    return instr.writes[0].rows, instr.writes[0].cols, instr.operand("b").rows


def mma_blocks(instr: Instr, model: InstructionModel) -> tuple[int, int, int]:
    """The number of device instructions that an mma needs along the unit's m, n, k, the last ones padded."""
    m, n, k = mma_shape(instr)
    m, n = (n, m) if instr.swapped else (m, n)
    return -(-m // model.rows), -(-n // model.n), -(-k // model.k)
