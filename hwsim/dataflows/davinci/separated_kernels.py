"""The kernels of a GEMM on separated DaVinci cores, as fixed by plan, schedule and epilogue; without the cube's
blocking.

Vector cores split the operands, cube cores compute the terms, vector cores promote and combine them. There is no path
from UB to L1 and none from L0C to UB, so all of this goes through global memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hwsim.dataflows.davinci.cube_blocking import CubeTerm
from hwsim.dataflows.davinci.join_ops import OutputEpilogue
from hwsim.dataflows.davinci.vector_epilogue import StoredTermSums, VectorEpilogue
from hwsim.dataflows.elementwise import Pass
from hwsim.dataflows.operand_passes import bounded_passes, operand_passes, operand_vectors
from hwsim.dataflows.reductions import LineReduction
from hwsim.devices import instruction, instruction_for
from hwsim.errors import UnsupportedError
from hwsim.gemm.expressions import parts_of
from hwsim.gemm.plan import SLICED, Depth, Expression, OperandSum, Plan
from hwsim.gemm.schedule import epilogue_format
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
    passes: vector kernels that make the pieces from it. vectors: arrays of one number for each row of A or column of B
    that these make: the `exponent` of its slices, its `sum` over K.
    """

    source: GlobalArray
    pieces: dict[int, GlobalArray]
    formats: dict[int, str]
    passes: tuple[Pass | LineReduction, ...] = ()
    vectors: Mapping[str, GlobalArray] = field(default_factory=dict)

    @property
    def arrays(self) -> list[GlobalArray]:
        """The operand's arrays, in the program's order."""
        return [self.source, *(self.pieces.values() if self.passes else ()), *self.vectors.values()]


class SeparatedKernels:
    """The kernels of a record on separated cores.

    is_direct: the FixPipe writes the result itself. adds: what other kernels left in the result is added. Raises
    UnsupportedError for a plan that the cores do not support.
    """

    def __init__(self, gemm: Gemm, plan: Plan, device: Device, *, adds: bool = False) -> None:
        self.gemm, self.plan, self.device = gemm, plan, device
        _check(plan, device)
        problem, (m, n, k) = gemm.problem, gemm.problem.sizes
        self.a = self._operand("a", plan.a_pieces, m, k, problem.a_layout)
        self.b = self._operand("b", plan.b_pieces, k, n, problem.b_layout)
        self.unit = instruction(device, gemm.unit)
        self.sum_format = self.unit.d
        self.output = GlobalArray("C", m, n, gemm.output)
        is_exact = plan.arithmetic == "exact"
        self.join_format = self.sum_format if is_exact else plan.arithmetic
        self.end_format = plan.output_format if is_exact else epilogue_format(plan.arithmetic, gemm.output)
        self.c = GlobalArray("C.in", m, n, gemm.output) if problem.has_c else None
        self.bias = None if problem.bias is None else GlobalArray("bias", 1, n, self.end_format)
        self.epilogue = OutputEpilogue.of(gemm, self.c, self.bias, 1)
        is_single = plan.is_one_term and plan.split == "round"
        is_written = gemm.output == self.sum_format or _casts(device, "L0C", "GM", self.sum_format, gemm.output)
        is_bare = is_single and self.epilogue.is_plain and not adds
        self.is_direct = is_bare and not self._is_promoted(0) and is_written
        self.terms = [self._term(t) for t in range(len(plan.terms))]
        self.units = {pair: self._unit(pair) for term in plan.terms for pair in term.products}
        self.splits = (*self.a.passes, *self.b.passes)
        self.joins = () if self.is_direct else tuple(self._epilogue().passes())
        #: the passes after the product that bounds the others
        self.bounded: tuple[Pass | LineReduction, ...] = ()
        if plan.bounds_product:
            product = self.terms[-1].target
            sides: tuple[tuple[Side, CubeOperand], ...] = (("a", self.a), ("b", self.b))
            self.bounded = tuple(
                work for side, x in sides for work in bounded_passes(plan, side, x.source, x.pieces, x.vectors, product)
            )

    @property
    def count(self) -> int:
        """Number of device kernels of the program."""
        return len(self.splits) + len(self.bounded) + len(self.terms) + len(self.joins)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the arrays that the caller fills: A, B, C and the bias, where there are such."""
        addends = [array.name for array in (self.c, self.bias) if array is not None]
        return (self.a.source.name, self.b.source.name, *addends)

    @property
    def arrays(self) -> list[GlobalArray]:
        """All arrays, in the program's order."""
        sums = [array for work in self.joins for array in (*work.outputs, *work.inputs)]
        targets = [term.target for term in self.terms]
        addends = [array for array in (self.c, self.bias) if array is not None]
        return list(dict.fromkeys([*self.a.arrays, *self.b.arrays, *addends, self.output, *targets, *sums]))

    def _operand(self, side: Side, pieces: Sequence[Piece], rows: int, cols: int, order: StorageOrder) -> CubeOperand:
        """An operand's pieces: unchanged, rounded by MTE2 during the copy, or made by vector kernels."""
        fmt, name = self.plan.input_format, side.upper()
        if len(pieces) == 1 and not pieces[0].scale_exponent:
            piece = pieces[0]
            if piece.format == fmt or (piece.rounding == "RNE" and _casts(self.device, "GM", "L1", fmt, piece.format)):
                array = GlobalArray(name, rows, cols, fmt, order)
                return CubeOperand(array, {0: array}, {0: piece.format})
        used = sorted({pair["ab".index(side)] for term in self.plan.terms for pair in term.products})
        names = {p: name if len(pieces) == 1 else f"{name}{p + 1}" for p in used}
        arrays = {p: GlobalArray(names[p], rows, cols, pieces[p].format, order) for p in used}
        source = GlobalArray(f"{name}.in", rows, cols, fmt, order)
        vectors = operand_vectors(self.plan, side, source)
        passes = operand_passes(self.plan, side, source, arrays, vectors)
        return CubeOperand(source, arrays, {p: pieces[p].format for p in used}, tuple(passes), vectors)

    def _unit(self, pair: tuple[int, int]) -> str:
        """The matrix instruction of a product of pieces."""
        formats = self.a.formats[pair[0]], self.b.formats[pair[1]]
        return instruction_for(self.device, *formats, self.gemm.schedule.instruction)

    def promotion_interval(self, t: int) -> int | None:
        """The K that term t accumulates in the cube from zero; None: all of it."""
        of_term = self.plan.terms[t].k_group
        run = self.gemm.schedule.promotion_k if of_term is None else of_term
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

    def finish(self, total: GlobalArray) -> Pass:
        """The pass from an array of the finished sum to the result."""
        return self._epilogue().finish(total)

    def _epilogue(self) -> VectorEpilogue:
        return VectorEpilogue(
            plan=self.plan,
            terms=[
                StoredTermSums(term.target, self._runs(t), self._is_promoted(t))
                for t, term in enumerate(self.terms[: len(self.plan.joined_terms)])
            ],
            output=self.output,
            sum_format=self.sum_format,
            join_format=self.join_format,
            end_format=self.end_format,
            epilogue=self.epilogue,
            powers=self._powers,
            extra=self._extra,
            k=self.gemm.problem.k,
        )

    @property
    def _powers(self) -> tuple[GlobalArray, GlobalArray] | None:
        """The exponents of A's rows and of B's columns, where the operands are slices."""
        return (self.a.vectors["exponent"], self.b.vectors["exponent"]) if self.plan.split in SLICED else None

    @property
    def _extra(self) -> dict[Expression, GlobalArray | float]:
        """What the plan adds to its terms: arrays of sums of operands, and multiples of K."""
        extra: dict[Expression, GlobalArray | float] = {}
        for part in parts_of(self.plan.combine):
            if isinstance(part, OperandSum):
                extra[part] = (self.a if part.side == "a" else self.b).vectors["sum"]
            elif isinstance(part, Depth):
                extra[part] = float(part.factor * self.gemm.problem.k)
        return extra


def _check(plan: Plan, device: Device) -> None:
    """Refuse a plan whose sums the vector cores do not support, or whose scaling the cube does not."""
    if any(stage.scale_exponent for term in plan.terms for stage in term.stages):
        raise UnsupportedError(f"device {device.name}: the cube does not scale its accumulator (scale-input-d)")


def _casts(device: Device, source: str, target: str, a: str, b: str) -> bool:
    """Whether a link converts from format a to b during the copy."""
    links = device.links.values()
    return any((x.source, x.target) == (source, target) and f"{a}.{b}" in x.casts for x in links)
