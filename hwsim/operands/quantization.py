"""Quantisation of a matrix to elements with scales, and back. It knows block shapes, rules and formats; no GEMM and no
device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.backend.environment import in_default_environment
from hwsim.errors import InputError, nearest
from hwsim.formats import array_of, codes_of, format_of
from hwsim.host.arrays import given_array
from hwsim.operands.scale_rules import (
    FP32_RULES,
    NVFP4_RULES,
    POWER_RULES,
    BlockScales,
    fp32_scales,
    nvfp4_scales,
    power_of_two_scales,
)
from hwsim.operands.stochastic import encode_saturated, encode_stochastic

AnyArray = NDArray[Any]
ROUNDINGS = ("nearest", "stochastic")
DEEPGEMM = "deepgemm"
#: DeepGEMM's bounds between the codes of e2m1: a value on a bound takes the lower code.
E2M1_BOUNDS = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)


@dataclass(frozen=True, slots=True)
class QuantizationScheme:
    """What a name of a scheme stands for.

    elements: formats of elements, the default first. scale_format: of a scale. rows, k: elements that share a scale, as
    of hwsim.gemm.problem.OperandScale (None: all of them). rules: by which a scale may follow, the default first.
    """

    elements: tuple[str, ...]
    scale_format: str
    rows: int | None
    k: int | None
    rules: tuple[str, ...]


_MX_RULES = ("rceil", *(rule for rule in POWER_RULES if rule != "rceil"))
_FP32_RULES = (*FP32_RULES, *(rule for rule in POWER_RULES if rule not in FP32_RULES))
SCHEMES: Mapping[str, QuantizationScheme] = {
    "mxfp8": QuantizationScheme(("e4m3", "e5m2"), "ue8m0", 1, 32, _MX_RULES),
    "mxfp6": QuantizationScheme(("e2m3", "e3m2"), "ue8m0", 1, 32, _MX_RULES),
    "mxfp4": QuantizationScheme(("e2m1",), "ue8m0", 1, 32, _MX_RULES),
    "nvfp4": QuantizationScheme(("e2m1",), "ue4m3", 1, 16, NVFP4_RULES),
    "fp8-row": QuantizationScheme(("e4m3", "e5m2"), "fp32", 1, None, _FP32_RULES),
    "fp8-1x128": QuantizationScheme(("e4m3", "e5m2"), "fp32", 1, 128, _FP32_RULES),
    "fp8-128x128": QuantizationScheme(("e4m3", "e5m2"), "fp32", 128, 128, _FP32_RULES),
    "fp8-tensor": QuantizationScheme(("e4m3", "e5m2"), "fp32", None, None, _FP32_RULES),
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Quantized:
    """A quantised operand: the value of an element is element * scale * factor.

    elements: typed array, of the shape of the operand. scales: (..., blocks of rows, blocks of K): fp32 values, or
    codes (uint8) of ue8m0 or ue4m3. factor: of the whole operand (NVFP4); None: 1. element, scale_format: names of
    formats. rows, k: elements that share a scale (None: all). axis: of K in `elements`, -1 or -2.
    """

    scheme: str
    rule: str
    elements: AnyArray
    scales: AnyArray
    factor: np.float32 | None
    element: str
    scale_format: str
    rows: int | None
    k: int | None
    axis: int

    @property
    def codes(self) -> AnyArray:
        """The elements as codes, uint8."""
        return codes_of(self.elements, format_of(self.element))


@in_default_environment
def quantize(
    x: AnyArray,
    scheme: str,
    *,
    rule: str | None = None,
    element: str | None = None,
    axis: int = -1,
    rounding: str = "nearest",
    seed: int | None = None,
    random_bytes: AnyArray | None = None,
    two_level: bool | None = None,
    power_of_two: bool | None = None,
) -> Quantized:
    """Quantise a matrix: elements in a narrow format, with a scale for each block.

    Of nvfp4 the result has a `factor` of the whole operand too (two_level). A product takes the factors of A and B as
    `tensor_scales`, beside `scale_a` and `scale_b`; of other schemes factor is None.

    Args:
        x: real, (..., rows, K), rounded to fp32 first; with axis=-2 (..., K, columns), whose blocks run along K too.
            Partial blocks are as if filled up with zeros.
        scheme: a name in SCHEMES.
        rule: how a scale follows from the largest magnitude of its block. floor, ceil, even, rceil (round up): powers
            of two. deepgemm, te (Transformer Engine), torchao, cublaslt: as that library does it. None: the scheme's
            first rule.
        element: format of an element. None: e4m3, e2m3 or e2m1.
        axis: of K, -1 or -2.
        rounding: of elements, to "nearest" (even; deepgemm's e2m1: half down), or "stochastic" by 8 random bits each.
            It saturates.
        seed: of the random bits, drawn by NumPy's PCG64 in C order; or random_bytes: the bits themselves, uint8.
        two_level: of nvfp4: an fp32 factor of the whole operand beside the scales. None: with "te" and "torchao".
        power_of_two: of fp32 scales by a library's rule. None: with "te" for 1 x 128 and 128 x 128.

    Raises:
        InputError: names, arrays and options that do not fit.
    """
    of_scheme = SCHEMES[_one_of("scheme", scheme, SCHEMES)]
    rule = _one_of("rule", of_scheme.rules[0] if rule is None else rule, of_scheme.rules)
    element = _one_of("element", element or of_scheme.elements[0], of_scheme.elements)
    _one_of("rounding", rounding, ROUNDINGS)
    if axis not in (-1, -2):
        raise InputError(f"axis = {axis!r}; allowed: -1, -2")
    values = _rows_of_k(x, axis)
    blocks = _Blocks(values.shape, of_scheme)
    amax = blocks.amax(values)
    scales = _scales_of(of_scheme, rule, element, amax, two_level, power_of_two)
    with np.errstate(all="ignore"):
        multiplied = values * blocks.spread(scales.multiplier)
    codes = _encoded(multiplied, element, rule, rounding, seed, random_bytes, axis)
    return Quantized(
        scheme=scheme,
        rule=rule,
        elements=array_of(np.ascontiguousarray(np.swapaxes(codes, -1, axis)), format_of(element)),
        scales=scales.stored,
        factor=scales.factor,
        element=element,
        scale_format=of_scheme.scale_format,
        rows=of_scheme.rows,
        k=of_scheme.k,
        axis=axis,
    )


@in_default_environment
def dequantize(quantized: Quantized) -> AnyArray:
    """The values of a quantised operand in float32: element * scale, rounded, then times the factor, rounded."""
    fmt, scale = format_of(quantized.element), format_of(quantized.scale_format)
    values = np.swapaxes(CPU.decode(quantized.codes, fmt, np.float32), -1, quantized.axis)
    scales = quantized.scales
    if quantized.scale_format != "fp32":
        scales = CPU.decode(scales, scale, np.float32)
    with np.errstate(all="ignore"):
        result = values * _Blocks(values.shape, SCHEMES[quantized.scheme]).spread(scales)
        if quantized.factor is not None:
            result = result * quantized.factor
    return np.ascontiguousarray(np.swapaxes(result, -1, quantized.axis))


class _Blocks:
    """The blocks of an array (..., rows, K) that share a scale."""

    def __init__(self, shape: tuple[int, ...], scheme: QuantizationScheme) -> None:
        *self.lead, self.rows, self.k = shape
        self.high = self.rows if scheme.rows is None else scheme.rows
        self.long = self.k if scheme.k is None else scheme.k

    def amax(self, values: AnyArray) -> AnyArray:
        """The largest magnitude of each block, (..., blocks of rows, blocks of K); NaN where a block has one."""
        down, across = -self.rows % self.high, -self.k % self.long
        magnitudes = np.abs(values)
        if down or across:
            magnitudes = np.pad(magnitudes, [(0, 0)] * len(self.lead) + [(0, down), (0, across)])
        shape = (*self.lead, (self.rows + down) // self.high, self.high, (self.k + across) // self.long, self.long)
        largest: AnyArray = magnitudes.reshape(shape).max(axis=(-3, -1))
        return largest

    def spread(self, scales: AnyArray) -> AnyArray:
        """The scale of each element."""
        tall = np.repeat(scales, self.high, axis=-2)[..., : self.rows, :]
        return np.repeat(tall, self.long, axis=-1)[..., : self.k]


def _scales_of(
    scheme: QuantizationScheme,
    rule: str,
    element: str,
    amax: AnyArray,
    two_level: bool | None,
    power_of_two: bool | None,
) -> BlockScales:
    is_nvfp4, is_fp32 = scheme.scale_format == "ue4m3", scheme.scale_format == "fp32"
    if two_level is not None and not is_nvfp4:
        raise InputError("two_level is for scheme nvfp4; leave it out")
    if power_of_two is not None and not (is_fp32 and rule in FP32_RULES):
        raise InputError(f"power_of_two is for fp32 scales by rule {', '.join(FP32_RULES)}; leave it out")
    if is_nvfp4:
        wanted = rule != "cublaslt" if two_level is None else two_level
        if rule == "te" and not wanted:
            raise InputError("two_level = False: rule te has a factor always; leave it out")
        return nvfp4_scales(amax, np.float32(amax.max(initial=0)), rule, wanted)
    if is_fp32:
        is_default = rule == "te" and scheme.k is not None
        return fp32_scales(amax, format_of(element), rule, is_default if power_of_two is None else power_of_two)
    return power_of_two_scales(amax, format_of(element), rule)


def _encoded(
    values: AnyArray,
    element: str,
    rule: str,
    rounding: str,
    seed: int | None,
    random_bytes: AnyArray | None,
    axis: int,
) -> AnyArray:
    """Codes of multiplied elements, (..., rows, K). axis: of K in random_bytes."""
    fmt, is_random = format_of(element), rounding == "stochastic"
    if is_random != ((seed is None) != (random_bytes is None)):
        raise InputError("rounding='stochastic' needs a seed or random_bytes, one of them; rounding='nearest' neither")
    if is_random:
        shape = np.swapaxes(values, -1, axis).shape
        if random_bytes is None:
            random_bytes = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
        return encode_stochastic(values, fmt, np.swapaxes(given_array("random_bytes", random_bytes), -1, axis))
    if rule == DEEPGEMM and element == "e2m1":
        code = np.searchsorted(E2M1_BOUNDS, np.abs(values)).astype(np.uint8)
        return code | ((values < 0) & (code > 0)).astype(np.uint8) << 3
    return encode_saturated(values, fmt)


def _rows_of_k(x: Any, axis: int) -> AnyArray:
    """An operand as float32 with K as its last axis."""
    array = given_array("x", x)
    if array.ndim < 2 or 0 in array.shape or array.dtype.kind not in "fiuV":
        raise InputError(f"x: {array.dtype} of shape {array.shape}; allowed: a real matrix, or a stack of them")
    with np.errstate(all="ignore"):
        return np.swapaxes(array.astype(np.float32), -1, axis)


def _one_of(what: str, name: str, allowed: Any) -> str:
    if name not in allowed:
        names = tuple(allowed)
        raise InputError(f"{what} = {name!r}; allowed: {', '.join(names)}{nearest(str(name), names)}")
    return name
