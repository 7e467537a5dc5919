"""Splits, integer and exact arithmetic, and patches of specials, against integers and Fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from plan_cases import KS, Straight, drawn, evaluate, fractions, rounded

from hwsim.arithmetic.exact_sum import ExactSum
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate import defaults
from hwsim.evaluate import evaluator as scheduled
from hwsim.evaluate.split import pieces_of
from hwsim.formats import FORMATS
from hwsim.gemm.plan import Depth, OperandSum, Piece, Plan, Scaled, TermValue, chain, sums
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, FmaChainUnit
from hwsim.operands.operand import Operand
from hwsim.schemes import scheme_of

M, N = 5, 4
LARGEST = Fraction(FORMATS["fp32"].largest_magnitude and np.finfo(np.float32).max.item())


def plan_of(pieces: tuple[Piece, ...], **given: object) -> Plan:
    return Plan("x", pieces, pieces, (chain((0, 0)),), TermValue(0), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["fp32", "fp64"])
@pytest.mark.parametrize(
    "pieces",
    [
        (Piece("fp16", "RZ", 0, "saturate"), Piece("fp16", "RZ", 10, "saturate")),
        (Piece("tf32", "RNA"), Piece("tf32", "RNA")),
        (Piece("bf16", overflow="saturate"), Piece("bf16", "RNE", 8), Piece("bf16", "RNE", 8)),
        (Piece("fp16"),),
    ],
)
def test_rounded_pieces(pieces: tuple[Piece, ...], source: str) -> None:
    """Each piece is the rest, scaled, rounded once; the rest stays at that scale. Values within fp16's range."""
    codes = drawn(np.random.default_rng(1), source, (9, 11), 12)
    got = pieces_of(Operand(codes, source), plan_of(pieces, input_format=source), "a", load("h200")).codes
    rest = fractions(codes, source)
    for piece, found in zip(pieces, got, strict=True):
        rest = rest * Fraction(2) ** piece.scale_exponent
        want = rounded(rest, piece.format, piece.rounding)
        sign = found & ~want & want.dtype.type(1 << (8 * want.itemsize - 1))  # Fractions have no -0
        assert np.array_equal(found - sign, want)
        rest = rest - fractions(found, piece.format)


def test_overflow_of_a_piece_and_clamped_infinities() -> None:
    x = np.array([[np.inf, -np.inf, 3.4e38, -1e5]], np.float32)
    given = Operand(x.view(np.uint32), "fp32")
    ieee = pieces_of(given, plan_of((Piece("fp16"), Piece("fp16"))), "a", load("h200")).codes
    assert np.isinf(ieee[0].view(np.float16)).all()
    held = pieces_of(given, plan_of((Piece("fp16", overflow="saturate"),) * 2), "a", load("h200")).codes
    assert np.array_equal(held[0].view(np.float16), [[65504, -65504, 65504, -65504]])
    bf16 = tuple(Piece("bf16", scale_exponent=8 if i else 0, overflow="saturate") for i in range(3))
    clamped = pieces_of(given, plan_of(bf16, clamp=True), "a", load("h200")).codes
    values = [fractions(piece[:, :2], "bf16")[0] for piece in clamped]
    assert [sum(v[i] / 256**j for j, v in enumerate(values)) for i in range(2)] == [LARGEST, -LARGEST]


# Bytes and integers.


def int16s(k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-(1 << 15), 1 << 15, shape).astype(np.int16) for shape in ((M, k), (k, N)))
    a[rng.random(a.shape) < 0.2], b[rng.random(b.shape) < 0.2] = -(1 << 15), (1 << 15) - 1
    a[rng.random(a.shape) < 0.1] = 0x00FF
    return a, b


def codes16(x: np.ndarray) -> Operand:
    return Operand(x.view(np.uint16), "int16")


@pytest.mark.parametrize("k", [*KS, 3000])
@pytest.mark.parametrize("low", ["unsigned", "biased"])
@pytest.mark.parametrize("device", ["a100", "t4", "h200", "b200", "ascend910a", "mi210"])
def test_int16_is_exact(device: str, low: str, k: int) -> None:
    a, b = int16s(k)
    want = a.astype(np.int64) @ b.astype(np.int64)
    for accumulate in ("int64", "int32"):
        options = {"low_byte": low, "accumulate": accumulate}
        plan = scheme_of("ape-int16").plan(options, Problem.of("int16", M, N, k))
        if low == "unsigned" and device in ("ascend910a", "mi210"):
            with pytest.raises(UnsupportedError, match="no matrix instruction for int8 x uint8"):
                evaluate(plan, device, codes16(a), codes16(b))
            continue
        got = evaluate(plan, device, codes16(a), codes16(b))
        assert np.array_equal(got.view(accumulate), want.astype(accumulate))
    cut = (
        evaluate(plan, device, codes16(a), codes16(b), Schedule(slice_k=max(k // 2, 1)))
        if k > 1 and low == "biased"
        else None
    )
    assert cut is None or np.array_equal(cut.view(np.int32), want.astype(np.int32))


def test_bytes_and_groups() -> None:
    """Sums of operands and of K follow the runs that are joined; the pieces are the bytes."""
    a, b = int16s(67)
    pieces = (Piece("int8"), Piece("int8"))
    value = sums(Scaled(TermValue(0), 16), Scaled(TermValue(1), 8), OperandSum("a", 5), OperandSum("b", -3), Depth(7))
    plan = Plan(
        "x",
        pieces,
        pieces,
        (chain((0, 0)), chain((0, 1), (1, 0))),
        value,
        join="group",
        k_group=32,
        input_format="int16",
        output_format="int64",
        split="bytes",
        arithmetic="int64",
    )
    left, right = (pieces_of(codes16(x), plan, side, load("a100")).codes for x, side in ((a, "a"), (b, "b")))
    assert np.array_equal(left[0].view(np.int8), a >> 8) and np.array_equal(left[1].view(np.int8), (a & 255) - 128)
    straight = Straight(plan, "a100", list(left), list(right), (a.astype(np.int64), b.astype(np.int64)))
    got = evaluate(plan, "a100", codes16(a), codes16(b)).view(np.int64)
    assert np.array_equal(got, straight.result())
    assert np.array_equal(got[:, 1:3], evaluate(plan, "a100", codes16(a), codes16(b[:, 1:3])).view(np.int64))
    parts = [left, right]
    with pytest.raises(InputError, match="needs the sum of an operand"):
        chip = load("a100")
        scheduled.evaluate(plan, defaults.resolved(Schedule(), plan, chip), chip, *parts)


def test_int32_results_become_fp32_rounded_once() -> None:
    k = 4096
    rng = np.random.default_rng(2)
    a, b = (rng.integers(100, 128, shape).astype(np.float32) for shape in ((M, k), (k, N)))
    plan = Plan("x", (Piece("int8"),), (Piece("int8"),), (chain((0, 0)),), Scaled(TermValue(0), -3))
    got = evaluate(plan, "a100", *(Operand(x.view(np.uint32), "fp32") for x in (a, b))).view(np.float32)
    exact = a.astype(np.int64) @ b.astype(np.int64)
    assert (exact >= 1 << 25).all()
    want = rounded(exact.astype(object) * Fraction(1, 8), "fp32")
    assert np.array_equal(got.view(np.uint32), want)


# Slices.


def sliced(row: list[Fraction], bits: int, count: int, rounding: str) -> tuple[int, list[list[int]]]:
    """Slices of one row, as the plan's docstring says, in Fractions."""
    largest = max(abs(x) for x in row)
    exponent = 0
    if largest:
        while largest >= Fraction(2) ** exponent:
            exponent += 1
        while largest < Fraction(2) ** (exponent - 1):
            exponent -= 1
    digits = []
    for x in row:
        rest, found = x / Fraction(2) ** exponent, []
        for i in range(count):
            rest = rest * 2**bits
            whole = round(rest) if i == count - 1 and rounding == "RNE" else int(rest)
            found.append(whole)
            rest -= whole
        digits.append(found)
    return exponent, [list(x) for x in zip(*digits, strict=True)]


@pytest.mark.parametrize("source", ["fp32", "fp64"])
@pytest.mark.parametrize(("fmt", "bits", "count"), [("int8", 7, 3), ("fp16", 10, 6), ("int4", 3, 2), ("int8", 6, 4)])
def test_slices(fmt: str, bits: int, count: int, source: str) -> None:
    codes = drawn(np.random.default_rng(count), source, (6, 9), 30)
    codes[2] = 0
    pieces = (Piece(fmt),) * count
    plan = plan_of(pieces, input_format=source, split="slices", slice_bits=bits)
    for side in ("a", "b"):
        got = pieces_of(Operand(codes if side == "a" else codes.T, source), plan, side, load("a100"))
        assert got.exponents is not None
        for i, row in enumerate(fractions(codes, source)):
            exponent, want = sliced(list(row), bits, count, "RNE")
            assert int(got.exponents[i]) == exponent
            top = (1 << (FORMATS[fmt].bits - 1)) - 1 if FORMATS[fmt].is_integer else 1 << 11
            for piece, digits in zip(got.codes, want, strict=True):
                line = piece[i] if side == "a" else piece[:, i]
                assert [int(x) for x in fractions(line, fmt)] == [min(x, top) for x in digits]


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize(
    ("scheme", "device"), [("ozaki-fp16", "h200"), ("ozaki-int8", "a100"), ("ozaki-int8", "mi210")]
)
def test_ozaki_with_all_slices_is_correctly_rounded(scheme: str, device: str, k: int) -> None:
    """Wide rows, subnormals and cancellation; one rounding of the exact product, also to another output format."""
    rng = np.random.default_rng(k)
    a, b = drawn(rng, "fp64", (M, k), 30), drawn(rng, "fp64", (k, N), 30)
    a[a == 1], b[b == 1] = 0, 0  # the smallest subnormals would take hundreds of slices
    a[:, -1], b[-1] = a[:, 0] ^ np.uint64(1 << 63), b[0] ^ np.uint64(2)  # cancels nearly all of the first product
    a[1] = np.where(a[1] << np.uint64(1), a[1] - np.uint64(900 << 52), a[1])  # results below the normal range
    b[:, 1] = np.where(b[:, 1] << np.uint64(1), b[:, 1] - np.uint64(150 << 52), b[:, 1])
    left, right = Operand(a, "fp64"), Operand(b, "fp64")
    chosen = scheme_of(scheme)
    options = chosen.complete({"slices": 0, "truncate": False, "sum": "exact"})
    options = chosen.survey(left.values(), right.values(), options)
    plan = chosen.plan(options, Problem.of("fp64", M, N, k))
    exact = (fractions(a, "fp64")[:, :, None] * fractions(b, "fp64")[None]).sum(1)
    for fmt in ("fp64", "fp32"):
        schedule = Schedule.from_dict({"epilogue": {"output_format": fmt}})
        assert np.array_equal(evaluate(plan, device, left, right, schedule), rounded(exact, fmt))
    assert (np.abs(np.frexp(exact.astype(np.float64))[1]) > 1000).any()
    cut = evaluate(plan, device, left, right, Schedule(slice_k=7))
    assert np.array_equal(cut, rounded(exact, "fp64"))


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize(("scheme", "device"), [("quantensor", "t4"), ("ozaki-int8", "a100"), ("ozaki-fp16", "v100")])
def test_slices_in_float_arithmetic(scheme: str, device: str, k: int) -> None:
    rng = np.random.default_rng(k)
    fmt = "fp32" if scheme == "quantensor" else "fp64"
    a, b = drawn(rng, fmt, (M, k), 20), drawn(rng, fmt, (k, N), 20)
    plan = scheme_of(scheme).plan(scheme_of(scheme).complete({}), Problem.of(fmt, M, N, k))
    left, right = (pieces_of(Operand(x, fmt), plan, side, load(device)) for x, side in ((a, "a"), (b, "b")))
    value = Straight(plan, device, list(left.codes), list(right.codes)).result()
    assert left.exponents is not None and right.exponents is not None
    want = np.ldexp(value, left.exponents[:, None] + right.exponents[None])
    got = evaluate(plan, device, Operand(a, fmt), Operand(b, fmt))
    assert want.dtype.itemsize == got.dtype.itemsize and np.array_equal(got, want.view(got.dtype))


def test_exact_sums_of_any_floats() -> None:
    """Addends of any exponent, integers and specials; every target format, ties and results below the normal range."""
    rng = np.random.default_rng(0)
    for fmt in ("fp64", "fp32", "fp16", "bf16"):
        for trial in range(12):
            total, want = None, np.zeros((3, 3), object)
            for _ in range(4):
                kind, shift = rng.integers(3), int(rng.integers(-60, 60))
                if kind == 0:
                    x = rng.integers(-(1 << 31), 1 << 31, (3, 3)).astype(np.int32)
                elif kind == 1:
                    x = np.ldexp(rng.standard_normal((3, 3)), rng.integers(-1100, 100, (3, 3)))
                else:
                    x = (rng.integers(-3, 4, (3, 3)) * 2.0**-30).astype(np.float32)
                part = ExactSum.of(x).scaled(shift)
                total = part if total is None else total.plus(part)
                want = want + np.array([[Fraction(float(v)) * Fraction(2) ** shift for v in row] for row in x], object)
            exponents = rng.integers(-20, 20, (3, 3)) if trial % 2 else rng.integers(-160, 140, (3, 1))
            assert total is not None
            scale = np.vectorize(lambda e: Fraction(2) ** int(e), otypes=[object])(exponents)
            assert np.array_equal(
                total.raised(exponents).rounded(FORMATS[fmt]), rounded(want * scale, fmt, overflow="infinity")
            )
    for x, tail in ((1 << 24) + 1, 0), ((1 << 24) + 3, 0), ((1 << 24) + 1, 1), ((1 << 24) + 1, -1), (1, 0):
        total = ExactSum.of(np.array([[float(x)]])).plus(ExactSum.of(np.array([[tail]], np.int32)).scaled(-100))
        for e in (0, -150, -173, -174, -149 - 25):
            value = np.array([[(x + Fraction(tail, 2**100)) * Fraction(2) ** e]], object)
            got = total.raised(np.array([[e]])).rounded(FORMATS["fp32"])
            assert np.array_equal(got, rounded(value, "fp32"))
    special = ExactSum.of(np.array([[np.inf, -np.inf, np.nan, np.inf, 1.0]])).plus(
        ExactSum.of(np.array([[1.0, 2.0, 3.0, -np.inf, 1.0]]))
    )
    assert [hex(x) for x in special.rounded(FORMATS["fp32"])[0]] == [
        "0x7f800000", "0xff800000", "0x7fc00000", "0x7fc00000", "0x40000000",
    ]  # fmt: skip


# Specials.


@pytest.mark.parametrize("k", KS)
@pytest.mark.parametrize(
    ("scheme", "device", "fmt", "given"),
    [
        ("bf16x9", "h200", "fp32", {"accumulation": "termwise"}),
        ("bf16x9", "b200", "fp32", {"accumulation": "fastf32"}),
        ("quantensor", "t4", "fp32", {}),
        ("ozaki-int8", "a100", "fp64", {}),
        ("ozaki-int8", "a100", "fp64", {"sum": "exact"}),
    ],
)
def test_specials_are_those_of_an_fma_chain(scheme: str, device: str, fmt: str, given: dict, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = drawn(rng, fmt, (M, k)), drawn(rng, fmt, (k, N))
    known = FORMATS[fmt]
    a[1, 0], a[3, k - 1], b[k // 2, 2] = known.infinity_code(1), known.nan_code + 5, known.infinity_code()
    chosen = scheme_of(scheme)
    plan = chosen.plan(chosen.complete(given), Problem.of(fmt, M, N, k))
    got = evaluate(plan, device, Operand(a, fmt), Operand(b, fmt))
    spec = DotSpec(FmaChainUnit(), fmt, fmt, fmt, fmt)
    chained = reference.gemm(spec, DotOperands(a, b, np.zeros((M, N), a.dtype)))
    values = chained.view(known.dtype_name)
    chained[np.isnan(values)] = (1 << known.magnitude_bits) - 1
    where = np.zeros((M, N), bool)
    where[[1, 3]], where[:, 2] = True, True
    assert np.isnan(values[where]).any() and (k == 1 or np.isinf(values[where]).any())
    assert np.array_equal(got[where], chained[where])
    clean_a, clean_b = a.copy(), b.copy()
    clean_a[[1, 3]], clean_b[:, 2] = 0, 0
    clean = evaluate(plan, device, Operand(clean_a, fmt), Operand(clean_b, fmt))
    assert np.array_equal(got[~where], clean[~where])


def test_units_keep_their_own_specials_without_the_patch() -> None:
    a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    a[0, 1] = np.inf
    plan = Plan(
        "x",
        (Piece("tf32"),) * 2,
        (Piece("tf32"),) * 2,
        (chain((0, 0)), chain((0, 1))),
        sums(TermValue(0), TermValue(1)),
    )
    got = evaluate(plan, "h200", *(Operand(x.view(np.uint32), "fp32") for x in (a, b)))
    assert [hex(x) for x in got.ravel()] == ["0x7fffffff", "0x7fffffff", "0x40400000", "0x40400000"]


def test_what_arithmetic_a_unit_carries() -> None:
    pieces = (Piece("fp16"),)
    whole = Plan(
        "x", pieces, pieces, (chain((0, 0)),), Scaled(TermValue(0), 1), arithmetic="int64", output_format="int64"
    )
    with pytest.raises(UnsupportedError, match="int64 sums need an integer unit; it gives fp32"):
        defaults.resolved(Schedule(), whole, load("a100"))
    summed = Plan("x", pieces, pieces, (chain((0, 0)),), sums(TermValue(0), OperandSum("a", 1)))
    with pytest.raises(UnsupportedError, match="integer arithmetic"):
        defaults.resolved(Schedule(), summed, load("a100"))
