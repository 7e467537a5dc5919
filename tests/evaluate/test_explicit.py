"""Sums in an order that the schedule writes out, beside NumPy's fused chains of the same order."""

from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.arithmetic.rounded_once import to_odd
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate.explicit import Arithmetic, reduced
from hwsim.evaluate.product import Evaluator
from hwsim.formats import Exact, format_of, round_to
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction, Region

K = 67


def operands(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """fp16 values as fp32, from bit fields: products are exact in fp32, sums of many exponents are not."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 1 << 16, (2, 9, K)).astype(np.uint16) & 0xBFFF  # below 2, both signs
    a, b = words.view(np.float16).astype(np.float32)
    return a, b.T.copy()


def chain(a: np.ndarray, b: np.ndarray, index: list[int]) -> np.ndarray:
    """fp32 sums of exact products in this order, from +0."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in index:
        total = (total.astype(np.float64) + np.outer(a[:, k], b[k]).astype(np.float64)).astype(np.float32)
    return total


def by_hand(node: Chain | Reduction, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum as the docstrings of hwsim.gemm.summation state it."""
    if isinstance(node, Chain):
        index = []
        for part in node.ranges:
            for start in range(part.start, part.stop, part.step):
                index += range(start, min(start + part.block, part.stop))
        return chain(a, b, index)
    parts = [by_hand(part, a, b) for part in node.parts]
    if isinstance(node.order, tuple):
        parts = [parts[index] for index in node.order]
    if node.order == "descending":
        parts = parts[::-1]
    if node.order == "pairwise":
        while len(parts) > 1:
            parts = [x + y for x, y in zip(parts[::2], parts[1::2], strict=False)] + parts[len(parts) // 2 * 2 :]
        return parts[0]
    if node.order == "halving":
        while len(parts) > 1:
            half = 1
            while 2 * half < len(parts):
                half *= 2
            parts = [x + parts[i + half] if i + half < len(parts) else x for i, x in enumerate(parts[:half])]
        return parts[0]
    total = parts[0] if node.start == "first" else np.float32(0) + parts[0]
    for part in parts[1:]:
        total = total + part
    return total


LANES = tuple(Chain((Range(lane, K, 7),)) for lane in range(7))
BLOCKS = tuple(Chain((Range(8 * z, K, 24, 8),)) for z in range(3))
PLAIN = Arithmetic(lambda chains: [0] * len(chains), lambda x, y, _: x + y, lambda x, _: x, lambda: 0)
SUMS = {
    "backwards": Chain(tuple(Range(k, k + 1) for k in range(K - 1, -1, -1))),
    "skipped": Chain((Range(0, 13), Range(40, 67))),
    "ascending": Reduction(LANES),
    "descending": Reduction(LANES, "descending"),
    "pairwise": Reduction(LANES, "pairwise"),
    "halving": Reduction(LANES, "halving"),
    "named": Reduction(LANES, (3, 0, 1, 2, 6, 5, 4), start="zero"),
    "interleaved": Reduction(BLOCKS),
    "nested": Reduction((Reduction(BLOCKS, "pairwise"), Chain((Range(1, 5),)), Chain(()))),
}


@pytest.mark.parametrize("name", SUMS)
def test_written_out_sums_are_what_they_say(name: str) -> None:
    a, b = operands()
    got = hwsim.matmul(a, b, device="h200", format="fp32", schedule=Schedule(sum=SUMS[name]))
    assert np.array_equal(got.view(np.uint32), by_hand(SUMS[name], a, b).view(np.uint32))


def test_chains_of_every_length_and_offset_are_computed_side_by_side() -> None:
    """Chains that are alike share a call; short ones, empty ones and single ones stand among them."""
    rng = np.random.default_rng(5)
    for _ in range(12):
        found: list[Chain | Reduction] = []
        for _ in range(rng.integers(1, 40)):
            step = int(rng.integers(1, 9))
            start, stop = sorted(int(x) for x in rng.integers(0, K, 2))
            chain_of = Chain((Range(start, stop, step, int(rng.integers(1, step + 1))),))
            order = ("ascending", "descending", "pairwise", "halving")[rng.integers(4)]
            found.append(Reduction((chain_of, *found[-3:]), order) if rng.integers(2) else chain_of)
        node = Reduction(tuple(found), "halving")
        a, b = operands(int(rng.integers(1 << 30)))
        got = hwsim.matmul(a[:2], b[:, :3], device="h200", format="fp32", schedule=Schedule(sum=node))
        assert np.array_equal(got.view(np.uint32), by_hand(node, a[:2], b[:, :3]).view(np.uint32))


def test_orders_give_different_bits() -> None:
    a, b = operands()
    found = {
        hwsim.matmul(a, b, device="h200", format="fp32", schedule=Schedule(sum=SUMS[name])).tobytes() for name in SUMS
    }
    assert len(found) == len(SUMS)


def test_regions_follow_their_own_order_wherever_they_are_cut_out() -> None:
    a, b = operands(1)
    own = Region(Range(2, 6), Range(3, 9, 2), SUMS["halving"])
    schedule = Schedule(regions=(own,), shape=(9, 9))
    whole = hwsim.matmul(a, b, device="h200", format="fp32", schedule=schedule)
    plain, other = by_hand(Chain((Range(0, K),)), a, b), by_hand(SUMS["halving"], a, b)
    mine = np.zeros((9, 9), bool)
    mine[2:6, 3:9:2] = True
    assert np.array_equal(whole, np.where(mine, other, plain)) and (plain != other)[mine].any()
    rows, cols = [1, 3, 5, 8], [0, 3, 4, 7]
    part = hwsim.matmul(
        a[rows], b[:, cols], device="h200", format="fp32", schedule=schedule, shape=(9, 9), at=(rows, cols)
    )
    assert np.array_equal(part, whole[np.ix_(rows, cols)])
    assert np.array_equal(
        hwsim.matmul(a, b, device="h200", format="fp32", schedule=schedule, rows=rows, cols=cols), part
    )


def test_matrix_instructions_begin_anew_with_each_block() -> None:
    a, b = (x.astype(np.float16) for x in operands(2))
    slices = Schedule(slice_k=(24, 24, 19))
    written = Schedule(sum=Reduction(tuple(Chain((Range(x, y),)) for x, y in ((0, 24), (24, 48), (48, 67)))))
    one, other = (hwsim.matmul(a, b, device="h200", format="fp16", schedule=x) for x in (slices, written))
    assert np.array_equal(one.view(np.uint32), other.view(np.uint32))


@pytest.mark.parametrize("fmt", ["fp16", "bf16"])
def test_reductions_add_and_store_in_their_own_formats(fmt: str) -> None:
    """Each part rounded to `stored` first, each addition to `format`: found unread by lab/tools/fuzz/reference.py."""
    a, b = operands(3)
    parts = [by_hand(chain, a, b).astype(np.float32) for chain in BLOCKS]

    def rounded(x: np.ndarray) -> np.ndarray:
        dtype = np.float16 if fmt == "fp16" else ml_dtypes.bfloat16
        return x.astype(dtype).astype(np.float32)

    def sum_of(**formats: str) -> np.ndarray:
        schedule = Schedule(sum=Reduction(BLOCKS, **formats))
        return hwsim.matmul(a, b, device="h200", format="fp32", schedule=schedule)

    one, two, three = parts
    stored = (rounded(one) + rounded(two)) + rounded(three)
    in_format = rounded(rounded(one + two) + three)
    both = rounded(rounded(rounded(one) + rounded(two)) + rounded(three))
    assert np.array_equal(sum_of(stored=fmt), stored)
    assert np.array_equal(sum_of(format=fmt), in_format)
    assert np.array_equal(sum_of(format=fmt, stored=fmt), both)
    assert np.array_equal(sum_of(format="fp32", stored="fp32"), (one + two) + three)
    assert len({x.tobytes() for x in (stored, in_format, both, sum_of())}) == 4


def test_formats_that_a_reduction_cannot_have_are_refused() -> None:
    a, b = operands()
    for wrong in ({"format": "e4m3"}, {"stored": "x"}, {"order": "up"}, {"start": "one"}, {"level": "moon"}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))} = .* of a reduction; allowed: "):
            Reduction(BLOCKS, **wrong)
    with pytest.raises(UnsupportedError, match="no wider"):
        hwsim.matmul(a, b, device="h200", format="fp32", schedule=Schedule(sum=Reduction(BLOCKS, format="fp64")))
    whole = np.ones((2, K), np.int8), np.ones((K, 2), np.int8)
    with pytest.raises(UnsupportedError, match="int32 sums are added as such"):
        hwsim.matmul(*whole, device="h200", format="int8", schedule=Schedule(sum=Reduction(BLOCKS, stored="fp16")))


def test_what_does_not_fit_is_refused() -> None:
    a, b = operands()
    with pytest.raises(InputError, match="leave out split_k"):
        Schedule(sum=SUMS["ascending"], split_k=2)
    with pytest.raises(InputError, match="each index once"):
        reduced(Reduction(LANES, (0, 1)), PLAIN)
    with pytest.raises(InputError, match="no parts"):
        reduced(Reduction(()), PLAIN)
    with pytest.raises(InputError, match="block <= step"):
        Range(0, 4, 1, 2)
    with pytest.raises(UnsupportedError, match="written-out sum"):
        hwsim.matmul(
            a, b, np.zeros((9, 9), np.float32), device="h200", format="fp32",
            schedule=replace(Schedule(start="c"), sum=SUMS["ascending"]),
        )  # fmt: skip


def test_additions_in_a_narrow_format_round_once() -> None:
    """A sum just beyond a tie of bf16, which fp32 rounds onto the tie."""
    a = np.ones((1, 3), np.float16)
    b = np.array([[-3.8125], [0.0234375], [-(2.0**-13)]], np.float16)
    a[0, 2] = 2.0**-13
    order = Reduction((Chain((Range(0, 1),)), Chain((Range(1, 3),))), format="bf16")
    c = hwsim.matmul(a, b, device="h200", format="fp16", schedule=Schedule(sum=order))
    exact = Fraction(-3.8125) + Fraction(0.0234375) - Fraction(2) ** -26
    assert exact < Fraction(-485, 128)  # the tie between -242 / 64 and -243 / 64
    assert c[0, 0] == -243 / 64


def exact(value: Fraction) -> Exact:
    """A sum of powers of two."""
    return Exact("finite", int(value < 0), abs(value.numerator), 1 - value.denominator.bit_length())


@pytest.mark.parametrize("fmt", ["bf16", "fp16", "tf32"])
def test_sums_rounded_to_odd_round_on_as_the_exact_sums(fmt: str) -> None:
    rng = np.random.default_rng(5)
    left = rng.integers(0, 1 << 32, 4000, dtype=np.uint32).view(np.float32)
    left = left[np.isfinite(left)]
    with np.errstate(over="ignore"):
        near = left * np.float32(2.0) ** rng.integers(-30, 8, len(left)).astype(np.float32)  # ties, and parts far below
    for right in (near, -near, np.where(rng.random(len(left)) < 0.5, np.float32(1e-44), np.float32(-1e-44))):
        with np.errstate(over="ignore"):
            odd = to_odd(left + right, left, right)
        known = format_of(fmt)
        for x, y, got in zip(left.tolist(), right.tolist(), odd.tolist(), strict=True):
            if np.isfinite([y, got]).all():
                wanted, found = (
                    round_to(known, exact(value), "RNE", overflow="ieee")
                    for value in (Fraction(x) + Fraction(y), Fraction(got))
                )
                assert wanted == found


def test_the_order_of_an_element_is_that_of_the_last_region_it_is_in():
    halves = Reduction((Chain((Range(0, 40),)), Chain((Range(40, 80),))))
    thirds = Reduction(tuple(Chain((Range(at, min(at + 30, 80)),)) for at in (0, 30, 60)))
    regions = (Region(Range(0, 8), Range(0, 16), halves), Region(Range(4, 12), Range(0, 8), thirds))
    given, sums = {"device": "h200", "format": "fp16"}, {}
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((16, 80)).astype(np.float16), rng.standard_normal((80, 16)).astype(np.float16)
    whole = hwsim.run(a, b, schedule=Schedule(regions=regions, shape=(16, 16)), **given)
    own = Evaluator(whole.gemm, load("h200"))
    for row, column in ((1, 1), (5, 12), (5, 3), (9, 3), (9, 9), (14, 0)):
        at = own.schedule_at(row, column)
        sums[row, column] = at.sum
        one = hwsim.run(a, b, schedule=Schedule(sum=at.sum), **given)
        assert one.c[row, column] == whole.c[row, column] and not at.regions
    assert list(sums.values()) == [halves, halves, thirds, thirds, None, None]
