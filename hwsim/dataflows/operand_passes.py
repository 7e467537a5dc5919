"""The elementwise kernels from an operand to its pieces, and to the numbers of its rows or columns. It knows plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from hwsim.dataflows.elementwise import Pass
from hwsim.dataflows.integer_pieces import (
    byte_temporaries,
    signed_temporaries,
    slice_temporaries,
    split_bytes,
    split_signed_slices,
    split_slices,
)
from hwsim.dataflows.reductions import LineReduction
from hwsim.dataflows.residue_pieces import (
    PLACES,
    magnitude_temporaries,
    magnitudes,
    residue_temporaries,
    split_residues,
)
from hwsim.dataflows.vector_ops import VectorOps
from hwsim.formats import format_of
from hwsim.gemm.expressions import parts_of
from hwsim.gemm.layouts import K_MAJOR
from hwsim.gemm.plan import (
    RAISED_BY,
    SLICED,
    SQUARE_LANES,
    OperandSum,
    Piece,
    Plan,
    Side,
)
from hwsim.program.ir import GlobalArray, LocalTile


class SplitStep(NamedTuple):
    """An instruction of a split: its opcode, the number of its piece, and whether it casts that piece back."""

    opcode: str
    piece: int
    is_back: bool = False


def split_steps(pieces: Sequence[Piece], last: int) -> Iterator[SplitStep]:
    """The instructions of a split into pieces up to `last`: scale, cast, cast back, subtract, and so on; as many as in
    the vendors' kernels (timing reference, section on work per element).
    """
    for i, piece in enumerate(pieces[: last + 1]):
        if piece.scale_exponent:
            yield SplitStep("scale", i)
        yield SplitStep("cast", i)
        if i < last:
            yield SplitStep("cast", i, is_back=True)
            yield SplitStep("sub", i)


def split_ops(
    ops: VectorOps,
    source: LocalTile,
    pieces: Sequence[Piece],
    resident: Mapping[int, LocalTile],
    temps: Sequence[LocalTile],
    repeat: int = 1,
) -> None:
    """Emit the split of `source` into pieces, up to the last one needed; `resident`: where each piece goes.

    temps: tiles of the source's size and `residual_format`: for the residual, the piece cast back, a piece that is not
    needed, and, with `repeat`, where an instruction must not overwrite its operand, another for the residual.
    """
    rest = source

    def fresh() -> LocalTile:
        return temps[3] if repeat > 1 and rest is temps[0] else temps[0]

    for opcode, i, is_back in split_steps(pieces, max(resident)):
        piece = pieces[i]
        target = resident.get(i) or replace(temps[2], format=piece.format)
        if opcode == "scale":
            scaled = fresh()
            ops.op("scale", scaled, rest, scalar=2.0**piece.scale_exponent, repeat=repeat)
            rest = scaled
        elif is_back:
            ops.op("cast", temps[1], target, repeat=repeat)
        elif opcode == "cast":
            ops.op("cast", target, rest, rounding=piece.rounding, overflow=piece.overflow, repeat=repeat)
        else:
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
    line = partial(LineReduction, source=source, by_rows=side == "a", matrices=matrices)
    if "exponent" in vectors:
        passes.append(
            line(
                name=f"largest_{side}",
                target=vectors.get("largest", vectors["exponent"]),
                opcode="reduce_max",
                format=residual_format(source.format),
                finish="signed_exponent" if plan.split == "signed_slices" else "exponent",
                is_single=bool(plan.log2_bound) and not plan.bounds_product,
            )
        )
    if plan.bounds_product:
        passes.append(_bound_pass(plan, side, source, pieces, vectors["largest"], matrices))
        return passes
    if "largest" in vectors:
        bound = partial(line, name=f"bound_{side}", target=vectors["exponent"], exponents=vectors["largest"])
        if plan.log2_bound:
            passes.append(
                bound(
                    opcode="fma",
                    format=source.format,
                    finish="places",
                    lanes=SQUARE_LANES[source.order != K_MAJOR["ab".index(side)]],
                    log2_bound=plan.log2_bound,
                )
            )
        else:
            passes.append(
                bound(opcode="reduce_add", format="int64", finish="bound", factor=plan.bound_factor, places=PLACES)
            )
    added = operand_sum(plan, side)
    if added is not None:
        passes.append(
            line(
                name=f"sum_{side}",
                target=vectors["sum"],
                opcode="reduce_add",
                format=plan.arithmetic,
                finish="scale",
                factor=float(added.factor),
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
