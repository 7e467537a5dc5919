"""Accumulation in the matrix unit: products of pieces chained over a run of K in one accumulator, bit for bit.

A backend computes each product with the dot unit of its instruction. The module knows a plan's terms, instructions and
spans of K; it knows nothing of what happens outside the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.instruction_order import InstructionRuns, in_instruction_order, whole
from hwsim.arithmetic.scaled import scaled_gemm
from hwsim.backend.arrays import in_c_order
from hwsim.gemm import refusals
from hwsim.host.multiples import round_up
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import FusedUnit, IntegerUnit

if TYPE_CHECKING:
    from hwsim.arithmetic.lanes import AdditionSpecials
    from hwsim.backend.operations import Backend
    from hwsim.evaluate.product_instructions import ProductInstruction, ProductInstructions
    from hwsim.gemm.plan import Stage, Term
    from hwsim.gemm.record import Gemm
    from hwsim.gemm.schedule import Run

Codes = NDArray[Any]
ONE = {"ue8m0": 0x7F, "ue4m3": 0x38}  # codes of 1


class Chains:
    """The chains of one product. It keeps the operands that it has arranged: make one for each pair of operands.

    permutation: of K, by the schedule.
    """

    def __init__(
        self, instructions: ProductInstructions, backend: Backend, permutation: tuple[int, ...] | None = None
    ) -> None:
        self.instructions, self.backend, self.permutation = instructions, backend, permutation
        # Of a term of the plan, by identity: hashing its stages would take as long as a short run's call.
        self._runs: dict[int, tuple[InstructionRuns, InstructionRuns] | None] = {}
        self._places: dict[tuple[int, int, bool], Codes | None] = {}

    def chain(
        self,
        term: Term,
        run: Run,
        a: Sequence[Codes],
        b: Sequence[Codes],
        start: Codes | None,
        threads: int,
    ) -> Codes:
        """One term over the run's spans, accumulated from `start` (codes in the unit's c format, or None: +0).

        Each span begins a new instruction.
        """
        value = start
        is_span = self.permutation is None and len(run) == 1
        cached = self._cached(term, run[0], a, b, threads) if is_span else None
        if cached is not None:
            first = self.instructions.of(term.products[0])
            divide = self._divisions(term, run[0][1] - run[0][0], start is not None)
            accumulator = _Accumulator(self.backend, start, True, 0, threads)
            length = (run[0][1] - run[0][0]) * len(term.products)
            accumulator.add(first, cached[0][:, :length], cached[1][:length], divide)
            return accumulator.codes
        for stage in term.stages:
            for index, span in enumerate(run):
                scale = 0 if index else stage.scale_exponent
                value = self._stage(stage, span, a, b, value, value is start, scale, threads)
        assert value is not None
        return value

    def scaled(
        self,
        term: Term,
        run: Run,
        a: Sequence[Codes],
        b: Sequence[Codes],
        scales: tuple[Codes, Codes],
        start: Codes | None,
        threads: int,
    ) -> Codes:
        """As `chain`, for a term of one product by an instruction with block scales.

        scales: codes of A's (m, blocks) and B's (blocks, n). Elements that fill up the last instruction are 0 times 1.
        """
        [(i, j)] = term.products
        first = self.instructions.of((i, j))
        block = first.spec.scale_block
        assert block is not None
        filling = np.uint8(ONE[str(first.spec.scale_format)])
        value = start
        for begin, stop in run:
            x, y = (whole(piece, (begin, stop), first.model.k, None, axis) for piece, axis in ((a[i], 1), (b[j], 0)))
            of_span = slice(begin // block, -(-stop // block))
            left, right = scales[0][:, of_span], scales[1][of_span]
            missing = x.shape[-1] // block - left.shape[1]
            if missing:
                left = np.pad(left, ((0, 0), (0, missing)), constant_values=filling)
                right = np.pad(right, ((0, missing), (0, 0)), constant_values=filling)
            spec = first.spec if value is start else first.continued
            factors = in_c_order(left), in_c_order(right)
            value = self.backend.gemm(spec, DotOperands(x, y, value, *factors), threads=threads)
        assert value is not None
        return value

    def promoted(
        self,
        term: Term,
        runs: Sequence[Run],
        a: Sequence[Codes],
        b: Sequence[Codes],
        total: NDArray[Any],
        specials: AdditionSpecials,
        threads: int,
    ) -> int:
        """Add the first runs, each accumulated from +0, to `total`, in one call of the backend; returns the number of
        runs added.

        total: values (m, n) in the type of the unit's results. specials: of the additions. Returns 0, and does nothing,
        where the first run is not a single span of whole instructions in order of K, or the backend does not promote.
        """
        first = self.instructions.of(term.products[0])
        spec, model = first.spec, first.model
        if self.permutation is not None or len(runs[0]) != 1 or not self.backend.promotes(spec):
            return 0
        start, stop = runs[0][0]
        length, count, divide = stop - start, 1, None
        if length <= 0 or length % model.k or model.k % spec.unit.terms:
            return 0
        while count < len(runs) and runs[count] == ((start + count * length, stop + count * length),):
            count += 1
        if len(term.products) == 1:
            [(i, j)] = term.products
            left, right = a[i][..., start:], b[j][..., start:, :]
        else:
            cached = self._cached(term, runs[0][0], a, b, threads)
            if cached is None:
                return 0
            divide = self._divisions(term, length, False)
            length *= len(term.products)
            left, right = cached
            count = min(count, left.shape[1] // length, right.shape[0] // length)
        left, right = left[..., : count * length], right[..., : count * length, :]
        for index in np.ndindex(*total.shape[:-2]):  # one, but of a stack
            sums = total[index]
            self.backend.promote(
                spec,
                DotOperands(left[index], right[index], scale_d=0 if divide is None else divide),
                sums,
                length=length,
                threads=threads,
                **specials._asdict(),
            )
        return count

    def _cached(
        self, term: Term, span: tuple[int, int], a: Sequence[Codes], b: Sequence[Codes], threads: int
    ) -> tuple[Codes, Codes] | None:
        """The operands of all stages, arranged for one of many short runs and some that follow it.

        None where that is not possible.
        """
        if len(term.stages) == len(term.stages[0].products) == 1:
            return None
        runs = self._both_runs(term)
        if runs is None:
            return None
        left, right = runs[0].cached(a, span, threads), runs[1].cached(b, span, threads)
        return None if left is None or right is None else (left, right)

    def _both_runs(self, term: Term) -> tuple[InstructionRuns, InstructionRuns] | None:
        """Both operands of the term's runs; None where one call of the backend cannot compute all its stages."""
        if id(term) not in self._runs:
            self._runs[id(term)] = self._runs_of(term)
        return self._runs[id(term)]

    def _runs_of(self, term: Term) -> tuple[InstructionRuns, InstructionRuns] | None:
        """The operands of a term whose stages one call of the backend computes."""
        first, *others = (self.instructions.of(product) for product in term.products)
        spec, model = first.spec, first.model
        [step, *more] = {stage.interleave or model.k for stage in term.stages}
        if more:
            return None
        divides = any(stage.scale_exponent for stage in term.stages)
        is_exact = isinstance(spec.unit, FusedUnit) and model.scale_input_d_rule == "exact"
        if not others or any(other is not first for other in others):
            return None
        if divides and not (is_exact and spec.c == spec.d == "fp32"):
            return None
        left, right = (
            InstructionRuns([[product[side] for product in stage.products] for stage in term.stages], step, 1 - side)
            for side in (0, 1)
        )
        return left, right

    def _divisions(self, term: Term, length: int, has_start: bool) -> Codes | None:
        """The binary places by which the accumulator is divided before each step of a run of this length, for all
        stages.
        """
        key = id(term), length, has_start
        if key not in self._places:
            self._places[key] = self._new_divisions(term, length, has_start)
        return self._places[key]

    def _new_divisions(self, term: Term, length: int, has_start: bool) -> Codes | None:
        if not any(stage.scale_exponent for stage in term.stages):
            return None
        steps = length // self.instructions.spec(term).unit.terms
        places = [np.zeros(steps * len(stage.products), np.uint8) for stage in term.stages]
        for index, stage in enumerate(term.stages):
            places[index][0] = stage.scale_exponent if index or has_start else 0
        return np.concatenate(places)

    def _stage(
        self,
        stage: Stage,
        span: tuple[int, int],
        a: Sequence[Codes],
        b: Sequence[Codes],
        value: Codes | None,
        is_start: bool,
        scale: int,
        threads: int,
    ) -> Codes:
        """Add the stage's products over one span to `value`, the accumulator (is_start: the caller's, in the unit's c
        format).
        """
        first = self.instructions.of(stage.products[0])
        spec, model = first.spec, first.model
        accumulator = _Accumulator(self.backend, value, is_start, scale, threads)
        others = stage.products[1:]
        if not others or all(self.instructions.of(product) is first for product in others):
            # A last instruction of one step is not padded here: what misses in a step counts as +0.
            is_plain = len(stage.products) == 1 and self.permutation is None and model.k == spec.unit.terms
            for part, step in _blocks(span, model.k, stage.interleave):
                left, right = (
                    in_instruction_order(
                        [pieces[product[side]] for product in stage.products],
                        part,
                        1 if is_plain else step,
                        self.permutation,
                        1 - side,
                    )
                    for side, pieces in ((0, a), (1, b))
                )
                for x, y in zip(left, right, strict=True):
                    accumulator.add(first, x, y)
            return accumulator.codes
        # Unlike instructions: wrapping integers are the same in any order, others alternate.
        wraps = isinstance(spec.unit, IntegerUnit) and spec.unit.overflow == "wrap"
        lefts = [whole(a[i], span, model.k, self.permutation, 1) for i, _ in stage.products]
        rights = [whole(b[j], span, model.k, self.permutation, 0) for _, j in stage.products]
        length = lefts[0].shape[-1]
        step = length if wraps else stage.interleave or model.k
        for at in range(0, length, step):
            for product, x, y in zip(stage.products, lefts, rights, strict=True):
                instruction = self.instructions.of(product)
                accumulator.add(instruction, x[..., at : at + step], y[..., at : at + step, :])
        return accumulator.codes


def _blocks(span: tuple[int, int], instruction_k: int, interleave: int | None) -> list[tuple[tuple[int, int], int]]:
    """The parts of a span of K, and after how much of K products alternate there: a last block may be shorter."""
    start, stop = span
    rest = 0 if interleave is None else (stop - start) % interleave
    whole_span = [] if rest == stop - start and rest else [((start, stop - rest), interleave or instruction_k)]
    return whole_span + ([((stop - rest, stop), round_up(rest, instruction_k))] if rest else [])


class _Accumulator:
    """An accumulator that products are added to, with scaling before the first of them. is_start: `value` is the
    caller's, in the unit's c format.
    """

    def __init__(self, backend: Backend, value: Codes | None, is_start: bool, scale: int, threads: int) -> None:
        self.backend, self.threads = backend, threads
        self.value, self.is_own = value, value is not None and not is_start
        self.scale = scale if value is not None else 0

    @property
    def codes(self) -> Codes:
        assert self.value is not None
        return self.value

    def add(self, instruction: ProductInstruction, x: Codes, y: Codes, divide: Codes | None = None) -> None:
        """Chain the products of x and y onto the value; divide: exponents for each step, in place of the scale."""
        spec = instruction.continued if self.is_own else instruction.spec
        out = self.value if self.is_own else None
        operands = DotOperands(x, y, self.value, scale_d=self.scale if divide is None else divide)
        rule = instruction.model.scale_input_d_rule
        self.value = scaled_gemm(spec, operands, rule, backend=self.backend, out=out, threads=self.threads)
        self.scale, self.is_own = 0, True


def refuses(gemm: Gemm) -> str:
    """What of a record the chains do not compute: scales along K of some plans and orders."""
    is_along_k = refusals.scales(gemm.problem, refusals.ALONG_K)
    schedule, plan = gemm.schedule, gemm.single
    beside = refusals.named(
        {
            "scales of plans with several products": plan.products != 1,
            "scales along K beside a permuted K": schedule.k_permutation is not None,
            "scales along K beside a written-out sum": schedule.sum is not None or bool(schedule.regions),
            "scales along K beside remainder='first'": schedule.remainder == "first",
            "scales along K beside start='c'": schedule.start == "c",
            "scales along K beside sparsity": gemm.problem.sparsity is not None,
        }
    )
    alone = refusals.one_sided_scales(gemm.problem, refusals.ALONG_K)
    return refusals.joined(alone, beside if is_along_k and not alone else "")
