"""The kernel of the vector cores that joins a plan's terms in areas of C, and adds the sum that other plans left there.

It knows arrays, an expression over them and areas; it knows no cube, no plan of blocks and no epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hwsim.dataflows.expression_ops import depth, evaluate
from hwsim.dataflows.vector_ops import VectorOps, bytes_of, link_engine, vector_of
from hwsim.host.multiples import round_up
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, Kernel, LocalTile

if TYPE_CHECKING:
    from hwsim.dataflows.plan_areas import PlanArea
    from hwsim.devices.device import Device
    from hwsim.gemm.plan import Expression


def area_join(
    name: str,
    expression: Expression,
    terms: Sequence[GlobalArray],
    target: GlobalArray,
    areas: Sequence[PlanArea],
    device: Device,
) -> Kernel:
    """The kernel target = expression over the terms' arrays, in these areas; where an area adds, target += it.

    All arrays have C's size and one format. Blocks of rows of an area go to the cores in turn.
    """
    vector = vector_of(device)
    memory = device.memories[vector.memory]
    load, store = link_engine(device, "GM", vector.memory), link_engine(device, vector.memory, "GM")
    adds = any(area.adds for area in areas)
    size, scratch = bytes_of(target.format), 1 + depth(expression)
    rings = 2 * (len(terms) + adds + 1)
    elements = (memory.capacity_bytes - (rings + scratch) * memory.align_bytes) // (size * (rings + scratch))
    parts = [(area, *_part_size(area, elements, device.cores)) for area in areas]
    slot = round_up(max(rows * cols for _, rows, cols in parts) * size, memory.align_bytes)
    kernel = KernelBuilder(name)
    ins = [kernel.ring(f"in{i}", vector.memory, 2, slot) for i in range(len(terms))]
    before = kernel.ring("sum", vector.memory, 2, slot) if adds else None
    out = kernel.ring("out", vector.memory, 2, slot)
    temps = [kernel.buffer(f"temp{i}", vector.memory, 1, slot) for i in range(scratch)]

    def tile(stream: StreamBuilder, row: int, col: int, shape: tuple[int, int], is_added: bool) -> None:
        """Emit one tile at (row, col) of C."""
        used = [*zip(ins, terms, strict=True)]
        if is_added and before is not None:
            used.append((before, target))
        for ring, array in used:
            place = GlobalTile(array.name, Affine(row), Affine(col), *shape)
            stream.emit(load, "copy", ring.tile("push", *shape, array.format), [place], [ring.free], [ring.full])
            stream.pushed(ring)
        ops = VectorOps(stream, vector.engine)
        ops.wait(*(ring.full for ring, _ in used), out.free)
        read = [ring.tile("pop", *shape, array.format) for ring, array in used]
        result = out.tile("push", *shape, target.format)
        scratches = [LocalTile(temp, *shape, target.format) for temp in temps]
        value = scratches[0] if is_added else result
        evaluate(ops, expression, dict(enumerate(read[: len(terms)])), value, scratches[1:])
        if is_added:
            ops.op("add", result, read[-1], value)
        ops.signal(*(ring.free for ring, _ in used), out.full)
        for ring, _ in used:
            stream.popped(ring)
        stream.pushed(out)
        place = GlobalTile(target.name, Affine(row), Affine(col), *shape)
        stream.emit(store, "copy", place, [out.tile("pop", *shape, target.format)], [out.full], [out.free])
        stream.popped(out)

    streams = [StreamBuilder("main") for _ in range(device.cores)]
    turn = 0
    for area, rows, cols in parts:
        for row in range(area.row, area.row + area.rows, rows):
            height = min(rows, area.row + area.rows - row)
            for col in range(area.col, area.col + area.cols, cols):
                width = min(cols, area.col + area.cols - col)
                tile(streams[turn % device.cores], row, col, (height, width), area.adds)
            turn += 1
    for core, stream in enumerate(streams[:turn]):
        kernel.group(core, 1, stream)
    return kernel.finish()


def _part_size(area: PlanArea, elements: int, cores: int) -> tuple[int, int]:
    """Rows and columns of the tiles of an area: whole rows where they fit, and of those as many as all cores share."""
    cols = min(area.cols, elements)
    return max(1, min(elements // cols, -(-area.rows // cores))), cols
