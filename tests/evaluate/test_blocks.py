"""A large product is computed in blocks of rows and columns; an interrupt waits for one. No influence on bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hwsim
from hwsim.devices import load
from hwsim.evaluate import block_sizes
from hwsim.evaluate.product import Evaluator

M, K, N = 51, 200, 59
PAIRS = [
    ("h200", "native"),
    ("h200", "bf16x9"),
    ("h200", "tf32x3"),
    ("h200", "ozaki-int8"),
    ("h200", "ozaki-fp16"),
    ("h200", "quantensor"),
    ("a100", "sgemm-cube"),
    ("ascend910a", "sgemm-cube"),
    ("b200", "bf16x9"),
    ("mi210", "native"),
]


def operands(shape, seed):
    """fp32 from bit fields: all signs, significands, some exponents; a row of -0, infinities, NaN."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 1 << 32, shape, np.uint32) & 0x807FFFFF
    values = (codes | rng.integers(97, 157, shape).astype(np.uint32) << 23).view(np.float32)
    values[3], values[5, 2], values[7, 9] = -0.0, np.inf, np.nan
    return values


@pytest.mark.covering(("device", "scheme"), "options")
@pytest.mark.parametrize(("device", "scheme"), PAIRS)
@pytest.mark.parametrize("options", [{}, {"split_k": 3}, {"bias": True, "beta": -0.5}], ids=["plain", "split", "bias"])
def test_blocks_do_not_change_a_bit(device, scheme, options, monkeypatch):
    a, b = operands((M, K), 1), operands((K, N), 2)
    given = dict(options)
    if "bias" in given:
        given |= {"bias": operands((8, N), 3)[0], "c": operands((M, N), 4)}

    def product():
        return hwsim.run(a, b, device=device, scheme=scheme, threads=2, timing=False, **given).c

    whole = product()
    sizes = ((1 << 14, 16, 7), (1 << 17, 32, 3)) if scheme == "native" else ((1 << 16, 16, 7),)
    for products, lines, least in sizes:
        monkeypatch.setattr(block_sizes, "PRODUCTS_PER_CALL", products)
        monkeypatch.setattr(block_sizes, "LINES_PER_CALL", lines)
        monkeypatch.setattr(block_sizes, "LEAST_LINES", least)
        assert product().tobytes() == whole.tobytes()
    monkeypatch.setattr(block_sizes, "PRODUCTS_PER_CALL", 1 << 31)
    monkeypatch.setattr(block_sizes, "VALUES_PER_CALL", 1 << 11)
    assert product().tobytes() == whole.tobytes()


@pytest.mark.parametrize("sums", [1, 3, 28, 1000])
@pytest.mark.parametrize(("n", "k"), [(4096, 16), (16, 1), (1 << 20, 64), (65536, 65536), (257, 3)])
def test_a_call_keeps_few_values(n, k, sums):
    """Of all terms, slices and chains; never of fewer than 256 rows and columns, as each call arranges A and B."""
    plan = hwsim.run(m=1, n=1, k=1, device="h200", format="fp16").gemm.plan
    rows, cols = block_sizes.block_at_once(plan.products, n, k, sums)
    assert rows * cols * sums <= max(block_sizes.VALUES_PER_CALL, block_sizes.LINES_PER_CALL**2 * sums)
    assert rows >= 1 and 1 <= cols <= n
    if k < 1 << 10:  # else the products bound the call
        assert 2 * rows * cols >= min(block_sizes.VALUES_PER_CALL // sums, block_sizes.LINES_PER_CALL * n)


def test_a_backend_that_does_many_threads_work_has_whole_blocks():
    """A's pieces go to a GPU once, not once for each block of columns; host threads have rows beside that."""
    plan = hwsim.run(m=1, n=1, k=1, device="h200", scheme="bf16x9").gemm.plan
    size = 4096
    assert block_sizes.block_at_once(plan.products, size, size)[1] < size
    rows, cols = block_sizes.block_at_once(plan.products, size, size, calls=64, threads=2)
    assert cols == size and rows * cols * size * plan.products <= 64 * block_sizes.PRODUCTS_PER_CALL
    few, twice = (block_sizes.block_at_once(1, size, size, threads=threads)[0] for threads in (1, 2))
    assert twice == 2 * few


@pytest.mark.parametrize(("n", "k"), [(16384, 16384), (1 << 20, 64), (256, 1 << 20), (65536, 65536), (64, 64)])
def test_a_call_takes_about_a_second_at_most(n, k):
    """At 2 x 10^9 products a second and thread."""
    plan = hwsim.run(m=1, n=1, k=1, device="h200", scheme="bf16x9").gemm.plan
    rows, cols = block_sizes.block_at_once(plan.products, n, k)
    assert rows * cols * k * plan.products <= max(block_sizes.PRODUCTS_PER_CALL, 64 * 64 * k * plan.products)
    assert 1 <= cols <= n


@pytest.mark.parametrize(
    ("options", "bias", "is_made"),
    [
        ({"format": "fp16"}, False, False),
        ({"format": "fp16", "output": "bf16"}, False, True),
        ({"format": "fp16", "split_k": 2}, False, True),
        ({"format": "fp16"}, True, True),
        ({"format": "e4m3", "accumulate": "promoted"}, False, True),
        ({"scheme": "tf32x3"}, False, True),
        ({"scheme": "ape"}, False, True),
    ],
)
def test_where_values_are_made_of_a_unit_s_results(options, bias, is_made):
    record = hwsim.run(m=64, n=64, k=256, device="h200", exact=False, **options).gemm
    own = Evaluator(record, load("h200"))
    assert own.makes_values(None, np.zeros(64, np.float32) if bias else None) == is_made
    if not is_made:  # nor is it with a group that a term ends by itself
        (term,) = record.plan.terms
        plan = replace(record.plan, terms=(replace(term, k_group=128),))
        assert Evaluator(replace(record, plan=plan), load("h200")).makes_values(None, None)
