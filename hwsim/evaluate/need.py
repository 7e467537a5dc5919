"""The memory that the evaluator takes for a product besides its operands, as a number of bytes before it takes any.

It knows records, sizes and how the evaluator cuts C into blocks; it knows no values and not what there is.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from hwsim.evaluate.block_sizes import block_at_once, sums_at_once
from hwsim.evaluate.explicit_term import VALUES_AT_ONCE
from hwsim.formats import code_dtype, format_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hwsim.gemm.plan import Piece, Plan
    from hwsim.gemm.record import Gemm
    from hwsim.gemm.schedule import Schedule

#: Bytes of an element that a split of an operand holds at once, beside the codes: residual, digit, and their next ones.
SPLIT_BYTES = {"round": 8, "bytes": 8, "signed_bytes": 8, "slices": 56, "signed_slices": 56, "residues": 64}
ENCODED = ("fp32", "fp64")  # formats whose arrays the kernels round; others are decoded first
VALUE_BYTES = {"fp32": 4, "fp64": 8, "int32": 8, "int64": 8, "exact": 16}  # by the plan's arithmetic
CODE_BYTES = 4  # of a term's value as the unit gives it, held until it is loaded into that arithmetic
BLOCK_COPIES = 4  # arrays of values that combining the terms of a block of C holds at once
GATHERED_COPIES = 2  # of the pieces of a block, in the order of a chain: as taken, and as rows side by side
ADDED_COPIES = 4  # arrays of the values that a written-out sum adds at once


def bytes_needed(
    gemm: Gemm,
    sizes: tuple[int, int, int],
    formats: tuple[str, str],
    threads: int,
    *,
    calls: int = 1,
    matrices: int = 1,
    makes_values: bool = True,
    are_words_rounded: bool = False,
) -> int:
    """Bytes for one product with sizes (m, n, k) of A (m, k) and B (k, n), given in these formats: the pieces of A and
    B, a block of C with all its terms, and the codes of C; where the order of a sum is written out, also the parts of
    the pieces in its order. A mixture is counted as its most general plan.

    threads, calls: as of `block_at_once`. matrices: of a stack, that one call takes. makes_values: not where the unit's
    own codes are those of C. are_words_rounded: as of the evaluator.
    """
    (m, n, k), plan = sizes, gemm.single
    copies, splitting = 0, 0
    for count, fmt, pieces in zip((m * k, k * n), formats, (plan.a_pieces, plan.b_pieces), strict=True):
        if copied := _copied_bytes(fmt, pieces, plan, are_words_rounded):
            copies += count * copied
            splitting = max(splitting, count * _splitting_bytes(fmt, pieces, plan))
    code = code_dtype(format_of(gemm.output)).itemsize
    schedule, result = gemm.schedule, m * n * code
    orders = [dataclasses.replace(schedule, regions=())]
    if schedule.regions:  # each takes its rows and columns of the pieces; C has a mask, and two parts of it are merged
        orders += [dataclasses.replace(orders[0], sum=x.sum, split_k=1, slice_k=None) for x in schedule.regions]
        copies += _piece_bytes(plan, m, n, k)
        result += m * n * (1 + 2 * code)
    held = None if makes_values else code
    block = max(_block_bytes(plan, order, sizes, (threads, calls), matrices, held) for order in orders)
    return matrices * (copies + max(splitting, block + result))


def _block_bytes(
    plan: Plan,
    schedule: Schedule,
    sizes: tuple[int, int, int],
    at_once: tuple[int, int],
    matrices: int,
    held: int | None,
) -> int:
    """Of a block of C, all of it where one of a stack's matrices is meant: the results of all terms, what combining
    them holds, and the operands of a written-out sum. at_once: threads and calls. held: bytes of an element instead of
    the first two.
    """
    m, n, k = sizes
    sums = sums_at_once(plan, schedule, len(schedule.k_partition(k).slices))
    rows, cols = block_at_once(plan.products, n, k, sums, threads=at_once[0], calls=at_once[1])
    rows, cols = (m, n) if matrices > 1 else (min(m, rows), min(n, cols))
    value = VALUE_BYTES[plan.arithmetic]
    operands = added = 0
    if schedule.sum is not None:
        operands = GATHERED_COPIES * _piece_bytes(plan, rows, cols, k)
        added = ADDED_COPIES * min(max(VALUES_AT_ONCE, rows * cols), rows * cols * sums) * value
    values = sums * (CODE_BYTES + value) + BLOCK_COPIES * value
    return rows * cols * (values if held is None else held) + operands + added


def _piece_bytes(plan: Plan, m: int, n: int, k: int) -> int:
    """Of all pieces of A (m, k) and B (k, n)."""
    sides = ((m * k, plan.a_pieces), (k * n, plan.b_pieces))
    return sum(count * code_dtype(format_of(piece.format)).itemsize for count, pieces in sides for piece in pieces)


def _copied_bytes(fmt: str, pieces: Sequence[Piece], plan: Plan, are_words_rounded: bool) -> int:
    """Bytes of an element of an operand beside the operand itself: in the plan's input format, and its pieces."""
    converted = 0 if fmt == plan.input_format else code_dtype(format_of(plan.input_format)).itemsize
    if _is_only(pieces, plan) and pieces[0].format == plan.input_format and not are_words_rounded:
        return converted
    return converted + sum(code_dtype(format_of(piece.format)).itemsize for piece in pieces)


def _splitting_bytes(fmt: str, pieces: Sequence[Piece], plan: Plan) -> int:
    """Bytes of an element that are held while its pieces are made; none where one is rounded from it as it lies."""
    is_direct = _is_only(pieces, plan) and fmt in (*ENCODED, pieces[0].format)
    return 0 if is_direct else SPLIT_BYTES[plan.split]


def _is_only(pieces: Sequence[Piece], plan: Plan) -> bool:
    """Whether an operand's one piece is the operand rounded."""
    return len(pieces) == 1 and plan.split == "round" and not pieces[0].scale_exponent and not plan.clamp
