"""One product D = A B + C as data: its sizes and formats. It knows formats only; no unit, no device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwsim.formats import code_dtype, format_of


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """A matrix instruction, or a GEMM: its name, its sizes in elements, and its formats by name (hwsim.formats)."""

    name: str
    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    d: str

    def dtype(self, operand: str) -> np.dtype[np.unsignedinteger]:
        """The dtype of the codes of "a", "b", "c" or "d"."""
        return code_dtype(format_of(getattr(self, operand)))

    def shape(self, operand: str, cases: int) -> tuple[int, int, int]:
        """The shape of the codes of an operand: a (cases, M, K), b (cases, N, K), c and d (cases, M, N)."""
        rows, columns = {"a": (self.m, self.k), "b": (self.n, self.k)}.get(operand, (self.m, self.n))
        return cases, rows, columns
