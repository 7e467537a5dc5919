"""The direct evaluator: stages, groups of K, scaled accumulators, joins and arithmetic, against one call per
instruction."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from plan_cases import KS, Straight, drawn, evaluate

import hwsim
from hwsim.arithmetic import instruction_order
from hwsim.devices import load
from hwsim.errors import UnsupportedError
from hwsim.evaluate import block_sizes, defaults
from hwsim.evaluate.split import pieces_of
from hwsim.gemm.plan import Piece, Plan, Scaled, Stage, Sum, Term, TermValue, chain, sums
from hwsim.gemm.schedule import Schedule
from hwsim.operands.operand import Operand

M, N = 5, 4
TWO = (Piece("fp16"), Piece("fp16", scale_exponent=11))
THREE = tuple(Piece("bf16", scale_exponent=8 if i else 0, overflow="saturate") for i in range(3))
BANDS = (((2, 2),), ((1, 2), (2, 1)), ((0, 2), (1, 1), (2, 0)), ((0, 1), (1, 0)), ((0, 0),))
FASTF32 = Term(tuple(Stage(band, 8 if i else 0) for i, band in enumerate(BANDS)))
BANDED = TermValue(0)
for _i in range(1, 5):
    BANDED = Sum(Scaled(BANDED, -8), TermValue(_i))


def operands(k: int, spread: int = 3, fmt: str = "fp32") -> tuple[Operand, Operand]:
    rng = np.random.default_rng(k + 100 * spread)
    return Operand(drawn(rng, fmt, (M, k), spread), fmt), Operand(drawn(rng, fmt, (k, N), spread), fmt)


def check(plan: Plan, device: str, a: Operand, b: Operand) -> None:
    chip = load(device)
    pieces = [list(pieces_of(x, plan, side, chip).codes) for x, side in ((a, "a"), (b, "b"))]
    want = Straight(plan, device, *pieces).result()
    got = evaluate(plan, device, a, b)
    bits = f"u{want.dtype.itemsize}"
    same = (got.view(bits) == want.view(bits)) | (np.isnan(want) & np.isnan(got.view(want.dtype)))
    assert same.all(), (plan.terms, np.argwhere(~same)[:5])


PLANS = {
    "alternating": Plan("x", TWO, TWO, (chain((0, 0), (0, 1), (1, 0)),), TermValue(0)),
    "one after the other": Plan("x", TWO, TWO, (chain((0, 0), (0, 1), (1, 0), interleave="k"),), TermValue(0)),
    "two accumulators": Plan(
        "x", TWO, TWO, (chain((0, 0)), chain((0, 1), (1, 0))), Sum(TermValue(0), Scaled(TermValue(1), -11))
    ),
    "unlike groups": Plan(
        "x",
        TWO,
        TWO,
        (Term((Stage(((0, 0),)),), "instruction"), Term((Stage(((0, 1), (1, 0))),), 40)),
        Sum(TermValue(0), Scaled(TermValue(1), -11)),
    ),
    "a group and all of K": Plan(
        "x",
        TWO,
        TWO,
        (Term((Stage(((0, 0),)),), "instruction"), chain((0, 1), (1, 0))),
        Sum(TermValue(0), Scaled(TermValue(1), -11)),
    ),
    "the plan's group": Plan(
        "x", TWO, TWO, (chain((0, 0)), chain((0, 1))), sums(TermValue(0), TermValue(1)), k_group=24
    ),
    "joined by groups": Plan(
        "x", THREE, THREE, tuple(chain(*band) for band in BANDS), BANDED, join="group", k_group=16
    ),
}


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("device", ["a100", "v100", "h200", "mi210", "ascend910a"])
@pytest.mark.parametrize("name", list(PLANS))
def test_terms_and_joins(name: str, device: str, k: int) -> None:
    plan = PLANS[name]
    if plan.a_pieces[0].format not in load(device).native:
        with pytest.raises(UnsupportedError, match="no matrix instruction for bf16"):
            evaluate(plan, device, *operands(k))
        return
    check(plan, device, *operands(k))


@pytest.mark.parametrize("spread", [3, 90, 127])
@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize("group", ["instruction", 32, None])
def test_scaled_accumulator(group: object, k: int, spread: int) -> None:
    """Wide exponents leave accumulators that the scaling takes below the normal range."""
    plan = Plan("x", THREE, THREE, (dataclasses.replace(FASTF32, k_group=group),), TermValue(0), clamp=True)
    check(plan, "b200", *operands(k, spread))


def test_scaled_accumulator_needs_the_instruction() -> None:
    plan = Plan("x", THREE, THREE, (FASTF32,), TermValue(0))
    with pytest.raises(UnsupportedError, match=r"scale_input_d.*wgmma.*not at all"):
        defaults.resolved(Schedule(), plan, load("h200"))
    too_far = Plan("x", THREE, THREE, (Term((Stage(((0, 0),), 0), Stage(((0, 1),), 16))),), TermValue(0))
    with pytest.raises(UnsupportedError, match=r"2\^-16.*up to 2\^-15"):
        defaults.resolved(Schedule(), too_far, load("b200"))


@pytest.mark.parametrize("k", KS)
def test_fp64_arithmetic_over_an_fp64_unit(k: int) -> None:
    pieces = (Piece("fp32"), Piece("fp32"))
    terms = tuple(chain(pair) for pair in ((0, 0), (0, 1), (1, 0), (1, 1)))
    plan = Plan(
        "x",
        pieces,
        pieces,
        terms,
        sums(*map(TermValue, range(4))),
        input_format="fp64",
        output_format="fp64",
        arithmetic="fp64",
    )
    check(plan, "tf64", *operands(k, 40, "fp64"))
    with pytest.raises(
        UnsupportedError,
        match=r"arithmetic='fp64' with split='round' adds fp64 terms; this unit gives|no matrix instruction for fp32",
    ):
        defaults.resolved(Schedule(), plan, load("h200"))


@pytest.mark.parametrize("fields", [{"split_k": 2, "slice_multiple": 16}, {"slice_k": (5, 62)}])
def test_slices_of_k_are_merged_before_the_join(fields: dict) -> None:
    plan, (a, b) = PLANS["two accumulators"], operands(67)
    chip, schedule = load("h200"), Schedule(**fields)
    cuts = np.cumsum([0, *schedule.slice_lengths(67)])
    left, right = (pieces_of(x, plan, side, chip).codes for x, side in ((a, "a"), (b, "b")))
    totals = [None, None]
    for start, stop in itertools.pairwise(cuts):
        part = Straight(plan, "h200", [x[:, start:stop] for x in left], [x[start:stop] for x in right])
        for t, term in enumerate(plan.terms):
            value = part.term(term, 0, part.k)
            totals[t] = value if totals[t] is None else totals[t] + value
    want = totals[0] + totals[1] * np.float32(2.0**-11)
    assert np.array_equal(evaluate(plan, "h200", a, b, schedule), want.view(np.uint32))


def test_rows_and_threads_have_no_influence(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    a, b = Operand(drawn(rng, "fp32", (41, 50)), "fp32"), Operand(drawn(rng, "fp32", (50, 6)), "fp32")
    plan = PLANS["unlike groups"]
    want = evaluate(plan, "a100", a, b)
    for least in ("LINES_PER_CALL", "LEAST_LINES"):
        monkeypatch.setattr(block_sizes, least, 7)
    monkeypatch.setattr(block_sizes, "PRODUCTS_PER_CALL", 1)
    shares: list[float] = []
    assert np.array_equal(evaluate(plan, "a100", a, b, threads=3, progress=shares.append), want)
    terms = len(plan.terms)  # each is told of, and a block of rows with its last
    assert len(shares) == 2 * terms and shares == sorted(shares) and shares[-1] == 1
    assert np.array_equal(evaluate(plan, "a100", a, b, progress=shares.append), want)
    assert len(shares) == (2 + 6) * terms and shares[-1] == 1


@pytest.mark.parametrize(
    ("device", "name", "options"),
    [
        ("b200", "bf16x9", {}),
        ("b200", "bf16x9", {"promotion_interval": 2}),
        ("b200", "bf16x9", {"accumulation": "bands"}),
        ("a100", "le-gemm", {"k_group": 32}),
        ("a100", "ootomo-fp16", {}),
    ],
)
def test_blocks_of_rows_do_not_see_each_other(device, name, options, monkeypatch):
    """Blocks of rows and columns, as in large products, against each row on its own: buffers are kept."""
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((23, 130), (130, 19)))
    single = [hwsim.matmul(a[i : i + 1], b, device=device, scheme=name, **options)[0] for i in range(len(a))]
    for least in ("LINES_PER_CALL", "LEAST_LINES"):
        monkeypatch.setattr(block_sizes, least, 7)
    monkeypatch.setattr(block_sizes, "PRODUCTS_PER_CALL", 1)
    for kept_bytes in (instruction_order.CACHE_BYTES, 1 << 14, 1):  # all of K arranged at once, some runs, run by run
        monkeypatch.setattr(instruction_order, "CACHE_BYTES", kept_bytes)
        blocked = hwsim.matmul(a, b, device=device, scheme=name, **options)
        assert np.array_equal(blocked.view(np.uint32), np.array(single).view(np.uint32)), kept_bytes
