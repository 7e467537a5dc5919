"""The reference implementation of all dot units: one step, a dot product or a matrix product in exact Python integers.

It is the specification that the compiled kernels are tested against: codes in, codes out, no floating point. It knows
units and formats; it knows no device and no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from hwsim.errors import InputError
from hwsim.formats import code_dtype, format_of
from hwsim.numerics.block_scaled import BlockScaledStages, block_scaled_stages
from hwsim.numerics.composite import CompositeStages, composite_stages
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.exact import ExactStages, exact_stages
from hwsim.numerics.fma_chain import fma_stages
from hwsim.numerics.fused import FusedStages, fused_stages
from hwsim.numerics.integer import IntegerStages, integer_stages
from hwsim.numerics.pairwise import PairwiseStages, pairwise_stages
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
MODELS: Mapping[type[Any], Callable[[Any, DotSpec, DotOperands], Stages]] = MappingProxyType(
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


def stages(spec: DotSpec, operands: DotOperands) -> Stages:
    """One step with all its intermediate values; the field `result` is the code in d's format.

    operands: a, b of at most `spec.unit.terms` codes (missing ones are +0); c a code in c's format; one scale per
    `spec.scale_block` of k; scale_d from 0 to 15. Raises InputError for anything that does not fit.
    """
    return MODELS[type(spec.unit)](spec.unit, spec, operands)


def step(spec: DotSpec, operands: DotOperands) -> int:
    """The result of one step, as a code in d's format; operands as in `stages`."""
    return stages(spec, operands).result


def chain(spec: DotSpec, operands: DotOperands) -> list[Stages]:
    """All steps of a dot product over K, in increasing k; each step's result is the next one's accumulator.

    operands: a, b of K codes; c a code in c's format; later accumulators are in d's. scale_d applies to c alone, so to
    the first step. No products at all is one step of zeros. Raises InputError as `stages`, and for a unit whose step is
    not a whole number of scale blocks.
    """
    a, b, c, scale_a, scale_b, scale_d = operands
    if len(a) != len(b):
        raise InputError(f"a and b: one length is needed; got {len(a)} and {len(b)}")
    terms, block = spec.unit.terms, spec.scale_block
    if block is not None and terms % block:
        raise InputError(f"scale_block: {block} does not divide the {terms} products of a step")
    done: list[Stages] = []
    later = replace(spec, c=spec.d)
    for k in range(0, max(len(a), 1), terms):
        blocks = slice(k // block, (k + terms) // block) if block is not None else slice(None)
        part = DotOperands(
            a[k : k + terms],
            b[k : k + terms],
            done[-1].result if done else c,
            None if scale_a is None else scale_a[blocks],
            None if scale_b is None else scale_b[blocks],
            0 if done else scale_d,
        )
        done.append(stages(later if done else spec, part))
    return done


def dot(spec: DotSpec, operands: DotOperands) -> int:
    """The code, in d's format, of c + sum of a[k] b[k] as the unit computes it; operands as in `chain`."""
    return chain(spec, operands)[-1].result


def gemm(spec: DotSpec, operands: DotOperands) -> npt.NDArray[Any]:
    """Codes (M, N) of c + a b, from arrays of codes a (M, K), b (K, N), c (M, N); dtypes as `formats.code_dtype` says.

    scale_a (M, K / scale_block), scale_b (K / scale_block, N), the last block as short as K leaves it. Slow: one dot
    product at a time. Raises InputError for shapes or dtypes that do not fit.
    """
    a, b, c, scale_a, scale_b, scale_d = operands
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
    rows, columns, starts = a.tolist(), b.T.tolist(), c.tolist()
    row_scales = None if scale_a is None else scale_a.tolist()
    column_scales = None if scale_b is None else scale_b.T.tolist()
    for i in range(m):
        for j in range(n):
            element = DotOperands(
                rows[i],
                columns[j],
                starts[i][j],
                None if row_scales is None else row_scales[i],
                None if column_scales is None else column_scales[j],
                scale_d,
            )
            d[i, j] = dot(spec, element)
    return d
