"""The kernels of a GEMM on separated DaVinci cores, as fixed by plan, schedule and epilogue; without the cube's
blocking.

Vector cores split the operands, cube cores compute the terms, vector cores promote and combine them. There is no path
from UB to L1 and none from L0C to UB, so all of this goes through global memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.dataflows.davinci.cube_blocking import CubeTerm
from hwsim.dataflows.davinci.vector_epilogue import WORDS, StoredTermSums, VectorEpilogue
from hwsim.dataflows.elementwise import WORD_BITS, Pass, operand_passes
from hwsim.dataflows.reductions import Reduction
from hwsim.devices import instruction, instruction_for
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.expressions import has_integer_parts, operations
from hwsim.gemm.plan import Plan, TermValue
from hwsim.program.ir import GlobalArray

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.layouts import StorageOrder
    from hwsim.gemm.plan import Piece, Side
    from hwsim.gemm.record import Gemm


@dataclass(frozen=True, slots=True)
class CubeOperand:
    """A or B as the cube kernels read it.

    pieces: arrays by number. formats: of the pieces as the cube reads them. source: the array that the caller fills.
    passes: vector kernels that make the pieces from it.
    """

    source: GlobalArray
    pieces: dict[int, GlobalArray]
    formats: dict[int, str]
    passes: tuple[Pass | Reduction, ...] = ()

    @property
    def arrays(self) -> list[GlobalArray]:
        """The operand's arrays, in the program's order."""
        return [self.source, *(self.pieces.values() if self.passes else ())]


class SeparatedKernels:
    """The kernels of a record on separated cores.

    is_direct: the FixPipe writes the result itself. placeholder_ops: operations per element that stand for sums which
    the vector cores' fp32 cannot compute. Raises UnsupportedError for a plan that the cores do not support.
    """

    def __init__(self, gemm: Gemm, plan: Plan, device: Device) -> None:
        self.gemm, self.plan, self.device = gemm, plan, device
        _check(plan, device)
        problem, (m, n, k) = gemm.problem, gemm.problem.sizes
        self.a = self._operand("a", plan.a_pieces, m, k, problem.a_layout)
        self.b = self._operand("b", plan.b_pieces, k, n, problem.b_layout)
        self.unit = instruction(device, gemm.unit)
        self.sum_format = self.unit.d
        self.output = GlobalArray("C", m, n, gemm.output)
        is_single = len(plan.terms) == 1 and isinstance(plan.combine, TermValue)
        is_bare = is_single and gemm.epilogue.alpha == 1 and not problem.has_c and problem.bias is None
        is_written = gemm.output == self.sum_format or _casts(device, "L0C", "GM", self.sum_format, gemm.output)
        self.is_direct = is_bare and not self._is_promoted(0) and is_written
        is_fp32 = self.sum_format == "fp32" and plan.arithmetic == "fp32" and not has_integer_parts(plan.combine)
        is_whole = is_bare and self.sum_format == gemm.output == "int32"  # sums of runs alone
        is_formed = self.is_direct or is_fp32 or is_whole
        self.placeholder_ops = 0 if is_formed else max(1, operations(plan.combine))
        self.terms = [self._term(t) for t in range(len(plan.terms))]
        self.units = {pair: self._unit(pair) for term in plan.terms for pair in term.products}
        self.splits = (*self.a.passes, *self.b.passes)
        self.joins = () if self.is_direct else tuple(self._epilogue().passes())

    @property
    def count(self) -> int:
        """Number of device kernels of the program."""
        return len(self.splits) + len(self.terms) + len(self.joins)

    @property
    def computes(self) -> bool:
        """Whether the functional machine computes the plan's values from the program."""
        plan, problem = self.plan, self.gemm.problem
        if self.placeholder_ops or plan.clamp or plan.specials != "unit" or plan.split != "round":
            return False
        is_scaled = self.gemm.epilogue.alpha != 1
        return problem.bias is None and not problem.has_c and (not is_scaled or self.sum_format == "fp32")

    @property
    def arrays(self) -> list[GlobalArray]:
        """All arrays, in the program's order."""
        sums = [array for work in self.joins for array in (*work.outputs, *work.inputs)]
        targets = [term.target for term in self.terms]
        return list(dict.fromkeys([*self.a.arrays, *self.b.arrays, self.output, *targets, *sums]))

    def _operand(self, side: Side, pieces: Sequence[Piece], rows: int, cols: int, order: StorageOrder) -> CubeOperand:
        """An operand's pieces: unchanged, rounded by MTE2 during the copy, or made by vector kernels."""
        fmt, name = self.plan.input_format, side.upper()
        if len(pieces) == 1 and not pieces[0].scale_exponent:
            own = pieces[0]
            if own.format == fmt or (own.rounding == "RNE" and _casts(self.device, "GM", "L1", fmt, own.format)):
                array = GlobalArray(name, rows, cols, fmt, order)
                return CubeOperand(array, {0: array}, {0: own.format})
        used = sorted({pair["ab".index(side)] for term in self.plan.terms for pair in term.products})
        names = {p: name if len(pieces) == 1 else f"{name}{p + 1}" for p in used}
        made = {p: GlobalArray(names[p], rows, cols, pieces[p].format, order) for p in used}
        source = GlobalArray(f"{name}.in", rows, cols, fmt, order)
        passes = operand_passes(self.plan, side, source, made)
        return CubeOperand(source, made, {p: pieces[p].format for p in used}, tuple(passes))

    def _unit(self, pair: tuple[int, int]) -> str:
        """The matrix instruction of a product of pieces."""
        formats = self.a.formats[pair[0]], self.b.formats[pair[1]]
        return instruction_for(self.device, *formats, self.gemm.schedule.instruction)

    def promotion_interval(self, t: int) -> int | None:
        """The K that term t accumulates in the cube from zero; None: all of it."""
        own = self.plan.terms[t].k_group
        run = self.gemm.schedule.promotion_k if own is None else own
        if run == "instruction":
            run = self.unit.k
        return run if isinstance(run, int) and run < self.gemm.problem.k else None

    def _is_promoted(self, t: int) -> bool:
        """Whether the partial sums of term t are added outside the cube, to a sum that starts at +0 (also with one
        run).
        """
        return self.plan.terms[t].k_group is not None or self.gemm.schedule.promotion_k is not None

    def _runs(self, t: int) -> int:
        run = self.promotion_interval(t)
        return 1 if run is None else -(-self.gemm.problem.k // run)

    def _term(self, t: int) -> CubeTerm:
        """The kernel of a term."""
        term, (m, n, _) = self.plan.terms[t], self.gemm.problem.sizes
        name = "gemm" if len(self.plan.terms) == 1 else f"gemm_{t + 1}"
        used = [{pair[i] for pair in term.products} for i in range(2)]
        a, b = self.a, self.b
        target = self.output
        if not self.is_direct:
            target = GlobalArray(f"T{t + 1}", self._runs(t) * m, n, self.sum_format)
        return CubeTerm(
            name,
            term,
            ({p: a.pieces[p] for p in used[0]}, {p: b.pieces[p] for p in used[1]}),
            ({p: a.formats[p] for p in used[0]}, {p: b.formats[p] for p in used[1]}),
            target,
            self.promotion_interval(t),
        )

    def _epilogue(self) -> VectorEpilogue:
        epilogue, problem = self.gemm.epilogue, self.gemm.problem
        return VectorEpilogue(
            plan=self.plan,
            terms=[
                StoredTermSums(term.target, self._runs(t), self._is_promoted(t)) for t, term in enumerate(self.terms)
            ],
            output=self.output,
            sum_format=self.sum_format,
            alpha=epilogue.alpha,
            beta=float(epilogue.beta or 0.0),
            has_c=problem.has_c,
            has_bias=problem.bias is not None,
            placeholder_ops=self.placeholder_ops,
        )


def _check(plan: Plan, device: Device) -> None:
    """Refuse a plan whose sums the vector cores do not support, or whose scaling the cube does not."""
    if plan.arithmetic not in WORDS or format_of(plan.input_format).bits > WORD_BITS:
        what = "exact sums" if plan.arithmetic == "exact" else "fp64"
        raise UnsupportedError(
            f"device {device.name}: its vector cores have no {what}; scheme {plan.scheme} needs it outside the cube"
        )
    if any(stage.scale_exponent for term in plan.terms for stage in term.stages):
        raise UnsupportedError(f"device {device.name}: the cube does not scale its accumulator (scale-input-d)")


def _casts(device: Device, source: str, target: str, a: str, b: str) -> bool:
    """Whether a link converts from format a to b during the copy."""
    links = device.links.values()
    return any((x.source, x.target) == (source, target) and f"{a}.{b}" in x.casts for x in links)
