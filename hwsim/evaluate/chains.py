"""Accumulation in the matrix unit: products of pieces chained over a run of K in one accumulator, bit for bit.

Each product is computed by the compiled dot unit of its instruction. The module knows a plan's terms, instructions and
spans of K; it knows nothing of what happens outside the unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels import gemm, promote
from hwsim.arithmetic.instruction_order import Runs, in_instruction_order, whole
from hwsim.arithmetic.scaled import scaled_gemm
from hwsim.devices import dot_spec, find, instruction_taking
from hwsim.errors import UnsupportedError
from hwsim.gemm.plan import SIDES
from hwsim.numerics.units import FusedUnit, IntegerUnit
from hwsim.operands.operand import Operand

if TYPE_CHECKING:
    from hwsim.arithmetic.lanes import AdditionSpecials
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel
    from hwsim.evaluate.split import Pieces
    from hwsim.gemm.plan import Plan, Side, Stage, Term
    from hwsim.gemm.schedule import Run
    from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]


class Chains:
    """Computes the terms of one plan on one device. wanted: the schedule's instruction.

    Raises UnsupportedError where the device lacks an instruction for a product, or scale-input-d.
    """

    def __init__(
        self, plan: Plan, device: Device, wanted: str | None = None, permutation: tuple[int, ...] | None = None
    ) -> None:
        self.plan, self.device, self.permutation = plan, device, permutation
        self._units: dict[tuple[str, str], tuple[str, DotSpec, InstructionModel]] = {}
        # Of a term of the plan, by identity: hashing its stages would take as long as a short run's call.
        self._runs: dict[int, tuple[Runs, Runs] | None] = {}
        self._places: dict[tuple[int, int, bool], Codes | None] = {}
        for term in plan.terms:
            for i, j in term.products:
                pair = (plan.a_pieces[i].format, plan.b_pieces[j].format)
                if pair not in self._units:
                    name = instruction_taking(device, *pair, wanted)
                    model = find(device, name)
                    assert model is not None
                    self._units[pair] = (name, dot_spec(device, name), model)
            self._check(term)
        #: By side, the formats of pieces that an instruction takes as wider ones.
        self._wider = {
            side: {
                pair[index]: taken
                for pair, (_, spec, _) in self._units.items()
                if (taken := (spec.a, spec.b)[index]) != pair[index]
            }
            for index, side in enumerate(SIDES)
        }

    def afresh(self) -> Chains:
        """The same, without the operands that it has arranged."""
        other = object.__new__(Chains)
        other.__dict__.update(self.__dict__)
        other._runs = {}
        return other

    @property
    def names(self) -> list[str]:
        """Names of the instructions, starting with that of the first product."""
        return list(dict.fromkeys(name for name, _, _ in self._units.values()))

    def spec(self, term: Term) -> DotSpec:
        """The dot unit and formats of a term's first product; the term's results are in its format d."""
        return self._unit(term.products[0])[1]

    def taken(self, side: Side, given: Pieces) -> Pieces:
        """The pieces in the formats that the instructions take: an instruction asked for may be for wider floats."""
        wide = self._wider[side]
        if not wide:
            return given
        pieces = self.plan.a_pieces if side == "a" else self.plan.b_pieces
        codes = tuple(
            Operand(codes, piece.format).converted(wide.get(piece.format, piece.format)).codes
            for codes, piece in zip(given.codes, pieces, strict=True)
        )
        return dataclasses.replace(given, codes=codes)

    def step(self, term: Term) -> int:
        """The K of one instruction of a term."""
        return self._unit(term.products[0])[2].k

    def _unit(self, product: tuple[int, int]) -> tuple[str, DotSpec, InstructionModel]:
        i, j = product
        return self._units[self.plan.a_pieces[i].format, self.plan.b_pieces[j].format]

    def _check(self, term: Term) -> None:
        scheme = self.plan.scheme
        units = [self._unit(product) for product in term.products]
        if len({(spec.d, model.k) for _, spec, model in units}) != 1:
            names = ", ".join(sorted({name for name, _, _ in units}))
            raise UnsupportedError(
                f"scheme {scheme}: one accumulator takes the results of instructions with unlike results or K: {names}"
            )
        for stage in term.stages:
            name, _, model = self._unit(stage.products[0])
            if stage.scale_exponent > (model.scale_input_d or 0):
                has = f"up to 2^-{model.scale_input_d}" if model.scale_input_d else "not at all"
                raise UnsupportedError(
                    f"scheme {scheme}: the unit must scale its accumulator by 2^-{stage.scale_exponent} "
                    f"(scale_input_d); instruction {name} of {self.device.name} does so {has}"
                )

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
            _, spec, model = self._unit(term.products[0])
            divide = self._divisions(term, run[0][1] - run[0][0], start is not None)
            accumulator = _Accumulator(start, True, 0, model, threads)
            length = (run[0][1] - run[0][0]) * len(term.products)
            accumulator.add(spec, cached[0][:, :length], cached[1][:length], divide)
            return accumulator.codes
        for stage in term.stages:
            for index, span in enumerate(run):
                scale = 0 if index else stage.scale_exponent
                value = self._stage(stage, span, a, b, value, value is start, scale, threads)
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
        """Add the first runs, each accumulated from +0, to `total`, in one call of the kernels; returns the number of
        runs added.

        total: values (m, n) in the type of the unit's results. specials: of the additions. Returns 0, and does nothing,
        where the first run is not a single span of whole instructions in order of K.
        """
        if self.permutation is not None or len(runs[0]) != 1:
            return 0
        _, spec, model = self._unit(term.products[0])
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
            promote(
                spec,
                left[index],
                right[index],
                sums,
                length=length,
                divide=divide,
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

    def _both_runs(self, term: Term) -> tuple[Runs, Runs] | None:
        """Both operands of the term's runs; None where one kernel call cannot compute all its stages."""
        if id(term) not in self._runs:
            self._runs[id(term)] = self._runs_of(term)
        return self._runs[id(term)]

    def _runs_of(self, term: Term) -> tuple[Runs, Runs] | None:
        """The operands of a term whose stages one call of the kernels computes."""
        (name, spec, model), *others = (self._unit(product) for product in term.products)
        divides = any(stage.scale_exponent for stage in term.stages)
        is_exact = isinstance(spec.unit, FusedUnit) and model.scale_input_d_rule == "exact"
        if not others or any(other[0] != name for other in others):
            return None
        if divides and not (is_exact and spec.c == spec.d == "fp32"):
            return None
        left, right = (
            Runs([[product[side] for product in stage.products] for stage in term.stages], model.k, 1 - side)
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
        steps = length // self.spec(term).unit.terms
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
        _, spec, model = self._unit(stage.products[0])
        others = {self._unit(product)[0] for product in stage.products}
        accumulator = _Accumulator(value, is_start, scale, model, threads)
        if len(others) == 1:
            # A last instruction of one step is not padded here: the kernel takes what misses in a step as +0.
            is_plain = len(stage.products) == 1 and self.permutation is None and model.k == spec.unit.terms
            left, right = (
                in_instruction_order(
                    [pieces[product[side]] for product in stage.products],
                    span,
                    1 if is_plain else model.k,
                    self.permutation,
                    1 - side,
                )
                for side, pieces in ((0, a), (1, b))
            )
            for x, y in zip(left, right, strict=True):
                accumulator.add(spec, x, y)
            return accumulator.codes
        # Unlike instructions: wrapping integers are the same in any order, others alternate.
        wraps = isinstance(spec.unit, IntegerUnit) and spec.unit.overflow == "wrap"
        lefts = [whole(a[i], span, model.k, self.permutation, 1) for i, _ in stage.products]
        rights = [whole(b[j], span, model.k, self.permutation, 0) for _, j in stage.products]
        length = lefts[0].shape[-1]
        step = length if wraps else model.k
        for at in range(0, length, step):
            for product, x, y in zip(stage.products, lefts, rights, strict=True):
                accumulator.add(self._unit(product)[1], x[..., at : at + step], y[..., at : at + step, :])
        return accumulator.codes


class _Accumulator:
    """An accumulator that products are added to, with scaling before the first of them."""

    def __init__(
        self,
        value: Codes | None,
        is_start: bool,
        scale: int,
        model: InstructionModel,
        threads: int,
    ) -> None:
        self.value, self.is_own = value, value is not None and not is_start
        self.scale, self.model, self.threads = scale if value is not None else 0, model, threads

    @property
    def codes(self) -> Codes:
        assert self.value is not None
        return self.value

    def add(self, spec: DotSpec, x: Codes, y: Codes, divide: Codes | None = None) -> None:
        """Chain the products of x and y onto the value; divide: as for the kernels."""
        if self.is_own and spec.c != spec.d:
            spec = _continued(spec)
        out = self.value if self.is_own else None
        if self.scale and self.value is not None:
            rule = self.model.scale_input_d_rule
            self.value = scaled_gemm(spec, x, y, self.value, self.scale, rule, out=out, threads=self.threads)
        else:
            self.value = gemm(spec, x, y, self.value, divide=divide, out=out, threads=self.threads)
        self.scale, self.is_own = 0, True


_continuations: dict[DotSpec, DotSpec] = {}


def _continued(spec: DotSpec) -> DotSpec:
    """The unit with its result format as the accumulator's format, for continued chains. Repeated calls return the same
    object.
    """
    if spec not in _continuations:
        _continuations[spec] = dataclasses.replace(spec, c=spec.d)
    return _continuations[spec]
