"""Elements of C affected by infinities and NaNs in the operands: replaced by what an FMA chain in order of K gives.

The module knows operands and values of C; it knows no plan's pieces and no device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.arrays import in_c_order
from hwsim.errors import InputError
from hwsim.formats import array_of, code_dtype, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, FmaChainUnit, Specials

if TYPE_CHECKING:
    from hwsim.evaluate.epilogue import EpilogueEvaluator
    from hwsim.evaluate.join import Join
    from hwsim.evaluate.split import Pieces
    from hwsim.operands.operand import Operand

AnyArray = NDArray[Any]
MATRIX = 2  # dimensions


class SpecialsPatch:
    """Finds and recomputes affected elements for a join, in fp64 where `output` is fp64, otherwise in fp32."""

    def __init__(self, join: Join, output: str) -> None:
        self.backend = join.lanes.backend
        self.dtype = np.dtype(np.float64 if output == "fp64" else np.float32)
        self.format = format_of("fp64" if output == "fp64" else "fp32")
        name = self.format.name
        unit = FmaChainUnit(specials=Specials(zero="ieee", nan_code=(1 << self.format.magnitude_bits) - 1))
        self.spec = DotSpec(unit, name, name, name, name)

    def find(self, a: Pieces, b: Pieces, k: int) -> SpecialElements | SpecialStack | None:
        """The elements of C whose row of A or column of B holds a NaN or infinity in the first k of K; None: there are
        none.

        Raises InputError for pieces without the operand they were made of.
        """
        if a.source is None or b.source is None:
            raise InputError("the plan patches specials: give the pieces as hwsim.evaluate.split makes them")
        left, right = self._values(a.source), self._values(b.source)
        left, right = left[..., :k], right[..., :k, :]
        if left.ndim == MATRIX:
            lines = self.backend.specials(left)[0], self.backend.specials(right)[1]
        else:
            lines = np.any(~np.isfinite(left), axis=-1), np.any(~np.isfinite(right), axis=-2)
        rows, columns = map(self.backend.to_host, lines)
        if not rows.any() and not columns.any():
            return None
        if left.ndim == MATRIX:
            return SpecialElements(self, left, right, rows, columns)
        touched = np.nonzero(rows.any(axis=-1) | columns.any(axis=-1))[0]
        return SpecialStack({int(i): SpecialElements(self, left[i], right[i], rows[i], columns[i]) for i in touched})

    def _values(self, source: Operand) -> AnyArray:
        return source.values(self.backend).astype(self.dtype, copy=False)


class SpecialStack:
    """The affected elements of a stack of products, by the index of the matrix."""

    def __init__(self, parts: dict[int, SpecialElements]) -> None:
        self.parts = parts

    def put(self, values: AnyArray, threads: int) -> None:
        """Write the recomputed elements to values (count, m, n)."""
        for index, part in self.parts.items():
            part.put(values[index], threads)

    def put_codes(
        self, codes: AnyArray, epilogue: EpilogueEvaluator, c: AnyArray | None, bias: AnyArray | None, threads: int
    ) -> None:
        """Apply the epilogue to the recomputed elements and write them to codes (count, m, n) of the output."""
        for index, part in self.parts.items():
            part.put_codes(codes[index], epilogue, None if c is None else c[index], bias, threads)


class SpecialElements:
    """The affected elements of C: those in masked `rows` or `columns`."""

    def __init__(self, patch: SpecialsPatch, a: AnyArray, b: AnyArray, rows: AnyArray, columns: AnyArray) -> None:
        self.patch, self.a, self.b = patch, a, b
        good = np.nonzero(~rows)[0]
        self.parts = [(np.nonzero(rows)[0], np.arange(b.shape[1])), (good, np.nonzero(columns)[0])]

    def put(self, values: AnyArray, threads: int) -> None:
        """Write the recomputed elements to an array of values."""
        for rows, columns in self.parts:
            values[np.ix_(rows, columns)] = self._chain(rows, columns, threads)

    def put_codes(
        self, codes: AnyArray, epilogue: EpilogueEvaluator, c: AnyArray | None, bias: AnyArray | None, threads: int
    ) -> None:
        """Apply the epilogue to the recomputed elements and write them to codes of the output."""
        for rows, columns in self.parts:
            part = np.ix_(rows, columns)
            chained = self._chain(rows, columns, threads)
            own_c, own_bias = None if c is None else c[part], None if bias is None else bias[columns]
            codes[part] = epilogue.apply(chained, own_c, own_bias, 1, threads)

    def _chain(self, rows: AnyArray, columns: AnyArray, threads: int) -> AnyArray:
        dtype = code_dtype(self.patch.format)
        left = in_c_order(self.a[rows]).view(dtype)
        right = in_c_order(self.b[:, columns]).view(dtype)
        codes = self.patch.backend.gemm(self.patch.spec, DotOperands(left, right), threads=threads)
        return array_of(codes, self.patch.format)
