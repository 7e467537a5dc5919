"""Random units of every model, with any operand and result formats and special values, against the integer reference.

A device file may say any of them; tests/kernels/test_dot_models.py has the units of chips.
"""

import random
from collections import Counter

import numpy as np
import pytest
from test_dot_models import VARIANTS, build

from hwsim._kernels import gemm
from hwsim.errors import HwsimError
from hwsim.formats import FORMATS, format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import (
    CompositeUnit,
    DotSpec,
    ExactUnit,
    FmaChainUnit,
    FusedUnit,
    PairwiseUnit,
    Specials,
    TwoLevelUnit,
)

FLOATS = [name for name, fmt in FORMATS.items() if not fmt.is_integer and fmt.signed]
HALF_HOLDS = [name for name in FLOATS if format_of("fp16").holds(format_of(name))]
ROUNDINGS = ("RNE", "RNA", "RZ", "RU", "RD")
KINDS = ("near", "wide", "small", "large", "any")
CASES = 60  # of each model


def specials(rng, fmt):
    nan = {}
    if rng.random() < 0.4 and fmt.nan == "ieee":
        all_ones = (1 << fmt.bits - 1) - 1 >> fmt.ignored_bits << fmt.ignored_bits
        nan["nan_code"] = rng.choice((all_ones, fmt.nan_code))
    return Specials(
        operands=rng.choice(("ieee", "saturate")),
        overflow=rng.choice(("infinity", "saturate")),
        zero=rng.choice(("positive", "ieee")),
        flush_operands=rng.random() < 0.3,
        flush_results=rng.random() < 0.3,
        **nan,
    )


def fused(rng, fmt, terms):
    return FusedUnit(
        terms,
        rng.choice((4, 8, 13, 20, 23, 25, 27, 35, 48)),
        rng.choice((-1000, -149, -133, -60, -21, 0, 10)),
        rng.choice(ROUNDINGS),
        "e8m13" if fmt.name == "fp32" and rng.random() < 0.3 else None,
        specials(rng, fmt),
    )


def two_level(rng, fmt, terms):
    return TwoLevelUnit(
        terms,
        rng.choice((16, 20, 24)),
        rng.choice((26, 30, 32)),
        rng.choice((20, 22, 24)),
        rng.choice((27, 31)),
        rng.random() < 0.4 and terms % 2 == 0,
        rng.choice((None, 12, 25)),
        rng.choice(ROUNDINGS),
        specials(rng, fmt),
    )


def composite(rng, fmt, terms):
    return CompositeUnit(
        8, fused(rng, fmt, rng.choice((4, 5))), "fp16", 4, ((0, 1), (2, 3)), specials=specials(rng, fmt)
    )


MODELS = {
    "exact": lambda rng, fmt, terms: ExactUnit(rng.choice((terms, 300)), rng.choice(ROUNDINGS), specials(rng, fmt)),
    "fma_chain": lambda rng, fmt, terms: FmaChainUnit(rng.choice(ROUNDINGS), None, specials(rng, fmt)),
    "fused": fused,
    "pairwise": lambda rng, fmt, terms: PairwiseUnit(terms, rng.choice(ROUNDINGS), specials(rng, fmt)),
    "two_level": two_level,
    "composite": composite,
}


@pytest.mark.parametrize("model", MODELS)
def test_equals_reference(model):
    done = Counter()
    for number in range(CASES):
        rng, data = random.Random(f"{model} {number}"), np.random.default_rng(number)
        d = rng.choice(FLOATS if rng.random() < 0.6 else ("fp32", "fp16", "fp64"))
        a = rng.choice(HALF_HOLDS if model == "composite" else FLOATS)
        b = a if rng.random() < 0.6 else rng.choice(HALF_HOLDS if model == "composite" else FLOATS)
        c = d if rng.random() < 0.7 else rng.choice(FLOATS)
        unit = MODELS[model](rng, format_of(d), rng.choice((1, 2, 3, 4, 5, 8, 16, 17, 32)))
        spec = DotSpec(unit, a, b, c, d)
        k = rng.choice((1, 3, unit.terms, unit.terms + 1, 2 * unit.terms))
        m, n = (2, 2) if k > 64 else rng.choice(((2, 3), (1, 9), (5, 17)))
        kind = rng.choice(KINDS)
        shapes = (a, (m, k), kind), (b, (k, n), kind), (c, (m, n), rng.choice((kind, "any", "wide")))
        operands = [build(data, format_of(fmt), shape, own) for fmt, shape, own in shapes]
        try:
            expected = reference.gemm(spec, DotOperands(*operands))
        except HwsimError:  # a result format that has no code for what its unit may give
            done["refused"] += 1
            continue
        for variant in VARIANTS:
            got = gemm(spec, *operands, _variant=variant)
            assert np.array_equal(got, expected), (number, variant, spec, kind, k)
        done["equal"] += 1
    assert done["equal"] > CASES // 2, done
