"""Masks of Ape's hybrid GEMM (its Fig. 4, section 5.2, Listing 5, section 5.3): which block product takes which type.

It knows the scheme `ape` by name and Listing 5's comparisons as printed, with its ranges; no times.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np

from hwsim.api import run
from hwsim.evaluate.mixed import types_of
from hwsim.gemm.plan import Mixed
from hwsim.gemm.problem import Problem
from hwsim.schemes import scheme_of
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale
from hwsim_lab.papers.splits import Array

DEVICE = "a100"
BLOCK = 16
NARROW, WIDE = 0, 1  # indices of FP32-F and FP32-B among the plans; native fp32 is the third
OUTSIDE = np.float32(2.0**-30)  # beyond FP32-F's range, within FP32-B's
PROBABILITY, EDGE = 0.4, 16
#: Least and largest magnitude of FP32-F and FP32-B in Listing 5, after Table 2.
LISTING_RANGES = ((2.0**-14, 65504.0), (2.0**-110, float(np.finfo(np.float32).max)))
#: What the magnitudes of Listing 5's test are drawn around.
LEAST, LARGEST = (2.0**-110, 2.0**-14, 0.5), (1.0, 65504.0, float(np.finfo(np.float32).max))
BLOCKS_PER_PAIR = 120
CLAIMS = (
    "fig4-example-counts", "listing5-mask", "listing5-early-exit-fp32", "sec5-2-both-operands-fp32f",
    "sec5-3-mask-count-as-printed", "sec5-3-mask-count-exchanged",
)  # fmt: skip


def block_products(a: Array, b: Array) -> tuple[int, ...]:
    """How many block products the simulator gives FP32-F, FP32-B and native FP32, for operands in blocks of BLOCK."""
    result = run(a, b, device=DEVICE, scheme="ape", block=BLOCK, timing=False)
    assert result.gemm is not None and isinstance(result.gemm.plan, Mixed)
    return result.gemm.plan.blocks


def with_wide_blocks(mask: Array, value: float = float(OUTSIDE)) -> Array:
    """Ones with an element of `value` in each block of which the mask says WIDE."""
    found = np.ones((mask.shape[0] * BLOCK, mask.shape[1] * BLOCK), np.float32)
    rows, columns = np.nonzero(mask == WIDE)
    found[rows * BLOCK + 3, columns * BLOCK + 5] = value
    return found


def mask_of(block: Array) -> int:
    """The index of the simulator's type for a block, which meets a block of ones."""
    return int(np.argmax(block_products(block, np.ones((BLOCK, BLOCK), np.float32))))


def masks_of(blocks: Sequence[Array]) -> list[int]:
    """The index of the simulator's type for each of many blocks."""
    scheme = scheme_of("ape")
    plan = scheme.plan(scheme.complete({}), Problem.of("fp32", BLOCK, BLOCK, BLOCK))
    assert isinstance(plan, Mixed)
    return [int(one) for one in types_of(np.concatenate(blocks), (BLOCK, BLOCK), plan.ranges, plan.zeros_fit)[:, 0]]


def listed(block: Array) -> int:
    """The index of Listing 5's type for a block, by magnitudes."""
    least, largest = float(np.abs(block).min()), float(np.abs(block).max())
    for index, (low, high) in reversed(list(enumerate(LISTING_RANGES))):
        if least < low or largest > high:
            return index + 1
    return NARROW


@cache
def blocks_near_limits() -> tuple[Array, ...]:
    """Blocks whose least and largest magnitudes are some units in the last place, or a factor, from a limit."""
    rng = np.random.default_rng(0)
    found = []
    for low, high in product(LEAST, LARGEST):
        for number in range(BLOCKS_PER_PAIR):
            limits = [
                np.float32(one * (rng.uniform(0.5, 2) if number % 4 == 0 and one < 1e38 else 1)) for one in (low, high)
            ]
            for end in range(2):
                steps = int(rng.integers(-3, 4))
                towards = np.float32(0 if steps < 0 or (end and limits[end] > 1e38) else np.finfo(np.float32).max)
                for _ in range(abs(steps)):
                    limits[end] = np.nextafter(limits[end], towards)
            low_bits, high_bits = np.log2(np.array(limits, np.float64)).tolist()
            between = np.exp2(rng.uniform(low_bits, high_bits, (BLOCK, BLOCK)))
            block = np.clip(between, float(limits[0]), float(limits[1])).astype(np.float32)
            block.flat[rng.choice(block.size, 2, replace=False)] = limits
            found.append(block * rng.choice(np.array([-1, 1], np.float32), block.shape))
    return tuple(found)


def random_counts(coding: Sequence[int]) -> dict[str, Quantity]:
    """Random masks: the sum of the product of the coded masks (FP32-F, FP32-B), and the simulator's FP32-F products."""
    rng = np.random.default_rng(0)
    a, b = ((rng.random((EDGE, EDGE)) < PROBABILITY).astype(np.int64) for _ in range(2))
    code = np.array(coding)
    counts = block_products(with_wide_blocks(a), with_wide_blocks(b))
    return {"counted": int((code[a] @ code[b]).sum()), "direct": counts[NARROW]}


def measure(scale: Scale) -> Found:
    """All by the simulator's own counts of block products."""
    left, right = np.zeros((3, 2), int), np.zeros((2, 3), int)
    left[0, 0] = left[1, 1] = right[0, 2] = WIDE
    example = block_products(with_wide_blocks(left), with_wide_blocks(right))
    every = blocks_near_limits()
    wrong = [block for block, own in zip(every, masks_of(every), strict=True) if own != listed(block)]
    high = sum(float(np.abs(block).max()) > 1e38 for block in wrong)
    one = np.ones((1, 1), int)
    outside, inside = (mask_of(with_wide_blocks(one * WIDE, 2.0**exponent)) for exponent in (-120, -100))
    both = [
        int(block_products(with_wide_blocks(one * a), with_wide_blocks(one * b))[NARROW] == 1)
        for a, b in product((NARROW, WIDE), repeat=2)
    ]
    measured: dict[str, dict[str, Quantity]] = {
        "fig4-example-counts": {"long": example[WIDE], "short": example[NARROW], "total": sum(example)},
        "listing5-mask": {"wrong": len(wrong)},
        "listing5-early-exit-fp32": {"fallback": int(outside == 2), "without": int(inside == WIDE)},
        "sec5-2-both-operands-fp32f": {"fp32f": both},
        "sec5-3-mask-count-as-printed": random_counts((0, 1)),
        "sec5-3-mask-count-exchanged": random_counts((1, 0)),
    }
    notes = {
        "listing5-mask": f"Of {len(every)} blocks {len(wrong)} differ, {high} of them at the upper end: hwsim's FP32-B "
        "ends below 2^128 - 2^119, from where BF16 rounds to infinity and sums would be NaN; at the lower end it "
        "begins at 7.7e-34, as section 4.3 prints it, a little below Table 2's 2^-110.",
        "sec5-3-mask-count-as-printed": "These codes count pairs that are both FP32-B; exchanged the sum agrees.",
        "fig4-example-counts": f"Blocks of {BLOCK}, the smallest that hwsim's scheme takes.",
    }
    return Found(measured, notes)


EXPERIMENTS = (Experiment("masks", CLAIMS, measure, {"quick": 2, "full": 2}),)
