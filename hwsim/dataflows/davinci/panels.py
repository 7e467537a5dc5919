"""Operands packed into panels: the columns of B, or the rows of A, that a block of C needs lie in one piece of memory.

The module knows arrays, cores and links; no plan, no grid and no instruction of the cube.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwsim.dataflows.vector_ops import bytes_of, link_engine, vector_of
from hwsim.host.multiples import round_up
from hwsim.program.builder import KernelBuilder, Ring, Span, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import ZERO, Affine, GlobalArray, GlobalTile, Kernel, LocalTile

if TYPE_CHECKING:
    from hwsim.devices.device import Device

PANELS_AT_ONCE = 16  # in a load, at most
SLOTS = 4  # for lines: loads and stores overlap in spite of their start-up times
LEAST_BYTES = 4096  # of a load: so many in flight take as long as these start-up times


@dataclass(frozen=True, slots=True)
class Panels:
    """An operand of which `width` columns (of an array by columns: rows) and all of K lie together.

    source: the operand, whose lines in memory are steps of K. Panel p holds the elements from p * width on of every
    line. The last panel, where it is narrower, is an array of its own.
    """

    source: GlobalArray
    width: int

    @property
    def lines(self) -> int:
        """Steps of K."""
        return self.source.stored[0]

    @property
    def length(self) -> int:
        """Elements of a line of the source."""
        return self.source.stored[1]

    @property
    def arrays(self) -> tuple[GlobalArray, ...]:
        """The whole panels, one after another; the narrow one."""
        count, rest = divmod(self.length, self.width)
        parts = ("panels", count * self.lines, self.width), ("rest", self.lines, rest)
        return tuple(self._array(*part) for part in parts if part[1] and part[2])

    def _array(self, suffix: str, lines: int, width: int) -> GlobalArray:
        sides = (lines, width) if self.source.order == "rows" else (width, lines)
        return replace(self.source, name=f"{self.source.name}.{suffix}", rows=sides[0], cols=sides[1])

    def tile(self, panel: Affine, line: Affine, rows: int, cols: int) -> GlobalTile:
        """The elements of a panel from a step of K on, rows x cols of the operand."""
        width = cols if self.source.order == "rows" else rows
        suffix, first = ("panels", panel * self.lines) if width == self.width else ("rest", ZERO)
        at = (first + line, ZERO) if self.source.order == "rows" else (ZERO, first + line)
        return GlobalTile(f"{self.source.name}.{suffix}", *at, rows, cols)


def pack_kernel(name: str, operands: Sequence[Panels], device: Device) -> Kernel:
    """The kernel that copies pieces of an operand into panels of one width, all cores alike.

    Steps of K are dealt over the cores. Lines are loaded as they lie, and stored panel by panel.
    """
    memory = vector_of(device).memory
    load, store = link_engine(device, "GM", memory), link_engine(device, memory, "GM")
    room = device.memories[memory].capacity_bytes // (SLOTS * len(operands))
    align = device.memories[memory].align_bytes
    lines, length, width = operands[0].lines, operands[0].length, operands[0].width
    element = bytes_of(operands[0].source.format)
    section = min(length, PANELS_AT_ONCE * width)
    enough = max(-(-LEAST_BYTES // (section * element)), -(-lines // (SLOTS * device.cores)))
    most = max(1, min(room // round_up(section * element, align), enough, -(-lines // device.cores)))
    block = -(-lines // (-(-lines // (most * device.cores)) * device.cores))  # as many blocks for each core
    slot = round_up(block * section * element, align)
    kernel = KernelBuilder(name)
    rings = [kernel.ring(f"in{number}", memory, SLOTS, slot) for number in range(len(operands))]
    for share in distribute(lines, block, device.cores):
        stream = StreamBuilder("main")
        for line in blocks_of_share(stream, "line", share, block, device.cores):
            for part in stream.blocks("part", length, section):
                for panels, ring in zip(operands, rings, strict=True):
                    _pack(stream, panels, ring, (load, store), line, part)
        kernel.group(share.first, share.count, stream)
    return kernel.finish()


def _pack(stream: StreamBuilder, panels: Panels, ring: Ring, engines: tuple[str, str], line: Span, part: Span) -> None:
    """Emit the load of a part of some lines, and the stores of its panels."""
    source, is_by_rows = panels.source, panels.source.order == "rows"
    sides = (line.size, part.size) if is_by_rows else (part.size, line.size)
    at = (line.start, part.start) if is_by_rows else (part.start, line.start)
    stream.emit(
        engines[0],
        "copy",
        ring.tile("push", *sides, source.format, source.order),
        [GlobalTile(source.name, *at, *sides)],
        [ring.free],
        [ring.full],
    )
    stream.pushed(ring)
    whole = ring.tile("pop", *sides, source.format, source.order)
    first = part.index * PANELS_AT_ONCE
    for number, (start, size) in enumerate(_panels_of(part.size, panels.width)):
        is_last = start + size == part.size
        piece = _strip(whole, start, size)
        stream.emit(
            engines[1],
            "copy",
            panels.tile(first + number, line.start, piece.rows, piece.cols),
            [piece],
            [ring.full] if number == 0 else [],
            [ring.free] if is_last else [],
        )
    stream.popped(ring)


def _panels_of(size: int, width: int) -> Iterator[tuple[int, int]]:
    for start in range(0, size, width):
        yield start, min(width, size - start)


def _strip(whole: LocalTile, start: int, size: int) -> LocalTile:
    """Some elements of every line of a tile."""
    if whole.order == "rows":
        return replace(whole, cols=size, col=start, width=whole.cols)
    return replace(whole, rows=size, row=start, width=whole.cols)
