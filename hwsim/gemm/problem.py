"""The GEMM problem: sizes and operands, each a format, a layout, scales and sparsity, before any choice of how to
compute it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

from hwsim.formats import format_of
from hwsim.gemm.layouts import StorageOrder
from hwsim.numerics.sparsity import stored_bits

ScaleKind = Literal["tensor", "row", "vector", "block"]
Sparsity = Literal["2:4"]


@dataclass(frozen=True, slots=True)
class OperandScale:
    """Scale factors of an operand: one for each block of `rows` rows of A, or columns of B, by `k` elements along K.

    format: of a factor. rows, k: None: all of them. is_two_level: one more fp32 factor multiplies the whole operand, as
    NVFP4 has it.
    """

    format: str
    rows: int | None = None
    k: int | None = None
    is_two_level: bool = False

    @property
    def kind(self) -> ScaleKind:
        """Where the factors apply.

        tensor, row: to finished sums. block: to sums of runs of K. vector: to products inside the instruction.
        Raises KeyError for a granularity that SCALES does not list.
        """
        return SCALES[self.rows, self.k][0]

    def __str__(self) -> str:
        """As messages name it: 1 x 32 of ue8m0; all rows or all of K as "all"."""
        rows, k = ("all" if extent is None else extent for extent in (self.rows, self.k))
        return f"{rows} x {k} of {self.format}{' with a factor for all' if self.is_two_level else ''}"


#: The granularities that instructions and libraries have, as (rows, k), with their kind and the formats of a factor.
#: Vectors: PTX ISA, block scaling of mma and tcgen05.mma. The others: cublasLtMatmulMatrixScale_t of cuBLAS 13.
SCALES: Mapping[tuple[int | None, int | None], tuple[ScaleKind, tuple[str, ...]]] = {
    (None, None): ("tensor", ("fp32",)),
    (1, None): ("row", ("fp32",)),
    (1, 32): ("vector", ("ue8m0",)),
    (1, 16): ("vector", ("ue4m3", "ue8m0")),
    (1, 128): ("block", ("fp32",)),
    (128, 128): ("block", ("fp32",)),
}


@dataclass(frozen=True, slots=True)
class OperandDescription:
    """A or B of a GEMM, without its size and its values (CUTLASS: TensorDescription).

    format: of an element. layout: "rows" (row-major) or "columns" (column-major). scale: None where elements have no
    factors. sparsity: "2:4" where two of every four elements along K are stored, with their positions.
    """

    format: str
    layout: StorageOrder = "rows"
    scale: OperandScale | None = None
    sparsity: Sparsity | None = None

    @property
    def is_plain(self) -> bool:
        """Whether its elements are all there and have no factors."""
        return self.scale is None and self.sparsity is None

    @property
    def element_bits(self) -> int:
        """Bits that an element takes in memory; of a sparse operand on average, with the metadata."""
        return format_of(self.format).bits if self.sparsity is None else stored_bits(self.format)

    def __repr__(self) -> str:
        """As the call that makes it, without fields at None: part of the key by which resolved requests are kept."""
        more = "" if self.is_plain else f", {self.scale!r}, {self.sparsity!r}"
        return f"OperandDescription({self.format!r}, {self.layout!r}{more})"


@lru_cache(maxsize=256)
def plain_operand(format: str, layout: StorageOrder) -> OperandDescription:
    """An operand without scales and sparsity; calls share it."""
    return OperandDescription(format, layout)


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
    element each of A is.
    """

    rows: int
    cols: int
    read: int
    windows: Windows


@dataclass(frozen=True, slots=True)
class PlainProblem:
    """A problem of plain operands of one format, as records write it: `Problem` without the operands' descriptions."""

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
    def full_form(self) -> Problem:
        """The problem that it stands for."""
        return Problem.of(
            self.input_format,
            *(self.m, self.n, self.k, self.lead),
            a_layout=self.a_layout,
            b_layout=self.b_layout,
            has_c=self.has_c,
            bias=self.bias,
            image=self.image,
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """The GEMM C[m, n] = A[m, k] B[k, n].

    lead: leading dimensions of a batch of such products, in one launch. has_c: whether a C is read. bias: its format,
    one value per column, or None. image: what A is gathered from (None: A itself is in memory).
    """

    a: OperandDescription
    b: OperandDescription
    m: int
    n: int
    k: int
    lead: tuple[int, ...] = ()
    has_c: bool = False
    bias: str | None = None
    image: Image | None = None

    SHORT_FORM: ClassVar[type[PlainProblem]] = PlainProblem  # see hwsim.gemm.codec

    @classmethod
    def of(
        cls,
        input_format: str,
        m: int,
        n: int,
        k: int,
        lead: tuple[int, ...] = (),
        *,
        a_layout: StorageOrder = "rows",
        b_layout: StorageOrder = "rows",
        has_c: bool = False,
        bias: str | None = None,
        image: Image | None = None,
    ) -> Problem:
        """The problem of plain operands of one format."""
        a, b = plain_operand(input_format, a_layout), plain_operand(input_format, b_layout)
        return cls(a, b, m, n, k, lead=lead, has_c=has_c, bias=bias, image=image)

    @property
    def short_form(self) -> PlainProblem | None:
        """The problem without descriptions of operands; None where they say more than one format and two layouts."""
        if not (self.a.is_plain and self.b.is_plain and self.a.format == self.b.format):
            return None
        return PlainProblem(
            self.a.format,
            *(self.m, self.n, self.k, self.lead),
            a_layout=self.a.layout,
            b_layout=self.b.layout,
            has_c=self.has_c,
            bias=self.bias,
            image=self.image,
        )

    @property
    def operands(self) -> tuple[OperandDescription, OperandDescription]:
        """A and B, in this order."""
        return self.a, self.b

    @property
    def input_format(self) -> str:
        """The format of A's elements, which is B's too in all that hwsim computes."""
        return self.a.format

    @property
    def layouts(self) -> tuple[StorageOrder, StorageOrder]:
        """The layouts of A and B."""
        return self.a.layout, self.b.layout

    @property
    def a_layout(self) -> StorageOrder:
        """The layout of A."""
        return self.a.layout

    @property
    def b_layout(self) -> StorageOrder:
        """The layout of B."""
        return self.b.layout

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sizes (m, n, k)."""
        return self.m, self.n, self.k

    @property
    def sparsity(self) -> Sparsity | None:
        """The sparsity of A, which is the operand that instructions take sparse."""
        return self.a.sparsity

    @property
    def matrices(self) -> int:
        """Number of products in the batch."""
        count = 1
        for extent in self.lead:
            count *= extent
        return count

    def with_format(self, format: str) -> Problem:
        """The problem with elements of another format in both operands."""
        return replace(self, a=replace(self.a, format=format), b=replace(self.b, format=format))

    def with_sparsity(self, sparsity: Sparsity | None) -> Problem:
        """The problem with an A of that sparsity."""
        return replace(self, a=replace(self.a, sparsity=sparsity)) if sparsity != self.a.sparsity else self

    def with_layouts(self, a: StorageOrder | None = None, b: StorageOrder | None = None) -> Problem:
        """The problem with other layouts of A and B; None: the own one."""
        layouts = a or self.a.layout, b or self.b.layout
        return replace(self, a=replace(self.a, layout=layouts[0]), b=replace(self.b, layout=layouts[1]))
