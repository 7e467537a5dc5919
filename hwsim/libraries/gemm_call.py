"""A library's call as one value: what a caller asks of an operation. It knows sizes, formats and layouts by name.

It knows no library, no device and no array. A further operation (a convolution, attention, a grouped GEMM) is a further
record under `OperationCall`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypedDict

Reductions = Literal["any", "compute", "none"]
PYTORCH = "pytorch"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCall:
    """One call of a library. operation: its kind, by which a library says what it implements."""

    operation: ClassVar[str] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmCall(OperationCall):
    """C[m, n] = A[m, k] B[k, n], and what the call adds to it."""

    operation: ClassVar[str] = "gemm"

    m: int
    n: int
    k: int
    format: str  # of the elements of A, by hwsim's name; of B too, where format_b is None
    format_b: str | None = None
    sparsity: str | None = None  # of A: "2:4"
    output: str | None = None  # format of the result; None: the accumulator's
    accumulate: str | None = None  # of 8-bit floats: "fast" or "promoted"; None: the library's default
    a_layout: str = "rows"  # storage order: "rows" (row-major) or "columns"
    b_layout: str = "rows"
    batch: int = 1  # products in one strided call
    scales: tuple[str, str] | None = None  # of A and B: "tensor", "row", "1x128", "128x128", "vector"
    bias: bool = False  # one value per column is added
    has_c: bool = False  # beta C is added
    is_scaled: bool = False  # alpha is not 1, or beta neither 0 nor 1
    is_c_whole: bool = True  # beta is 1
    reductions: Reductions | None = None  # "compute": slices of K are added in the format of sums; "none": no slices
    workspace_bytes: int | None = None  # what cublasGemmEx may use; None: what the caller tells it
    lt_workspace_bytes: int | None = None  # what cublasLtMatmul may use
    caller: str | None = None  # a framework, which tells the library more (workspace, reductions); None: nobody

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(m, n, k)."""
        return self.m, self.n, self.k

    @property
    def result(self) -> str:
        """The format of the result."""
        return self.output or result_format(self.format)


class GemmFields(TypedDict, total=False):
    """The fields of `GemmCall` that a caller names one by one (hwsim.library(...).choose)."""

    m: int
    n: int
    k: int
    format: str
    format_b: str | None
    output: str | None
    accumulate: str | None
    a_layout: str
    b_layout: str
    scales: tuple[str, str] | None
    batch: int
    bias: bool
    reductions: Reductions | None


def result_format(format: str) -> str:
    """The format of a result that a call does not name: the accumulator's."""
    return {"fp64": "fp64", "int8": "int32"}.get(format, "fp32")
