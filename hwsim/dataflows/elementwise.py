"""Elementwise device kernels over whole matrices: split into pieces, fill with zero, combine terms.

Tiles go from global memory to the vector unit's memory and back, double-buffered, distributed over the cores. The
engines follow from the device's links; nothing here knows a family or a scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.integer_pieces import (
    byte_temporaries,
    signed_temporaries,
    slice_temporaries,
    split_bytes,
    split_signed_slices,
    split_slices,
)
from hwsim.dataflows.reductions import LineReduction, lower_reduction
from hwsim.dataflows.residue_pieces import (
    PLACES,
    join_remainders,
    magnitude_temporaries,
    magnitudes,
    remainder_temporaries,
    residue_temporaries,
    split_residues,
)
from hwsim.dataflows.vector_ops import VectorOps, bytes_of, link_engine, vector_of
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.expressions import parts_of
from hwsim.gemm.layouts import K_MAJOR
from hwsim.gemm.plan import (
    RAISED_BY,
    SLICED,
    SQUARE_LANES,
    ChineseRemainder,
    Depth,
    Expression,
    OperandSum,
    Piece,
    Plan,
    Scaled,
    Side,
    Sum,
    TermValue,
)
from hwsim.program.builder import KernelBuilder, Span, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import Affine, AnyTile, GlobalArray, GlobalTile, Kernel, LocalTile

if TYPE_CHECKING:
    from hwsim.devices.device import Device


WORD_BITS = 32
PLAIN_EXPONENT = 126  # powers of two that fp32 holds, both ways


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
    slot_bytes = {format: -(-block * other * bytes_of(format) // align) * align for format in _formats(work)}
    kernel = KernelBuilder(work.name)
    ins = [kernel.ring(f"in{i}", vector.memory, 2, slot_bytes[a.format]) for i, a in enumerate(work.inputs)]
    outs = [kernel.ring(f"out{i}", vector.memory, 2, slot_bytes[a.format]) for i, a in enumerate(work.outputs)]
    temps = [kernel.buffer(f"temp{i}", vector.memory, 1, slot_bytes[f]) for i, f in enumerate(work.temporaries)]
    lines = [
        kernel.ring(f"vector{i}", vector.memory, 2, -(-max(block, other) * bytes_of(array.format) // align) * align)
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


def operand_vectors(plan: Plan, side: Side, source: GlobalArray, matrices: int = 1) -> dict[str, GlobalArray]:
    """The arrays of one number for each row of A or column of B that a plan needs: of the `exponent` of its slices, of
    its `sum` over K. matrices: of a stack, below one another in the source.
    """
    rows, cols, arrays = *((source.rows, 1) if side == "a" else (matrices, source.cols)), {}
    if plan.split in SLICED:
        arrays["exponent"] = GlobalArray(f"{side.upper()}.exponent", rows, cols, "int32")
    if plan.split == "residues":
        arrays["largest"] = GlobalArray(f"{side.upper()}.largest", rows, cols, "int32")
    if operand_sum(plan, side) is not None:
        arrays["sum"] = GlobalArray(f"{side.upper()}.sum", rows, cols, plan.arithmetic)
    return arrays


def operand_sum(plan: Plan, side: Side) -> OperandSum | None:
    """The sum over K of A or B that a plan adds to its products."""
    sums = (part for part in parts_of(plan.combine) if isinstance(part, OperandSum) and part.side == side)
    return next(sums, None)


def operand_passes(
    plan: Plan,
    side: Side,
    source: GlobalArray,
    pieces: Mapping[int, GlobalArray],
    vectors: Mapping[str, GlobalArray],
    matrices: int = 1,
) -> list[Pass | LineReduction]:
    """The passes from an operand to its pieces (by number) and to `vectors`, its `operand_vectors`. matrices: of a
    stack. Where a product bounds the others, only those that come before that product (`bounded_passes`: the others).
    """
    every = plan.a_pieces if side == "a" else plan.b_pieces
    passes: list[Pass | LineReduction] = []
    lanes, by_rows = residual_format(source.format), side == "a"
    if "exponent" in vectors:
        passes.append(
            LineReduction(
                name=f"largest_{side}",
                source=source,
                target=vectors.get("largest", vectors["exponent"]),
                by_rows=by_rows,
                opcode="reduce_max",
                format=lanes,
                finish="signed_exponent" if plan.split == "signed_slices" else "exponent",
                matrices=matrices,
                is_single=bool(plan.log2_bound) and not plan.bounds_product,
            )
        )
    if plan.bounds_product:
        passes.append(_bound_pass(plan, side, source, pieces, vectors["largest"], matrices))
        return passes
    if "largest" in vectors and plan.log2_bound:
        is_k_major = source.order == K_MAJOR["ab".index(side)]
        passes.append(
            LineReduction(
                name=f"bound_{side}",
                source=source,
                target=vectors["exponent"],
                by_rows=by_rows,
                opcode="fma",
                format=source.format,
                finish="places",
                matrices=matrices,
                exponents=vectors["largest"],
                lanes=SQUARE_LANES[not is_k_major],
                log2_bound=plan.log2_bound,
            )
        )
    elif "largest" in vectors:
        passes.append(
            LineReduction(
                name=f"bound_{side}",
                source=source,
                target=vectors["exponent"],
                by_rows=by_rows,
                opcode="reduce_add",
                format="int64",
                finish="bound",
                factor=plan.bound_factor,
                matrices=matrices,
                exponents=vectors["largest"],
                places=PLACES,
            )
        )
    added = operand_sum(plan, side)
    if added is not None:
        passes.append(
            LineReduction(
                name=f"sum_{side}",
                source=source,
                target=vectors["sum"],
                by_rows=by_rows,
                opcode="reduce_add",
                format=plan.arithmetic,
                finish="scale",
                factor=float(added.factor),
                matrices=matrices,
            )
        )
    if plan.split == "round":
        passes.append(split_pass(f"split_{side}", source, [(piece, pieces.get(p)) for p, piece in enumerate(every)]))
    elif plan.split in SLICED:
        passes.append(_slice_pass(plan, side, source, pieces, vectors["exponent"], matrices))
    else:
        passes.append(_byte_pass(plan, side, source, pieces))
    return passes


def bounded_passes(
    plan: Plan,
    side: Side,
    source: GlobalArray,
    pieces: Mapping[int, GlobalArray],
    vectors: Mapping[str, GlobalArray],
    product: GlobalArray,
    matrices: int = 1,
) -> list[Pass | LineReduction]:
    """The passes from an operand to its residues, once there is the product that bounds the others."""
    last = len(plan.a_pieces) - 1
    length = source.cols if side == "a" else source.rows // matrices
    reduction = LineReduction(
        name=f"bound_{side}",
        source=product,
        target=vectors["exponent"],
        by_rows=side == "a",
        opcode="reduce_max",
        format="fp64",
        finish="places",
        factor=1.0 if format_of(plan.a_pieces[-1].format).is_integer else 1 + (length + 1) * RAISED_BY,
        matrices=matrices,
        exponents=vectors["largest"],
        places=_bound_places(plan),
        log2_bound=plan.log2_bound,
    )
    others = {number: array for number, array in pieces.items() if number != last}
    return [reduction, _slice_pass(plan, side, source, others, vectors["exponent"], matrices)]


def _bound_places(plan: Plan) -> int:
    """Bits of an element that the bounds of its row or column keep."""
    residue = plan.a_pieces[-1].residue
    assert residue is not None
    return residue.modulus.bit_length() - 1


def _bound_pass(
    plan: Plan,
    side: Side,
    source: GlobalArray,
    pieces: Mapping[int, GlobalArray],
    exponents: GlobalArray,
    matrices: int,
) -> Pass:
    """The pass that makes the bounds of an operand's elements."""
    target, places = pieces[len(plan.a_pieces) - 1], _bound_places(plan)

    def body(ops: VectorOps, ins: list[Any], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        magnitudes(ops, outs[0], ins[0], ins[1], places, temps)

    return Pass(
        f"magnitudes_{side}",
        (source,),
        (target,),
        magnitude_temporaries(residual_format(source.format), target.format),
        body,
        shape=(source.rows, source.cols),
        of_rows=(exponents,) if side == "a" else (),
        of_columns=(exponents,) if side == "b" else (),
        matrices=1 if side == "a" else matrices,
    )


def _slice_pass(
    plan: Plan,
    side: Side,
    source: GlobalArray,
    pieces: Mapping[int, GlobalArray],
    exponents: GlobalArray,
    matrices: int,
) -> Pass:
    every, lanes = plan.a_pieces if side == "a" else plan.b_pieces, residual_format(source.format)
    is_of_residues, is_signed = plan.split == "residues", plan.split == "signed_slices"
    temporaries = slice_temporaries(plan, every, lanes)
    if is_of_residues:
        temporaries = residue_temporaries(every, lanes)
    elif is_signed:
        temporaries = signed_temporaries(every, lanes)

    def body(ops: VectorOps, ins: list[Any], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        tiles = dict(zip(pieces, outs, strict=True))
        if is_of_residues:
            split_residues(ops, every, ins[0], ins[1], tiles, temps)
        elif is_signed:
            split_signed_slices(ops, every, ins[0], ins[1], tiles, temps)
        else:
            split_slices(ops, every, plan.slice_bits, ins[0], ins[1], tiles, temps)

    return Pass(
        f"split_{side}",
        (source,),
        tuple(pieces.values()),
        temporaries,
        body,
        shape=(source.rows, source.cols),
        of_rows=(exponents,) if side == "a" else (),
        of_columns=(exponents,) if side == "b" else (),
        matrices=1 if side == "a" else matrices,
    )


def _byte_pass(plan: Plan, side: Side, source: GlobalArray, pieces: Mapping[int, GlobalArray]) -> Pass:
    def body(ops: VectorOps, ins: list[Any], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        split_bytes(ops, plan, ins[0], dict(zip(pieces, outs, strict=True)), temps)

    return Pass(f"split_{side}", (source,), tuple(pieces.values()), byte_temporaries(plan), body)


def depth(expression: Expression, converts: bool = False) -> int:
    """The number of scratch tiles that `evaluate` needs. converts: the terms' values are of another format."""
    rights: list[Expression] = []
    while isinstance(expression, Sum):
        rights.append(expression.right)
        expression = expression.left
    is_target_taken = not _is_in_place(expression, converts)
    needed = 0
    if isinstance(expression, Scaled):
        needed = depth(expression.value, converts)
    elif isinstance(expression, ChineseRemainder):
        needed = remainder_temporaries(expression)
    for right in reversed(rights):
        if not _is_in_place(right, converts):
            needed = max(needed, depth(right, converts) + is_target_taken)
        is_target_taken = True
    return needed


def evaluate(
    ops: VectorOps,
    expression: Expression,
    values: Mapping[int, LocalTile],
    target: LocalTile,
    temps: Sequence[LocalTile],
    extra: Mapping[Expression, AnyTile | float] | None = None,
) -> None:
    """Emit target = expression, sums from left to right. The values of terms are read where they are, and converted
    where they are not in the target's format. extra: the tiles of sums of operands, and multiples of K.
    """
    rights: list[Expression] = []
    while isinstance(expression, Sum):
        rights.append(expression.right)
        expression = expression.left
    value = _in_place(expression, values, target, extra) if rights else None
    if value is None:
        _into(ops, expression, values, target, temps, extra)
        value = target
    for right in reversed(rights):
        addend = _in_place(right, values, target, extra)
        if addend is None:
            into, rest = (temps[0], temps[1:]) if value is target else (target, temps)
            addend = _into(ops, right, values, into, rest, extra)
        ops.op("add", target, value, addend)
        value = target


def _into(
    ops: VectorOps,
    expression: Expression,
    values: Mapping[int, LocalTile],
    target: LocalTile,
    temps: Sequence[LocalTile],
    extra: Mapping[Expression, AnyTile | float] | None,
) -> LocalTile:
    """Emit the value of an expression into a tile; returns it, or the element of it that counts for all."""
    if isinstance(expression, Depth):
        assert extra is not None
        element, number = replace(target, rows=1, cols=1), extra[expression]
        assert isinstance(number, float)
        ops.op("fill", element, scalar=number)
        return element
    if isinstance(expression, TermValue):
        value = values[expression.term]
        ops.op("copy" if value.format == target.format else "cast", target, value)
    elif isinstance(expression, Scaled):
        source = _in_place(expression.value, values, target, extra)
        if source is None:
            source = target
            evaluate(ops, expression.value, values, target, temps, extra)
        ops.op("scale", target, source, **power_of_two(expression.exponent))
    elif isinstance(expression, ChineseRemainder):
        join_remainders(ops, expression, values, target, temps)
    else:
        evaluate(ops, expression, values, target, temps, extra)
    return target


def power_of_two(exponent: int) -> dict[str, Any]:
    """The fields of a `scale` by 2^exponent."""
    return {"scalar": 2.0**exponent} if abs(exponent) <= PLAIN_EXPONENT else {"scale_exponent": -exponent}


def _is_in_place(expression: Expression, converts: bool) -> bool:
    return isinstance(expression, OperandSum) or (isinstance(expression, TermValue) and not converts)


def _in_place(
    expression: Expression,
    values: Mapping[int, LocalTile],
    target: LocalTile,
    extra: Mapping[Expression, AnyTile | float] | None,
) -> AnyTile | None:
    """The tile that has the value of an expression; None where it is to be computed."""
    if isinstance(expression, OperandSum):
        tile = None if extra is None else extra[expression]
        if tile is None or isinstance(tile, float):
            raise UnsupportedError("sums of an operand need the pass that adds it up")
        return tile
    if isinstance(expression, TermValue) and values[expression.term].format == target.format:
        return values[expression.term]
    return None


__all__ = [
    "Pass",
    "VectorOps",
    "bounded_passes",
    "bytes_of",
    "combine_pass",
    "depth",
    "evaluate",
    "link_engine",
    "lower_pass",
    "operand_passes",
    "operand_vectors",
    "power_of_two",
    "residual_format",
    "split_ops",
    "split_pass",
    "vector_of",
    "zero_pass",
]
