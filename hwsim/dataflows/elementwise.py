"""Elementwise device kernels over whole matrices: a pass, what fills with zero, what combines terms.

Tiles go from global memory to the vector unit's memory and back, double-buffered, distributed over the cores. The
engines follow from the device's links; nothing here knows a family or a scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.expression_ops import depth, evaluate
from hwsim.dataflows.reductions import LineReduction, lower_reduction
from hwsim.dataflows.vector_ops import VectorOps, bytes_of, link_engine, vector_of
from hwsim.gemm.plan import (
    Expression,
)
from hwsim.host.multiples import round_up
from hwsim.program.builder import KernelBuilder, Span, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, Kernel, LocalTile

if TYPE_CHECKING:
    from hwsim.devices.device import Device


@dataclass(frozen=True, slots=True)
class Pass:
    """An elementwise kernel: outputs = body(inputs), tile by tile.

    temporaries: formats of the scratch tiles that `body(ops, inputs, outputs, temporaries)` may use. shape: rows and
    columns gone over (None: the first output's). offsets: row of each input at which they begin (empty: 0). row: an
    array of one row in global memory, whose columns of a tile `body` gets last. of_rows, of_columns: arrays there of
    one number for each row (or one for all), or for each column of each of `matrices`; `body` gets their parts of a
    tile after the inputs. matrices: below one another, of which a tile holds parts of one. shares: of each input, how
    many matrices behind one another share one (empty: each has its own).
    """

    name: str
    inputs: tuple[GlobalArray, ...]
    outputs: tuple[GlobalArray, ...]
    temporaries: tuple[str, ...]
    body: Callable[[VectorOps, list[Any], list[LocalTile], list[LocalTile]], None]
    shape: tuple[int, int] | None = None
    offsets: tuple[int, ...] = ()
    row: str = ""
    of_rows: tuple[GlobalArray, ...] = ()
    of_columns: tuple[GlobalArray, ...] = ()
    matrices: int = 1
    shares: tuple[int, ...] = ()


def lower_pass(work: Pass | LineReduction, device: Device, *, loads_vectors: bool = False) -> Kernel:
    """The kernel that executes `work` on all cores of `device`. loads_vectors: copies bring the parts of `of_rows` and
    `of_columns` to the vector unit's memory, where it reads no other.
    """
    if isinstance(work, LineReduction):
        return lower_reduction(work, device)
    vector = vector_of(device)
    memory = device.memories[vector.memory]
    load = link_engine(device, "GM", vector.memory) if work.inputs else ""
    store = link_engine(device, vector.memory, "GM") if work.outputs else ""
    rows, cols = work.shape or (work.outputs[0].rows, work.outputs[0].cols)
    rows //= work.matrices
    offsets = work.offsets or (0,) * len(work.inputs)
    shares = work.shares or (1,) * len(work.inputs)
    align = memory.align_bytes
    moved = sum(bytes_of(array.format) for array in (*work.inputs, *work.outputs))
    scratch = sum(bytes_of(format) for format in work.temporaries)
    loaded = (*work.of_rows, *work.of_columns) if loads_vectors else ()
    moved += sum(bytes_of(array.format) for array in loaded)  # no longer than a tile
    slots = 2 * (len(work.inputs) + len(work.outputs) + len(loaded)) + len(work.temporaries)
    elements = (memory.capacity_bytes - slots * align) // (2 * moved + scratch)
    # Deal out lines of memory; a matrix with fewer of them than cores is dealt out across them.
    if (*work.inputs, *work.outputs)[0].order == "rows":
        by_rows = rows >= min(cols, device.cores)
    else:
        by_rows = cols < min(rows, device.cores)
    distributed, across = (rows, cols) if by_rows else (cols, rows)
    other = min(across, elements)
    block = max(1, min(elements // other, -(-distributed // device.cores)))
    slot_bytes = {format: round_up(block * other * bytes_of(format), align) for format in _formats(work)}
    kernel = KernelBuilder(work.name)
    ins = [kernel.ring(f"in{i}", vector.memory, 2, slot_bytes[a.format]) for i, a in enumerate(work.inputs)]
    outs = [kernel.ring(f"out{i}", vector.memory, 2, slot_bytes[a.format]) for i, a in enumerate(work.outputs)]
    temps = [kernel.buffer(f"temp{i}", vector.memory, 1, slot_bytes[f]) for i, f in enumerate(work.temporaries)]
    lines = [
        kernel.ring(f"vector{i}", vector.memory, 2, round_up(max(block, other) * bytes_of(array.format), align))
        for i, array in enumerate(loaded)
    ]

    def tile(stream: StreamBuilder, outer: Span, inner: Span, matrix: Affine) -> None:
        row, col = (outer, inner) if by_rows else (inner, outer)
        in_matrix = row.start
        row = replace(row, start=row.start + matrix * rows)
        for array, ring, offset, share in zip(work.inputs, ins, offsets, shares, strict=True):
            first = row.start if share == 1 else in_matrix + _shared(stream, matrix, share, work.matrices) * rows
            stream.emit(
                load,
                "copy",
                ring.tile("push", row.size, col.size, array.format),
                [GlobalTile(array.name, first + offset, col.start, row.size, col.size)],
                [ring.free],
                [ring.full],
            )
            stream.pushed(ring)
        vectors: list[Any] = [_of_rows(array, row.start, row.size) for array in work.of_rows]
        vectors += [_of_columns(array, matrix, col.start, col.size) for array in work.of_columns]
        for i, (array, ring) in enumerate(zip(loaded, lines, strict=True)):
            place = vectors[i]
            size = (place.rows, place.cols, array.format)
            stream.emit(load, "copy", ring.tile("push", *size), [place], [ring.free], [ring.full])
            stream.pushed(ring)
            vectors[i] = ring.tile("pop", *size)
        read_rings = [*ins, *lines]
        ops = VectorOps(stream, vector.engine)
        ops.wait(*(ring.full for ring in read_rings), *(ring.free for ring in outs))
        read: list[Any] = [
            ring.tile("pop", row.size, col.size, a.format) for a, ring in zip(work.inputs, ins, strict=True)
        ]
        read += vectors
        if work.row:
            read.append(GlobalTile(work.row, Affine(), col.start, 1, col.size))
        work.body(
            ops,
            read,
            [ring.tile("push", row.size, col.size, a.format) for a, ring in zip(work.outputs, outs, strict=True)],
            [LocalTile(name, row.size, col.size, f) for f, name in zip(work.temporaries, temps, strict=True)],
        )
        ops.signal(*(ring.free for ring in read_rings), *(ring.full for ring in outs))
        for ring in read_rings:
            stream.popped(ring)
        for array, ring in zip(work.outputs, outs, strict=True):
            stream.pushed(ring)
            stream.emit(
                store,
                "copy",
                GlobalTile(array.name, row.start, col.start, row.size, col.size),
                [ring.tile("pop", row.size, col.size, array.format)],
                [ring.full],
                [ring.free],
            )
            stream.popped(ring)

    for share in distribute(distributed, block, device.cores):
        stream = StreamBuilder("main")
        for share_block in blocks_of_share(stream, "tile", share, block, device.cores):
            for two in stream.blocks("part", across, other):
                for matrix in matrices_of(stream, work.matrices):
                    tile(stream, share_block, two, matrix)
        kernel.group(share.first, share.count, stream)
    return kernel.finish()


def _of_rows(array: GlobalArray, start: Affine, count: int) -> GlobalTile:
    """The part of an array of one number for each row, or for all."""
    if array.rows == 1:
        return GlobalTile(array.name, Affine(), Affine(), 1, 1)
    return GlobalTile(array.name, start, Affine(), count, 1)


def _of_columns(array: GlobalArray, matrix: Affine, start: Affine, count: int) -> GlobalTile:
    """The part of an array of one number for each column of each matrix, or for all."""
    if array.cols == 1:
        return GlobalTile(array.name, matrix, Affine(), 1, 1)
    return GlobalTile(array.name, matrix, start, 1, count)


def matrices_of(stream: StreamBuilder, count: int) -> Iterator[Affine]:
    """The number of a matrix: the variable of a loop where there are several."""
    if count == 1:
        yield Affine()
        return
    with stream.loop("matrix", count) as (_, matrix):
        yield matrix


def _shared(stream: StreamBuilder, matrix: Affine, share: int, matrices: int) -> Affine:
    """The number of the matrix that `share` matrices behind one another share."""
    if share == matrices or not matrix.terms:
        return Affine(matrix.constant // share)
    return stream.derive("shared", matrix, share)[0]


def _formats(work: Pass) -> set[str]:
    return {array.format for array in (*work.inputs, *work.outputs)} | set(work.temporaries)


def zero_pass(name: str, targets: Sequence[GlobalArray]) -> Pass:
    """A pass that fills arrays with +0."""

    def body(ops: VectorOps, inputs: list[LocalTile], outputs: list[LocalTile], temps: list[LocalTile]) -> None:
        for output in outputs:
            ops.op("fill", output, scalar=0.0)

    return Pass(name, (), tuple(targets), (), body)


def combine_pass(name: str, expression: Expression, terms: Sequence[GlobalArray], target: GlobalArray) -> Pass:
    """A pass target = expression over the terms' arrays, in its format on the vector unit."""

    def body(ops: VectorOps, inputs: list[LocalTile], outputs: list[LocalTile], temps: list[LocalTile]) -> None:
        evaluate(ops, expression, dict(enumerate(inputs)), outputs[0], temps)

    return Pass(name, tuple(terms), (target,), (target.format,) * depth(expression), body)


__all__ = [
    "Pass",
    "VectorOps",
    "bytes_of",
    "combine_pass",
    "link_engine",
    "lower_pass",
    "vector_of",
    "zero_pass",
]
