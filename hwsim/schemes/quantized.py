"""Products of operands that are quantised first: MXFP8, MXFP6, MXFP4, NVFP4, and FP8 with scales of blocks and rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Piece, Plan, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.operands.quantization import SCHEMES as QUANTIZATIONS
from hwsim.schemes.native import PROMOTED_K
from hwsim.schemes.scheme import AnyArray, Notice, Scheme, special_notices

#: {scheme: (title, quantisation of A, of B)}
OPERANDS = {
    "mxfp8": ("FP8 elements with a scale of ue8m0 for every 32 of K", "mxfp8", "mxfp8"),
    "mxfp6": ("FP6 elements with a scale of ue8m0 for every 32 of K", "mxfp6", "mxfp6"),
    "mxfp4": ("FP4 elements with a scale of ue8m0 for every 32 of K", "mxfp4", "mxfp4"),
    "nvfp4": ("FP4 elements with a scale of ue4m3 for every 16 of K, and a factor of the operand", "nvfp4", "nvfp4"),
    "fp8-block": ("FP8, fp32 scales of 1 x 128 of A and 128 x 128 of B", "fp8-1x128", "fp8-128x128"),
    "fp8-row": ("FP8, an fp32 scale for each row of A and column of B", "fp8-row", "fp8-row"),
}


@dataclass(frozen=True)
class _QuantizedPlan:
    """A scheme's `plan`: one product of the elements. An object, because results are pickled."""

    name: str
    quantization: str

    def __call__(self, options: Mapping[str, Any], problem: Problem) -> Plan:
        """accumulate="promoted" is k_group = 128."""
        elements = QUANTIZATIONS[self.quantization].elements
        formats = [options["element_format"] or elements[0]] * 2
        if problem.a.format in elements and problem.b.format in elements:
            formats = [problem.a.format, problem.b.format]
        left, right = ((Piece(fmt),) for fmt in formats)
        group = PROMOTED_K if options["accumulate"] == "promoted" else None
        return Plan(self.name, left, right, (chain((0, 0)),), TermValue(0), k_group=group, input_format=formats[0])


def _inspect(a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    return special_notices(a, b)


def _scheme(name: str) -> Scheme:
    title, first, second = OPERANDS[name]
    quantization = QUANTIZATIONS[first]

    options = (
        Option(
            "element_format",
            str,
            None,
            "format of an element",
            choices=quantization.elements,
            default_text=quantization.elements[0],
        ),
        Option(
            "rule",
            str,
            None,
            "how a scale follows from the largest magnitude of its block (hwsim.quantize)",
            choices=quantization.rules,
            default_text=quantization.rules[0],
        ),
        Option(
            "accumulate",
            str,
            "promoted" if name == "fp8-block" else "fast",
            "fast: one chain over K; promoted: a promotion interval of 128",
            choices=("fast", "promoted"),
        ),
    )
    return Scheme(
        name,
        title,
        "OCP MX v1.0; cuBLAS 13; DeepSeek-V3",
        options,
        _QuantizedPlan(name, first),
        _inspect,
        input_formats=("fp32", *quantization.elements),
        quantizes=(first, second),
    )


SCHEMES = tuple(_scheme(name) for name in OPERANDS)
