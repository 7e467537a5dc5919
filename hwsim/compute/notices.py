"""The warnings about a call's operands, its library and its mapping, collected when they are asked for.

It knows requests and records; it computes nothing of a product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwsim.analysis.run_records import RunWarning
from hwsim.gemm.record import Gemm
from hwsim.libraries.notices import left_out, time_warnings, warnings_of
from hwsim.operands.operand import Operand
from hwsim.program.ir import Program
from hwsim.request.request import Request
from hwsim.resolve.choice.clipped_tile import clipped_tile
from hwsim.resolve.choice.idle_cores import idle_cores
from hwsim.resolve.choice.split_k_advice import advice

WIDENED = "operands_widened"  # code of the warning that A and B came in two formats


@dataclass(frozen=True, slots=True)
class Notices:
    """The warnings of a call. operands: A and B, None: there are none. options: complete ones of the scheme. program:
    whose cycles the result has, None: it has none. own_formats: the formats that A and B came in, where these differ.
    """

    request: Request
    record: Gemm
    operands: tuple[Operand, Operand] | None
    options: Mapping[str, Any]
    program: Program | None
    own_formats: tuple[str, str] | None = None

    def __call__(self) -> list[RunWarning]:
        warnings: list[RunWarning] = []
        if self.operands is not None:
            a, b = self.operands
            of_operands = self.request.scheme.inspect(a.values(), b.values(), self.options)
            warnings += [] if self.own_formats is None else [_widened(self.own_formats, a.format)]
            warnings += [
                {"code": notice.code, "count": notice.count, "message": notice.message} for notice in of_operands
            ]
        if self.record.library is not None:
            warnings += left_out(self.record)
        if self.request.library is not None:
            warnings += warnings_of(self.request.library)
            warnings += time_warnings(self.request.library, self.request.device) if self.request.timing else []
        if self.program is not None and self.record.mapping is not None:
            warnings += advice(self.record, self.request.device, self.request.mapping)
            warnings += idle_cores(self.record, self.program, self.request.device, self.request.mapping)
            if self.record.library is None:
                warnings += clipped_tile(self.record, self.request.device)
        return warnings


def product_warnings(c: Any) -> list[RunWarning]:
    """The warning about a product without a finite element. c: C (..., m, n), of any dtype of results, or None."""
    if c is None or not c.size or np.isfinite(c).any():
        return []
    message = "no element of C is finite: its error says nothing"
    return [{"code": "nothing_finite", "count": int(c.size), "message": message}]


def _widened(own_formats: tuple[str, str], format: str) -> RunWarning:
    """Says that A and B of two formats are kept in one that holds both, where the kernel converts them from."""
    message = (
        f"A came in {own_formats[0]} and B in {own_formats[1]}: both are in memory as {format}, and cycles are of that"
    )
    return {"code": WIDENED, "count": 1, "message": message}
