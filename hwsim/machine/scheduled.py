"""The direct evaluator: the bits of a plan under a schedule on a device, without a program.

A plan and a schedule fix every rounding, so no dataflow is needed: each product of pieces is chained by the compiled
dot unit of the schedule's instruction over the spans that the schedule gives, and what leaves the unit goes through
the elementwise lanes. It knows plans, schedules and devices; it knows no scheme, no tile and no time.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels import gemm
from hwsim.devices import dot_spec, example, find
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.formats import code_dtype, format_of
from hwsim.machine.lanes import Lanes
from hwsim.program.plan import Expression, Scaled, Sum, Term, TermValue
from hwsim.program.schedule import SLICE_MULTIPLE, Epilogue, Layout, Run, Schedule

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.program.plan import Plan

Codes = NDArray[Any]
Array = NDArray[Any]
PRODUCTS_PER_CALL = 1 << 32  # between two reports of progress; also how long an interrupt may wait
ROWS_PER_CALL = 256  # at least so many: each call arranges B for itself


def instruction_for(device: Device, a: str, b: str, wanted: str | None = None) -> str:
    """Name of the instruction for operands of these formats: `wanted`, the device's native one, or its widest.

    Raises UnsupportedError when the device has none or `wanted` is for other formats, InputError for a pattern.
    """
    if wanted is not None:
        spec = dot_spec(device, wanted)
        model = find(device, wanted)
        assert model is not None
        if model.n_last is not None or model.formats:
            raise InputError(
                f"instruction {wanted} stands for several; name one, for example {example(device, wanted)}"
            )
        if (spec.a, spec.b) != (a, b):
            raise UnsupportedError(f"instruction {wanted} multiplies {spec.a} by {spec.b}; the plan needs {a} by {b}")
        name = wanted
    elif a == b and a in device.native:
        name = device.native[a]
    else:
        fits: list[tuple[int, str]] = []
        for key, model in device.matrix_instructions.items():
            is_open = a in model.formats and b in model.formats
            if model.scale_format is None and (is_open or (a, b) == (model.a, model.b)):
                fits.append((model.k, example(device, key, n=model.n_last, a=a, b=b)))
        if not fits:
            known = list(device.native)
            raise UnsupportedError(
                f"device {device.name} has no matrix instruction for {a} x {b}; it has formats {', '.join(known)}"
                f"{nearest(a, known)}"
            )
        name = max(fits, key=lambda fit: fit[0])[1]
    if dot_spec(device, name).scale_format is not None:
        raise UnsupportedError(f"instruction {name} needs block scales, which a plan does not have")
    return name


def resolved(schedule: Schedule, plan: Plan, device: Device) -> Schedule:
    """The schedule with what it leaves to the plan and the device filled in.

    Raises UnsupportedError for a plan that no instruction of the device serves, InputError where plan and schedule
    contradict each other.
    """
    products = [pair for term in plan.terms for pair in term.products]
    formats = {(plan.a_pieces[i].format, plan.b_pieces[j].format) for i, j in products}
    names = {instruction_for(device, *pair, schedule.instruction) for pair in sorted(formats)}
    if len({dot_spec(device, name).d for name in names}) != 1:
        raise UnsupportedError(f"scheme {plan.scheme}: its products need instructions with unlike results: {names}")
    if plan.k_group is not None and schedule.promotion_k not in (None, plan.k_group):
        raise InputError(
            f"schedule: promotion_k = {schedule.promotion_k}, but the scheme's k_group (or accumulate) says "
            f"{plan.k_group}; leave one of them out"
        )
    library = device.library
    multiple = schedule.slice_multiple or (SLICE_MULTIPLE if library is None else library.slice_multiple)
    given = dataclasses.replace(
        schedule,
        instruction=names.pop() if len(names) == 1 else None,
        slice_multiple=multiple,
        promotion_k=schedule.promotion_k or plan.k_group,
    )
    if given.start == "c" and (len(plan.terms) > 1 or plan.join == "group"):
        raise InputError(f"schedule: start='c' needs a plan with one term; {plan.scheme} has {len(plan.terms)}")
    return given


def evaluate(
    plan: Plan,
    schedule: Schedule,
    device: Device,
    a: Sequence[Codes],
    b: Sequence[Codes],
    *,
    c: Array | None = None,
    bias: Array | None = None,
    layout: Layout | None = None,
    threads: int = 1,
    progress: Callable[[float], None] | None = None,
) -> Codes:
    """Codes (m, n) of C in the epilogue's output format (by default what the unit gives).

    a, b: codes of the plan's pieces, (m, K) and (K, n), any strides. schedule: `resolved`. c: codes (m, n) of the
    output format. bias: (n,) values. layout: the cuts of K, if not those of the schedule for this K. threads,
    progress (called with 0..1): no influence on the bits. With b of some columns only, or a of some rows, the
    result is those columns and rows of the whole one.
    Raises InputError and UnsupportedError for what does not fit together.
    """
    job = _Job(plan, schedule, device, c is not None)
    m, k = a[0].shape
    n = b[0].shape[1]
    cuts = schedule.layout(k) if layout is None else layout
    out = np.empty((m, n), code_dtype(format_of(job.output)))
    rows = max(ROWS_PER_CALL, PRODUCTS_PER_CALL // max(n * k * plan.products, 1))
    with np.errstate(all="ignore"):
        for start in range(0, m, rows):
            block = slice(start, start + rows)
            codes_c = None if c is None else c[block]
            out[block] = job.block([x[block] for x in a], b, codes_c, bias, cuts, threads)
            if progress is not None:
                progress(min(start + rows, m) / m)
    return out


class _Job:
    """One plan under one schedule: what does not depend on the block of rows."""

    def __init__(self, plan: Plan, schedule: Schedule, device: Device, has_c: bool) -> None:
        self.plan, self.schedule, self.device = plan, schedule, device
        first = plan.terms[0].products[0]
        self.spec = dot_spec(device, self._name(*first))
        self.lanes = Lanes(device, self.spec)
        self.epilogue: Epilogue = schedule.epilogue
        self.output = self.epilogue.output_format or self.spec.d
        self.beta = self.epilogue.beta if self.epilogue.beta is not None else float(has_c)
        if self.beta and not has_c:
            raise InputError(f"beta = {self.beta:g} needs a C; give c, or beta = 0")
        self.from_c = schedule.start == "c" and has_c
        self.integer = self.lanes.dtype.kind == "i"
        if self.integer and not isinstance(plan.combine, TermValue):
            raise UnsupportedError(f"scheme {plan.scheme}: terms of an integer unit cannot be joined in fp32")
        if self.integer and (schedule.partial_format or schedule.merge_format):
            raise UnsupportedError("schedule: the int32 sums of slices are merged as such; leave the formats out")
        if schedule.merge_into == "output" and (self.integer or self.output != self.spec.d):
            raise UnsupportedError(
                f"schedule: merge_into='output' is known for fp32 and fp64 results without rounding; the unit gives "
                f"{self.spec.d}, the output is {self.output}"
            )

    def _name(self, i: int, j: int) -> str:
        plan = self.plan
        return instruction_for(self.device, plan.a_pieces[i].format, plan.b_pieces[j].format, self.schedule.instruction)

    def block(
        self, a: Sequence[Codes], b: Sequence[Codes], c: Codes | None, bias: Array | None, cuts: Layout, threads: int
    ) -> Codes:
        """Codes of the output for some rows."""
        start = None
        if self.from_c:
            assert c is not None
            fmt = format_of(self.output)
            start = self.lanes.store(self.lanes.values(c, fmt), format_of(self.spec.c), "RNE")
        is_group = self.plan.join == "group"
        slices = []
        for index, runs in enumerate(cuts.slices):
            begin = start if index == 0 else None
            slices.append(self._joined(runs, a, b, threads) if is_group else self._terms(runs, a, b, begin, threads))
        if self.schedule.merge_into == "output" and len(slices) > 1:
            return self._into_output([self._joined_values(part) for part in slices], c, bias, threads)
        parts = (
            slices[0]
            if len(slices) == 1
            else [self._merge([part[t] for part in slices]) for t in range(len(slices[0]))]
        )
        if isinstance(parts[0], _Untouched) and not self._finishes(bias):
            return parts[0].codes
        return self._finish(self._joined_values(parts), c, bias, len(slices), threads)

    def _joined_values(self, parts: Sequence[_Untouched | Array]) -> Array:
        """One value of the terms' sums (of the group's, already joined)."""
        values = [self._values(part) for part in parts]
        return values[0] if self.plan.join == "group" else self._expression(self.plan.combine, values)

    def _into_output(self, slices: Sequence[Array], c: Codes | None, bias: Array | None, threads: int) -> Codes:
        """D from the first slice; alpha times each later one added to it."""
        value: Array | None = None
        for slice_sum in _ordered(slices, self.schedule.merge_order):
            if value is None:
                value = self._blended(slice_sum, c, len(slices))
            else:
                value = self.lanes.add(value, self.lanes.multiply(self.epilogue.alpha, slice_sum))
        assert value is not None
        return self._stored(value, self.lanes, bias, threads)

    def _finishes(self, bias: Array | None) -> bool:
        """Whether anything happens to the unit's own result."""
        is_plain = self.epilogue.alpha == 1 and (self.beta == 0 or self.from_c) and bias is None
        is_single = isinstance(self.plan.combine, TermValue) and len(self.plan.terms) == 1
        return not (is_plain and is_single and self.output == self.spec.d)

    def _terms(
        self, runs: tuple[Run, ...], a: Sequence[Codes], b: Sequence[Codes], start: Codes | None, threads: int
    ) -> list[_Untouched | Array]:
        """Each term over a slice: one chain from `start`, or the runs' sums promoted."""
        found: list[_Untouched | Array] = []
        for term in self.plan.terms:
            if self.schedule.promotion_k is None:
                found.append(_Untouched(self._chain(term, runs[0], a, b, start, threads)))
                continue
            total: Array | None = None
            for index, run in enumerate(runs):
                codes = self._chain(term, run, a, b, start if index == 0 else None, threads)
                part = self.lanes.load(codes)
                total = self.lanes.add(self.lanes.zeros(part.shape) if total is None else total, part)
            assert total is not None
            found.append(total)
        return found

    def _joined(
        self, runs: tuple[Run, ...], a: Sequence[Codes], b: Sequence[Codes], threads: int
    ) -> list[_Untouched | Array]:
        """The terms joined after every run, and the joined values promoted."""
        total: Array | None = None
        for run in runs:
            values = [self.lanes.load(self._chain(term, run, a, b, None, threads)) for term in self.plan.terms]
            part = self._expression(self.plan.combine, values)
            total = self.lanes.add(self.lanes.zeros(part.shape) if total is None else total, part)
        assert total is not None
        return [total]

    def _chain(
        self, term: Term, run: Run, a: Sequence[Codes], b: Sequence[Codes], start: Codes | None, threads: int
    ) -> Codes:
        """The term's products over the run's spans, chained; each span begins a new instruction."""
        name = self._name(*term.products[0])
        spec, value = dot_spec(self.device, name), start
        model = find(self.device, name)
        assert model is not None
        for span in run:
            if value is not None and value is not start and spec.c != spec.d:
                spec = dataclasses.replace(spec, c=spec.d)
            left = _arranged([a[i] for i, _ in term.products], span, model.k, self.schedule.k_permutation, 1)
            right = _arranged([b[j] for _, j in term.products], span, model.k, self.schedule.k_permutation, 0)
            for x, y in zip(left, right, strict=True):
                value = gemm(spec, x, y, value, threads=threads)
                if spec.c != spec.d:
                    spec = dataclasses.replace(spec, c=spec.d)
        assert value is not None
        return value

    def _values(self, part: _Untouched | Array) -> Array:
        return self.lanes.load(part.codes) if isinstance(part, _Untouched) else part

    def _expression(self, expression: Expression, values: Sequence[Array]) -> Array:
        match expression:
            case TermValue(term):
                return values[term]
            case Sum(left, right):
                return self.lanes.add(self._expression(left, values), self._expression(right, values))
            case Scaled(value, exponent):
                return self.lanes.multiply(2.0**exponent, self._expression(value, values))

    def _merge(self, parts: list[_Untouched | Array]) -> Array:
        """The slices' sums in their stored format, added in the schedule's order."""
        schedule, values = self.schedule, [self._values(part) for part in parts]
        own = self.lanes.dtype
        if schedule.partial_format is not None:
            values = [self._narrowed(value, schedule.partial_format) for value in values]
        values = _ordered(values, schedule.merge_order)
        if schedule.merge_order != "pairwise":
            total = values[0]
            for value in values[1:]:
                total = self._sum(total, value)
            return total.astype(own, copy=False)
        while len(values) > 1:
            pairs = [self._sum(x, y) for x, y in zip(values[::2], values[1::2], strict=False)]
            values = pairs + values[len(pairs) * 2 :]
        return values[0].astype(own, copy=False)

    def _narrowed(self, values: Array, fmt: str) -> Array:
        if format_of(fmt).bits >= values.dtype.itemsize * 8:
            return values
        return self.lanes.rounded(values, format_of(fmt))

    def _sum(self, left: Array, right: Array) -> Array:
        """One addition of the merge. Below fp32 it is an fp32 addition rounded once more, which gives the same bits
        as one rounding: fp32 has more than twice the digits and two."""
        wanted = self.schedule.merge_format
        if wanted == "fp64":
            left, right = left.astype(np.float64), right.astype(np.float64)
        elif wanted is not None:
            left, right = self._narrowed(left, wanted), self._narrowed(right, wanted)
        total = self.lanes.add(left, right)
        return total if wanted is None else self._narrowed(total, wanted)

    def _finish(self, acc: Array, c: Codes | None, bias: Array | None, slices: int, threads: int) -> Codes:
        """The epilogue: alpha * acc + beta * C + bias, rounded to the output format."""
        lanes, fmt = self.lanes, format_of(self.output)
        if self.integer:
            if fmt.name == "int32":
                return self._finish_integer(acc, c, bias)
            acc = acc.astype(np.float32)
            lanes = Lanes(self.device, dataclasses.replace(self.spec, d="fp32"))
        return self._stored(self._blended(acc, c, slices, lanes), lanes, bias, threads)

    def _blended(self, acc: Array, c: Codes | None, slices: int, lanes: Lanes | None = None) -> Array:
        """alpha * acc + beta * C in the working type."""
        lanes, epilogue = lanes or self.lanes, self.epilogue
        alpha, beta = epilogue.alpha, self.beta
        value = acc
        if beta and not self.from_c:
            assert c is not None
            source = lanes.values(c, format_of(self.output))
            contraction = epilogue.contraction or ("alpha" if slices == 1 else "beta")
            if epilogue.product_format is not None:
                contraction = "none"
            if contraction == "alpha":
                value = lanes.fused(alpha, acc, lanes.multiply(beta, source))
            elif contraction == "beta":
                value = lanes.fused(beta, source, lanes.multiply(alpha, acc))
            else:
                scaled = lanes.multiply(alpha, acc)
                if epilogue.product_format is not None:
                    scaled = self._narrowed(scaled, epilogue.product_format)
                value = lanes.add(scaled, lanes.multiply(beta, source))
        elif alpha != 1:
            value = lanes.multiply(alpha, acc)
        return value

    def _stored(self, value: Array, lanes: Lanes, bias: Array | None, threads: int) -> Codes:
        """value + bias, rounded to the output format."""
        if bias is not None:
            value = lanes.add(value, np.broadcast_to(bias.astype(lanes.dtype), value.shape))
        return lanes.store(value, format_of(self.output), self.epilogue.output_rounding, threads)

    def _finish_integer(self, acc: Array, c: Codes | None, bias: Array | None) -> Codes:
        alpha, beta = self.epilogue.alpha, self.beta
        for name, factor in (("alpha", alpha), ("beta", beta)):
            if not math.isfinite(factor) or factor != int(factor) or abs(factor) >= 1 << 31:
                raise InputError(f"{name} = {factor:g}; allowed for int32 sums: whole numbers below 2^31")
        value = acc.astype(np.int64) * int(alpha)
        if beta and not self.from_c:
            assert c is not None
            value = value + c.view(np.int32).astype(np.int64) * int(beta)
        if bias is not None:
            if not np.array_equal(bias, np.rint(bias)):
                raise InputError("bias: whole numbers are needed for int32 sums")
            value = value + bias.astype(np.int64)
        return (value & 0xFFFFFFFF).astype(np.uint32)


@dataclasses.dataclass(slots=True)
class _Untouched:
    """A unit's own result: its codes stand unless something is done with the value."""

    codes: Codes


def _ordered(slices: Sequence[Array], order: str | tuple[int, ...]) -> list[Array]:
    """The slices in the order in which they are added ("pairwise": as they are)."""
    if isinstance(order, tuple):
        return [slices[i] for i in order]
    return list(slices)[::-1] if order == "descending" else list(slices)


def _arranged(
    pieces: Sequence[Codes], span: tuple[int, int], step: int, permutation: tuple[int, ...] | None, axis: int
) -> list[Codes]:
    """The codes of a span of K as the instructions take them: one array, or two that are chained.

    Several pieces (products of one term) alternate instruction by instruction. The last instruction is filled up with
    zeros: for units that tell -0 from +0 they are not nothing.
    """
    start, stop = span
    length = stop - start
    whole = math.lcm(step, len(permutation)) if permutation is not None else step
    if len(pieces) == 1 and permutation is None:
        split = length - length % step
        cut = pieces[0]
        parts = [cut[:, start : start + split] if axis else cut[start : start + split]] if split else []
        if split < length:
            parts.append(_padded(cut, start + split, stop, step, axis))
        return parts
    padded = [_padded(piece, start, stop, -(-length // whole) * whole, axis) for piece in pieces]
    if permutation is not None:
        count = padded[0].shape[axis] // len(permutation)
        index = (np.arange(count)[:, None] * len(permutation) + np.array(permutation)).ravel()
        padded = [np.take(piece, index, axis) for piece in padded]
    if len(padded) == 1:
        return padded
    if axis:
        blocks = [piece.reshape(piece.shape[0], -1, step) for piece in padded]
        return [np.stack(blocks, 2).reshape(padded[0].shape[0], -1)]
    blocks = [piece.reshape(-1, step, piece.shape[1]) for piece in padded]
    return [np.stack(blocks, 1).reshape(-1, padded[0].shape[1])]


def _padded(piece: Codes, start: int, stop: int, length: int, axis: int) -> Codes:
    """A copy of piece[start:stop] along the axis, with zeros up to `length` (+0 is code 0 in every operand format)."""
    other = piece.shape[1 - axis]
    full = np.zeros((other, length) if axis else (length, other), piece.dtype)
    if axis:
        full[:, : stop - start] = piece[:, start:stop]
    else:
        full[: stop - start] = piece[start:stop]
    return full
