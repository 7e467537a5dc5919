"""The parts that a scheme splits FP32 numbers into, and how well they keep a number: for claims about representations.

It knows schemes' splits and FP32's numbers; no paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim._kernels.convert import decode
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.errors import InputError
from hwsim.evaluate.split import pieces_of
from hwsim.formats import format_of
from hwsim.gemm.plan import Piece, Plan
from hwsim.gemm.problem import Problem
from hwsim.operands.operand import Operand
from hwsim.schemes import scheme_of

Array = NDArray[Any]
FRACTION_BITS, SMALLEST_EXPONENT, LARGEST_EXPONENT = 23, -149, 127
RANDOM_COUNT = 1 << 17
TAIL_BITS = 13  # of the fraction, below FP16's and TF32's
#: Tails around the ties of a split, and around those of its remainder.
CENTRES = (0, 1 << 10, 1 << 11, 1 << 12, 3 << 11)
TAILS = sorted({(centre + step) % (1 << TAIL_BITS) for centre in CENTRES for step in range(-6, 7)})


def significands(seed: int = 0) -> Array:
    """FP32 numbers in [1, 2), ascending: 2^17 random ones, and each leading 10 bits with tails around ties."""
    rng = np.random.default_rng(seed)
    edges = (np.arange(1 << 10, dtype=np.uint32)[:, None] << np.uint32(TAIL_BITS)) | np.array(TAILS, np.uint32)
    fractions = np.unique(np.concatenate([rng.integers(0, 1 << FRACTION_BITS, RANDOM_COUNT, np.uint32), edges.ravel()]))
    return (fractions | np.uint32(127 << FRACTION_BITS)).view(np.float32)


def log_uniform(low: float, high: float, count: int, seed: int = 0) -> Array:
    """FP32 numbers of both signs, log-uniform in magnitude, with random low bits."""
    rng = np.random.default_rng(seed)
    size = np.exp2(rng.uniform(np.log2(low), np.log2(high), count)).astype(np.float32)
    return np.where(rng.integers(0, 2, count) == 1, size, -size).astype(np.float32)


@dataclass(frozen=True)
class SchemeSplit:
    """How a scheme splits an operand A on a device. options: pairs of name and value."""

    scheme: str
    device: str
    options: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def plan(self) -> Plan:
        """The scheme's plan. Raises InputError for one that has several."""
        scheme = scheme_of(self.scheme)
        plan = scheme.plan(scheme.complete(dict(self.options)), Problem.of("fp32", 1, 1, 1))
        if not isinstance(plan, Plan):
            raise InputError(f"scheme {self.scheme} has several plans; its split depends on the operands")
        return plan

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Formats, roundings and scales of the parts."""
        return self.plan.a_pieces

    @cached_property
    def chip(self) -> Device:
        """The device."""
        return load(self.device)

    def codes(self, x: Array) -> tuple[Array, ...]:
        """The parts' codes for FP32 numbers (n,)."""
        given = Operand(np.ascontiguousarray(x, np.float32).view(np.uint32).reshape(1, -1), "fp32")
        return tuple(np.asarray(one).ravel() for one in pieces_of(given, self.plan, "a", self.chip).codes)

    def parts(self, x: Array) -> tuple[Array, ...]:
        """The parts' values for FP32 numbers (n,), in fp64, as the unit reads them: scaled."""
        every = zip(self.codes(x), self.pieces, strict=True)
        return tuple(decode(code, format_of(piece.format), np.float32).astype(np.float64) for code, piece in every)

    def value(self, x: Array) -> Array:
        """What the parts stand for: their sum without scales, exact in fp64; infinite or NaN beyond the range."""
        with np.errstate(invalid="ignore"):
            every = zip(self.parts(x), self.pieces, strict=True)
            total: Array = np.sum([part * 2.0**-piece.scale_exponent for part, piece in every], axis=0)
            return total

    def errors(self, x: Array) -> Array:
        """Relative errors of the representation; infinite where it is not finite."""
        wide = x.astype(np.float64)
        with np.errstate(invalid="ignore"):
            found = np.abs(wide - self.value(x)) / np.abs(wide)
        return np.where(np.isfinite(found), found, np.inf)

    def precision_bits(self) -> int:
        """floor(-log2(e) - 1), e the largest relative error over `significands`: 23 for half a unit of FP32."""
        return int(np.floor(-np.log2(self.errors(significands()).max()) - 1))

    def least_exponent(self, keeps: Callable[[Array], bool]) -> int:
        """The smallest e such that the errors of every binade from 2^e to [1, 2) are kept."""
        ones = significands()
        for exponent in range(0, SMALLEST_EXPONENT - 1, -1):
            x = np.ldexp(ones, exponent).astype(np.float32)
            x = x[(x >= 2.0**exponent) & (x < 2.0 ** (exponent + 1))]
            if not keeps(self.errors(x)):
                return exponent + 1
        return SMALLEST_EXPONENT

    def largest(self) -> float:
        """The largest FP32 number whose parts are all finite."""
        low, high = 0, 0x7F7FFFFF
        while low < high:
            middle = (low + high + 1) // 2
            x = np.array([middle], np.uint32).view(np.float32)
            low, high = (middle, high) if all(np.isfinite(part).all() for part in self.parts(x)) else (low, middle - 1)
        return float(np.array([low], np.uint32).view(np.float32)[0])


def products(plan: Plan) -> list[tuple[int, int]]:
    """The products of a plan, (part of A, part of B), each once."""
    return [pair for term in plan.terms for stage in term.stages for pair in stage.products]
