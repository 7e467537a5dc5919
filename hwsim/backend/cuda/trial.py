"""A small product of a unit with the bits that the CPU's kernels give it: what compiled kernels are held against before
they are used.

Compilers of GPUs have faults: ptxas of CUDA 13.0 to 13.3 loses conversions (composite.cuh). The module knows units and
formats; it knows no GPU and no main loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.formats import Format, code_dtype, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]
LINES = 128  # rows and columns: a whole block of threads, each sum of each thread
STEPS, LEAST_DEPTH = 2, 32  # K is more than so many steps, and than two turns of a loop
MOST_PLACES = 3  # by which an accumulator is divided


def trial(spec: DotSpec, divided: bool) -> tuple[DotOperands, Codes]:
    """Operands of the host, and the codes of their product. divided: whether the accumulator is, before steps.

    Most lines are numbers near 1; every eighth one is bit fields: infinities, NaNs, subnormal and large numbers.
    """
    rng, k = np.random.default_rng(1), max(STEPS * spec.unit.terms, LEAST_DEPTH) + 1
    a, b = (_drawn(rng, format_of(name), (LINES, k)) for name in (spec.a, spec.b))
    c = _drawn(rng, format_of(spec.c), (LINES, LINES))
    scale_a = scale_b = None
    if spec.scale_format is not None and spec.scale_block is not None:
        fmt, blocks = format_of(spec.scale_format), -(-k // spec.scale_block)
        unity = fmt.bias << fmt.fraction_bits
        scale_a, scale_b = (
            (unity + rng.integers(-4, 5, shape)).astype(np.uint8) for shape in ((LINES, blocks), (blocks, LINES))
        )
    places: Any = rng.integers(0, MOST_PLACES, -(-k // spec.unit.terms), np.uint8) if divided else 0
    operands = DotOperands(a, b.T, c, scale_a, scale_b, places)
    return operands, CPU.gemm(spec, operands)


def _drawn(rng: np.random.Generator, fmt: Format, shape: tuple[int, int]) -> Codes:
    fields = rng.integers(0, 1 << 63, shape, np.uint64) >> np.uint64(63 - min(fmt.bits, 63))
    codes: Codes = fields.astype(code_dtype(fmt))
    if not fmt.is_integer:
        near = CPU.encode(rng.standard_normal(shape), fmt, "RNE", "saturate")
        codes = np.where(np.arange(len(codes))[:, None] % 8, near, codes)
    return codes
