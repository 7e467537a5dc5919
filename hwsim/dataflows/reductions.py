"""Device kernels that reduce each row or column of an operand to one number: a sum, or the exponent of its largest.

Tiles go from global memory to the vector unit's memory, double-buffered; rows or columns are dealt out over the cores.
Nothing here knows a family or a scheme.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hwsim.dataflows.vector_ops import VectorOps, bytes_of, link_engine, vector_of
from hwsim.program.builder import KernelBuilder, Span, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, Kernel, LocalTile

if TYPE_CHECKING:
    from hwsim.devices.device import Device

Finish = Literal["scale", "exponent", "signed_exponent"]
NEARLY_ONE = -7  # signed digits of 8 bits hold what is below 1 - 2^-7 of a power of two without another bit


@dataclass(frozen=True, slots=True)
class LineReduction:
    """A kernel: target = finish(the reduction of each row of `source`, or of each column).

    matrices: below one another in the source; each column is reduced in each of them, and the target has a row for
    each. opcode: reduce_add or reduce_max, in `format`, to which elements are converted first. finish: "scale" by
    `factor`, in the target's format; "exponent", int32; or "signed_exponent", that of slices with signs of their own.
    """

    name: str
    source: GlobalArray
    target: GlobalArray
    by_rows: bool
    opcode: Literal["reduce_add", "reduce_max"]
    format: str
    finish: Finish
    factor: float = 1.0
    matrices: int = 1


def lower_reduction(work: LineReduction, device: Device) -> Kernel:
    """The kernel that executes `work` on all cores of `device`."""
    vector = vector_of(device)
    memory = device.memories[vector.memory]
    load, store = link_engine(device, "GM", vector.memory), link_engine(device, vector.memory, "GM")
    source, align = work.source, memory.align_bytes
    rows = source.rows // (1 if work.by_rows else work.matrices)
    line_count, across = (rows, source.cols) if work.by_rows else (source.cols, rows)
    converts = source.format != work.format
    per_element = 2 * bytes_of(source.format) + converts * bytes_of(work.format)
    is_signed = work.finish == "signed_exponent"
    per_line = (2 + is_signed) * bytes_of(work.target.format) + bytes_of(work.format)
    capacity = memory.capacity_bytes - 9 * align
    # A part of each line at a time, where whole lines of one block do not fit.
    part = min(across, (capacity - per_line) // per_element)
    block = max(1, min(capacity // (part * per_element + per_line), -(-line_count // device.cores)))

    def size(elements: int, format: str) -> int:
        return -(-elements * bytes_of(format) // align) * align

    kernel = KernelBuilder(work.name)
    ring = kernel.ring("in0", vector.memory, 2, size(block * part, source.format))
    out = kernel.ring("out0", vector.memory, 2, size(block, work.target.format))
    kernel.buffer("total", vector.memory, 1, size(block, work.format))
    if converts:
        kernel.buffer("converted", vector.memory, 1, size(block * part, work.format))

    if is_signed:
        kernel.buffer("more", vector.memory, 1, size(block, work.target.format))
        kernel.buffer("number", vector.memory, 1, size(1, work.format))
        kernel.buffer("unit", vector.memory, 1, size(1, work.target.format))

    def lines(stream: StreamBuilder, span: Span, matrix: Affine) -> None:
        """Emit the reduction of a block of lines of one matrix."""
        ops = VectorOps(stream, vector.engine)
        shape = (span.size, 1) if work.by_rows else (1, span.size)
        total = LocalTile("total", *shape, work.format)
        ops.op("fill", total, scalar=0.0)
        for two in stream.blocks("part", across, part):
            row, col = (span, two) if work.by_rows else (two, span)
            tile = (row.size, col.size)
            place = GlobalTile(source.name, row.start + matrix * rows, col.start, *tile)
            stream.emit(load, "copy", ring.tile("push", *tile, source.format), [place], [ring.free], [ring.full])
            stream.pushed(ring)
            lines_read = ring.tile("pop", *tile, source.format)
            ops.wait(ring.full)
            if converts:
                ops.op("cast", LocalTile("converted", *tile, work.format), lines_read)
                lines_read = LocalTile("converted", *tile, work.format)
            ops.op(work.opcode, total, lines_read, total)
            ops.signal(ring.free)
            stream.popped(ring)
        result = out.tile("push", *shape, work.target.format)
        ops.wait(out.free)
        if work.finish == "exponent":
            ops.op("exponent", result, total)
        elif is_signed:
            _signed_exponent(ops, result, total)
        else:
            ops.op("scale", result, total, scalar=work.factor)
        ops.signal(out.full)
        stream.pushed(out)
        at = (span.start, Affine()) if work.by_rows else (matrix, span.start)
        pop = out.tile("pop", *shape, work.target.format)
        stream.emit(store, "copy", GlobalTile(work.target.name, *at, *shape), [pop], [out.full], [out.free])
        stream.popped(out)

    for share in distribute(line_count, block, device.cores):
        stream = StreamBuilder("main")
        for span_of_share in blocks_of_share(stream, "lines", share, block, device.cores):
            if work.by_rows or work.matrices == 1:
                lines(stream, span_of_share, Affine())
                continue
            with stream.loop("matrix", work.matrices) as (_, matrix):
                lines(stream, span_of_share, matrix)
        kernel.group(share.first, share.count, stream)
    return kernel.finish()


def _signed_exponent(ops: VectorOps, result: LocalTile, largest: LocalTile) -> None:
    """Emit e of slices with signs of their own, as `Plan` says: one more than the exponent, two where the largest is
    nearly a power of two. Of a zero any number is right.
    """
    more = LocalTile("more", result.rows, result.cols, result.format)
    number, unit = LocalTile("number", 1, 1, largest.format), LocalTile("unit", 1, 1, result.format)
    ops.op("exponent", result, largest)
    ops.op("ldexp", largest, largest, result, scalar=-1.0)
    ops.op("fill", number, scalar=2.0**NEARLY_ONE)
    ops.op("add", largest, largest, number)
    ops.op("exponent", more, largest)
    ops.op("add", result, result, more)
    ops.op("fill", unit, scalar=1.0)
    ops.op("add", result, result, unit)
