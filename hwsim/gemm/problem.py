"""The GEMM problem: sizes, operand formats and storage orders, before any choice of how to compute it."""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.gemm.layouts import StorageOrder


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a convolution over `batch` images of height x width pixels.

    Of height and width: window, its taps; places, where it is put; stride; padding, the pixels outside, on each side;
    dilation.
    """

    batch: int
    height: int
    width: int
    window: tuple[int, int]
    places: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Image:
    """The matrix in memory that A's elements are gathered from, one per matrix of a batch: an implicit GEMM's input.

    rows: pixels of all images. cols: channels. read: how many of its elements belong to any row of A. windows: which
    element each of A is (None: not said, so that a program stands for time alone).
    """

    rows: int
    cols: int
    read: int
    windows: Windows | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """The GEMM C[m, n] = A[m, k] B[k, n] with elements of `input_format`.

    lead: leading dimensions of a batch of such products, in one launch. a_layout, b_layout: "rows" (row-major) or
    "columns" (column-major). has_c: whether a C is read. bias: its format, one value per column, or None. image: what A
    is gathered from (None: A itself is in memory).
    """

    input_format: str
    m: int
    n: int
    k: int
    lead: tuple[int, ...] = ()
    a_layout: StorageOrder = "rows"
    b_layout: StorageOrder = "rows"
    has_c: bool = False
    bias: str | None = None
    image: Image | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sizes (m, n, k)."""
        return self.m, self.n, self.k

    @property
    def matrices(self) -> int:
        """Number of products in the batch."""
        count = 1
        for extent in self.lead:
            count *= extent
        return count
