"""The bits of a run: operands, C and bias through the evaluator or the program, for all of C or some rows and columns.

The module knows resolved records and arrays; it makes no decision about how a GEMM is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.error_map import ErrorMap, error_map
from hwsim.analysis.errors import LinearEpilogue, as_fp64, errors_of
from hwsim.analysis.errors import bytes_needed as errors_need
from hwsim.analysis.exact_product import exact_sum
from hwsim.analysis.run_records import ProductErrors
from hwsim.backend.arrays import in_c_order
from hwsim.backend.environment import in_default_environment
from hwsim.backend.operations import Backend
from hwsim.compute.followed import Followed
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.epilogue import check_whole
from hwsim.evaluate.mixed import count_block_products, types_of_operands, with_equal_stacks, written_types
from hwsim.evaluate.multiplied import multiplied
from hwsim.evaluate.need import bytes_needed
from hwsim.evaluate.product import Evaluator, subset
from hwsim.formats import array_dtype, array_of, code_dtype, format_of
from hwsim.gemm.mixed_plan import one_for_all
from hwsim.gemm.plan import Mixed
from hwsim.gemm.problem import Image
from hwsim.host.memory import check_memory
from hwsim.host.warned import warn_once
from hwsim.machines import functional
from hwsim.machines.element_values import ElementValues
from hwsim.machines.need import bytes_needed as program_need
from hwsim.machines.need import bytes_of_arrays
from hwsim.operands.added import checked_bias
from hwsim.operands.operand import Operand, selected_indices
from hwsim.operands.sparse import positions
from hwsim.operands.windows import gathered, scattered
from hwsim.program.ir import Program
from hwsim.resolve.resolved import Resolved

WHOLE_BYTE = 8  # bits
VALUE_BYTES = 8  # of an operand's element as a number, at most
AnyArray = NDArray[Any]
MOVED_ALONE = "engine {}: a product of several pieces failed with all of them there ({}): each product moves alone"
Progress = Callable[[float], None]
#: Of each resolved record, for as long as somebody has it: what `_needs_of` says.
_NEEDS: WeakKeyDictionary[Resolved, dict[Any, int]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of a run: A (..., m, k), B (..., k, n), leading dimensions of the product, C, bias (n,), selected rows
    and columns. originals: A and B before they were quantised, which errors are measured against.
    """

    a: Operand
    b: Operand
    lead: tuple[int, ...] = ()
    c: Any = None
    bias: Any = None
    rows: Any = None
    cols: Any = None
    at: tuple[AnyArray, AnyArray] | None = None
    originals: tuple[Operand, Operand] | None = None

    @property
    def is_partial(self) -> bool:
        """Whether only some rows or columns of C are computed."""
        return self.rows is not None or self.cols is not None


@dataclass(frozen=True, slots=True)
class ExactValue:
    """An element of a product without any rounding: alpha times the sum of products, plus beta C and the bias. None
    where an infinity or NaN takes part.

    as_stored: of A and B as they lie in memory. as_multiplied: of A and B as the unit takes them, rounded to its
    format; None also where that is not known.
    """

    as_stored: Fraction | None
    as_multiplied: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Errors:
    """A callable that computes the error metrics of a product; nothing is computed before it is called.

    alpha, beta, c, bias: of the epilogue; c: codes in the output's format, or None. evaluator: says what the unit takes
    of A and B. originals: A and B before they were quantised, where a scheme did that.
    """

    a: Operand
    b: Operand
    product: AnyArray
    alpha: float
    beta: float = 0.0
    c: Operand | None = None
    bias: AnyArray | None = None
    evaluator: Evaluator | None = None
    originals: tuple[Operand, Operand] | None = None

    @in_default_environment
    def __call__(self) -> ProductErrors:
        self._check_memory()
        return errors_of(*self._operands(), self.product, self._epilogue(), self._rounded())

    def _rounded(self) -> tuple[AnyArray, AnyArray] | None:
        """A and B as the unit takes them, where that rounds an element."""
        if self.evaluator is None:
            return None
        taken = multiplied(self.evaluator, self.a, self.b)
        before = self.originals or (self.a, self.b)
        if self.originals is None and all(x.format == y.format for x, y in zip(taken, before, strict=True)):
            return None
        values = taken[0].multiplied_values(-1), taken[1].multiplied_values(-2)
        is_same = all(np.array_equal(x, y, equal_nan=True) for x, y in zip(values, self._operands(), strict=True))
        return None if is_same else values

    @in_default_environment
    def by_place(self) -> ErrorMap | None:
        """Where the error is (see `error_map`)."""
        self._check_memory()
        return error_map(*self._operands(), self.product, self._epilogue())

    @in_default_environment
    def exact_at(self, *place: int) -> ExactValue:
        """An element of the product without any rounding. place: its indices, those in a stack first."""
        row, column = subset(self.a, rows=[place[-2]]), subset(self.b, cols=[place[-1]])
        if self.originals is not None:
            stored = subset(self.originals[0], rows=[place[-2]]), subset(self.originals[1], cols=[place[-1]])
            return ExactValue(self._exact_sum(*stored, place), self._exact_sum(row, column, place))
        as_stored = self._exact_sum(row, column, place)
        if self.evaluator is None or as_stored is None:
            return ExactValue(as_stored)
        taken = multiplied(self.evaluator, row, column)
        if all(after.format == before.format for after, before in zip(taken, (row, column), strict=True)):
            return ExactValue(as_stored, as_stored)
        return ExactValue(as_stored, self._exact_sum(*taken, place))

    def _exact_sum(self, a: Operand, b: Operand, place: tuple[int, ...]) -> Fraction | None:
        """Of the row and the column of an element: alpha times the sum of products, plus beta C and the bias."""
        lines = a.multiplied_values(-1)[..., 0, :], b.multiplied_values(-2)[..., :, 0]
        stacks = (np.broadcast_to(line, (*self.product.shape[:-2], line.shape[-1])) for line in lines)
        x, y = (stack[place[:-2]] for stack in stacks)
        total = exact_sum(x, y)
        added = [] if self.c is None or not self.beta else [(self.beta, _element(self.c, place))]
        added += [] if self.bias is None else [(1.0, self.bias[place[-1]].item())]
        if total is None or not all(math.isfinite(value) for _, value in added):
            return None
        return sum((Fraction(factor) * Fraction(value) for factor, value in added), Fraction(self.alpha) * total)

    def _operands(self) -> tuple[AnyArray, AnyArray]:
        a, b = self.originals or (self.a, self.b)
        return a.multiplied_values(-1), b.multiplied_values(-2)

    def _epilogue(self) -> LinearEpilogue:
        added = [] if self.c is None or not self.beta else [(self.beta, as_fp64(self.c.values()))]
        added += [] if self.bias is None else [(1.0, self.bias)]
        return LinearEpilogue(self.alpha, tuple(added))

    def _check_memory(self) -> None:
        """Raise InputError where the errors need more memory than there is."""
        (m, k), n, lead = self.a.shape, self.b.shape[1], self.product.shape[:-2]
        operands = (self.a, self.b, self.c, *(self.originals or ()))
        values = sum(VALUE_BYTES * operand.codes.size for operand in operands if operand is not None)
        is_fp64 = self.product.dtype == np.float64
        beside = errors_need(m * k + k * n, max(1, math.prod(lead)), self.product.size, is_fp64=is_fp64)
        check_memory(
            values + beside,
            f"the errors of a product of m, n, k = {m}, {n}, {k}{_times(lead)}",
            "leave them out (timing and c do not need them), or compute a part of the result (rows=, cols=)",
        )


def _element(operand: Operand, place: tuple[int, ...]) -> Any:
    """The value of one element, as a number; no other element is decoded."""
    return replace(operand, codes=operand.codes[place].reshape(1, 1)).values().item()


def compute(
    resolved: Resolved,
    arrays: Arrays,
    *,
    by_program: bool,
    threads: int,
    progress: Progress | None,
    elements: Followed | None = None,
) -> tuple[AnyArray, Errors]:
    """The product of a resolved run, and a callable for its errors. elements: of the program; their instructions are
    added. Raises UnsupportedError where no program gives these bits.
    """
    if by_program and not arrays.is_partial:
        return _by_program(resolved, arrays, threads, progress, elements)
    evaluator, record = resolved.evaluator, resolved.gemm
    shape = arrays.a.shape[0], arrays.b.shape[1]
    bias = None if arrays.bias is None else checked_bias(arrays.bias, shape[1])
    codes_c = None if arrays.c is None else evaluator.c_codes(arrays.c, (*arrays.lead, *shape))
    places = arrays.at
    if places is None and record.schedule.regions:
        places = np.arange(shape[0]), np.arange(shape[1])
    if arrays.at is not None and not evaluator.by_rows:
        raise UnsupportedError(
            f"at: what scheme {record.scheme} does to a row follows from the whole matrices; give these, and rows= and "
            "cols= for a part of the result"
        )
    part = _part(arrays, codes_c, bias, places)
    if arrays.is_partial and (by_program or not evaluator.by_rows):  # a program, or blocks that would choose otherwise
        all_of_it = replace(arrays, rows=None, cols=None)
        options: dict[str, Any] = {"by_program": by_program, "threads": threads, "progress": progress}
        whole, _ = compute(resolved, all_of_it, elements=elements, **options)
        product = whole if arrays.rows is None else whole[..., selected_indices("rows", arrays.rows, shape[0]), :]
        product = product if arrays.cols is None else product[..., selected_indices("cols", arrays.cols, shape[1])]
    else:
        product = _moved_or_not(resolved, part, threads, progress)
    # Its own copy, as C is often where the caller puts the result.
    added = None if part.c is None else Operand(part.c.copy(), record.output)
    epilogue = record.epilogue
    return product, Errors(
        a=part.a,
        b=part.b,
        product=product,
        alpha=epilogue.alpha,
        beta=epilogue.beta or 0.0,
        c=added,
        bias=part.bias,
        evaluator=evaluator,
        originals=part.originals,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """What of the arrays the selected rows and columns need. lead: as of Arrays. c: codes. places: numbers of the rows
    and columns in the whole matrices, where the order of a sum depends on them. originals: as of Arrays.
    """

    a: Operand
    b: Operand
    lead: tuple[int, ...]
    c: AnyArray | None
    bias: AnyArray | None
    places: tuple[AnyArray, AnyArray] | None
    originals: tuple[Operand, Operand] | None


def _part(arrays: Arrays, c: AnyArray | None, bias: AnyArray | None, places: tuple[AnyArray, AnyArray] | None) -> _Part:
    """The part for the selected rows and columns; c, bias, places: of whole matrices."""
    a, b, originals = arrays.a, arrays.b, arrays.originals
    if originals is not None and arrays.is_partial:
        originals = subset(originals[0], rows=arrays.rows), subset(originals[1], cols=arrays.cols)
    if arrays.rows is not None:
        index = selected_indices("rows", arrays.rows, a.shape[0])
        a = subset(a, rows=arrays.rows)
        places = places and (places[0][index], places[1])
        c = None if c is None else c[..., index, :]
    if arrays.cols is not None:
        index = selected_indices("cols", arrays.cols, b.shape[1])
        b = subset(b, cols=arrays.cols)
        places = places and (places[0], places[1][index])
        c = None if c is None else c[..., index]
        bias = None if bias is None else bias[index]
    return _Part(a, b, arrays.lead, c=c, bias=bias, places=places, originals=originals)


def _moved_or_not(resolved: Resolved, part: _Part, threads: int, progress: Progress | None) -> AnyArray:
    """The product of a part. Where it has several pieces and the backend has arrays elsewhere, operands move there once
    and the result back, not the pieces of each product; where that fails (memory), the pieces do, and a warning says
    so once.
    """
    record = resolved.gemm
    is_plain = record.problem.sparsity is None and all(side.scale is None for side in record.problem.operands)
    if is_plain and not isinstance(record.plan, Mixed) and resolved.evaluator.products > 1:
        macs = math.prod(part.lead) * part.a.shape[0] * math.prod(part.b.shape) * resolved.evaluator.products
        elsewhere = resolved.backend.for_whole(macs)
        if elsewhere is not None:
            moved = replace(resolved, backend=elsewhere)
            try:
                return elsewhere.to_host(_computed(moved, part, threads, progress))
            except UnsupportedError as error:
                warn_once(MOVED_ALONE.format(elsewhere.name, error))
    return _computed(resolved, part, threads, progress)


def _computed(resolved: Resolved, part: _Part, threads: int, progress: Progress | None) -> AnyArray:
    """The product of a part by the evaluator, (*lead, rows, columns), in as few calls as its stack allows."""
    evaluator, backend, lead = resolved.evaluator, resolved.backend, part.lead
    a, b = part.a.on(backend), part.b.on(backend)
    c = None if part.c is None else backend.from_host(part.c)
    bias = None if part.bias is None else backend.from_host(part.bias)
    # Of one B, and rows that do not know of each other, a stack is one product.
    is_tall = bool(lead) and not b.lead and evaluator.by_rows and not resolved.gemm.schedule.regions
    sizes = (a.shape[0], b.shape[1], a.shape[1])
    at_once = 1 if is_tall or not lead else evaluator.at_once(math.prod(lead), sizes)
    _check_memory(resolved, (a, b), c, bias, lead, 0 if is_tall else at_once, threads)

    def product_of(x: Operand, y: Operand, start: AnyArray | None, report: Progress | None) -> AnyArray:
        codes = evaluator.product(x, y, c=start, bias=bias, at=part.places, threads=threads, progress=report)
        return evaluator.typed(backend.result(codes))

    if is_tall:
        tall = replace(a, codes=a.codes.reshape(-1, a.shape[1]))
        start = None if c is None else c.reshape(-1, b.shape[1])
        return product_of(tall, b, start, progress).reshape(*lead, a.shape[0], b.shape[1])
    if at_once > 1:
        codes = _as_stack(evaluator, a, b, c, bias, lead, threads, progress)
        return evaluator.typed(backend.result(codes))
    return _stacked(a, b, c, lead, product_of, progress)


def _check_memory(
    resolved: Resolved,
    operands: tuple[Operand, Operand],
    codes_c: AnyArray | None,
    bias: AnyArray | None,
    lead: tuple[int, ...],
    at_once: int,
    threads: int,
) -> None:
    """Raise InputError where the product needs more memory than there is. at_once: matrices of a stack in a call; 0:
    all as one product.
    """
    a, b = operands
    makes_values = resolved.evaluator.makes_values(codes_c, bias)
    kind = a.codes.shape, a.format, b.codes.shape, b.format, lead, at_once, makes_values, threads
    needs = _needs_of(resolved)
    needed = needs.get(kind)
    if needed is None:
        needed = needs[kind] = _need(resolved, operands, lead, at_once, makes_values, threads)
    if not at_once:
        needed += sum(_joined_bytes(codes, len(lead) + 1) for codes in (a.codes, codes_c) if codes is not None)
    elif at_once > 1:
        stacks = [np.broadcast_to(operand.codes, (*lead, *operand.shape)) for operand in operands]
        needed += sum(_joined_bytes(x, len(lead)) for x in (*stacks, codes_c) if x is not None)
    needed += 0 if codes_c is None else codes_c.size * codes_c.itemsize
    (m, k), n = a.shape, b.shape[1]
    check_memory(
        needed,
        f"scheme {resolved.gemm.scheme}: pieces of A and B, sums and C of m, n, k = {m}, {n}, {k}{_times(lead)}",
        "compute a part of the result (rows=, cols=) or cycles alone (exact=False)",
    )


def _needs_of(resolved: Resolved) -> dict[Any, int]:
    """What was found of a record: bytes that its products take, without C as given and joined stacks.

    By (shape and format of A, the same of B, leading extents of a stack, its matrices in a call, whether values are
    made of the unit's results before they are codes, host threads).
    """
    return _NEEDS.setdefault(resolved, {})


def _need(
    resolved: Resolved,
    operands: tuple[Operand, Operand],
    lead: tuple[int, ...],
    at_once: int,
    makes_values: bool,
    threads: int,
) -> int:
    """Bytes that the product takes, however its operands lie; arguments as of `_check_memory`."""
    record, (a, b) = resolved.gemm, operands
    (m, k), n, count = a.shape, b.shape[1], math.prod(lead)
    rows, matrices = (m, at_once) if at_once else (count * m, 1)
    needed = bytes_needed(
        record,
        (rows, n, k),
        (a.format, b.format),
        threads,
        calls=resolved.backend.calls_at_once,
        matrices=matrices,
        makes_values=makes_values,
        are_words_rounded=resolved.evaluator.are_words_rounded,
    )
    return needed + (count * m - matrices * rows) * n * code_dtype(format_of(record.output)).itemsize


def _joined_bytes(x: AnyArray, dimensions: int) -> int:
    """Bytes of the copy that is made where the first dimensions of an array become one; 0 where they lie so."""
    long = [(size, stride) for size, stride in zip(x.shape[:dimensions], x.strides, strict=False) if size != 1]
    lie_so = all(stride == size * inner for (_, stride), (size, inner) in pairwise(long))
    return 0 if lie_so else x.size * x.itemsize


def _times(lead: tuple[int, ...]) -> str:
    return f", {math.prod(lead)} times," if lead else ""


def _by_program(
    resolved: Resolved, arrays: Arrays, threads: int, progress: Progress | None, elements: Followed | None
) -> tuple[AnyArray, Errors]:
    """The product as the functional machine computes it from the device's program."""
    program, device, record = resolved.program, resolved.device, resolved.gemm
    asked, option = asker = ("functional=True", "functional") if elements is None else ("values", "values")
    if program is None:
        raise UnsupportedError(f"{asked}: there is no program: {resolved.no_program}; leave {option} out")
    taken = resolved.gemm.single.input_format
    if format_of(resolved.gemm.output).bits < WHOLE_BYTE:
        raise UnsupportedError(
            f"{asked}: programs write results of whole bytes, and {resolved.gemm.output} has "
            f"{format_of(resolved.gemm.output).bits} bits; leave {option} out"
        )
    m, n, lead = arrays.a.shape[0], arrays.b.shape[1], arrays.lead
    _check_program_memory(resolved, program, arrays, threads, asker)
    bias = None if arrays.bias is None else checked_bias(arrays.bias, n)
    codes_c = None if arrays.c is None else resolved.evaluator.c_codes(arrays.c, (*lead, m, n))
    is_whole = resolved.evaluator.has_whole_epilogue(codes_c is not None)
    if is_whole:
        check_whole(record.epilogue.alpha, record.epilogue.beta or 0.0, bias)
    if record.single.specials != "unit":
        _refuse_specials(record.scheme, arrays, asker)
    if record.problem.sparsity is not None:
        positions(arrays.a.converted(record.single.a_pieces[0].format))
        _refuse_specials(f"{record.scheme} with sparsity", arrays, asker)
    if isinstance(record.plan, Mixed):
        _check_blocks(record.plan, arrays, resolved.backend, asker[0])
    formats = {array.name: format_of(array.format) for array in program.arrays}
    output = formats[program.output]

    parts = iter(()) if elements is None else elements.of_runs(lead, m, in_one=resolved.has_stack_program)

    def product_of(x: Operand, y: Operand, start: AnyArray | None, report: Progress | None) -> AnyArray:
        backend = resolved.backend
        codes = [in_c_order(side.on(backend).converted(taken, backend).codes) for side in (x, y)]
        codes[0] = _in_memory(codes[0], record.problem.image, backend)
        codes += _scale_codes((x, y), backend)
        codes += [] if start is None else [in_c_order(backend.from_host(start))]
        if bias is not None:
            whole = bias.astype(np.int64) if is_whole else bias  # wraps then
            row = whole.astype(array_dtype(formats[program.inputs[-1]])).reshape(1, n)
            codes.append(backend.from_host(row).view(f"u{row.itemsize}"))
        inputs = dict(zip(program.inputs, codes, strict=True))
        part = next(parts, None)
        follower = ElementValues(program, device, part.places, backend) if part and part.places else None
        before_kernel = None if follower is None else follower.before_kernel
        execution: dict[str, Any] = {"threads": threads, "progress": report, "backend": backend}
        out = backend.to_host(functional.run(program, device, inputs, before_kernel=before_kernel, **execution))
        if follower is not None and part is not None and elements is not None:
            elements.add(part, follower.checked(out))
        return array_of(out, output)

    if resolved.has_stack_program:  # the matrices of a stack lie one below another
        tall = [np.broadcast_to(x.codes, (*lead, *x.shape)).reshape(-1, x.shape[1]) for x in (arrays.a, arrays.b)]
        sides = Operand(tall[0], arrays.a.format), Operand(tall[1], arrays.b.format)
        start = None if codes_c is None else codes_c.reshape(-1, n)
        product = product_of(*sides, start, progress).reshape(*lead, m, n)
    else:
        product = _stacked(arrays.a, arrays.b, codes_c, lead, product_of, progress)
    epilogue = record.epilogue
    added = None if codes_c is None else Operand(codes_c.copy(), record.output)
    return product, Errors(
        arrays.a,
        arrays.b,
        product,
        alpha=epilogue.alpha,
        beta=epilogue.beta or 0.0,
        c=added,
        bias=bias,
        evaluator=resolved.evaluator,
        originals=arrays.originals,
    )


def _scale_codes(pair: tuple[Operand, Operand], backend: Backend) -> list[AnyArray]:
    """The scales of A and B, and the factors of whole operands, as a program takes them."""
    left, right = (side.scales for side in pair)
    if left is None or right is None:
        return []
    arrays = [left.values, right.values.T]
    if left.factor is not None or right.factor is not None:
        factors = (np.float32(1) if side.factor is None else side.factor for side in (left, right))
        arrays += [np.full((1, 1), factor, np.float32) for factor in factors]
    codes = [in_c_order(values) for values in arrays]
    return [backend.from_host(x.view(f"u{x.itemsize}")) for x in codes]


def _check_program_memory(
    resolved: Resolved, program: Program, arrays: Arrays, threads: int, asker: tuple[str, str]
) -> None:
    """Raise InputError where the program and its inputs need more memory than there is."""
    (m, k), n, lead = arrays.a.shape, arrays.b.shape[1], arrays.lead
    matrices = math.prod(lead) if resolved.has_stack_program else 1
    taken, result = (
        code_dtype(format_of(x)).itemsize for x in (resolved.gemm.single.input_format, resolved.gemm.output)
    )
    converted = sum(
        matrices * count * (VALUE_BYTES + taken)
        for count, side in ((m * k, arrays.a), (k * n, arrays.b))
        if side.format != resolved.gemm.single.input_format or matrices > 1
    )
    results = math.prod(lead) * m * n * result * (bool(lead) + 2 * (arrays.c is not None))
    request = f"{asker[0]}: the arrays and buffers of the program for m, n, k = {m}, {n}, {k}{_times(lead)}"
    instead = f"leave {asker[1]} out, or compute cycles alone (exact=False)"
    check_memory(converted + results + bytes_of_arrays(program, resolved.device), request, instead)
    check_memory(converted + results + program_need(program, resolved.device, threads), request, instead)


def _in_memory(codes: AnyArray, image: Image | None, backend: Backend) -> AnyArray:
    """The codes of A as they lie in memory: of a convolution those of its images. Raises InputError where A's rows are
    no windows of images.
    """
    if image is None:
        return codes
    matrix = backend.to_host(codes)
    images = scattered(matrix, image.windows, image.cols)
    if not np.array_equal(gathered(images, image.windows), matrix):
        raise InputError("conv: the rows of A are no windows of images; hwsim.conv2d takes images, and makes them")
    return backend.from_host(images)


def _check_blocks(plan: Mixed, arrays: Arrays, backend: Backend, asked: str) -> None:
    """Raise InputError where blocks of the operands need other plans than the program was written for."""
    if one_for_all(plan) is not None:
        return
    types = with_equal_stacks(*types_of_operands(plan, arrays.a, arrays.b, backend))
    counts = count_block_products(*types, len(plan.plans)).counts
    written = tuple(map(written_types, types)) if sum(map(bool, counts)) > 1 else ((), ())
    if counts != plan.blocks or written != (plan.a_types, plan.b_types):
        raise InputError(
            f"{asked}: blocks of A or B need other plans than the record of scheme {plan.scheme} says; give "
            "the operands that it was made for, or leave the record out"
        )


def _refuse_specials(scheme: str, arrays: Arrays, asker: tuple[str, str]) -> None:
    """Raise UnsupportedError where an operand holds an infinity or a NaN, for which the scheme has a rule of its own
    that its kernels do not contain.
    """
    for name, side in (("A", arrays.a), ("B", arrays.b)):
        if not np.isfinite(side.values()).all():
            raise UnsupportedError(
                f"{asker[0]}: {name} holds an infinity or a NaN, and the program of scheme {scheme} contains no "
                f"instructions for its rule of what follows from these; give finite operands, or leave {asker[1]} out"
            )


def _as_stack(
    evaluator: Evaluator,
    a: Operand,
    b: Operand,
    c: AnyArray | None,
    bias: AnyArray | None,
    lead: tuple[int, ...],
    threads: int,
    progress: Progress | None,
) -> AnyArray:
    """Codes (*lead, m, n) of a stack, several matrices in each call."""
    (m, k), n = a.shape, b.shape[1]
    count = math.prod(lead)
    left = Operand(np.broadcast_to(a.codes, (*lead, m, k)).reshape(count, m, k), a.format)
    right = Operand(np.broadcast_to(b.codes, (*lead, k, n)).reshape(count, k, n), b.format)
    start = None if c is None else c.reshape(count, m, n)
    codes = evaluator.stack(left, right, c=start, bias=bias, threads=threads, progress=progress)
    return codes.reshape(*lead, m, n)


def _stacked(
    a: Operand,
    b: Operand,
    c: AnyArray | None,
    lead: tuple[int, ...],
    multiply: Callable[[Operand, Operand, AnyArray | None, Progress | None], AnyArray],
    progress: Progress | None,
) -> AnyArray:
    """Apply `multiply` to each pair of matrices of two stacks; c: codes (*lead, m, n)."""
    if not lead:
        return multiply(a, b, c, progress)
    left, right = (np.broadcast_to(stack.codes, (*lead, *stack.shape)) for stack in (a, b))
    product: AnyArray | None = None
    total = math.prod(lead)
    for index, at in enumerate(np.ndindex(*lead)):

        def report(share: float, index: int = index) -> None:
            if progress is not None:
                progress((index + share) / total)

        pair = Operand(left[at], a.format), Operand(right[at], b.format)
        part = multiply(*pair, None if c is None else c[at], report)
        if product is None:
            product = np.empty_like(part, shape=(*lead, *part.shape))
        product[at] = part
    assert product is not None
    return product
