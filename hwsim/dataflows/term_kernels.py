"""Programs with one kernel of matrix products for each term of a plan. It knows plans and passes, no matrix unit.

Passes split the operands into pieces, each kernel writes the sum of one term, and a pass joins the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hwsim.dataflows.elementwise import Pass, combine_pass, lower_pass
from hwsim.dataflows.pieces import OperandArrays
from hwsim.dataflows.records import mapping_of, plan_of
from hwsim.devices.device import Device
from hwsim.errors import UnsupportedError
from hwsim.formats import WORD_BITS, format_of
from hwsim.gemm.expressions import has_integer_parts
from hwsim.gemm.mapping import KernelMapping
from hwsim.gemm.plan import Plan
from hwsim.gemm.record import Gemm
from hwsim.program.ir import GlobalArray, Kernel, Program

PieceArrays = tuple[GlobalArray, GlobalArray]
PieceStages = Sequence[Sequence[PieceArrays]]
MakeTermKernel = Callable[[KernelMapping, PieceStages, GlobalArray], Kernel]
"""From a mapped kernel, the pairs of pieces of its stages and the array of its sum: the kernel."""


def kernel_names(plan: Plan) -> list[str]:
    """The kernel of each term: gemm, or gemm_1, gemm_2 and so on."""
    count = len(plan.terms)
    return ["gemm"] if count == 1 else [f"gemm_{t + 1}" for t in range(count)]


def check_plan(plan: Plan, family: str) -> None:
    """Raise UnsupportedError for a plan that needs more than fp32 passes before and after products of one format."""
    pieces = (*plan.a_pieces, *plan.b_pieces)
    is_split = any(piece.format != plan.input_format for piece in pieces) or len(pieces) > 2
    refusals = {
        "pieces of several formats": len({piece.format for piece in pieces}) > 1,
        "scaled sums": any(stage.scale_exponent for term in plan.terms for stage in term.stages),
        "pieces not rounded from fp32": is_split
        and (plan.split != "round" or format_of(plan.input_format).bits > WORD_BITS),
        "sums not joined in fp32 after all of K": not plan.is_one_term
        and (plan.join != "end" or plan.arithmetic != "fp32" or has_integer_parts(plan.combine)),
    }
    refused = ", ".join(name for name, is_refused in refusals.items() if is_refused)
    if refused:
        raise UnsupportedError(f"scheme {plan.scheme}: programs of family {family} carry no {refused}")


def program_of_terms(gemm: Gemm, device: Device, family: str, kernel: MakeTermKernel) -> Program:
    """Operands split where the plan asks for pieces, one `kernel` per term, the terms joined. A, B, C: (m, k), (k, n),
    (m, n).
    """
    plan, (m, n, k) = plan_of(gemm), gemm.problem.sizes
    a, b = OperandArrays.of(plan, "a", m, k), OperandArrays.of(plan, "b", k, n)
    output = GlobalArray("C", m, n, gemm.output)
    sums, joins = [output], list[Pass]()
    if not plan.is_one_term:
        sums = [GlobalArray(f"T{i + 1}", m, n, gemm.output) for i in range(len(plan.terms))]
        joins = [combine_pass("combine", plan.combine, sums, output)]
    kernels = [lower_pass(work, device) for work in (*a.passes, *b.passes)]
    for mapped in mapping_of(gemm, family).kernels:
        (term,) = mapped.terms
        stages = [[(a.pieces[i], b.pieces[j]) for i, j in stage.products] for stage in plan.terms[term].stages]
        kernels.append(kernel(mapped, stages, sums[term]))
    kernels += [lower_pass(work, device) for work in joins]
    arrays = (*a.arrays, *b.arrays, *(sums if joins else ()), output)
    return Program(arrays, tuple(kernels), (a.source.name, b.source.name), output.name)
