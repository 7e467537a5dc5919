"""How the scale of a block follows from its largest magnitude: the rules of OCP MX, cuBLASLt and PyTorch's libraries.

The module knows fp32 values and element formats; it knows no shape of a block, no GEMM and no device.

Sources: OCP Microscaling Formats v1.0, section 6.3; cuBLAS 13, "D block quantization"; torchao 0.18 (mx_tensor.py,
float8_utils.py, nvfp4_tensor.py); Transformer Engine d0067d0d (common/recipe, common/cast); DeepGEMM 54e2261
(utils/math.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.formats import Format, format_of
from hwsim.operands.powers import largest_number

AnyArray = NDArray[Any]
F32 = np.float32
LARGEST_FP32 = np.finfo(F32).max
FRACTION_BITS, BIAS = 23, 127  # of fp32; of ue8m0 too
NAN_SCALE, LARGEST_SCALE = 0xFF, 0xFE  # codes of ue8m0
DEEPGEMM_LEAST = F32(1e-4)  # amax is at least this
TORCHAO_LEAST = 1e-12
E4M3_LEAST_NORMAL = F32(2.0**-6)  # torchao's smallest scale of NVFP4


class BlockScales(NamedTuple):
    """Scales of blocks, as they are stored, and the fp32 number that each element is multiplied by before it is
    rounded. stored: fp32 values, or codes of ue8m0 or ue4m3. factor: of the whole operand; None: there is none.
    """

    stored: AnyArray
    multiplier: AnyArray
    factor: np.float32 | None = None


def largest_of(fmt: Format) -> np.float32:
    """The largest finite value of an element format, in fp32."""
    return F32(largest_number(fmt))


def power_of_two_scale(amax: AnyArray, element: Format, rule: str) -> AnyArray:
    """Codes of ue8m0, one for each fp32 amax. rule: of POWER_RULES."""
    return POWER_RULES[rule](amax, element)


def _floor(amax: AnyArray, element: Format) -> AnyArray:
    return _clamped((_bits(amax) >> FRACTION_BITS).astype(np.int64), amax, element)


def _ceil(amax: AnyArray, element: Format) -> AnyArray:
    bits = _bits(amax)
    has_fraction = (bits & ((1 << FRACTION_BITS) - 1)) > 0
    return _clamped((bits >> FRACTION_BITS).astype(np.int64) + has_fraction, amax, element)


def _even(amax: AnyArray, element: Format) -> AnyArray:
    half = 1 << (FRACTION_BITS - element.fraction_bits - 1)
    return _clamped(((_bits(amax).astype(np.int64) + half) >> FRACTION_BITS), amax, element)


def _torchao(amax: AnyArray, element: Format) -> AnyArray:
    """As _floor, but an infinity has the exponent 128."""
    biased = (_bits(amax) >> FRACTION_BITS).astype(np.int64)
    code = np.clip(biased - element.max_exponent, 0, NAN_SCALE)
    return np.where(np.isnan(amax), NAN_SCALE, code).astype(np.uint8)


def _clamped(biased: AnyArray, amax: AnyArray, element: Format) -> AnyArray:
    """The code of a biased exponent less that of the element's largest number; NaN for amax not finite."""
    code = np.clip(biased - element.max_exponent, 0, NAN_SCALE)
    return np.where(np.isfinite(amax), code, NAN_SCALE).astype(np.uint8)


def _rceil(amax: AnyArray, element: Format) -> AnyArray:
    with np.errstate(all="ignore"):
        return _rounded_up(amax * (F32(1) / largest_of(element)))


def _rounded_up(value: AnyArray) -> AnyArray:
    """Codes of ue8m0 of fp32 values, rounded up to a power of two, as cvt.rp.satfinite.ue8m0x2.f32 does."""
    bits = _bits(value)
    exponent, fraction = bits >> FRACTION_BITS, bits & ((1 << FRACTION_BITS) - 1)
    is_subnormal = exponent == 0
    goes_up = np.where(is_subnormal, fraction > 1 << (FRACTION_BITS - 1), (fraction > 0) & (exponent < LARGEST_SCALE))
    code = np.where(np.isinf(value), LARGEST_SCALE, exponent + goes_up)
    return np.where(np.isnan(value), NAN_SCALE, code).astype(np.uint8)


def _deepgemm(amax: AnyArray, element: Format) -> AnyArray:
    bits = _bits(np.maximum(amax, DEEPGEMM_LEAST) / largest_of(element)).astype(np.int64)
    has_fraction = (bits & ((1 << FRACTION_BITS) - 1)) > 0
    codes: AnyArray = np.clip((bits >> FRACTION_BITS) + has_fraction, 1, LARGEST_SCALE).astype(np.uint8)
    return codes


#: {rule: codes of ue8m0 from fp32 amax and the element's format}
POWER_RULES: Mapping[str, Callable[[AnyArray, Format], AnyArray]] = {
    "floor": _floor,
    "ceil": _ceil,
    "even": _even,
    "rceil": _rceil,
    "cublaslt": _rceil,
    "te": _rceil,
    "deepgemm": _deepgemm,
    "torchao": _torchao,
}


def power_of_two_scales(amax: AnyArray, element: Format, rule: str) -> BlockScales:
    """Scales of ue8m0. The multiplier of code s is 2^(127 - s), which for 254 is a subnormal number."""
    codes = power_of_two_scale(amax, element, rule)
    least = 1 if rule == "torchao" else 0  # torchao divides by a normal number
    places = BIAS - np.maximum(codes, least).astype(np.int32)
    multiplier = np.where(codes == NAN_SCALE, F32(np.nan), np.ldexp(F32(1), places))
    return BlockScales(codes, multiplier.astype(F32))


def fp32_scales(amax: AnyArray, element: Format, rule: str, power_of_two: bool) -> BlockScales:
    """Scales of fp32. rule: of FP32_RULES or POWER_RULES. power_of_two: of the libraries' rules, the scale (DeepGEMM:
    rounded up) or its inverse (others: rounded down) is a power of two.
    """
    largest = largest_of(element)
    with np.errstate(all="ignore"):
        if rule not in FP32_RULES:
            scales = power_of_two_scales(amax, element, rule)
            return BlockScales(CPU.decode(scales.stored, format_of("ue8m0"), F32), scales.multiplier)
        if rule == "deepgemm":
            stored = np.maximum(amax, DEEPGEMM_LEAST) / largest
            if power_of_two:
                stored = np.ldexp(F32(1), _deepgemm(amax, element).astype(np.int32) - BIAS)
            return BlockScales(stored, F32(1) / stored)
        if rule == "cublaslt":
            stored = np.where(amax == 0, F32(1), amax / largest)
            return BlockScales(stored, F32(1) / stored)
        if rule == "te":
            multiplier = np.minimum(largest / amax, LARGEST_FP32)
            multiplier = np.where((amax == 0) | ~np.isfinite(amax), F32(1), multiplier)
        else:  # torchao
            multiplier = (np.float64(largest) / np.maximum(amax.astype(np.float64), TORCHAO_LEAST)).astype(F32)
        if power_of_two:
            multiplier = (_bits(multiplier) >> FRACTION_BITS << FRACTION_BITS).view(F32)
        return BlockScales(F32(1) / multiplier, multiplier)


FP32_RULES = ("cublaslt", "deepgemm", "te", "torchao")


def nvfp4_scales(amax: AnyArray, largest_amax: np.float32, rule: str, two_level: bool) -> BlockScales:
    """Scales of ue4m3 of e2m1's blocks. largest_amax: of the whole operand. rule: of NVFP4_RULES.

    two_level: the operand has an fp32 factor, largest_amax / (448 * 6), beside them.
    """
    element, scale = format_of("e2m1"), format_of("ue4m3")
    top, top_scale = largest_of(element), F32(448)
    factor = None
    with np.errstate(all="ignore"):
        if two_level:
            factor = F32(1) if largest_amax == 0 else F32(largest_amax / (top_scale * top))
        if rule == "te":
            encode = F32(1) if largest_amax == 0 else F32(min(top_scale * top / largest_amax, LARGEST_FP32))
            encode = F32(1) if encode == 0 else encode
            wanted = np.minimum(amax * (encode * (F32(1) / top)), LARGEST_FP32)
            codes = CPU.encode(wanted, scale, "RNE", "saturate")
            values = CPU.decode(codes, scale, F32)
            return BlockScales(codes, np.minimum(F32(1) / (values * (F32(1) / encode)), LARGEST_FP32), factor)
        if rule == "torchao":
            of_blocks = amax / top if factor is None else amax / top / factor
            codes = CPU.encode(np.clip(of_blocks, E4M3_LEAST_NORMAL, top_scale), scale, "RNE", "saturate")
            first = F32(1) if factor is None else F32(1) / factor
            return BlockScales(codes, first / CPU.decode(codes, scale, F32), factor)
        before = F32(1) if factor is None else F32(1) / factor
        codes = CPU.encode(amax * before / top, scale, "RNE", "saturate")
        values = CPU.decode(codes, scale, F32)
        return BlockScales(codes, np.where(values == 0, F32(0), before / values), factor)


NVFP4_RULES = ("te", "torchao", "cublaslt")


def _bits(values: AnyArray) -> AnyArray:
    """The bit patterns of non-negative fp32 values."""
    return np.ascontiguousarray(values, F32).view(np.uint32) & np.uint32(0x7FFFFFFF)
