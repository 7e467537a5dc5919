"""What the units did where two ways of computing an element part: operands, incoming accumulator, result.

It knows evaluators, chains and one row and column of operands; it compares nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim.devices import dot_spec
from hwsim.devices import instruction as known
from hwsim.evaluate.chains import Chains
from hwsim.evaluate.product_instructions import instructions_of
from hwsim.formats import format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.operands.operand import Operand
from hwsim.report.explain import explain

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.evaluate.product import Evaluator
    from hwsim.evaluate.split import Pieces
    from hwsim.gemm.plan import Term
    from hwsim.gemm.schedule import Run

MOST = 32  # instructions of one side


@dataclass(frozen=True, slots=True)
class UnitStep:
    """One element of one matrix instruction: products of k_start to k_stop are added to c, which gives d.

    a, b: codes in the instruction's formats; c, d: codes of the accumulator before and after. All are hexadecimal text.
    device: as a command takes it. term: index of the plan's term (native has one); slice: of K.
    """

    device: str
    instruction: str
    term: int
    slice: int
    k_start: int
    k_stop: int
    a: tuple[str, ...]
    b: tuple[str, ...]
    c: str
    d: str
    c_value: float
    d_value: float

    def is_as_in(self, others: tuple[UnitStep, ...]) -> bool:
        """Whether the other side did the same: the same K of the same term, from one code to one code."""
        mine = (self.term, self.slice, self.k_start, self.k_stop, self.c, self.d)
        return any(mine == (step.term, step.slice, step.k_start, step.k_stop, step.c, step.d) for step in others)

    @property
    def command(self) -> str:
        """The command that shows how the unit got there, stage by stage."""
        operands = " ".join(f"--{name} {','.join(codes)}" for name, codes in (("a", self.a), ("b", self.b)))
        return f"hwsim explain {self.device} {self.instruction} {operands} --c {self.c}"


def unit_steps(
    side: Evaluator, a: Pieces, b: Pieces, k_first: int, k_end: int, instruction: str | None = None
) -> tuple[UnitStep, ...]:
    """The first instructions, at most MOST, that take elements of K from k_first to k_end. a, b: one row, one column.
    instruction: of the first product, as the mapping has it; None: the schedule's.

    Empty where sums are written out, K is permuted or operands have scales, and of terms that scale the accumulator: no
    stretch of K there is the operands of an instruction.
    """
    schedule, plan = side.schedule, side.plan
    is_scaled = a.scales is not None or b.scales is not None
    if is_scaled or schedule.sum is not None or schedule.regions or schedule.k_permutation is not None:
        return ()
    wanted = schedule.instruction
    if instruction is not None and _are_alike(side.device, instruction, side.gemm.unit):
        wanted = instruction
    backend, instructions = side.backend, instructions_of(plan, side.device, wanted)
    pieces = instructions.taken("a", a, backend), instructions.taken("b", b, backend)
    chains = Chains(instructions, backend)
    steps: list[UnitStep] = []
    for number, runs in enumerate(schedule.k_partition(a.shape[1]).slices):
        for index, term in enumerate(plan.terms):
            if len(term.stages) > 1 or term.stages[0].scale_exponent:
                continue
            for prefix, start, stop in _instructions(instructions.step(term), term, runs, k_first, k_end):
                code = 0
                if prefix:
                    code = int(chains.chain(term, prefix, pieces[0].codes, pieces[1].codes, None, 1)[0, 0])
                for i, j in term.products:
                    row, column = pieces[0].codes[i][0, start:stop], pieces[1].codes[j][start:stop, 0]
                    name = instructions.of((i, j)).name
                    step = _step(side, name, (index, number, start, stop), row, column, code)
                    steps.append(step)
                    code = int(step.d, 16)
                if len(steps) >= MOST:
                    return tuple(steps[:MOST])
    return tuple(steps)


def _are_alike(device: Device, name: str, other: str) -> bool:
    """Whether two instructions differ in rows and columns alone, which change no element's bits."""
    return dot_spec(device, name) == dot_spec(device, other) and known(device, name).k == known(device, other).k


def relative_error(value: float, exact: Fraction | None) -> float | None:
    """(value - exact) / |exact|; None where it is not a number."""
    if exact is None or not exact or not np.isfinite(value):
        return None
    return float((Fraction(value) - exact) / abs(exact))


def _instructions(
    k: int, term: Term, runs: tuple[Run, ...], k_first: int, k_end: int
) -> Iterator[tuple[Run, int, int]]:
    """(what its chain took before, start, stop) of each instruction of a term that meets k_first to k_end. k: of one
    instruction.
    """
    group = k if term.k_group == "instruction" else term.k_group
    for run in runs:
        before: list[tuple[int, int]] = []
        for start, stop in run:
            for at in range(start, stop, k):
                to = min(at + k, stop)
                chained = before if group is None else [(max(at - (at - start) % group, start), at)]
                if at < k_end and to > k_first:
                    yield tuple(span for span in chained if span[0] < span[1]), at, to
                before = [*before[:-1], (before[-1][0], to)] if at > start else [*before, (at, to)]


def _step(side: Evaluator, name: str, place: tuple[int, int, int, int], row: Any, column: Any, code: int) -> UnitStep:
    spec = dot_spec(side.device, name)
    record = explain(side.device, name, DotOperands(row.tolist(), column.tolist(), code))
    d = int(record["result"]["code"], 16)
    term, piece, k_start, k_stop = place
    return UnitStep(
        device=side.device.argument,
        instruction=name,
        term=term,
        slice=piece,
        k_start=k_start,
        k_stop=k_stop,
        a=tuple(_hex(x, spec.a) for x in row.tolist()),
        b=tuple(_hex(x, spec.b) for x in column.tolist()),
        c=_hex(code, spec.c),
        d=_hex(d, spec.d),
        c_value=_value(code, spec.c),
        d_value=_value(d, spec.d),
    )


def _hex(code: int, fmt: str) -> str:
    return f"0x{code:0{max(format_of(fmt).bits, 8) // 4}x}"


def _value(code: int, fmt: str) -> float:
    words = np.array([[code]], f"u{max(format_of(fmt).bits, 8) // 8}")
    return float(Operand(words, fmt).values()[0, 0])
