"""The device object: the validated data of one chip, and methods that run its matrix instructions on arrays."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy.typing as npt

from hwsim.devices import arithmetic
from hwsim.devices.model import DeviceModel
from hwsim.report.notebook import card


class Device(DeviceModel):
    """One chip: its validated data, and its matrix instructions. Raises ConfigError (from the loader) for invalid
    data.
    """

    def _repr_html_(self) -> str:
        pairs = [
            ("title", self.title),
            ("family", self.family),
            ("cores", self.cores),
            ("clock", f"{self.clock_mhz:,g} MHz"),
        ]
        levels = ", ".join(
            f"{count} {level}" for level, count in Counter(about.evidence for about in self.evidence.values()).items()
        )
        rows = [
            (
                name,
                f"{instruction.m} x {instruction.n} x {instruction.k}",
                f"{instruction.a} x {instruction.b} + {instruction.c} -> {instruction.d}",
                instruction.unit,
            )
            for name, instruction in self.matrix_instructions.items()
        ]
        head = ("matrix instruction", "m x n x k", "formats", "dot unit")
        return card(f"hwsim device {self.name}", [*pairs, ("evidence of numbers", levels)], head, rows)

    def mma(
        self,
        instruction: str,
        a: npt.ArrayLike,
        b: npt.ArrayLike,
        c: npt.ArrayLike,
        *,
        scale_a: npt.ArrayLike | None = None,
        scale_b: npt.ArrayLike | None = None,
        scale_d: int = 0,
    ) -> npt.NDArray[Any]:
        """One matrix instruction, bit for bit: d (..., M, N) = a (..., M, K) b (..., K, N) + c (..., M, N).

        An unsigned array of exactly a format's storage width holds codes (4 and 6 bits: one per uint8, low bits);
        otherwise the dtype is the format's own (NumPy's or ml_dtypes'; tf32: float32). d holds codes when c does.
        Leading dimensions broadcast. scale_a (..., M, K / block), scale_b (..., K / block, N): block scales.
        scale_d: c counts times 2^-scale_d (tcgen05's scale-input-d).
        Raises UnsupportedError for an instruction that the device has not, InputError for what does not fit it,
        as an A of more elements that are not zero than a 2:4 sparse instruction stores.
        """
        return arithmetic.mma(self, instruction, a, b, c, scale_a=scale_a, scale_b=scale_b, scale_d=scale_d)

    def dot(
        self,
        instruction: str,
        a: npt.ArrayLike,
        b: npt.ArrayLike,
        c: npt.ArrayLike,
        *,
        scale_a: npt.ArrayLike | None = None,
        scale_b: npt.ArrayLike | None = None,
        scale_d: int = 0,
    ) -> npt.NDArray[Any]:
        """One element of the instruction's result per case: a, b (..., K') with K' up to K, c (...) -> d (...).

        Operands beyond K' are zeros. scale_a, scale_b (..., K / block). Codes, dtypes and errors as of `mma`.
        """
        return arithmetic.dot(self, instruction, a, b, c, scale_a=scale_a, scale_b=scale_b, scale_d=scale_d)
