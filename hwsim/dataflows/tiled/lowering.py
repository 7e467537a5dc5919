"""From a plan to the kernels of a GPU: passes that split operands, tiled GEMM kernels, merges of slices of K.

Terms are accumulators of one kernel where they fit and the plan does not ask for calls; else each is a kernel that adds
to C. It knows plans, and devices through hwsim.dataflows.tiled.kernel; the family's file says how data travel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim.dataflows.elementwise import (
    Pass,
    combine_pass,
    link_engine,
    lower_pass,
    operand_passes,
    stand_in_pass,
)
from hwsim.dataflows.expressions import has_integer_parts, in_turn, operations, scaled
from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.layouts import OPTIONS as ORDERS
from hwsim.dataflows.layouts import facts, layout_of
from hwsim.dataflows.tiled.choice import choose, estimate_seconds
from hwsim.dataflows.tiled.kernel import gemm_kernel
from hwsim.dataflows.tiled.layout import Layout
from hwsim.dataflows.tiled.merge import merge_pass, merge_seconds
from hwsim.dataflows.tiled.model import Blocking, Family, Finish, Source, Work
from hwsim.dataflows.tiled.split_k import AUTO, slices
from hwsim.dataflows.tiles import fields, slices_of
from hwsim.devices import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.evaluator import instruction_for
from hwsim.formats import format_of
from hwsim.gemm.plan import Expression, Piece, Plan, Term, TermValue
from hwsim.gemm.schedule import SLICE_MULTIPLE, Schedule
from hwsim.libraries import observed
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.ir import GlobalArray, Kernel, Program

if TYPE_CHECKING:
    from hwsim.devices.model import Device

TILE_KEYS = ("m", "n", "k")
OPTIONS = ("tile", "stages", "split_k", "swizzle", "instruction", *ORDERS, "batch")
APART_GAIN = 0.9  # terms go to kernels of their own where those are estimated to take no more than this share
WHOLE = 1 << 40  # a run of K that no matrix and no tile is as long as: all of a slice, in one
WIDE = ("fp64", "int64", "exact")  # arithmetic on elements of two words


def lower(family: Family, plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> Program:
    """Return the program that computes C[m, n] = A[m, k] B[k, n] by `plan` on `device`.

    options: tile {"m", "n", "k"}; stages of shared memory; split_k slices of K (cut as hwsim.gemm.schedule does),
    merged by a kernel of their own, or "auto": the number with the least estimated time; swizzle: tiles in a band of
    columns gone through together (at most as many as there are: `facts` has the number); instruction: the matrix
    instruction, one with the same bits as the device's for the operands (by default that, or where slices of one
    product are merged what the library has for it); cta_group: cores whose matrix units multiply a tile each together
    and share B (sm100; 2 where M is whole pairs of tiles); batch: that many products, of matrices under one another in
    A, B and C; a_layout, b_layout: "rows" or "columns", what follows one another in memory of A and B, and of the
    pieces made of them (with "columns", a batch's columns do). Epilogue: alpha, beta, c (True: C is read), bias (True),
    output (format of the result). Absent or None: chosen, or none.
    Raises InputError for a blocking that the device cannot hold, UnsupportedError for a plan that it cannot carry.
    `facts`: tile, stages, split_k, swizzle, k_group (K accumulated in the unit from zero), unit, kernels, and
    layouts by columns.
    """
    if isinstance(options.get("split_k"), str):
        if options["split_k"] != AUTO:
            raise InputError(f"split_k = {options['split_k']!r}; allowed: an integer of at least 1, or {AUTO!r}")
        options = {**options, "split_k": cut(family, plan, device, m, n, k, options)[0]}
    return _Lowering(family, plan, device, m, n, k, options).program()


def cut(
    family: Family, plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]
) -> tuple[int, float]:
    """The number of slices of K that "auto" takes, and its estimated time over that of K in one piece (0 to 1).

    m, n, k: elements. Arguments and errors as of `lower`; what `options` say of split_k is not looked at.
    """

    def of(count: int) -> _Lowering:
        return _Lowering(family, plan, device, m, n, k, {**options, "split_k": count})

    return slices(k, lambda count: of(count).seconds(), lambda count: of(count).bound(), family.split_k)


@dataclass(frozen=True, slots=True)
class _Call:
    """One GEMM kernel of the plan: its terms, what it makes of them and of the C of the call before."""

    terms: tuple[int, ...]
    value: Expression
    exponent: int = 0  # of C
    order: str = "value"
    accumulates: bool = False
    final: bool = True
    target: str = "C"


class _Lowering:
    def __init__(
        self, family: Family, plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]
    ) -> None:
        self.family, self.plan, self.device, self.m, self.n, self.k = family, plan, device, m, n, k
        self.options = options
        self.batch = _whole(options, "batch", 1)
        self.order = {side: layout_of(options, side) for side in ("A", "B")}
        self.alpha = 1.0 if options.get("alpha") is None else float(options["alpha"])
        self.reads_c = bool(options.get("c"))
        beta = options.get("beta")
        self.beta = float(self.reads_c) if beta is None else float(beta)
        self.bias = bool(options.get("bias"))
        first = plan.terms[0].products[0]
        self.lengths = self._slices()
        self.unit = self._unit(plan.a_pieces[first[0]].format, plan.b_pieces[first[1]].format)
        self.model = instruction(device, self.unit)
        self.single = len(plan.terms) == 1 and isinstance(plan.combine, TermValue)
        own = self.model.d if self.single and plan.arithmetic == "fp32" else plan.output_format
        self.output = GlobalArray("C", self.batch * m, n, options.get("output") or own)
        self.runs = tuple(self._run(term) for term in plan.terms)
        self.words = 2 if plan.arithmetic in WIDE or self.model.d == "fp64" else 1
        self.stand_ins = self._stand_ins()
        self.arrays: dict[str, GlobalArray] = {}
        self.kernels: list[Kernel] = []
        self.facts: dict[str, object] = {}

    def _unit(self, a: str, b: str) -> str:
        """The first product's instruction: as asked for, as of the library's sliced kernels, or the native one."""
        native, wanted = instruction_for(self.device, a, b), self.options.get("instruction")
        seen = observed(self.device)
        if wanted is None and a == b and self.plan.products == 1 and len(self.lengths) > 1 and seen is not None:
            wanted = seen.split_k_instructions.get(a)
        return native if wanted is None else Instructions(self.device).like(native, wanted)

    def _run(self, term: Term) -> int | None:
        """The term's run of K: None where the unit's chain is the term, WHOLE where terms join after all of a slice."""
        run = self.plan.k_group if term.k_group is None else term.k_group
        if run is None and self.plan.join == "group":
            return WHOLE
        return self.model.k if run == "instruction" else run

    def _slices(self) -> tuple[int, ...]:
        count = _whole(self.options, "split_k", 1)
        seen = observed(self.device)
        multiple = seen.slice_multiple if seen is not None else None
        schedule = Schedule(split_k=count, slice_multiple=multiple)
        most = -(-self.k // (multiple or SLICE_MULTIPLE))
        if count > most:
            raise InputError(
                f"split_k = {count}: K = {self.k} has {most} slice{'s' if most > 1 else ''} of "
                f"{multiple or SLICE_MULTIPLE}; allowed: at most {most}"
            )
        return schedule.slice_lengths(self.k)

    def _stand_ins(self) -> int:
        """Operations per element of an arithmetic that the fp32 lanes cannot do; 0: they do it all."""
        expression, plan = self.plan.combine, self.plan
        plain = self.single and self.alpha == 1 and not self.reads_c and not self.bias and self.runs[0] is None
        if plain and self.output.format == self.model.d and len(self.lengths) == 1:
            return 0
        is_fp32 = self.model.d == "fp32" and plan.arithmetic == "fp32" and not has_integer_parts(expression)
        return 0 if is_fp32 else max(1, operations(expression))

    @property
    def computes(self) -> bool:
        """Whether the functional machine forms the plan's values from the program."""
        plan = self.plan
        if self.stand_ins or plan.clamp or plan.specials != "unit" or plan.split != "round" or self.bias:
            return False
        if self.reads_c or (self.alpha != 1 and self.model.d != "fp32"):
            return False
        wide = format_of(plan.input_format).bits > 32
        pieces = (*plan.a_pieces, *plan.b_pieces)
        return not (wide and any(piece.format != plan.input_format for piece in pieces))

    def seconds(self) -> float:
        """Estimated seconds of the GEMM kernels and of the passes that merge slices; passes that split are left out."""
        calls, works = self._works()
        blocking, together = self._blocking(works)
        calls, works = together or (calls, works)
        total = 0.0
        for work in works:
            layout = Layout(self.device, self.family, work, blocking)
            total += estimate_seconds(layout, (self.m, self.n), self.lengths, self.batch)
        return total + self._merges(calls, works)

    def bound(self) -> float:
        """Seconds that no estimate is below: every product at the instruction's best rate on all cores, and merges."""
        products = self.batch * self.m * self.n * self.k * self.plan.products
        rate = float(self.model.macs_per_cycle) * self.device.cores * self.device.clock_mhz * 1e6
        return products / rate + self._merges(*self._works())

    def _merges(self, calls: Sequence[_Call], works: Sequence[Work]) -> float:
        """Seconds of the passes that merge slices."""
        total, elements = 0.0, self.batch * self.m * self.n
        for call, work in zip(calls, works, strict=True):
            target = self._whole_finish(call).target.format
            partial = len(work.finish.partial)
            total += merge_seconds(self.device, elements, len(self.lengths), self.model.d, target, partial)
        return total

    # --- the program -------------------------------------------------------------------------------------------

    def program(self) -> Program:
        plan = self.plan
        self.arrays["C"] = self.output
        calls, works = self._works()
        inputs = []
        in_kernel = works[0].in_kernel
        for side, pieces, rows, cols in (
            ("A", plan.a_pieces, self.m, self.k),
            ("B", plan.b_pieces, self.k, self.n),
        ):
            inputs.append(self._split(side, pieces, self.batch * rows, cols, in_kernel))
        blocking, together = self._blocking(works)
        if together is not None:
            calls, works = together
        if self.reads_c and self.options.get("c") is not None:
            self.arrays.setdefault("C.in", GlobalArray("C.in", self.batch * self.m, self.n, self.output.format))
        for call, work in zip(calls, works, strict=True):
            self._gemm(call, work, blocking)
        if calls[0].target != "C":
            self._combine()
        layout = Layout(self.device, self.family, works[0], blocking)
        self.facts |= {
            "tile": {"m": blocking.m, "n": blocking.n, "k": blocking.k},
            "stages": blocking.stages,
            "split_k": len(self.lengths),
            "k_group": next((run for run in self.runs if run not in (None, WHOLE)), max(self.lengths)),
            "unit": layout.unit_name,
            "kernels": len(self.kernels),
        }
        if blocking.cores > 1:
            self.facts["cta_group"] = blocking.cores
        self.facts |= facts(self.order)
        return Program(
            tuple(self.arrays.values()),
            tuple(self.kernels),
            tuple(inputs),
            "C",
            self.facts,
            computes=self.computes,
        )

    def _works(self) -> tuple[list[_Call], list[Work]]:
        """The calls if each term is a kernel, or the one kernel where the plan asks for no calls."""
        plan = self.plan
        everything = tuple(range(len(plan.terms)))
        if plan.join == "group" or len(everything) == 1 or not plan.calls:
            calls = [_Call(everything, plan.combine)]
        else:
            calls = self._calls()
        return calls, [self._work(call) for call in calls]

    def _calls(self) -> list[_Call]:
        """Each term a kernel that adds to C where the sum allows it, else to an array of its own."""
        steps = in_turn(self.plan.combine)
        if steps is None:
            if self.alpha != 1 or self.reads_c or self.bias:
                raise UnsupportedError(f"scheme {self.plan.scheme}: its terms join in a pass that knows no alpha and C")
            return [_Call((t,), TermValue(0), final=False, target=f"T{t + 1}") for t in range(len(self.plan.terms))]
        return [
            _Call((step.term,), scaled(TermValue(0), step.own), step.exponent, step.order, i > 0, i + 1 == len(steps))
            for i, step in enumerate(steps)
        ]

    def _blocking(self, works: Sequence[Work]) -> tuple[Blocking, tuple[list[_Call], list[Work]] | None]:
        """The tile, and other kernels than `works` where those do not fit, or leave only tiles that are too small."""
        found = choose(self.family, self.device, works, (self.m, self.n), self.lengths, self.batch, self.options)
        if len(works) > 1 or len(works[0].terms) == 1 or works[0].joined:
            if found.blocking is None:
                raise InputError(found.reason)
            return found.blocking, None
        calls = self._calls()
        parts = [self._work(call) for call in calls]
        apart = choose(self.family, self.device, parts, (self.m, self.n), self.lengths, self.batch, self.options)
        if found.blocking is not None and (apart.blocking is None or found.seconds <= apart.seconds / APART_GAIN):
            return found.blocking, None
        if apart.blocking is None:
            raise InputError(apart.reason)
        return apart.blocking, (calls, parts)

    def _work(self, call: _Call) -> Work:
        plan = self.plan
        terms = tuple(plan.terms[t] for t in call.terms)
        products = [pair for term in terms for pair in term.products]
        sides = []
        in_kernel = plan.split == "round" and self._splits() and not self.rounds_on_load
        in_kernel = in_kernel and (plan.split_in == "kernel" or self.same_words)
        for side, pieces, at, rows, cols in (
            ("A", plan.a_pieces, 0, self.m, self.k),
            ("B", plan.b_pieces, 1, self.k, self.n),
        ):
            used = sorted({pair[at] for pair in products})
            arrays = {
                p: GlobalArray(
                    _piece(side, p, pieces),
                    self.batch * rows,
                    cols,
                    plan.input_format if self.rounds_on_load else pieces[p].format,
                    self.order[side],
                )
                for p in used
            }
            raw = GlobalArray(side, self.batch * rows, cols, plan.input_format, self.order[side]) if in_kernel else None
            sides.append(Source(arrays, {p: pieces[p].format for p in used}, raw, tuple(pieces)))
        target = (
            self.output
            if call.target == "C"
            else GlobalArray(
                call.target, self.batch * self.m, self.n, self.model.d if not self.stand_ins else plan.output_format
            )
        )
        sliced = len(self.lengths) > 1
        value = None if sliced and plan.join != "group" else call.value
        own = max(1, operations(call.value)) if self.stand_ins else 0  # a call does its own part of the sum alone
        if self.stand_ins and value is not None:
            value = TermValue(0)
        c, beta, alpha, bias = None, 0.0, 1.0, False
        if call.accumulates:
            c, beta = self.output, 2.0**call.exponent
        if call.final:
            alpha, bias = self.alpha, self.bias
            if self.reads_c:
                if c is not None and self.beta != 1:
                    bias = True  # one more operation stands for the second addend
                elif c is None:
                    c, beta = GlobalArray("C.in", self.batch * self.m, self.n, self.output.format), self.beta
        finish = Finish(
            value,
            target,
            alpha,
            beta,
            c,
            bias,
            stand_ins=own,
            words=self.words,
            order="c" if call.order == "c" else "value",
        )
        runs = tuple(self.runs[t] for t in call.terms)
        name = "gemm" if len(call.terms) == len(plan.terms) else f"gemm_{call.terms[0] + 1}"
        if sliced:
            count = 1 if plan.join == "group" else len(terms)
            partial = tuple(
                GlobalArray(f"{name}.partial{t + 1}", len(self.lengths) * self.batch * self.m, self.n, self.model.d)
                for t in range(count)
            )
            promoted = any(self.runs[t] is not None for t in call.terms)
            finish = Finish(
                call.value if plan.join == "group" and not self.stand_ins else None,
                partial[0],
                partial=partial,
                stand_ins=int(promoted and self.model.d != "fp32"),
                words=format_of(self.model.d).bits // 32 or 1,
            )
        return Work(name, self.unit, terms, runs, sides[0], sides[1], finish, joined=plan.join == "group")

    @property
    def same_words(self) -> bool:
        """Whether the operands are words that the unit reads fewer bits of: rounded in registers, not in a pass."""
        plan = self.plan
        pieces = (*plan.a_pieces, *plan.b_pieces)
        words = all(format_of(fmt).bits == 32 for fmt in (plan.input_format, *(piece.format for piece in pieces)))
        return words and len(plan.a_pieces) == len(plan.b_pieces) == 1 and not any(p.scale_exponent for p in pieces)

    @property
    def rounds_on_load(self) -> bool:
        """Whether the load rounds the operands to the unit's format on their way (TMA's TF32 type)."""
        if not self.same_words or self.plan.split != "round" or not self._splits():
            return False
        target = self.family.registers if self.family.through_registers else self.family.shared
        rounds = {f"{self.plan.input_format}.{p.format}" for p in (*self.plan.a_pieces, *self.plan.b_pieces)}
        links = (x for x in self.device.links.values() if (x.source, x.target) == ("GM", target))
        return any(rounds <= set(link.casts) for link in links)

    def _splits(self) -> bool:
        """Whether the operands have to be split or rounded at all."""
        plan = self.plan
        return not all(
            len(pieces) == 1 and pieces[0].format == plan.input_format and not pieces[0].scale_exponent
            for pieces in (plan.a_pieces, plan.b_pieces)
        )

    def _split(self, side: str, pieces: Sequence[Piece], rows: int, cols: int, in_kernel: bool) -> str:
        """Arrays of an operand and the pass that makes its pieces; returns the name of the input."""
        plan = self.plan
        used = sorted({pair["AB".index(side)] for term in plan.terms for pair in term.products})
        if in_kernel or self.rounds_on_load:
            self.arrays[side] = GlobalArray(side, rows, cols, plan.input_format, self.order[side])
            return side
        order = self.order[side]
        made = {p: GlobalArray(_piece(side, p, pieces), rows, cols, pieces[p].format, order) for p in used}
        if len(pieces) == 1 and pieces[0].format == plan.input_format and not pieces[0].scale_exponent:
            self.arrays[side] = made[0]
            return side
        source = GlobalArray(f"{side}.in", rows, cols, plan.input_format, order)
        self.arrays[source.name] = source
        self.arrays.update({array.name: array for array in made.values()})
        for work in operand_passes(plan, "a" if side == "A" else "b", source, made):
            self._pass(work)
        return source.name

    def _pass(self, work: Pass) -> None:
        self.kernels.append(lower_pass(work, self.device))

    def _gemm(self, call: _Call, work: Work, blocking: Blocking) -> None:
        """One GEMM kernel, and the merge of its slices."""
        layout = Layout(self.device, self.family, work, blocking)
        swizzle = _whole(self.options, "swizzle", 0)
        found = fields(
            self.m,
            self.n,
            slices_of(self.lengths),
            self.batch,
            (blocking.m, blocking.n),
            swizzle,
            self.device.cores,
            max(self.family.cluster, blocking.cores),
        )
        self.facts.setdefault("swizzle", max(field.band for field in found))
        for array in (work.finish.target, *work.finish.partial):
            self.arrays.setdefault(array.name, array)
        self._counter(sum(field.tiles for field in found))
        self.kernels.append(gemm_kernel(layout, found, self.batch, (self.m, self.n, self.k)))
        if len(self.lengths) > 1:
            self._merge(call, work)

    def _counter(self, tiles: int) -> None:
        """The memset of the counter that hands out tiles, where the library has one: no data of the program's."""
        seen = observed(self.device)
        if seen is None or seen.tile_counter_us is None or seen.tile_counter_tiles is None:
            return
        time_us = seen.tile_counter_us
        if not time_us or not self.family.persistent or tiles <= seen.tile_counter_tiles * self.device.cores:
            return
        engine = link_engine(self.device, self.family.registers, "GM")
        cycles = math.ceil(time_us * self.device.clock_mhz / self.device.engines[engine].sync_cycles)
        stream = StreamBuilder("memset")
        stream.emit(engine, "sync", repeat=cycles)
        builder = KernelBuilder("tile_counter")
        builder.group(0, 1, stream)
        self.kernels.append(builder.finish())

    def _merge(self, call: _Call, work: Work) -> None:
        """Slices added in order, then what a kernel without slices does at the end of a tile."""
        whole = self._whole_finish(call)
        for array in (whole.c, whole.target):
            if array is not None:
                self.arrays.setdefault(array.name, array)
        self._pass(merge_pass(work, whole, len(self.lengths), bool(self.stand_ins), self.words))

    def _whole_finish(self, call: _Call) -> Finish:
        """What the kernel of `call` would do if K were not cut."""
        lengths, self.lengths = self.lengths, (self.k,)
        finish = self._work(call).finish
        self.lengths = lengths
        return finish

    def _combine(self) -> None:
        """Terms that lie in arrays of their own join to C."""
        arrays = [self.arrays[f"T{t + 1}"] for t in range(len(self.plan.terms))]
        if self.stand_ins:
            self._pass(stand_in_pass("combine", arrays, [self.output], self.stand_ins, self.words))
        else:
            self._pass(combine_pass("combine", self.plan.combine, arrays, self.output))


def _piece(side: str, p: int, pieces: Sequence[Piece]) -> str:
    return side if len(pieces) == 1 else f"{side}{p + 1}"


def _whole(options: Mapping[str, Any], name: str, default: int) -> int:
    value = options.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} = {value!r}; allowed: an integer of at least 1")
    return int(value)


__all__ = ["OPTIONS", "TILE_KEYS", "UnsupportedError", "lower"]
