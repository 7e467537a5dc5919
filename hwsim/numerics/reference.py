"""The reference implementation of all dot units: one step, a dot product or a matrix product in exact Python integers.

It is the specification that the compiled kernels are tested against: codes in, codes out, no floating point. It knows
units and formats; it knows no device and no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from hwsim.errors import InputError
from hwsim.formats import code_dtype, format_of
from hwsim.numerics.block_scaled import BlockScaledStages, block_scaled_stages
from hwsim.numerics.composite import CompositeStages, composite_stages
from hwsim.numerics.exact import ExactStages, exact_stages
from hwsim.numerics.fma_chain import fma_stages
from hwsim.numerics.fused import FusedStages, fused_stages
from hwsim.numerics.integer import IntegerStages, integer_stages
from hwsim.numerics.pairwise import PairwiseStages, pairwise_stages
from hwsim.numerics.terms import StepInput
from hwsim.numerics.two_level import TwoLevelStages, two_level_stages
from hwsim.numerics.units import (
    BlockScaledUnit,
    CompositeUnit,
    DotSpec,
    ExactUnit,
    FmaChainUnit,
    FusedUnit,
    IntegerUnit,
    PairwiseUnit,
    TwoLevelUnit,
)

Stages = (
    FusedStages | ExactStages | PairwiseStages | TwoLevelStages | IntegerStages | BlockScaledStages | CompositeStages
)

#: The stages of each model, by the type of its unit.
MODELS: Mapping[type[Any], Callable[[Any, DotSpec, StepInput], Stages]] = MappingProxyType(
    {
        FusedUnit: fused_stages,
        ExactUnit: exact_stages,
        FmaChainUnit: fma_stages,
        PairwiseUnit: pairwise_stages,
        TwoLevelUnit: two_level_stages,
        IntegerUnit: integer_stages,
        BlockScaledUnit: block_scaled_stages,
        CompositeUnit: composite_stages,
    }
)


def stages(
    spec: DotSpec,
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    scale_a: Sequence[int] | None = None,
    scale_b: Sequence[int] | None = None,
    scale_d: int = 0,
) -> Stages:
    """One step with all its intermediate values; the field `result` is the code in d's format.

    a, b: codes, at most `spec.unit.terms` of them (missing ones are +0). c: a code in c's format.
    scale_a, scale_b: codes of block scales, one per `spec.scale_block` of k. scale_d: exponent from 0 to 15 of
    the accumulator's scale 2^-scale_d. Raises InputError for anything that does not fit.
    """
    return MODELS[type(spec.unit)](spec.unit, spec, StepInput(a, b, c, scale_a, scale_b, scale_d))


def step(
    spec: DotSpec,
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    scale_a: Sequence[int] | None = None,
    scale_b: Sequence[int] | None = None,
    scale_d: int = 0,
) -> int:
    """The result of one step, as a code in d's format; arguments as in `stages`."""
    return stages(spec, a, b, c, scale_a=scale_a, scale_b=scale_b, scale_d=scale_d).result


def chain(
    spec: DotSpec,
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    scale_a: Sequence[int] | None = None,
    scale_b: Sequence[int] | None = None,
    scale_d: int = 0,
) -> list[Stages]:
    """All steps of a dot product over K, in increasing k; each step's result is the next one's accumulator.

    a, b: K codes. c: a code in c's format; later accumulators are in d's. scale_d applies to c alone, so to the
    first step. No products at all is one step of zeros. Raises InputError as `stages`, and for a unit whose
    step is not a whole number of scale blocks.
    """
    if len(a) != len(b):
        raise InputError(f"a and b: one length is needed; got {len(a)} and {len(b)}")
    terms, block = spec.unit.terms, spec.scale_block
    if block is not None and terms % block:
        raise InputError(f"scale_block: {block} does not divide the {terms} products of a step")
    done: list[Stages] = []
    later = replace(spec, c=spec.d)
    for k in range(0, max(len(a), 1), terms):
        blocks = slice(k // block, (k + terms) // block) if block is not None else slice(None)
        done.append(
            stages(
                later if done else spec,
                a[k : k + terms],
                b[k : k + terms],
                done[-1].result if done else c,
                scale_a=None if scale_a is None else scale_a[blocks],
                scale_b=None if scale_b is None else scale_b[blocks],
                scale_d=0 if done else scale_d,
            )
        )
    return done


def dot(
    spec: DotSpec,
    a: Sequence[int],
    b: Sequence[int],
    c: int,
    *,
    scale_a: Sequence[int] | None = None,
    scale_b: Sequence[int] | None = None,
    scale_d: int = 0,
) -> int:
    """The code, in d's format, of c + sum of a[k] b[k] as the unit computes it; arguments as in `chain`."""
    return chain(spec, a, b, c, scale_a=scale_a, scale_b=scale_b, scale_d=scale_d)[-1].result


def gemm(
    spec: DotSpec,
    a: npt.NDArray[Any],
    b: npt.NDArray[Any],
    c: npt.NDArray[Any],
    *,
    scale_a: npt.NDArray[Any] | None = None,
    scale_b: npt.NDArray[Any] | None = None,
    scale_d: int = 0,
) -> npt.NDArray[Any]:
    """Codes (M, N) of c + a b, from codes a (M, K), b (K, N), c (M, N); dtypes as given by `formats.code_dtype`.

    scale_a (M, K / scale_block), scale_b (K / scale_block, N): codes of block scales. Slow: one dot product at a
    time. Raises InputError for shapes or dtypes that do not fit.
    """
    for name, array, fmt in (("a", a, spec.a), ("b", b, spec.b), ("c", c, spec.c)):
        if array.ndim != 2 or array.dtype != code_dtype(format_of(fmt)):
            raise InputError(
                f"{name}: a matrix of {fmt} codes ({code_dtype(format_of(fmt))}) is needed; "
                f"got {array.ndim} dimensions of {array.dtype}"
            )
    (m, k), n = a.shape, b.shape[1]
    if b.shape[0] != k or c.shape != (m, n):
        raise InputError(f"shapes (M, K), (K, N), (M, N) are needed; got {a.shape}, {b.shape}, {c.shape}")
    if spec.scale_block is not None:
        blocks = -(-k // spec.scale_block)
        for name, scale, shape in (("scale_a", scale_a, (m, blocks)), ("scale_b", scale_b, (blocks, n))):
            if scale is None or scale.shape != shape:
                got = "nothing" if scale is None else str(scale.shape)
                raise InputError(f"{name}: {spec.scale_format} codes of shape {shape} are needed; got {got}")
    d = np.empty((m, n), code_dtype(format_of(spec.d)))
    rows, columns = a.tolist(), b.T.tolist()
    row_scales = None if scale_a is None else scale_a.tolist()
    column_scales = None if scale_b is None else scale_b.T.tolist()
    for i in range(m):
        for j in range(n):
            d[i, j] = dot(
                spec,
                rows[i],
                columns[j],
                int(c[i, j]),
                scale_a=None if row_scales is None else row_scales[i],
                scale_b=None if column_scales is None else column_scales[j],
                scale_d=scale_d,
            )
    return d
