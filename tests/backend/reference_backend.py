"""A backend in Python integers and single NumPy operations: slow, and plain enough to read beside the protocol.

Products are those of hwsim.numerics.reference, conversions those of hwsim.formats. It promotes no unit, so that the
evaluator adds the chains itself.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np

from hwsim import formats
from hwsim.errors import UnsupportedError
from hwsim.formats import Exact, code_dtype, format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands

SOURCES = {np.dtype(np.float32): format_of("fp32"), np.dtype(np.float64): format_of("fp64")}
ELEMENTWISE = {"add": np.add, "subtract": np.subtract, "times": np.multiply}


class ReferenceBackend:
    """hwsim.backend.operations.Backend by the integer reference."""

    name = variant = "reference"
    variants = ("reference",)
    calls_at_once = 1

    from_host = to_host = result = staticmethod(np.asarray)
    empty = staticmethod(np.empty)
    zeros = staticmethod(np.zeros)

    def for_whole(self, macs):
        return None

    def takes(self, spec):
        return True

    def promotes(self, spec):
        return False

    def promote(self, spec, operands, total, **given):
        raise UnsupportedError("the reference promotes no unit")

    def gemm(self, spec, operands, *, threads=1, out=None):
        a, b, c, scale_a, scale_b, scale_d = operands
        shape = (*a.shape[:-1], b.shape[-1])
        result = np.empty(shape, code_dtype(format_of(spec.d))) if out is None else out
        for at in np.ndindex(shape[:-2]):
            start = np.zeros(shape[-2:], code_dtype(format_of(spec.c))) if c is None else c[at]
            scales = (None, None) if scale_a is None else (scale_a[at], scale_b[at])
            result[at] = _chain(spec, a[at], b[at], start, scales, scale_d)
        return result

    def encode(self, x, fmt, rounding="RNE", overflow="ieee", *, nan="quiet", out=None, threads=1):
        if nan == "all-ones" and fmt.nan == "ieee":
            of_nan = (1 << fmt.magnitude_bits) - 1 << fmt.ignored_bits
        elif nan == "zero":
            of_nan = formats.round_to(fmt, Exact("finite", 0, 0), rounding, overflow=overflow)
        else:
            of_nan = 0 if fmt.is_integer else fmt.nan_code
        result = np.empty(x.shape, code_dtype(fmt)) if out is None else out
        for at in np.ndindex(x.shape):
            exact = _exact(x[at])
            is_nan = exact.kind == "nan"
            result[at] = of_nan if is_nan else formats.round_to(fmt, exact, rounding, overflow=overflow)
        return result

    def decode(self, codes, fmt, dtype=np.float32, *, out=None, threads=1):
        target = SOURCES[np.dtype(dtype)]
        words = np.empty(codes.shape, code_dtype(target))
        for at in np.ndindex(codes.shape):
            exact = formats.decode(fmt, int(codes[at]))
            words[at] = formats.encode(target, exact) | exact.sign << target.bits - 1
        result = words.view(dtype)
        if out is None:
            return result
        out[...] = result
        return out

    def split(self, x, pieces, *, overflow="ieee", nan="quiet", clamp=False, out=None, threads=1):
        top, codes = np.finfo(x.dtype).max, []
        rest = np.where(np.isinf(x), np.copysign(top, x), x) if clamp else x
        with np.errstate(all="ignore"):
            for fmt, rounding, exponent, *own in pieces:
                rest = _settled(rest * x.dtype.type(2.0**exponent), overflow == "saturate", nan == "zero")
                codes.append(self.encode(rest, fmt, rounding, (own and own[0]) or overflow, nan=nan))
                rest = _settled(rest - self.decode(codes[-1], fmt, x.dtype), overflow == "saturate", nan == "zero")
        return codes

    def scale(self, x, exponent, *, out=None, threads=1):
        with np.errstate(all="ignore"):
            return np.multiply(x, x.dtype.type(2.0**exponent), out=out)

    def largest(self, x, *, threads=1):
        return float(np.abs(x).max(initial=0))

    def combine(self, operands, steps, dtype=np.float32, *, saturate=False, nan_code=None, out=None, threads=1):
        dtype = np.dtype(dtype)
        shape, stack = np.broadcast_shapes(*(x.shape for x in operands)), []
        with np.errstate(all="ignore"):
            for name, *rest in steps:
                if name == "load":
                    value = np.broadcast_to(operands[rest[0]].astype(dtype), shape)
                elif name == "constant":
                    value = np.full(shape, rest[0], dtype)
                elif name == "scale":
                    value = dtype.type(rest[0]) * stack.pop()
                elif name == "fused":
                    right, left = stack.pop(), stack.pop()
                    value = _fused(np.full(shape, rest[0], dtype), left, right)
                elif name == "fma":
                    third, right, left = stack.pop(), stack.pop(), stack.pop()
                    value = _fused(left, right, third)
                else:
                    right, left = stack.pop(), stack.pop()
                    value = ELEMENTWISE[name](left, right)
                stack.append(_settled(value, saturate, saturate))
        width = dtype.itemsize * 8
        of_nan = {32: 0x7FC00000, 64: 0x7FF8000000000000}[width] if nan_code is None else nan_code
        words = np.array(stack.pop(), dtype).view(f"u{width // 8}")
        words[np.isnan(words.view(dtype))] = of_nan
        if out is None:
            return words.view(dtype)
        out[...] = words.view(dtype)
        return out

    def specials(self, x, *, threads=1):
        return ~np.isfinite(x).all(axis=1), ~np.isfinite(x).all(axis=0)


def _chain(spec, a, b, start, scales, divide):
    """Codes of a chain over K, step by step where the accumulator is divided."""
    if isinstance(divide, int) or not divide.any():
        return reference.gemm(spec, DotOperands(a, b, start, scale_a=scales[0], scale_b=scales[1]))
    terms, value = spec.unit.terms, start
    for index, at in enumerate(range(0, a.shape[1], terms)):
        some = slice(at, at + terms)
        value = reference.gemm(spec, DotOperands(a[:, some], b[some], value, scale_d=int(divide[index])))
        spec = dataclasses.replace(spec, c=spec.d)
    return value


def _exact(value):
    """The exact value of a float32 or float64."""
    return formats.decode(SOURCES[value.dtype], int(value.view(f"u{value.dtype.itemsize}")))


def _settled(values, without_infinities, without_nans):
    """Infinities as the largest finite value, NaNs as +0."""
    if without_infinities:
        values = np.where(np.isinf(values), np.copysign(np.finfo(values.dtype).max, values), values)
    return np.where(np.isnan(values), values.dtype.type(0), values) if without_nans else values


def _fused(factors, values, addends):
    """factors * values + addends, rounded once."""
    result = factors * values + addends  # right for infinities, NaNs and zeros
    for at in np.ndindex(result.shape):
        parts = factors[at], values[at], addends[at]
        if not all(np.isfinite(part) for part in parts):
            continue
        total = Fraction(float(factors[at])) * Fraction(float(values[at])) + Fraction(float(addends[at]))
        if total:
            exact = Exact("finite", int(total < 0), abs(total.numerator), 1 - total.denominator.bit_length())
            fmt = SOURCES[result.dtype]
            result[at] = np.array(formats.round_to(fmt, exact, "RNE"), code_dtype(fmt)).view(result.dtype)
    return result
