"""The plan: a GEMM scheme as data, independent of any device.

A plan describes how operands are split into pieces, which products are formed, and how partial sums are combined. It
knows no engines, tiles or cycles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Side = Literal["a", "b"]
SIDES: tuple[Side, Side] = ("a", "b")
Split = Literal["round", "bytes", "signed_bytes", "slices", "signed_slices", "residues"]
#: Lanes that add the squares of a row of A or column of B: where K is contiguous in memory, and where not (GEMMul8).
SQUARE_LANES = (256, 32)
RAISED_BY = 2.0**-24  # of a bound, for each of K and one more: an error of its sum, where that is not exact
#: Splits whose pieces are integers below an exponent that a row of A or a column of B shares.
SLICED: tuple[Split, ...] = ("slices", "signed_slices", "residues")
ArithmeticName = Literal["fp32", "fp64", "int32", "int64", "exact"]
OrderOrigin = Literal["calls", "ours"]


@dataclass(frozen=True, slots=True)
class Residue:
    """What a piece holds of an integer x: its residue r modulo `modulus`, of least magnitude; of two the positive one.

    part: "whole" is r. Else r = base * high + low: with base^2 = modulus, high is r / base to nearest even; with
    another base it is r / base away from zero. "sum" is high + low. "bound" is no residue: with f the least exponent
    with all magnitudes of the row or column below 2^f, it is 2^-f |x| `modulus`, rounded up to the piece's format.
    """

    modulus: int
    part: Literal["whole", "high", "low", "sum", "bound"] = "whole"
    base: int = 1

    @property
    def is_square(self) -> bool:
        """Whether the modulus is the square of the base."""
        return self.base**2 == self.modulus


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a split operand: the current residual, times 2^scale_exponent, rounded to `format`.

    The residual for the next piece is (scaled residual - piece), kept at that scale. Both steps are in the input's
    type: fp32, or fp64 for fp64 operands.

    Fields:
        format: the piece's number format.
        rounding: of the scaled residual to the format: RNE (nearest, ties to even), RNA (nearest, ties away), RZ (to
            zero), RU (up) or RD (down).
        scale_exponent: the residual is multiplied by 2^this first.
        overflow: what values beyond the format become; None: as the device's conversions do.
        residue: of a split into residues, what the piece holds.
    """

    format: str
    rounding: str = "RNE"
    scale_exponent: int = 0
    overflow: Literal["ieee", "saturate"] | None = None
    residue: Residue | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Products that alternate on one accumulator: for the K of each instruction, all of them in order.

    Fields:
        products: pairs (piece of A, piece of B).
        scale_exponent: the accumulator is multiplied by 2^-this before the stage's first product (scale-input-d).
        interleave: the products alternate after so many elements of K instead, a multiple of the instruction's; counted
            from the start of a run.
    """

    products: tuple[tuple[int, int], ...]
    scale_exponent: int = 0
    interleave: int | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """One accumulator of the matrix unit.

    Fields:
        stages: run on the accumulator one after another, each over the whole run of K.
        k_group: promotion interval, the length of K that is accumulated in the unit from zero. The partial sums are
            added outside it, to nearest even, in order of K, to a sum that starts at +0. "instruction": one instruction
            each. None: the plan's.
    """

    stages: tuple[Stage, ...]
    k_group: int | Literal["instruction"] | None = None

    @property
    def products(self) -> tuple[tuple[int, int], ...]:
        """Products of all stages, in order."""
        return tuple([pair for stage in self.stages for pair in stage.products])


def chain(*products: tuple[int, int], interleave: Literal["instruction", "k"] | int = "instruction") -> Term:
    """A term of these products, which alternate per instruction, after so many elements of K, or ("k") each run over
    all of K before the next.
    """
    if isinstance(interleave, int) or interleave == "instruction":
        is_number = isinstance(interleave, int) and len(products) > 1
        return Term((Stage(products, interleave=interleave if is_number else None),))  # type: ignore[arg-type]
    return Term(tuple(Stage((product,)) for product in products))


@dataclass(frozen=True, slots=True)
class TermValue:
    """Expression node: the value of a term."""

    term: int


@dataclass(frozen=True, slots=True)
class Sum:
    """Expression node: left + right, one addition in the plan's arithmetic."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Scaled:
    """Expression node: value * 2^exponent."""

    value: Expression
    exponent: int


@dataclass(frozen=True, slots=True)
class OperandSum:
    """Expression node: factor * the sum over K of the unsplit operand, per row of A or per column of B (integers
    only).
    """

    side: Side
    factor: int


@dataclass(frozen=True, slots=True)
class Depth:
    """Expression node: factor * K (integers only)."""

    factor: int


@dataclass(frozen=True, slots=True)
class Congruence:
    """A number known by its residue: sum over i of factors[i] * (value of terms[i]), modulo `modulus`.

    format: an integer format, of which the residue (see Residue) keeps the low bits.
    """

    terms: tuple[int, ...]
    factors: tuple[int, ...]
    modulus: int
    format: str


@dataclass(frozen=True, slots=True)
class ChineseRemainder:
    """Expression node: the integer of least magnitude that satisfies all congruences, in fp64, nearest even each time.

    r_i is the residue of congruence i. x_j = fma(weights[i][j], r_i, x_j) for all i in order, from +0, for each part j
    of a weight. q = round(inverse * x_0) to an integer. With P_j = product[j] and d_j = fma(P_j, q, x_j) the value is
    d_0 where weights have one part, else

    * sum "fp64", of two parts: fma(P_1, q, d_0 + x_1);
    * sum "exact", of more: the sum of all d_j. Twice, for j from the last to 1, d_(j-1) becomes d_(j-1) + d_j, and d_j
      what that sum lacks. Then d_j is added to d_(j-1) for j from the last to 1.

    It is rounded to `format`. weights: q_i P / p_i as a sum of fp64 numbers, congruent to 1 modulo the own modulus p_i
    and to 0 modulo the others. product: -P, the negative product of all moduli, likewise. inverse: 1 / P.
    """

    congruences: tuple[Congruence, ...]
    weights: tuple[tuple[float, ...], ...]
    product: tuple[float, ...]
    inverse: float
    format: str = "fp64"
    sum: Literal["fp64", "exact"] = "fp64"


Expression = TermValue | Sum | Scaled | OperandSum | Depth | ChineseRemainder


@dataclass(frozen=True, slots=True)
class Plan:
    """How C is computed from products of pieces.

    Fields:
        scheme: name of the scheme.
        a_pieces, b_pieces: the split of each operand; a single piece of `input_format` is the operand itself.
        terms: accumulators of the unit.
        combine: how the terms' values are combined to C, outside the unit.
        join: "end" combines once, after all of K. "group" combines after every `k_group` of K and adds the value to C.
        k_group: promotion interval, the length of K that one term accumulates in the unit from zero. None: all of K, or
            chosen by the dataflow. The values of successive groups are added outside, in order of K.
        input_format: of the operands.
        output_format: of C.
        split: how pieces are made. "round": each is rounded from the residual of the one before (see Piece). "bytes":
            int16 as (high byte, low byte); a low piece of int8 holds the byte less 128. "signed_bytes": int16 as (h,
            l), l the low byte as a signed number, h = (x - l) / 256, which wraps. "slices", "signed_slices",
            "residues": integers below a common exponent, see below.
        slice_bits: bits of a slice.
        bound_factor: of residues, 2 / (P - 1) rounded up, P the product of all moduli.
        log2_bound: of residues, (log2(P - 1) - 1) / 2 rounded down to fp32, where GEMMul8's rules give their exponents;
            0: by bound_factor.
        clamp: infinities become the largest finite value of the input format before the split.
        arithmetic: of additions outside the unit. "fp32", "fp64": to nearest even each time. "int32", "int64":
            wrapping. "exact": one rounding, to the output format.
        specials: "unit": NaNs and infinities propagate through the unit's arithmetic. "fma_chain": an element of C
            whose row of A or column of B holds one becomes what an FMA chain in order of K gives, in fp32 (fp64 for
            that output). A NaN is then 0x7fffffff or 0x7fffffffffffffff. Such elements count as 0 in slices.
        split_in: "pass": kernels of their own write the pieces to memory. "kernel": the GEMM kernel splits operands.
        calls: each term is a GEMM of its own (successive library calls), not one of several accumulators of one kernel.
        k_parts: lengths of parts of K, in order. Each part is split with exponents of its own, and its value V is
            scaled and added alone: D = fma(alpha, V, beta C) for the first, then D = fma(alpha, V, D). (): K is one
            part.
        order: origin of the order of the products and of the additions outside the unit. "calls": library calls and
            elementwise steps that were run so on a chip, and compared. "ours": a kernel that nobody has published,
            chosen here where the paper leaves it open.

    Slices: for each row of A and column of B, x = 2^e * sum over i of d_i 2^(-slice_bits (i + 1)). e is the least
    exponent with all magnitudes of that row or column below 2^e. The d_i are integers of magnitude below 2^slice_bits
    with x's sign, truncated toward zero; the last is rounded by its piece's rounding (and may reach 2^slice_bits).
    Every value of C is then multiplied by 2^(e of its row + e of its column).

    Signed slices, of 8 bits: x = 2^e * sum over i of d_i 256^-(i + 1), truncated toward zero, with d_i from -128 to
    127. e is two more than the exponent of the row's or column's largest magnitude, and three more where the six bits
    behind its leading one are ones.

    Residues: of the integer that 2^-e x is truncated to (see Residue). e is chosen for each row of A and column of B,
    so that sums over K of products of these integers are below half the product of all moduli. With f the least
    exponent with all magnitudes of the row or column below 2^f, and t = x 2^(15 - f) in the input's type, S is the sum
    of t t, each product rounded in that type and then up to an integer. e = f - 15 + j for the least j with
    4^j > bound_factor S, computed in fp64.

    With log2_bound, GEMMul8's rules hold. e = f - 1 - p, where f is of the largest magnitude as fp32 (to nearest, and
    saturated), and p is floor(log2_bound - 1.5 - max(1, log2(S) / 2)) of
    the sum S of squares in the input's type: SQUARE_LANES lanes add them, rounding up, and are then added in pairs
    (hwsim.arithmetic.rounded_up). Where the last piece is a "bound", of b bits, S is the largest number in the row or
    column of the last term, which is the product of these pieces; where sums of the unit are not exact, it is raised by
    (K + 1) 2^-24 of itself. Then e = f - b - floor(log2_bound - log2(S) / 2). The logarithms are NVIDIA's lg2.approx,
    halved by a factor rounded up.
    """

    scheme: str
    a_pieces: tuple[Piece, ...]
    b_pieces: tuple[Piece, ...]
    terms: tuple[Term, ...]
    combine: Expression
    join: Literal["end", "group"] = "end"
    k_group: int | None = None
    input_format: str = "fp32"
    output_format: str = "fp32"
    split: Split = "round"
    slice_bits: int = 0
    bound_factor: float = 0.0
    log2_bound: float = 0.0
    clamp: bool = False
    arithmetic: ArithmeticName = "fp32"
    specials: Literal["unit", "fma_chain"] = "unit"
    split_in: Literal["pass", "kernel"] = "pass"
    calls: bool = False
    k_parts: tuple[int, ...] = ()
    order: OrderOrigin = "ours"

    @property
    def bounds_product(self) -> bool:
        """Whether the last term bounds the others, so that A's residues depend on B."""
        residue = self.a_pieces[-1].residue
        return residue is not None and residue.part == "bound"

    @property
    def joined_terms(self) -> tuple[Term, ...]:
        """The terms that join to C: all but one that bounds the others."""
        return self.terms[:-1] if self.bounds_product else self.terms

    @property
    def is_one_term(self) -> bool:
        """Whether C is the sum of one term as it is, joined with nothing."""
        return len(self.terms) == 1 and isinstance(self.combine, TermValue)

    @property
    def products(self) -> int:
        """Number of products of pieces that the matrix unit computes."""
        return sum(len(term.products) for term in self.terms)


@dataclass(frozen=True, slots=True)
class Mixed:
    """A GEMM whose blocks use different plans, according to the range of their elements (Ape, section 5).

    plans: from the cheapest to the most general. ranges: for each plan but the last, the smallest and largest magnitude
    of elements that it handles (zero always). A block of A and one of B, block[0] x block[2] and block[2] x block[1]
    elements (m, n, k), use the first plan that handles both; partial sums over K of each plan are combined by that
    plan, then added in order of `plans`, fp32, nearest even. strategy: "hybrid" (each block its own plan), the short
    name of one plan for all blocks, or "decide" (the fastest of these). wide_percent: without operands, the share of
    block products that need the second plan. blocks: number of block products per plan, once the operands were
    inspected. decided: the outcome of "decide". zeros_fit: whether a zero is in every range, or below each. a_types,
    b_types: where the operands' blocks need different plans, the number of the plan that each block of A (of B) needs:
    a text per row of blocks, a digit per block, the matrices of a stack one below another.
    """

    scheme: str
    plans: tuple[Plan, ...]
    ranges: tuple[tuple[float, float], ...]
    block: tuple[int, int, int]
    strategy: str = "hybrid"
    wide_percent: int | None = None
    blocks: tuple[int, ...] = ()
    decided: str = ""
    zeros_fit: bool = True
    a_types: tuple[str, ...] = ()
    b_types: tuple[str, ...] = ()


def sums(*values: Expression) -> Expression:
    """The expression ((v0 + v1) + v2) + ..., in this order."""
    total = values[0]
    for value in values[1:]:
        total = Sum(total, value)
    return total
