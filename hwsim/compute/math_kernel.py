"""PyTorch's math form of attention on a device: the calls of its products, its evidence, bits of codes, its program.

It knows devices, shapes, codes and calls of a library; no framework's tensor and no option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.compute.bits import Arrays, compute
from hwsim.compute.call import product_call
from hwsim.compute.timed_attention import TimedAttention
from hwsim.datafiles.provenance import Level
from hwsim.dataflows import written_sums
from hwsim.dataflows.attention.math_program import math_program, refuses
from hwsim.devices import numerics_evidence
from hwsim.devices.special_functions import has_special_functions, tables_evidence
from hwsim.evaluate.math_attending import MathAttending
from hwsim.gemm.attention_record import Mask, MathAttention, attention_of
from hwsim.gemm.layouts import StorageOrder
from hwsim.gemm.math_form import MathForm
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.pytorch.routes import evidence_of_kernel, families_of_kernel, softmax_kernels
from hwsim.operands.operand import Operand
from hwsim.program.ir import Program
from hwsim.resolve.resolved import Resolved

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.evaluate.attending import Descale

Codes = NDArray[Any]
Single = NDArray[np.float32]
FORMATS = ("fp16", "bf16", "fp32")
FP32 = "fp32"


def has_math_form(device: Device, format: str) -> bool:
    """Whether the orders of PyTorch's softmax kernels hold for a device and operands of a format, and the device's
    special functions are known.
    """
    is_of_family = device.family in families_of_kernel("softmax") and FP32 in device.native
    return format in FORMATS and is_of_family and has_special_functions(device)


@dataclass(frozen=True, slots=True, eq=False)
class MathKernel:
    """The math form on a device. format: of the operands and the result. calls: of the library, for both products."""

    device: Device
    order: MathForm
    format: str
    is_causal: bool
    calls: tuple[HeadsCall, HeadsCall]

    @property
    def instruction(self) -> str:
        """The instruction of the products."""
        return self.order.instruction

    def attend(
        self,
        query: Codes,
        key: Codes,
        value: Codes,
        *,
        factor: float,
        threads: int,
        mask: Codes | None = None,
        descale: Descale | None = None,
    ) -> Codes:
        """Codes of the result (heads, queries, width of the value), as of AttentionKernel.attend. descale: None."""
        assert descale is None  # of operands of 8 bits
        products = [_CallProduct(call.resolved(self.device), threads) for call in self.calls]
        attending = MathAttending(
            self.order,
            self.device,
            self.format,
            factor,
            products=(products[0], products[1]),
            backend=CPU,
            threads=threads,
        )
        return attending(query, key, value, is_causal=self.is_causal, mask=mask)

    def record(
        self, shapes: Sequence[Sequence[int]], *, groups: int, factor: float, mask: Mask = "none"
    ) -> MathAttention:
        """The attention of operands of these shapes, as of `math_kernel_of`, as data."""
        device = self.device.name, self.device.sha256
        return attention_of(
            self.order, device, self.format, shapes, groups=groups, factor=factor, is_causal=self.is_causal, mask=mask
        )

    def timed(
        self, shapes: Sequence[Sequence[int]], *, groups: int, factor: float, mask: Mask = "none"
    ) -> TimedAttention:
        """The same with its program and times."""
        record = self.record(shapes, groups=groups, factor=factor, mask=mask)
        programs = [_Planned.of(call.resolved(self.device, is_timed=True)) for call in self.calls]
        refusal = refuses(self.device) or next((x.refusal for x in programs if x.refusal), "")

        def written() -> Program:
            scores, values = (x.written() for x in programs)
            return math_program(record, self.device, scores, values)

        return TimedAttention(record, self.device, self.instruction, refusal, written)

    @property
    def evidence(self) -> Level:
        """The weakest level behind the bits: the orders', the instruction's, the special functions'."""
        levels = (
            Level(self.order.evidence),
            numerics_evidence(self.device, self.instruction),
            tables_evidence(self.device, self.order.special_functions),
        )
        return max(levels, key=list(Level).index)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The program of a product. refusal: why there is none, in words; empty where `written` gives one."""

    refusal: str
    written: Callable[[], Program]

    @classmethod
    def of(cls, resolved: Resolved) -> _Planned:
        """The program of the record, or where its order of summation is written out, of that."""
        program = resolved.program
        if program is not None:
            whole = program
            return cls("", lambda: whole)
        reason = written_sums.refuses(resolved.gemm)
        refusal = f"{resolved.no_program}; {reason}" if reason else ""
        return cls(refusal, lambda: written_sums.written_sum_program(resolved.gemm, resolved.device))


@dataclass(frozen=True, slots=True)
class _CallProduct:
    """The product of two stacks (heads, rows, columns) in the order of a call."""

    resolved: Resolved
    threads: int

    def __call__(self, a: Single, b: Single) -> Single:
        left, right = (Operand(x.view(np.uint32), FP32) for x in (a, b))
        arrays = Arrays(left, right, (len(a),))
        product, _ = compute(self.resolved, arrays, by_program=False, threads=self.threads, progress=None)
        return product


@dataclass(frozen=True, slots=True)
class HeadsCall:
    """The call of a library for a product of all heads, as PyTorch's bmm makes it. sizes: m, n, k. layout: of B."""

    heads: int
    sizes: tuple[int, int, int]
    layout: StorageOrder

    def resolved(self, device: Device, *, is_timed: bool = False) -> Resolved:
        """The record of the call. is_timed: with its program. Raises UnsupportedError where the library's choice is not
        known.
        """
        m, n, k = self.sizes
        zero = np.float32(0)
        a, b = np.broadcast_to(zero, (self.heads, m, k)), np.broadcast_to(zero, (self.heads, k, n))
        options = {"library": PYTORCH, "a_layout": "rows", "b_layout": self.layout, "timing": is_timed}
        return product_call(a, b, device, "native", options).resolved


def math_kernel_of(device: Device, format: str, shapes: Sequence[Sequence[int]], *, is_causal: bool) -> MathKernel:
    """The math form for operands of these shapes (heads, rows, width): of query, key and value, with as many heads
    each. Raises UnsupportedError where the library's choice is not known.
    """
    (heads, queries, width), (_, keys, _), (_, _, value_width) = shapes
    calls = (
        HeadsCall(heads, (queries, keys, width), "columns"),
        HeadsCall(heads, (queries, value_width, keys), "rows"),
    )
    scores, values = (call.resolved(device).gemm for call in calls)
    kernels = softmax_kernels()
    decided = [gemm.decided("order of summation") for gemm in (scores, values)]
    levels = [
        Level(evidence_of_kernel("softmax", device.name)),
        *(Level(x.evidence) for x in decided if x is not None and x.evidence),
    ]
    evidence = max(levels, key=list(Level).index).value
    named = [gemm.decided("kernel") for gemm in (scores, values)]
    names = tuple("a kernel that is not known" if x is None else x.value for x in named)
    form = MathForm(replace(scores, decisions=()), replace(values, decisions=()), names, kernels, evidence)
    return MathKernel(device, form, format, is_causal, calls)
