"""The systolic array: bits against a chain of exact fused multiply-adds, cycles against the closed form, refusals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.plan import Piece, Plan, Scaled, Sum, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.machines import reference
from hwsim.resolve.mapping_choice import program_of
from hwsim.schemes import Scheme

DEVICE, SIDE = "wsa128", 128
SHAPES = (
    *((1, 1, 1), (128, 128, 128), (1000, 1000, 1000), (77, 300, 129), (500, 128, 1000), (3, 1000, 64)),
    *((1, 1000, 128), (999, 256, 256), (1000, 1, 1), (127, 129, 257), (2, 127, 999), (640, 513, 385), (1, 1, 1000)),
)


def closed_form(m: int, n: int, k: int) -> int:
    """SCALE-Sim, weight stationary: 2 R + C + M - 2 cycles for each fold."""
    return (2 * SIDE + SIDE + m - 2) * math.ceil(k / SIDE) * math.ceil(n / SIDE)


def cycles(m: int, n: int, k: int, device: object = DEVICE, **options: object) -> int:
    return hwsim.run(m=m, n=n, k=k, device=device, format="bf16", exact=False, **options).cycles


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_cycles_are_the_closed_form(m: int, n: int, k: int) -> None:
    assert cycles(m, n, k) == closed_form(m, n, k)


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_with_two_tiles_of_weights_only_the_first_is_waited_for(m: int, n: int, k: int) -> None:
    folds = math.ceil(k / SIDE) * math.ceil(n / SIDE)
    assert cycles(m, n, k, weight_tiles=2) == SIDE + folds * (2 * SIDE + m - 2)


def test_rows_in_several_tiles_take_the_sum_of_their_closed_forms() -> None:
    tile = {"m": 300, "n": 128, "k": 128}
    assert cycles(1000, 200, 200, tile=tile) == 3 * closed_form(300, 200, 200) + closed_form(100, 200, 200)


def test_arrays_share_the_columns() -> None:
    chip = hwsim.device(DEVICE).model_copy(update={"cores": 3})
    assert cycles(50, 7 * 128, 300, chip) == closed_form(50, 3 * 128, 300)


def test_slow_memory_is_seen() -> None:
    chip = hwsim.device(DEVICE)
    slow = chip.model_copy(update={"hbm": chip.hbm.model_copy(update={"bytes_per_second": 1e10})})
    assert cycles(256, 256, 256, slow) > closed_form(256, 256, 256)


def rounded(x: Fraction) -> float:
    """x rounded to fp32, nearest even, with subnormals and overflow."""
    if not x:
        return 0.0
    exponent = math.floor(math.log2(abs(x.numerator)) - math.log2(x.denominator))
    exponent += (abs(x) >= Fraction(2) ** (exponent + 1)) - (abs(x) < Fraction(2) ** exponent)
    step = Fraction(2) ** (max(exponent, -126) - 23)
    value = round(x / step) * step  # Python rounds halves to even
    return math.copysign(math.inf, x) if abs(value) >= Fraction(2) ** 128 else float(value)


def multiply_adds(a: list[float], b: list[float]) -> float:
    """Fused multiply-adds in order of K from +0, filled up with zeros to whole folds."""
    total, rest = 0.0, -len(a) % SIDE
    for x, y in zip([*a, *[0.0] * rest], [*b, *[0.0] * rest], strict=True):
        if not all(map(math.isfinite, (x, y, total))):
            total = x * y + total
            continue
        found = rounded(Fraction(x) * Fraction(y) + Fraction(total))
        signs = math.copysign(1, x) * math.copysign(1, y), math.copysign(1, total)
        is_negative_zero = (x == 0 or y == 0) and total == 0 and signs == (-1, -1)
        total = -0.0 if is_negative_zero else found
    return total


def draw(case: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(sum(map(ord, case)))
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if case == "subnormal":
        a, b = a * 2.0**-70, b * 2.0**-72
    elif case == "cancellation":
        a[:, 1::2], b[1::2] = -a[:, ::2][:, : k // 2] * (1 + 2.0**-7), b[::2][: k // 2]
    elif case == "infinity":
        a[0, 5], a[1, 7], b[7, 1], a[2] = np.inf, np.inf, -np.inf, a[2] * 2.0**120
        b[:, 0] *= 2.0**10
        b[9, 2], a[3, 9] = 0.0, -np.inf
    elif case == "zero":
        a[:], b[:] = -0.0, 0.0
    return a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("case", ["normal", "subnormal", "cancellation", "infinity", "zero"])
@pytest.mark.parametrize("k", [1, 67, 128, 300])
def test_bits_are_a_chain_of_fused_multiply_adds(case: str, k: int) -> None:
    k = max(k, 10) if case == "infinity" else k
    a, b = draw(case, 5, 4, k)
    found = hwsim.run(a, b, device=DEVICE).c
    left, right = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        wanted = np.array([[multiply_adds(row, col) for col in right.T.tolist()] for row in left.tolist()]).astype(
            np.float32
        )
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    there = ~np.isnan(wanted)
    assert np.array_equal(found.view(np.uint32)[there], wanted.view(np.uint32)[there])
    assert case != "infinity" or (np.isnan(wanted).any() and np.isinf(wanted).any())
    assert case != "subnormal" or k < 67 or (np.abs(wanted[wanted != 0]) < 2.0**-126).any()


@pytest.mark.parametrize("case", ["normal", "subnormal", "cancellation", "infinity"])
@pytest.mark.parametrize(
    "options", [{}, {"weight_tiles": 2}, {"tile": {"m": 16, "n": 128, "k": 128}}, {"tile": (33, 128, 128)}]
)
def test_the_program_gives_the_evaluators_bits(case: str, options: dict[str, object]) -> None:
    a, b = draw(case, 70, 300, 333)
    chip = hwsim.device(DEVICE).model_copy(update={"cores": 2})
    for device in (DEVICE, chip):
        direct, program = (hwsim.run(a, b, device=device, functional=x, **options) for x in (False, True))
        assert np.array_equal(direct.c.view(np.uint32), program.c.view(np.uint32))


def pair_plan(options: Mapping[str, Any], problem: Problem) -> Plan:
    """Two pieces; the small products share one sum, which is joined to the large one's on the vector unit."""
    pieces = (Piece("bf16"), Piece("bf16", scale_exponent=8))
    join = Sum(TermValue(0), Scaled(TermValue(1), -8))
    return Plan("pair", pieces, pieces, (chain((0, 0)), chain((0, 1), (1, 0))), join, input_format=problem.input_format)


PAIR = Scheme("pair", "two pieces", "this test", (), pair_plan, lambda a, b, options: [])


@pytest.mark.parametrize(("scheme", "products"), [("native", 1), ("ape-fp32-b", 6), (PAIR, 3)])
def test_schemes_of_several_products(scheme: str | Scheme, products: int) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 200), (200, 150)))
    direct, program = (hwsim.run(a, b, device=DEVICE, scheme=scheme, functional=x) for x in (False, True))
    assert np.array_equal(direct.c.view(np.uint32), program.c.view(np.uint32))
    work = sum(phase["cycles"] for phase in program.phases if phase["name"].startswith("gemm"))
    assert work == products * closed_form(40, 150, 200)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="m from 1 to 4096, n=128, k=128"):
        cycles(64, 64, 64, tile={"m": 64, "n": 64, "k": 128})
    with pytest.raises(InputError, match="m from 1 to 4096"):
        cycles(64, 64, 64, tile={"m": 4097, "n": 128, "k": 128})
    with pytest.raises(InputError, match=r"weight_tiles = 3; allowed: an integer of at least 1 and at most 2"):
        cycles(64, 64, 64, weight_tiles=3)
    with pytest.raises(UnsupportedError, match="carry no runs of K"):
        cycles(64, 64, 256, k_group=128)
    with pytest.raises(UnsupportedError, match="carry no beta, c"):
        hwsim.run(m=8, n=8, k=8, device=DEVICE, format="bf16", c=np.ones((8, 8), np.float32), exact=False)


@pytest.mark.parametrize("weight_tiles", [1, 2])
@pytest.mark.parametrize("order", range(3))
def test_any_legal_order_of_execution_gives_the_same_bits(weight_tiles: int, order: int) -> None:
    tile = {"m": 2, "n": 128, "k": 128}
    sizes = {"m": 5, "n": 2, "k": 300}
    result = hwsim.run(**sizes, device=DEVICE, format="bf16", exact=False, tile=tile, weight_tiles=weight_tiles)
    chip, (a, b) = hwsim.device(DEVICE), draw("normal", sizes["m"], sizes["n"], sizes["k"])
    program = program_of(result.gemm, chip)
    codes = {name: x.view(np.uint16) for name, x in zip(program.inputs, (a, b), strict=True)}
    assert np.array_equal(
        reference.run(program, chip, codes, order=order), hwsim.run(a, b, device=DEVICE).c.view(np.uint32)
    )
