"""Device kernels that reduce each row or column of an operand to one number: a sum, or the exponent of its largest.

Tiles go from global memory to the vector unit's memory, double-buffered; rows or columns are dealt out over the cores.
Nothing here knows a family or a scheme.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hwsim.dataflows.residue_pieces import bounding_exponent, exponent_by_places, squares
from hwsim.dataflows.vector_ops import VectorOps, bytes_of, link_engine, vector_of
from hwsim.host.multiples import round_up
from hwsim.program.builder import KernelBuilder, Span, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, Kernel, LocalTile

if TYPE_CHECKING:
    from hwsim.devices.device import Device

Finish = Literal["scale", "exponent", "signed_exponent", "bound", "places"]
WARP, HALVES = 32, (16, 8, 4, 2, 1)  # lanes, and between which they are added
NEARLY_ONE = -7  # signed digits of 8 bits hold what is below 1 - 2^-7 of a power of two without another bit


@dataclass(frozen=True, slots=True)
class LineReduction:
    """A kernel: target = finish(the reduction of each row of `source`, or of each column).

    matrices: below one another in the source; each column is reduced in each of them, and the target has a row for
    each. opcode: reduce_add or reduce_max, in `format`, to which elements are converted first; fma adds squares.
    finish: "scale" by `factor`, in the target's format; "exponent", int32 (is_single: of it in fp32, saturated);
    "signed_exponent", that of slices with signs of their own; "bound": the exponents of residues (see
    hwsim.gemm.plan.Plan) from sums of squares, or from the largest numbers, in units of `places` bits below
    `exponents`, which are those of each line's largest element; "places": the same by GEMMul8's rules with log2_bound,
    from squares that `lanes` lanes add, rounding up, or from the largest numbers times `factor`.
    """

    name: str
    source: GlobalArray
    target: GlobalArray
    by_rows: bool
    opcode: Literal["reduce_add", "reduce_max", "fma"]
    format: str
    finish: Finish
    factor: float = 1.0
    matrices: int = 1
    exponents: GlobalArray | None = None
    places: int = 0
    lanes: int = 1
    is_single: bool = False
    log2_bound: float = 0.0


PER_BOUND = 8 + 2 * 4  # bytes of a line: its share of the bound in fp64, its exponent twice


def _scratch(work: LineReduction) -> tuple[str, ...]:
    """The formats of scratch tiles of the source's size."""
    if work.exponents is not None and work.opcode == "reduce_add":
        return ("fp64" if work.source.format == "fp64" else "fp32", "int32", "int64")
    return (work.format,) if work.source.format != work.format else ()


def _scratch_name(number: int) -> str:
    return f"converted{number or ''}"


def lower_reduction(work: LineReduction, device: Device) -> Kernel:
    """The kernel that executes `work` on all cores of `device`."""
    vector = vector_of(device)
    memory = device.memories[vector.memory]
    load, store = link_engine(device, "GM", vector.memory), link_engine(device, vector.memory, "GM")
    source, align = work.source, memory.align_bytes
    rows = source.rows // (1 if work.by_rows else work.matrices)
    line_count, across = (rows, source.cols) if work.by_rows else (source.cols, rows)
    scratch = _scratch(work)
    per_element = 2 * bytes_of(source.format) + sum(map(bytes_of, scratch))
    is_signed = work.finish == "signed_exponent"
    per_line = (2 + is_signed) * bytes_of(work.target.format) + work.lanes * bytes_of(work.format)
    per_line += bool(work.exponents) * PER_BOUND
    capacity = memory.capacity_bytes - (12 if work.exponents else 9) * align
    # A part of each line at a time, where whole lines of one block do not fit.
    part = (capacity - per_line) // per_element
    part = across if part >= across else max(part // work.lanes, 1) * work.lanes
    block = max(1, min(capacity // (part * per_element + per_line), -(-line_count // device.cores)))

    def size(elements: int, format: str) -> int:
        return round_up(elements * bytes_of(format), align)

    kernel = KernelBuilder(work.name)
    ring = kernel.ring("in0", vector.memory, 2, size(block * part, source.format))
    out = kernel.ring("out0", vector.memory, 2, size(block, work.target.format))
    kernel.buffer("total", vector.memory, 1, size(block * work.lanes, work.format))
    for i, form in enumerate(scratch):
        kernel.buffer(_scratch_name(i), vector.memory, 1, size(block * part, form))
    lines_before = None
    if work.exponents is not None:
        kernel.buffer("share", vector.memory, 1, size(block, "fp64"))
        kernel.buffer("constant", vector.memory, 1, size(1, "int32"))
        lines_before = kernel.ring("largest", vector.memory, 2, size(block, "int32"))

    if is_signed:
        kernel.buffer("more", vector.memory, 1, size(block, work.target.format))
        kernel.buffer("number", vector.memory, 1, size(1, work.format))
        kernel.buffer("unit", vector.memory, 1, size(1, work.target.format))

    def lines(stream: StreamBuilder, span: Span, matrix: Affine) -> None:
        """Emit the reduction of a block of lines of one matrix."""
        ops = VectorOps(stream, vector.engine)
        shape = (span.size, 1) if work.by_rows else (1, span.size)
        total = LocalTile("total", *_wide(shape, work.lanes, by_rows=work.by_rows), work.format)
        at = (span.start, Affine()) if work.by_rows else (matrix, span.start)
        largest = None
        if work.exponents is not None and lines_before is not None:
            place = GlobalTile(work.exponents.name, *at, *shape)
            pushed = lines_before.tile("push", *shape, "int32")
            stream.emit(load, "copy", pushed, [place], [lines_before.free], [lines_before.full])
            stream.pushed(lines_before)
            largest = lines_before.tile("pop", *shape, "int32")
            ops.wait(lines_before.full)
        ops.op("fill", total, scalar=0.0)  # waits, once for all parts
        for two in stream.blocks("part", across, part):
            row, col = (span, two) if work.by_rows else (two, span)
            tile = (row.size, col.size)
            place = GlobalTile(source.name, row.start + matrix * rows, col.start, *tile)
            stream.emit(load, "copy", ring.tile("push", *tile, source.format), [place], [ring.free], [ring.full])
            stream.pushed(ring)
            lines_read = ring.tile("pop", *tile, source.format)
            ops.wait(ring.full)
            temps = [LocalTile(_scratch_name(i), *tile, form) for i, form in enumerate(scratch)]
            if largest is not None and work.opcode == "reduce_add":
                lines_read = squares(ops, lines_read, largest, temps)
            elif temps:
                ops.op("cast", temps[0], lines_read)
                lines_read = temps[0]
            if work.opcode == "fma":
                _add_squares(ops, total, lines_read, work.lanes, by_rows=work.by_rows)
            else:
                ops.op(work.opcode, total, lines_read, total)
            ops.signal(ring.free)
            stream.popped(ring)
        result = out.tile("push", *shape, work.target.format)
        ops.wait(out.free)
        if largest is not None:
            temps = [LocalTile("share", *shape, "fp64"), LocalTile("constant", 1, 1, "int32")]
            if work.finish == "bound":
                bounding_exponent(ops, result, total, largest, work.factor, work.places, temps)
            else:
                if work.opcode == "fma":
                    total = _lanes_added(ops, total, by_rows=work.by_rows)
                exponent_by_places(ops, result, total, largest, work.factor, work.places, work.log2_bound, temps)
        elif work.finish == "exponent":
            if work.is_single and total.format != "fp32":
                single = replace(total, format="fp32")
                ops.op("cast", single, total, overflow="saturate")
                total = single
            ops.op("exponent", result, total)
        elif is_signed:
            _signed_exponent(ops, result, total)
        else:
            ops.op("scale", result, total, scalar=work.factor)
        ops.signal(out.full, *(() if lines_before is None else (lines_before.free,)))
        stream.pushed(out)
        if lines_before is not None:
            stream.popped(lines_before)
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


def _wide(shape: tuple[int, int], lanes: int, *, by_rows: bool) -> tuple[int, int]:
    """The shape of a column of lines, or a row of them, with so many lanes for each."""
    return (shape[0], lanes) if by_rows else (lanes, shape[1])


def _along(tile: LocalTile, start: int, count: int, *, by_rows: bool) -> LocalTile:
    """Elements start .. start + count - 1 of each line of a tile."""
    width = tile.width or tile.cols
    if by_rows:
        return replace(tile, col=tile.col + start, cols=count, width=width)
    return replace(tile, row=tile.row + start, rows=count, width=width)


def _add_squares(ops: VectorOps, total: LocalTile, source: LocalTile, lanes: int, *, by_rows: bool) -> None:
    """Emit total = total + the squares of each line, by lanes, each rounded up."""
    length = source.cols if by_rows else source.rows
    for start in range(0, length, lanes):
        count = min(lanes, length - start)
        some, sums = (_along(x, at, count, by_rows=by_rows) for x, at in ((source, start), (total, 0)))
        ops.op("fma", sums, some, sums, multiplier=some, rounding="RU")


def _lanes_added(ops: VectorOps, total: LocalTile, *, by_rows: bool) -> LocalTile:
    """Emit the sums of the lanes of each line: in each warp those half apart first, and so among the warps. Returns
    the tile of the sums.
    """
    lanes = total.cols if by_rows else total.rows

    def add(first: int, second: int, count: int) -> None:
        into, other = (_along(total, at, count, by_rows=by_rows) for at in (first, second))
        ops.op("add", into, into, other, rounding="RU")

    for half in HALVES:
        for warp in range(0, lanes, WARP):
            add(warp, warp + half, half)
    warps = lanes // WARP
    for half in (x for x in HALVES if x < warps):
        for warp in range(half):
            add(warp * WARP, (warp + half) * WARP, 1)
    return _along(total, 0, 1, by_rows=by_rows)


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
