"""A and B of a call and the sizes of its product, from arrays, from random numbers, or from sizes alone.

It knows arrays and options; it knows no device and no plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.inputs import NORMAL, drawn
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import code_dtype, format_of
from hwsim.gemm.convolution import ConvShape, conv_of
from hwsim.gemm.problem import SCALES, OperandScale, Problem
from hwsim.host.memory import check_memory
from hwsim.operands.operand import Operand, common_format, formats_in_memory, operand, operand_pair, to_common_format
from hwsim.operands.quantization import SCHEMES, quantize
from hwsim.operands.scales import joined, of_quantized, scales_of
from hwsim.operands.sparse import prune
from hwsim.request.declarations import DEFAULT_SIZE
from hwsim.request.options import FORMAT_B, CallOptions
from hwsim.schemes import Scheme

AnyArray = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ProductOperands:
    """A and B (None when only sizes were given), (m, n, k), leading dimensions, whether A and B were drawn at random,
    the convolution whose GEMM it is, where A and B have scales, originals (A and B before a scheme quantised them), and
    the formats that they came in where these differ (`own_formats`; left and right are in one that holds both).
    """

    left: Operand | None
    right: Operand | None
    sizes: tuple[int, int, int]
    lead: tuple[int, ...] = ()
    is_drawn: bool = False
    conv: ConvShape | None = None
    scales: tuple[OperandScale | None, OperandScale | None] = (None, None)
    originals: tuple[Operand, Operand] | None = None
    own_formats: tuple[str, str] | None = None

    @property
    def pair(self) -> tuple[Operand, Operand] | None:
        """A and B, where there are any."""
        return None if self.left is None or self.right is None else (self.left, self.right)

    @property
    def format_before(self) -> str | None:
        """The format that A and B were in before a scheme quantised them; None where none did."""
        return None if self.originals is None else common_format(*(side.format for side in self.originals))

    def converted(self, format: str) -> ProductOperands:
        """The same operands rounded to a format."""
        assert self.left is not None and self.right is not None
        left, right = (replace(side.converted(format), scales=side.scales) for side in (self.left, self.right))
        return replace(self, left=left, right=right)


def operands_of(a: AnyArray | None, b: AnyArray | None, options: CallOptions, scheme: Scheme) -> ProductOperands:
    """A and B of a call. Random ones are drawn in input_format, whatever the scheme; without it, in the scheme's first.
    So are bit fields: where the scheme multiplies another format, the run rounds them to it.

    Raises InputError where arrays and sizes disagree.
    """
    problem, is_exact = options.problem, options.machine.exact
    in_memory = None if problem.input_format is None else formats_in_memory(problem.input_format)
    if (a is None) != (b is None):
        raise InputError("got one of A and B; give both, or neither for random ones")
    if a is not None and problem.operand_distribution != NORMAL:
        raise InputError(
            f"operand_distribution = {problem.operand_distribution!r} is of random operands, and A and B are given; "
            "leave it out"
        )
    if problem.conv is not None:
        _check_unscaled(options, scheme, "a convolution")
        return _of_convolution(problem.conv, a, b, options)
    left = right = own_formats = None
    lead: tuple[int, ...] = ()
    sizes_asked = {"m": problem.m, "n": problem.n, "k": problem.k}
    if a is not None and b is not None:
        left, right = _pair(a, b, options)
        if not _is_scaled(options, scheme):
            left, right, own_formats = _in_common(left, right)
        sizes = _sizes_of(left, right, sizes_asked)
        lead = _common(left, right)
        if problem.batch not in (None, math.prod(lead)):
            raise InputError(
                f"batch = {problem.batch}, but the arrays give {math.prod(lead)} products; leave batch out"
            )
    else:
        lead = () if problem.batch is None else (problem.batch,)
        sizes = {name: DEFAULT_SIZE if size is None else size for name, size in sizes_asked.items()}
    is_drawn = left is None and is_exact
    if is_exact:
        _check_memory(sizes, math.prod(lead), options, is_drawn)
    if is_drawn:
        of_draw = scheme.input_formats[0] if in_memory is None else common_format(*in_memory)
        m, n, k = (sizes[name] for name in "mnk")
        pair = drawn(m, n, k, problem.seed, of_draw, problem.operand_distribution, lead, in_memory)
        left, right = (operand("A", x) for x in pair)
        if problem.sparsity is not None:
            left = operand("A", prune(pair[0]))
        if in_memory is not None:
            left, right, own_formats = _in_common(left.converted(in_memory[0]), right.converted(in_memory[1]))
    operands = ProductOperands(
        left, right, (sizes["m"], sizes["n"], sizes["k"]), lead, is_drawn, own_formats=own_formats
    )
    return _with_scales(operands, options, scheme, (a, b)) if _is_scaled(options, scheme) else operands


def _pair(a: AnyArray, b: AnyArray, options: CallOptions) -> tuple[Operand, Operand]:
    """A and B of a call, each in its format in memory."""
    return operand_pair(
        a,
        b,
        input_format=options.problem.input_format,
        format=options.scheme.format,
        format_b=options.of_scheme.get(FORMAT_B),
    )


def _in_common(left: Operand, right: Operand) -> tuple[Operand, Operand, tuple[str, str] | None]:
    """A and B in a common format, and their formats before where these differ."""
    own_formats = None if left.format == right.format else (left.format, right.format)
    return *to_common_format(left, right), own_formats


def _is_scaled(options: CallOptions, scheme: Scheme) -> bool:
    """Whether operands have scales, or get some by the scheme."""
    problem = options.problem
    of_call = (problem.scale_a, problem.scale_b, problem.tensor_scales)
    return scheme.quantizes is not None or any(scales is not None for scales in of_call)


def _check_unscaled(options: CallOptions, scheme: Scheme, what: str) -> None:
    if _is_scaled(options, scheme):
        raise UnsupportedError(f"scales of {what}: not computed; give plain operands, or single matrices")


def _with_scales(
    operands: ProductOperands, options: CallOptions, scheme: Scheme, pair: tuple[AnyArray | None, AnyArray | None]
) -> ProductOperands:
    """The operands with their scales: those that were given, or by the scheme's quantisation. pair: A and B."""
    if operands.lead:
        _check_unscaled(options, scheme, "stacks of matrices")
    problem = options.problem
    arrays = problem.scale_a, problem.scale_b
    if (arrays[0] is None) != (arrays[1] is None):
        raise InputError("got one of scale_a and scale_b; give both")
    if arrays[0] is None and scheme.quantizes is not None:
        if problem.tensor_scales is not None:
            raise InputError(f"tensor_scales: scheme {scheme.name} makes its own; give scale_a and scale_b too")
        return _quantized(operands, options, scheme)
    if operands.left is None or operands.right is None:
        raise InputError("scales belong to arrays: give A and B; for cycles alone a scheme says where scales are")
    if problem.input_format is None:
        _check_codes_have_a_format(operands, pair)
    left, right = scaled_pair(operands.left, operands.right, *arrays, problem.tensor_scales)
    return _checked_scales(replace(operands, left=left, right=right))


def _check_codes_have_a_format(operands: ProductOperands, pair: tuple[AnyArray | None, AnyArray | None]) -> None:
    """Raise InputError for unsigned integers that were taken as numbers, as no input_format says whose codes they are:
    beside scales they are codes.
    """
    for name, array, side in zip("AB", pair, (operands.left, operands.right), strict=True):
        dtype = getattr(array, "dtype", None)
        if side is not None and side.format == "fp32" and dtype is not None and dtype.kind == "u":
            raise InputError(
                f"{name} has dtype {dtype} and scales, but no format; give input_format= for codes (e4m3, e2m1, ...; "
                "of A and B with a comma), or an array of an ml_dtypes format"
            )


def scaled_pair(
    left: Operand, right: Operand, scale_a: Any, scale_b: Any, tensor_scales: Any
) -> tuple[Operand, Operand]:
    """A and B with scales as they were given. Raises InputError for scales that do not fit."""
    k, scales = left.shape[1], []
    for name, side, array, place, extent in (
        ("scale_a", left, scale_a, 0, left.shape[0]),
        ("scale_b", right, scale_b, 1, right.shape[1]),
    ):
        factor = None if tensor_scales is None else tensor_scales[place]
        values, beside = (np.float32(factor), None) if array is None else (array, factor)
        scales.append(scales_of(name, values, (extent, k), side.format, factor=beside))
    of_left, of_right = joined(scales[0], scales[1], left.shape[0], right.shape[1], k)
    return replace(left, scales=of_left), replace(right, scales=of_right)


def _quantized(operands: ProductOperands, options: CallOptions, scheme: Scheme) -> ProductOperands:
    """Operands in the formats of a scheme that quantises, where they are not quantised yet."""
    assert scheme.quantizes is not None
    if operands.left is None or operands.right is None:
        _check_timed_format(options, scheme)
        return replace(operands, scales=scales_of_scheme(scheme))
    left, right = quantized_pair(operands.left, operands.right, scheme, options.of_scheme)
    return _checked_scales(replace(operands, left=left, right=right, originals=operands.pair))


def _check_timed_format(options: CallOptions, scheme: Scheme) -> None:
    """Raise InputError for operands that are not quantised yet, where only cycles are wanted: no kernel quantises."""
    named, elements = options.problem.input_format, scheme.input_formats[1:]
    if named is not None and named not in elements:
        raise InputError(
            f"input_format = {named!r} with exact=False: scheme {scheme.name} has no kernel that quantises, so its "
            f"cycles are of operands that are quantised already; allowed: {', '.join(elements)}; leave it out"
        )


def element_format(scheme: Scheme, options: Mapping[str, Any], named: str | None = None) -> str:
    """The format that a scheme quantises to, by its options. named: the format that the caller says operands have."""
    elements = scheme.input_formats[1:]
    return named if named in elements else str(scheme.complete(options).get("element_format") or elements[0])


def quantized_pair(
    left: Operand, right: Operand, scheme: Scheme, options: Mapping[str, Any]
) -> tuple[Operand, Operand]:
    """A and B as a scheme that quantises has them. options: of the scheme."""
    assert scheme.quantizes is not None
    complete = scheme.complete(options)
    rule, element = complete.get("rule"), complete.get("element_format")
    sides = []
    for side, name, axis in zip((left, right), scheme.quantizes, (-1, -2), strict=True):
        quantized = quantize(side.values(), name, rule=rule, element=element, axis=axis)
        sides.append(Operand(quantized.codes, quantized.element, scales=of_quantized(quantized)))
    return sides[0], sides[1]


def problem_of_scheme(scheme: Scheme, m: int, n: int, k: int) -> Problem:
    """The problem of operands in the scheme's first input format; in its elements' format with the scales that its
    quantisation makes.
    """
    if scheme.quantizes is None:
        return Problem.of(scheme.input_formats[0], m, n, k)
    plain = Problem.of(element_format(scheme, {}), m, n, k)
    a, b = (replace(side, scale=scale) for side, scale in zip(plain.operands, scales_of_scheme(scheme), strict=True))
    return replace(plain, a=a, b=b)


def scales_of_scheme(scheme: Scheme) -> tuple[OperandScale | None, OperandScale | None]:
    """Where A and B have scales when the scheme has quantised them; None where it does not quantise."""
    if scheme.quantizes is None:
        return None, None
    return scale_of_scheme(scheme.quantizes[0]), scale_of_scheme(scheme.quantizes[1])


def scale_of_scheme(name: str) -> OperandScale:
    """Where operands have scales that are quantised by this name."""
    scheme = SCHEMES[name]
    return OperandScale(scheme.scale_format, scheme.rows, scheme.k, scheme.scale_format == "ue4m3")


def _checked_scales(operands: ProductOperands) -> ProductOperands:
    """The operands with descriptions of their scales. Raises InputError for scales of A and B that no kernel joins."""
    assert operands.left is not None and operands.right is not None
    left, right = operands.left.scales, operands.right.scales
    assert left is not None and right is not None
    described = (
        OperandScale(left.format, left.rows, left.k, left.factor is not None),
        OperandScale(right.format, right.rows, right.k, right.factor is not None),
    )
    kinds = tuple("sum" if scale.k is None else SCALES[scale.rows, scale.k][0] for scale in described)
    if kinds[0] != kinds[1] or (left.k, left.format) != (right.k, right.format):
        raise InputError(
            f"scales of A are {described[0]}, scales of B {described[1]}; allowed: both of rows or tensors, both of "
            "blocks of 128 of K, or both of one format and vector length"
        )
    return replace(operands, scales=described)


def _sizes_of(left: Operand, right: Operand, sizes_asked: Mapping[str, int | None]) -> dict[str, int]:
    """The sizes of the product of two matrices. Raises InputError where others are asked for."""
    if left.shape[1] != right.shape[0]:
        raise InputError(
            f"A is {left.shape[0]} x {left.shape[1]} and B {right.shape[0]} x {right.shape[1]}: "
            "A's columns must equal B's rows"
        )
    sizes = {"m": left.shape[0], "n": right.shape[1], "k": left.shape[1]}
    for name, size in sizes.items():
        if sizes_asked[name] is not None and sizes_asked[name] != size:
            raise InputError(f"{name} = {sizes_asked[name]}, but the matrices give {name} = {size}; leave it out")
    if min(sizes.values()) < 1:
        empty = min(sizes, key=lambda name: sizes[name])
        raise InputError(f"{empty} = 0; allowed: an integer of at least 1")
    return sizes


def _check_memory(sizes: Mapping[str, int], matrices: int, options: CallOptions, is_drawn: bool) -> None:
    """Raise InputError where the operands to be drawn and the result do not fit in this machine's memory.

    The result counts in its own format where that is said, else as FP32. What is beside it: hwsim.compute.bits.
    """
    m, n, k = (int(sizes[name]) for name in "mnk")
    needed = 4 * (m * k + k * n) * matrices if is_drawn else 0
    if options.region.rows is None and options.region.cols is None:
        needed += m * n * matrices * code_dtype(format_of(options.epilogue.output or "fp32")).itemsize
    check_memory(
        needed,
        f"{'A, B and C' if is_drawn else 'C'} of m, n, k = {m}, {n}, {k}{f' times {matrices}' * (matrices > 1)}",
        "compute a part of the result (rows=, cols=), or cycles alone (exact=False)",
    )


def _of_convolution(
    sizes: Mapping[str, Any], a: AnyArray | None, b: AnyArray | None, options: CallOptions
) -> ProductOperands:
    """The GEMM of a convolution: one for all groups. a: its matrix of windows, as hwsim.conv2d makes it."""
    problem = options.problem
    if a is None and options.machine.exact:
        raise InputError("conv: for cycles alone: leave out A and B and give exact=False; bits are hwsim.conv2d's")
    beside = {
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "batch": problem.batch,
        "c": options.epilogue.c if a is None else None,
        "shape": options.region.shape,
        "library": options.library.library if a is not None else None,
    }
    others = [name for name, value in beside.items() if value is not None]
    if others:
        raise InputError(f"{', '.join(others)}: not beside conv")
    shape = conv_of(sizes)
    lead = (shape.groups,) if shape.groups > 1 else ()
    if a is None or b is None:
        return ProductOperands(None, None, shape.gemm, lead, conv=shape)
    left, right, own_formats = _in_common(*_pair(a, b, options))
    m, n, k = shape.gemm
    shapes = (*left.lead, *left.shape), (*right.lead, *right.shape)
    if shapes != ((*lead, m, k), (*lead, k, n)):
        raise InputError(
            f"conv: A and B have shapes {shapes[0]} and {shapes[1]}; allowed: {(*lead, m, k)} and {(*lead, k, n)}, the "
            "windows and the filters of its GEMM (hwsim.conv2d takes images)"
        )
    return ProductOperands(left, right, shape.gemm, lead, conv=shape, own_formats=own_formats)


def _common(a: Operand, b: Operand) -> tuple[int, ...]:
    """The broadcast leading dimensions of A and B. Raises InputError where they do not broadcast."""
    try:
        lead: tuple[int, ...] = np.broadcast_shapes(a.lead, b.lead)
    except ValueError:
        raise InputError(f"A's leading dimensions {a.lead} and B's {b.lead} do not fit together") from None
    if 0 in lead:
        raise InputError(f"the stack of matrices is empty: its shape is {lead}")
    return lead
