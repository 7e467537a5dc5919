"""Elementwise device kernels over whole matrices: split into pieces, fill with zero, combine terms.

Tiles go from global memory to the vector unit's memory and back, double-buffered, distributed over the cores. The
engines follow from the device's links; nothing here knows a family or a scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.expressions import parts_of
from hwsim.gemm.plan import Expression, OperandSum, Piece, Plan, Scaled, Side, Sum, TermValue
from hwsim.program.builder import KernelBuilder, Span, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import Affine, AnyTile, GlobalArray, GlobalTile, Kernel, LocalTile, Opcode, Sync

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import VectorModel


WORD_BITS = 32
# Operations per element and piece: a byte is cut out; a slice is scaled, rounded, converted back and subtracted; a
# rounded piece is converted there and back and subtracted.
PIECE_OPERATIONS = {"bytes": 1, "signed_bytes": 2, "slices": 4, "round": 3}


def bytes_of(format: str) -> int:
    """Storage bytes of one element."""
    return -(-format_of(format).bits // 8)


def vector_of(device: Device) -> VectorModel:
    """The device's vector unit. Raises UnsupportedError when the device file has none."""
    if device.vector is None:
        raise UnsupportedError(f"device {device.name} has no vector unit in its file: elementwise passes cannot run")
    return device.vector


def link_engine(device: Device, source: str, target: str) -> str:
    """The engine of the link from `source` to `target`. Raises UnsupportedError when there is none."""
    for link in device.links.values():
        if (link.source, link.target) == (source, target):
            return link.engine
    raise UnsupportedError(f"device {device.name} has no link from {source} to {target}")


class VectorOps:
    """Emits elementwise instructions of the vector engine into a stream.

    attach: `signal` goes to the last instruction where it can, without an instruction of its own.
    """

    def __init__(self, stream: StreamBuilder, engine: str, *, attach: bool = False) -> None:
        self.stream, self.engine, self.attach = stream, engine, attach
        self._waits: list[Sync] = []

    def wait(self, *syncs: Sync) -> None:
        """Make the next instruction wait for these too."""
        self._waits.extend(syncs)

    def op(
        self, opcode: Opcode, target: LocalTile, *sources: AnyTile, signals: Sequence[Sync] = (), **attributes: Any
    ) -> None:
        """Emit one instruction."""
        self.stream.emit(self.engine, opcode, target, sources, self._waits, signals, **attributes)
        self._waits = []

    def signal(self, *syncs: Sync) -> None:
        """Signal once everything emitted so far is done."""
        if self.attach and not self._waits and self.stream.signal_last(self.engine, syncs):
            return
        self.stream.emit(self.engine, "sync", None, (), self._waits, syncs)
        self._waits = []


@dataclass(frozen=True, slots=True)
class Pass:
    """An elementwise kernel: outputs = body(inputs), tile by tile.

    temporaries: formats of the scratch tiles that `body(ops, inputs, outputs, temporaries)` may use. shape: rows and
    columns gone over (None: the first output's). offsets: row of each input at which they begin (empty: 0). row: an
    array of one row in global memory, whose columns of a tile `body` gets after the inputs. repeated: arrays of one row or
    one column, of which copies load what belongs to a tile, for vector units that read their own memory alone; `body`
    gets their tiles last.
    """

    name: str
    inputs: tuple[GlobalArray, ...]
    outputs: tuple[GlobalArray, ...]
    temporaries: tuple[str, ...]
    body: Callable[[VectorOps, list[Any], list[LocalTile], list[LocalTile]], None]
    shape: tuple[int, int] | None = None
    offsets: tuple[int, ...] = ()
    row: str = ""
    repeated: tuple[GlobalArray, ...] = ()


def lower_pass(work: Pass, device: Device) -> Kernel:
    """The kernel that executes `work` on all cores of `device`."""
    vector = vector_of(device)
    memory = device.memories[vector.memory]
    load = link_engine(device, "GM", vector.memory) if work.inputs else ""
    store = link_engine(device, vector.memory, "GM") if work.outputs else ""
    rows, cols = work.shape or (work.outputs[0].rows, work.outputs[0].cols)
    offsets = work.offsets or (0,) * len(work.inputs)
    align = memory.align_bytes
    moved = sum(bytes_of(array.format) for array in (*work.inputs, *work.outputs))
    scratch = sum(bytes_of(format) for format in work.temporaries)
    moved += sum(bytes_of(array.format) for array in work.repeated)  # no longer than a tile
    slots = 2 * (len(work.inputs) + len(work.outputs) + len(work.repeated)) + len(work.temporaries)
    elements = (memory.capacity_bytes - slots * align) // (2 * moved + scratch)
    # Deal out lines of memory; a matrix with fewer of them than cores is dealt out across them.
    if (*work.inputs, *work.outputs)[0].order == "rows":
        by_rows = rows >= min(cols, device.cores)
    else:
        by_rows = cols < min(rows, device.cores)
    distributed, across = (rows, cols) if by_rows else (cols, rows)
    other = min(across, elements)
    block = max(1, min(elements // other, -(-distributed // device.cores)))
    slot_bytes = {format: -(-block * other * bytes_of(format) // align) * align for format in _formats(work)}
    kernel = KernelBuilder(work.name)
    ins = [kernel.ring(f"in{i}", vector.memory, 2, slot_bytes[a.format]) for i, a in enumerate(work.inputs)]
    outs = [kernel.ring(f"out{i}", vector.memory, 2, slot_bytes[a.format]) for i, a in enumerate(work.outputs)]
    temps = [kernel.buffer(f"temp{i}", vector.memory, 1, slot_bytes[f]) for i, f in enumerate(work.temporaries)]
    largest = (block, other) if by_rows else (other, block)
    lines = [
        kernel.ring(f"line{i}", vector.memory, 2, -(-prod(_part(a, *largest)) * bytes_of(a.format) // align) * align)
        for i, a in enumerate(work.repeated)
    ]

    def tile(stream: StreamBuilder, one: Span, two: Span) -> None:
        row, col = (one, two) if by_rows else (two, one)
        for array, ring, offset in zip(work.inputs, ins, offsets, strict=True):
            stream.emit(
                load,
                "copy",
                ring.tile("push", row.size, col.size, array.format),
                [GlobalTile(array.name, row.start + offset, col.start, row.size, col.size)],
                [ring.free],
                [ring.full],
            )
            stream.pushed(ring)
        for array, ring in zip(work.repeated, lines, strict=True):
            size = _part(array, row.size, col.size)
            at = (row.start if array.rows > 1 else Affine(), col.start if array.cols > 1 else Affine())
            target = ring.tile("push", *size, array.format)
            stream.emit(load, "copy", target, [GlobalTile(array.name, *at, *size)], [ring.free], [ring.full])
            stream.pushed(ring)
        read_rings = [*ins, *lines]
        ops = VectorOps(stream, vector.engine)
        ops.wait(*(ring.full for ring in read_rings), *(ring.free for ring in outs))
        read: list[Any] = [
            ring.tile("pop", row.size, col.size, a.format) for a, ring in zip(work.inputs, ins, strict=True)
        ]
        if work.row:
            read.append(GlobalTile(work.row, Affine(), col.start, 1, col.size))
        for array, ring in zip(work.repeated, lines, strict=True):
            read.append(ring.tile("pop", *_part(array, row.size, col.size), array.format))
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
        for one in blocks_of_share(stream, "tile", share, block, device.cores):
            for two in stream.blocks("part", across, other):
                tile(stream, one, two)
        kernel.group(share.first, share.count, stream)
    return kernel.finish()


def _part(array: GlobalArray, rows: int, cols: int) -> tuple[int, int]:
    """The part of an array of one row or column that belongs to a tile of rows x cols."""
    return (rows if array.rows > 1 else 1, cols if array.cols > 1 else 1)


def _formats(work: Pass) -> set[str]:
    return {array.format for array in (*work.inputs, *work.outputs)} | set(work.temporaries)


def split_ops(
    ops: VectorOps,
    source: LocalTile,
    pieces: Sequence[Piece],
    resident: Mapping[int, LocalTile],
    temps: Sequence[LocalTile],
    repeat: int = 1,
) -> None:
    """Emit the split of `source` into pieces, up to the last one needed; `resident`: where each piece goes.

    Cast, cast back, subtract, scale, cast: as many vector instructions as in the vendors' kernels (timing reference,
    section on work per element). temps: tiles of the source's size and `residual_format`: for the residual, the piece
    cast back, a piece that is not needed, and, with `repeat`, where an instruction must not overwrite its operand,
    another for the residual.
    """
    rest, last = source, max(resident)

    def fresh() -> LocalTile:
        return temps[3] if repeat > 1 and rest is temps[0] else temps[0]

    for i, piece in enumerate(pieces[: last + 1]):
        if piece.scale_exponent:
            scaled = fresh()
            ops.op("scale", scaled, rest, scalar=2.0**piece.scale_exponent, repeat=repeat)
            rest = scaled
        target = resident.get(i) or replace(temps[2], format=piece.format)
        ops.op("cast", target, rest, rounding=piece.rounding, overflow=piece.overflow, repeat=repeat)
        if i < last:
            ops.op("cast", temps[1], target, repeat=repeat)
            left = fresh()
            ops.op("sub", left, rest, temps[1], repeat=repeat)
            rest = left


def split_pass(name: str, source: GlobalArray, pieces: Sequence[tuple[Piece, GlobalArray | None]]) -> Pass:
    """A pass that splits `source` into pieces; a piece whose array is None is computed but not stored."""
    resident = {i: array for i, (_, array) in enumerate(pieces) if array is not None}

    def body(ops: VectorOps, inputs: list[LocalTile], outputs: list[LocalTile], temps: list[LocalTile]) -> None:
        split_ops(ops, inputs[0], [piece for piece, _ in pieces], dict(zip(resident, outputs, strict=True)), temps)

    scratch = 2 if len(pieces) > 1 or pieces[0][0].scale_exponent else 0
    extra = 1 if any(i not in resident for i in range(max(resident))) else 0
    return Pass(name, (source,), tuple(resident.values()), (residual_format(source.format),) * (scratch + extra), body)


def residual_format(source: str) -> str:
    """The format in which the lanes split operands of format `source`."""
    return "fp64" if source == "fp64" else "fp32"


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


def placeholder_pass(
    name: str, inputs: Sequence[GlobalArray], outputs: Sequence[GlobalArray], operations: int, words: int
) -> Pass:
    """A pass that only takes time: it moves its arrays and does `operations` on every element of `words` 32-bit words.

    For work whose values fp32 lanes cannot compute: fp64 and integer arithmetic, slices, bytes, row and column sums.
    """

    def body(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        tile = replace(temps[0], cols=temps[0].cols * words, format="fp32")
        for _ in range(operations):
            ops.op("add", tile, tile, tile)

    shape = (inputs[0].rows, inputs[0].cols) if inputs else None
    return Pass(name, tuple(inputs), tuple(outputs), ("fp64" if words > 1 else "fp32",), body, shape)


def operand_passes(plan: Plan, side: Side, source: GlobalArray, pieces: Mapping[int, GlobalArray]) -> list[Pass]:
    """The passes from an operand to its pieces (by number) and to the row or column sums that the plan needs of it.

    Where pieces are not made by rounding, placeholder operations are timed instead (see
    `placeholder_pass`).
    """
    every = plan.a_pieces if side == "a" else plan.b_pieces
    words = 2 if format_of(plan.input_format).bits > WORD_BITS else 1
    found = []
    if plan.split == "slices":
        found.append(placeholder_pass(f"largest_{side}", [source], [], 1, words))
    if any(isinstance(part, OperandSum) and part.side == side for part in parts_of(plan.combine)):
        found.append(placeholder_pass(f"sum_{side}", [source], [], 1, words))
    if plan.split == "round":
        found.append(split_pass(f"split_{side}", source, [(piece, pieces.get(p)) for p, piece in enumerate(every)]))
    else:
        operations = PIECE_OPERATIONS[plan.split] * len(every)
        found.append(placeholder_pass(f"split_{side}", [source], list(pieces.values()), operations, words))
    return found


def depth(expression: Expression) -> int:
    """The number of scratch tiles that `evaluate` needs."""
    if isinstance(expression, TermValue):
        return 0
    if isinstance(expression, Scaled):
        return depth(expression.value)
    if not isinstance(expression, Sum):
        raise UnsupportedError("sums of an operand and multiples of K are no fp32 operations of the lanes")
    left, right = depth(expression.left), depth(expression.right)
    both = not isinstance(expression.left, TermValue) and not isinstance(expression.right, TermValue)
    return max(right, left + both)


def evaluate(
    ops: VectorOps, expression: Expression, values: dict[int, LocalTile], target: LocalTile, temps: list[LocalTile]
) -> None:
    """Emit target = expression. The values of terms are read where they are."""
    if isinstance(expression, TermValue):
        ops.op("copy", target, values[expression.term])
    elif isinstance(expression, Scaled):
        source = _operand(ops, expression.value, values, target, temps)
        ops.op("scale", target, source, scalar=2.0**expression.exponent)
    elif isinstance(expression, Sum):
        right = _operand(ops, expression.right, values, target, temps)
        if right is target and not isinstance(expression.left, TermValue):
            ops.op("copy", temps[0], target)
            right, temps = temps[0], temps[1:]
        left = _operand(ops, expression.left, values, target, temps)
        ops.op("add", target, left, right)


def _operand(
    ops: VectorOps, expression: Expression, values: dict[int, LocalTile], target: LocalTile, temps: list[LocalTile]
) -> LocalTile:
    if isinstance(expression, TermValue):
        return values[expression.term]
    evaluate(ops, expression, values, target, temps)
    return target


__all__ = [
    "Pass",
    "VectorOps",
    "bytes_of",
    "combine_pass",
    "depth",
    "evaluate",
    "link_engine",
    "lower_pass",
    "operand_passes",
    "placeholder_pass",
    "residual_format",
    "split_ops",
    "split_pass",
    "vector_of",
    "zero_pass",
]
