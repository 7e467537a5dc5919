"""A GEMM as cuBLAS is asked for it, and what it refuses: sizes, formats, layouts, and what the call allows.

Which calls a version takes is data (`taken` of configs/libraries/*.version.yaml), which the functions are given. The
module knows calls alone: no version of the library, no chip, and no choice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.formats import format_of
from hwsim.libraries.gemm_call import GemmCall, Reductions, result_format

if TYPE_CHECKING:
    from hwsim.libraries.model.version_model import TakenModel, WholeRowsModel

LINE_BYTES, VECTOR_BYTES = 128, 16
ELEMENT_BYTES = {"e4m3": 1, "int8": 1, "fp16": 2, "bf16": 2, "tf32": 4, "fp32": 4, "fp64": 8}
LAYOUTS = ("rows", "columns")
ACCUMULATES = ("fast", "promoted")  # of e4m3
MOST_SIZE = (1 << 31) - 1  # of m, n and k: what cuBLAS's 32-bit calls take
ROW_BYTES = (VECTOR_BYTES, 4, 1)  # that copies to shared memory tell apart
REDUCTION_IN_PLACE, REDUCTION_COMPUTE_TYPE, REDUCTION_OUTPUT_TYPE = 1, 2, 4  # CUBLASLT_REDUCTION_SCHEME_*
#: Those that are allowed.
REDUCTION_MASKS: dict[str, int] = {"any": 7, "compute": 2, "none": 0}


class CublasGemm(NamedTuple):
    """A GEMM as the library is asked for it: C[m, n] = A[m, k] B[k, n]."""

    m: int
    n: int
    k: int
    operand: str
    output: str
    a_layout: str
    b_layout: str

    @property
    def element_bytes(self) -> int:
        """Bytes of an operand's element in memory."""
        return ELEMENT_BYTES[self.operand]

    @property
    def vector_elements(self) -> int:
        """Elements of an operand in the 16 bytes that rows are aligned to."""
        return VECTOR_BYTES // self.element_bytes

    @property
    def leading_sizes(self) -> tuple[int, int, int]:
        """The leading dimensions of A, D and B, elements."""
        return self.k if self.a_layout == "rows" else self.m, self.n, self.k if self.b_layout == "columns" else self.n

    @property
    def row_bytes(self) -> int:
        """The largest of ROW_BYTES that rows of A, B and D in memory are multiples of, with the operands' elements."""
        length = math.gcd(*self.leading_sizes) * self.element_bytes
        return next(size for size in ROW_BYTES if length % size == 0)


class Preference(NamedTuple):
    """What the library is told beside the problem: bytes of workspace, and in which type slices may be reduced."""

    workspace_bytes: int
    reductions: Reductions

    @property
    def mask(self) -> int:
        """cuBLASLt's mask of reductions."""
        return REDUCTION_MASKS[self.reductions]


class HeuristicQuery(NamedTuple):
    """A call with all that the library is told: the preference, fast accumulation (None: not 8-bit floats), a bias in
    the epilogue, and products in a strided batch.
    """

    call: CublasGemm
    told: Preference
    fast: bool | None
    bias: bool
    batch: int


class Extrapolation(NamedTuple):
    """What the library was not asked about, so that another call's answer stands for a call's. parts: of the call, in
    words, without which it was asked. chips: where it was asked, where that is not the chip at hand.
    """

    parts: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Both in words; "": nothing."""
        parts = f" for the call without {' and '.join(self.parts)}, which cuBLASLt was not asked about"
        others = f", by answers on {' and '.join(self.chips)}: on this chip cuBLASLt was not asked about such calls"
        return (parts if self.parts else "") + (others if self.chips else "")


ALL_ASKED = Extrapolation()


def operand_of(model: TakenModel, format: str, format_b: str | None) -> str:
    """The format whose kernels multiply A of `format` by B of `format_b` (None: the same).

    Raises UnsupportedError for pairs that cuBLAS does not multiply.
    """
    pairs = {(pair.a, pair.b): pair.like for pair in model.pairs.values()}
    is_of_two_alone = any(format in pair for pair in pairs) and format not in model.outputs
    if format_b in (None, format) and not is_of_two_alone:
        return format
    like = pairs.get((format, str(format_b)))
    if like is None:
        pairs_text = ", ".join(f"{a} by {b}" for a, b in pairs)
        raise UnsupportedError(
            f"cuBLAS multiplies no {format} by {format_b or format}; of two formats it does {pairs_text}"
        )
    return like


def checked_call(model: TakenModel, gemm: GemmCall) -> CublasGemm:
    """The call with its sizes, formats and layouts, of operands of one format. Raises InputError for values that are
    not allowed, and UnsupportedError for what cuBLASLt refuses.
    """
    format, accumulate = gemm.format, gemm.accumulate
    for name, size in (("m", gemm.m), ("n", gemm.n), ("k", gemm.k), ("batch", gemm.batch)):
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 1 <= size <= MOST_SIZE:
            raise InputError(f"{name} = {size!r}; allowed: integers from 1 to {MOST_SIZE}")
    if not isinstance(format, str) or format not in model.outputs:
        formats = list(model.outputs)
        raise UnsupportedError(f"format {format!r}: not one of {', '.join(formats)}{nearest(str(format), formats)}")
    wanted = result_format(format) if gemm.output is None else gemm.output
    if wanted not in (allowed := model.outputs[format]):
        raise UnsupportedError(f"{format} operands give {', '.join(allowed)} in cuBLAS; got {wanted}")
    is_known = accumulate is None or (isinstance(accumulate, str) and accumulate in ACCUMULATES)
    if not is_known or (accumulate == "promoted" and format != "e4m3"):
        raise InputError(f"accumulate = {accumulate!r}; allowed: fast, promoted (e4m3 alone)")
    for name, layout in (("a_layout", gemm.a_layout), ("b_layout", gemm.b_layout)):
        if not isinstance(layout, str) or layout not in LAYOUTS:
            raise InputError(f"{name} = {layout!r}; allowed: rows, columns")
    call = CublasGemm(
        m=int(gemm.m),
        n=int(gemm.n),
        k=int(gemm.k),
        operand=format,
        output=wanted,
        a_layout=gemm.a_layout,
        b_layout=gemm.b_layout,
    )
    if reason := _refused(model, call, accumulate):
        raise UnsupportedError(f"cuBLASLt refuses {format} {call.m} x {call.n} x {call.k}: {reason}")
    return call


def is_fast(call: CublasGemm, accumulate: str | None) -> bool | None:
    """Fast accumulation of a checked call; None for operands that have no other."""
    return None if call.operand != "e4m3" else accumulate != "promoted"


def check_mixed(model: TakenModel, call: CublasGemm, format: str, format_b: str | None) -> None:
    """Raise UnsupportedError where cuBLASLt refuses a product of two formats that it takes of one."""
    row_bytes = next(rule.row_bytes for rule in model.pairs.values() if (rule.a, rule.b) == (format, format_b))
    if reason := _not_whole(call, row_bytes):
        sizes = f"{call.m} x {call.n} x {call.k}"
        raise UnsupportedError(f"cuBLASLt refuses {format} by {format_b}, {sizes}: {reason}")


def _refused(model: TakenModel, call: CublasGemm, accumulate: str | None) -> str:
    """Why cuBLASLt refuses a GEMM; "": it takes it."""
    if call.operand in model.k_major and (call.a_layout, call.b_layout) != ("rows", "columns"):
        return "8-bit operands are K-major: give a_layout='rows', b_layout='columns' (--b-layout columns)"
    rule = next((rule for rule in model.whole_rows.values() if _is_for(rule, call, accumulate)), None)
    return "" if rule is None else _not_whole(call, rule.row_bytes, rule.of_result)


def _is_for(rule: WholeRowsModel, call: CublasGemm, accumulate: str | None) -> bool:
    """Whether a rule is for such a call."""
    is_output = rule.output in (None, call.output)
    return rule.operand == call.operand and is_output and rule.accumulate in (None, accumulate)


def _not_whole(call: CublasGemm, row_bytes: int, of_result: bool = True) -> str:
    """Says that rows must be whole so many bytes, where they are not: of K-major operands, and of_result, of C."""
    row = call.n * format_of(call.output).bits // 8
    if not (call.k * call.element_bytes % row_bytes or (of_result and row % row_bytes)):
        return ""
    if of_result:
        return f"rows of A, B and C must be whole {row_bytes} bytes"
    return f"K must be a multiple of {row_bytes // call.element_bytes}"
