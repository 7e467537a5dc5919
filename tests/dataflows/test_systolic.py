"""Systolic arrays: cycles against SCALE-Sim's formulas, bits against a chain of exact fused multiply-adds, refusals."""

from __future__ import annotations

import json
import math
import re
import runpy
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.analysis.time_shares import DRAIN, FILL, SKEW
from hwsim.api import program
from hwsim.backend.cpu import CPU
from hwsim.cli import main
from hwsim.dataflows.systolic.pe_array import PeArray
from hwsim.devices.templates import new_device_file, template_sizes
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.plan import Piece, Plan, Scaled, Sum, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.machines import reference, timing
from hwsim.numerics.reference import gemm as exact_gemm
from hwsim.program.check import check
from hwsim.resolve.mapping_choice import program_of
from hwsim.schemes import Scheme
from hwsim.studies.sensitivity import sensitivity

EXAMPLE = Path(__file__).parents[2] / "examples" / "systolic_family"
SHAPES = (
    *((1, 1, 1), (128, 128, 128), (1000, 1000, 1000), (77, 300, 129), (3, 1000, 64), (1, 1000, 128)),
    *((999, 256, 256), (1000, 1, 1), (127, 129, 257), (2, 127, 999), (640, 513, 385), (1, 1, 1000)),
)
ARRAYS = ((128, 128), (16, 32), (32, 8), (1, 4))
#: Rows of PEs, columns of PEs, what streams: the table of dataflows in the papers that FORMULA names.
SIDES = {"outputs": ("m", "n", "k"), "weights": ("k", "n", "m"), "inputs": ("k", "m", "n")}
STATIONARY = pytest.mark.parametrize("stationary", SIDES)


def formula(rows: int, cols: int, stationary: str, sizes: Mapping[str, int]) -> int:
    """SCALE-Sim, arXiv 1811.02883, and ISPASS 2020 (doi 10.1109/ISPASS48437.2020.00016), Equations 3 and 4.

    A fold takes 2 R + C + T - 2 cycles, and there are ceil(S_R / R) ceil(S_C / C) folds.
    """
    down, across, streamed = (sizes[side] for side in SIDES[stationary])
    return (2 * rows + cols + streamed - 2) * math.ceil(down / rows) * math.ceil(across / cols)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], Path]:
    """Device files by rows and columns."""
    folder = tmp_path_factory.mktemp("arrays")
    return {
        (rows, cols): new_device_file(folder / f"r{rows}c{cols}.yaml", "systolic", {"rows": rows, "cols": cols})
        for rows, cols in ARRAYS
    }


@pytest.fixture(scope="module")
def square(arrays: dict[tuple[int, int], Path]) -> Path:
    return arrays[128, 128]


def cycles(device: object, m: int, n: int, k: int, **options: Any) -> int:
    return hwsim.run(m=m, n=n, k=k, device=device, format="bf16", exact=False, **options).cycles


@STATIONARY
@pytest.mark.parametrize("array", ARRAYS, ids=lambda sizes: "x".join(map(str, sizes)))
def test_cycles_are_scalesims(array: tuple[int, int], stationary: str, arrays: dict[tuple[int, int], Path]) -> None:
    for m, n, k in SHAPES if array[0] > 1 else SHAPES[:2]:
        wanted = formula(*array, stationary, {"m": m, "n": n, "k": k})
        assert cycles(arrays[array], m, n, k, stationary=stationary) == wanted, (m, n, k)


def test_the_native_instruction_holds_weights(square: Path) -> None:
    result = hwsim.run(m=100, n=200, k=300, device=square, format="bf16", exact=False)
    assert result.cycles == formula(128, 128, "weights", {"m": 100, "n": 200, "k": 300})
    assert result.options["stationary"] == "weights" and result.options["pe_tiles"] == 1


def test_integers_take_as_long(square: Path) -> None:
    for stationary in SIDES:
        result = hwsim.run(m=300, n=200, k=500, device=square, format="int8", exact=False, stationary=stationary)
        assert result.cycles == formula(128, 128, stationary, {"m": 300, "n": 200, "k": 500})


@pytest.mark.parametrize("stationary", ["weights", "inputs"])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_with_two_tiles_only_the_first_fill_is_waited_for(
    m: int, n: int, k: int, stationary: str, square: Path
) -> None:
    across, streamed = (n, m) if stationary == "weights" else (m, n)
    folds = math.ceil(k / 128) * math.ceil(across / 128)
    assert cycles(square, m, n, k, stationary=stationary, pe_tiles=2) == 128 + folds * (2 * 128 - 2 + streamed)


@pytest.mark.parametrize(("m", "n", "k"), [(1000, 1000, 1000), (2, 127, 999), (300, 1, 382)])
def test_with_two_tiles_only_the_last_drain_is_waited_for(m: int, n: int, k: int, square: Path) -> None:
    """Where K is at least as long as skew and drain together."""
    folds = math.ceil(m / 128) * math.ceil(n / 128)
    assert cycles(square, m, n, k, stationary="outputs", pe_tiles=2) == folds * k + 3 * 128 - 2


def test_a_tile_says_what_stays(arrays: dict[tuple[int, int], Path]) -> None:
    result = hwsim.run(
        m=100, n=100, k=200, device=arrays[16, 32], format="bf16", exact=False, tile={"m": 16, "n": 32, "k": 200}
    )
    assert result.options["stationary"] == "outputs"
    assert result.cycles == formula(16, 32, "outputs", {"m": 100, "n": 100, "k": 200})


def test_tune_tries_what_may_stay(arrays: dict[tuple[int, int], Path]) -> None:
    sizes = {"m": 100, "n": 100, "k": 200}
    landscape = hwsim.tune(arrays[16, 32], **sizes, format="bf16")
    least = min(
        cycles(arrays[16, 32], **sizes, stationary=stationary, pe_tiles=tiles)
        for stationary in SIDES
        for tiles in (1, 2)
    )
    assert landscape.default.cycles == formula(16, 32, "weights", sizes)
    assert landscape.best.cycles == least and landscape.best.facts["stationary"] == "outputs"


def test_tiles_of_rows_take_the_sum_of_their_formulas(square: Path) -> None:
    parts = [formula(128, 128, "weights", {"m": m, "n": 200, "k": 200}) for m in (300, 300, 300, 100)]
    assert cycles(square, 1000, 200, 200, tile={"m": 300, "n": 128, "k": 128}) == sum(parts)


def test_parts_of_k_follow_each_other_without_a_gap(square: Path) -> None:
    whole = cycles(square, 200, 200, 4000, stationary="outputs")
    assert cycles(square, 200, 200, 4000, stationary="outputs", tile={"m": 128, "n": 128, "k": 1000}) == whole


@STATIONARY
def test_arrays_share_the_work(stationary: str, square: Path) -> None:
    chip = hwsim.device(square).model_copy(update={"cores": 3})
    m, n = (7 * 128, 50) if stationary == "inputs" else (50, 7 * 128)
    most = {"m": m, "n": n, "k": 300} | ({"m": 3 * 128} if stationary == "inputs" else {"n": 3 * 128})
    assert cycles(chip, m, n, 300, stationary=stationary) == formula(128, 128, stationary, most)


@STATIONARY
def test_slow_memory_is_seen(stationary: str, square: Path) -> None:
    chip = hwsim.device(square)
    slow = chip.model_copy(update={"hbm": chip.hbm.model_copy(update={"bytes_per_second": 1e10})})
    sizes = {"m": 256, "n": 256, "k": 256}
    assert cycles(slow, **sizes, stationary=stationary) > formula(128, 128, stationary, sizes)


def test_engines_say_fill_stream_and_drain(square: Path) -> None:
    sizes = {"m": 256, "n": 256, "k": 512}
    weights, outputs = (
        hwsim.run(**sizes, device=square, format="bf16", exact=False, stationary=word)
        for word in ("weights", "outputs")
    )
    assert weights.engines["FILL"]["busy_cycles"] == 128 * 8 and weights.engines["DRAIN"]["busy_cycles"] == 0
    assert weights.engines["ARRAY"]["busy_cycles"] == (254 + 256) * 8
    assert outputs.engines["DRAIN"]["busy_cycles"] == 128 * 4 and outputs.engines["FILL"]["busy_cycles"] == 0
    assert outputs.engines["ARRAY"]["busy_cycles"] == 512 * 4
    assert weights.folds == {"fill": 1024, "stream": 256 * 8, "skew": 254 * 8, "drain": 0, "total": weights.cycles}
    assert outputs.folds == {"fill": 0, "stream": 512 * 4, "skew": 254 * 4, "drain": 512, "total": outputs.cycles}
    for result in (weights, outputs):  # one tile in the PEs: the parts follow each other
        assert sum(share for _, share in result.folds.shares().values()) == pytest.approx(1)
        assert ", skew " in result.verdict.sentences[-1] and result.to_dict()["folds"] == result.folds
    # the store of a tile works while the rows of its last fold stream, and not before
    assert weights.engines["STORE"]["busy_cycles"] == (254 + 256) * 2 < weights.cycles / 2


@STATIONARY
def test_skew_is_lost_whichever_operand_stays(stationary: str, square: Path) -> None:
    """The same folds give the same verdict: elements stream 256 cycles of each fold of 638."""
    sizes = {"m": 256, "n": 256, "k": 256}
    result = hwsim.run(**sizes, device=square, format="bf16", exact=False, stationary=stationary)
    moves = DRAIN if stationary == "outputs" else FILL
    assert result.verdict.busy == 256 / 638 and result.verdict.bound == "folds"
    assert result.verdict.lost == pytest.approx({SKEW: 254 / 638, moves: 128 / 638})
    words = "skew and drain" if moves == DRAIN else "fill and skew"
    start = f"bound by {words}: systolic arrays stream 40 %; 40 % lost in the skew, 20 % "
    assert str(result.verdict).startswith(start)


def test_one_row_is_bound_by_fill_and_skew(square: Path) -> None:
    result = hwsim.run(device=square, format="bf16", exact=False, m=1, n=1024, k=1024)
    assert result.verdict.bound == "folds" and result.verdict.busy == pytest.approx(1 / (128 + 254 + 1))
    assert result.verdict.busy + sum(result.verdict.lost.values()) == pytest.approx(1, abs=1e-12)


def test_a_slow_memory_binds_and_no_fold(square: Path) -> None:
    chip = hwsim.device(square)
    slow = chip.model_copy(update={"hbm": chip.hbm.model_copy(update={"bytes_per_second": 1e9})})
    assert hwsim.run(device=slow, format="bf16", exact=False, m=256, n=256, k=256).verdict.bound == "memory"


@STATIONARY
def test_advice_names_a_second_tile_and_no_geometry(stationary: str, square: Path) -> None:
    sizes = {"m": 256, "n": 256, "k": 512, "device": square, "format": "bf16", "exact": False, "stationary": stationary}
    one, two = hwsim.run(**sizes), hwsim.run(**sizes, pe_tiles=2)
    (advice,) = (advice for advice in one.verdict.advice if advice.option == "--pe-tiles 2")
    saved = 1 - two.cycles / one.cycles
    assert saved - 1e-9 <= advice.gain <= saved + 0.1
    options = [advice.option for result in (one, two) for advice in result.verdict.advice]
    assert not [option for option in options if any(part in option for part in ("instructions.", "_PE.", ".PE_"))]
    assert not [advice for advice in two.verdict.advice if advice.option == "--pe-tiles 2"]
    more = "more than 100 %"
    assert more in two.verdict.sentences[-1] and more not in one.verdict.sentences[-1]


def test_a_second_tile_does_not_help_a_single_one(square: Path) -> None:
    result = hwsim.run(device=square, format="bf16", exact=False, m=128, n=128, k=128)
    assert not [advice for advice in result.verdict.advice if advice.option == "--pe-tiles 2"]


def test_geometry_does_not_vary_in_a_sensitivity(square: Path) -> None:
    chip, lowered = program(device=square, format="bf16", m=1, n=256, k=256, input_format="bf16")
    varied = [influence.path for influence in sensitivity(lowered, chip)]
    assert "links.GM_FILTER.bytes_per_cycle" in varied and "hbm.bytes_per_second" in varied
    assert not [path for path in varied if path.startswith("instructions.") or "_PE." in path or ".PE_" in path]


def test_costs_of_the_template_load_once_filled_in(tmp_path: Path) -> None:
    file = new_device_file(tmp_path / "costs.yaml", "systolic", {"rows": 16, "cols": 16})
    text = file.read_text()
    begin, end = text.index("# energy:"), text.index("# The order of work")
    block = re.sub(r"^# ", "", text[begin:end], flags=re.MULTILINE)
    block = re.sub(r": +(?=[,}#])", ": 1 ", block)  # what a user fills in
    file.write_text(text[:begin] + block + text[end:])
    chip = hwsim.device(file)
    assert chip.energy.memory_pj_per_byte == dict.fromkeys(("IFMAP", "FILTER", "OFMAP", "PE"), 1.0)
    assert chip.area.mac_mm2 == {"ARRAY": 1.0} and chip.energy.static_watts == 1


def rounded(x: Fraction) -> float:
    """x rounded to fp32, nearest even, with subnormals and overflow."""
    if not x:
        return 0.0
    exponent = math.floor(math.log2(abs(x.numerator)) - math.log2(x.denominator))
    exponent += (abs(x) >= Fraction(2) ** (exponent + 1)) - (abs(x) < Fraction(2) ** exponent)
    step = Fraction(2) ** (max(exponent, -126) - 23)
    value = round(x / step) * step  # Python rounds halves to even
    return math.copysign(math.inf, x) if abs(value) >= Fraction(2) ** 128 else float(value)


def multiply_adds(a: list[float], b: list[float], fold: int) -> float:
    """Fused multiply-adds in order of K from +0, filled up with zeros to whole folds."""
    total, rest = 0.0, -len(a) % fold
    for x, y in zip([*a, *[0.0] * rest], [*b, *[0.0] * rest], strict=True):
        if not all(map(math.isfinite, (x, y, total))):
            total = x * y + total
            continue
        value = rounded(Fraction(x) * Fraction(y) + Fraction(total))
        signs = math.copysign(1, x) * math.copysign(1, y), math.copysign(1, total)
        is_negative_zero = (x == 0 or y == 0) and total == 0 and signs == (-1, -1)
        total = -0.0 if is_negative_zero else value
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


@pytest.mark.covering("case", "stationary")
@STATIONARY
@pytest.mark.parametrize("case", ["normal", "subnormal", "cancellation", "infinity", "zero"])
def test_bits_are_a_chain_of_fused_multiply_adds(case: str, stationary: str, square: Path) -> None:
    for k in (10, 67, 300):
        a, b = draw(case, 5, 4, k)
        results = [
            hwsim.run(a, b, device=square, stationary=stationary, functional=functional).c
            for functional in (False, True)
        ]
        left, right = a.astype(np.float64), b.astype(np.float64)
        fold = 1 if stationary == "outputs" else 128
        with np.errstate(all="ignore"):
            sums = [[multiply_adds(row, col, fold) for col in right.T.tolist()] for row in left.tolist()]
            wanted = np.array(sums).astype(np.float32)
        defined = ~np.isnan(wanted)
        for c in results:
            assert np.array_equal(np.isnan(c), np.isnan(wanted))
            assert np.array_equal(c.view(np.uint32)[defined], wanted.view(np.uint32)[defined])
        assert case != "infinity" or (np.isnan(wanted).any() and np.isinf(wanted).any())
        assert case != "subnormal" or k < 67 or (np.abs(wanted[wanted != 0]) < 2.0**-126).any()


def test_the_sign_of_a_zero_may_depend_on_what_stays(square: Path) -> None:
    """Folds of K are filled up with zeros, whose products are +0; outputs have no folds of K."""
    a, b = np.full((1, 1), -(2.0**-100), ml_dtypes.bfloat16), np.full((1, 1), 2.0**-100, ml_dtypes.bfloat16)
    signs = {word: bool(np.signbit(hwsim.matmul(a, b, device=square, stationary=word))[0, 0]) for word in SIDES}
    assert signs == {"outputs": True, "weights": False, "inputs": False}


@STATIONARY
@pytest.mark.parametrize("options", [{}, {"pe_tiles": 2}, {"tile": 16}, {"tile": 16, "reuse": False}], ids=str)
def test_the_program_gives_the_evaluators_bits(stationary: str, options: dict[str, Any], square: Path) -> None:
    a, b = draw("infinity", 70, 300, 333)
    streamed = SIDES[stationary][2]
    if "tile" in options:
        options = options | {"tile": {"m": 128, "n": 128, "k": 128} | {streamed: 16}}
    for device in (square, hwsim.device(square).model_copy(update={"cores": 2})):
        direct, program = (
            hwsim.run(a, b, device=device, functional=x, stationary=stationary, **options) for x in (False, True)
        )
        assert np.array_equal(direct.c.view(np.uint32), program.c.view(np.uint32))


def pair_plan(options: Mapping[str, Any], problem: Problem) -> Plan:
    """Two pieces; the small products share one sum, which is joined to the large one's on the vector unit."""
    pieces = (Piece("bf16"), Piece("bf16", scale_exponent=8))
    join = Sum(TermValue(0), Scaled(TermValue(1), -8))
    return Plan("pair", pieces, pieces, (chain((0, 0)), chain((0, 1), (1, 0))), join, input_format=problem.input_format)


PAIR = Scheme("pair", "two pieces", "this test", (), pair_plan, lambda a, b, options: [])


@pytest.mark.parametrize(("scheme", "products"), [("native", 1), ("ape-fp32-b", 6), (PAIR, 3)])
def test_schemes_of_several_products(scheme: str | Scheme, products: int, square: Path) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 200), (200, 150)))
    direct, program = (hwsim.run(a, b, device=square, scheme=scheme, functional=x) for x in (False, True))
    assert np.array_equal(direct.c.view(np.uint32), program.c.view(np.uint32))
    work = sum(phase["cycles"] for phase in program.phases if phase["name"].startswith("gemm"))
    assert work == products * formula(128, 128, "weights", {"m": 40, "n": 150, "k": 200})


@STATIONARY
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("sizes", [(500, 300, 700), (300, 700, 128), (70, 90, 1000)], ids=str)
def test_what_streams_past_several_tiles_is_read_once(
    sizes: tuple[int, int, int], cores: int, stationary: str, square: Path
) -> None:
    """Bytes of HBM by hand, with and without reuse; cycles are the formula's either way."""
    m, n, k = sizes
    chip = hwsim.device(square).model_copy(update={"cores": cores, "l2": None})
    call = {"device": chip, "format": "bf16", "exact": False, "stationary": stationary}
    sides = {"m": m, "n": n, "k": k}
    once, again = (hwsim.run(**sides, **call, reuse=reuse) for reuse in (True, False))
    folds = {side: -(-size // 128) for side, size in sides.items()}
    a, b, c = 2 * m * k, 2 * k * n, 4 * m * n
    per_core = {"weights": min(cores, folds["n"]), "outputs": min(cores, folds["n"]), "inputs": min(cores, folds["m"])}
    reads = {  # with outputs in the PEs and no reuse, B passes once for each row of tiles
        "weights": (per_core["weights"] * a + b, folds["n"] * a + b),
        "outputs": (per_core["outputs"] * a + b, folds["n"] * a + folds["m"] * b),
        "inputs": (a + per_core["inputs"] * b, a + folds["m"] * b),
    }[stationary]
    assert (once.traffic_bytes["HBM read"], again.traffic_bytes["HBM read"]) == reads
    assert once.traffic_bytes["HBM write"] == c and once.cycles == again.cycles
    assert once.options["reuse"] and not again.options["reuse"]


@STATIONARY
def test_the_other_operand_is_read_once_where_all_of_it_fits(stationary: str, square: Path, tmp_path: Path) -> None:
    memory = "IFMAP" if stationary == "inputs" else "FILTER"
    tile = {"m": 128, "n": 128, "k": 128}
    sizes = {"m": 300, "n": 260, "k": 200} if stationary != "inputs" else {"m": 260, "n": 300, "k": 200}
    kept, reused = 2 * 260 * 200, 2 * 300 * 200
    for room, times in ((6 * 128 * 128 * 2, 1), (6 * 128 * 128 * 2 - 1, 3)):  # 3 x 2 tiles of it lie there
        device = changed(
            square,
            tmp_path / f"{room}.yaml",
            (f"{memory}: {{capacity_bytes: 8388608}}", f"{memory}: {{capacity_bytes: {room}}}"),
        )
        chip = hwsim.device(device).model_copy(update={"l2": None})
        result = hwsim.run(**sizes, device=chip, format="bf16", exact=False, stationary=stationary, tile=tile)
        assert result.traffic_bytes["HBM read"] == reused + times * kept
        assert ("not all of" in result.gemm.decided("reuse").why) is (times > 1)


def test_reuse_is_the_default_where_the_memory_holds_all_of_k(square: Path, tmp_path: Path) -> None:
    small = changed(
        square, tmp_path / "s.yaml", ("IFMAP: {capacity_bytes: 8388608}", "IFMAP: {capacity_bytes: 262144}")
    )
    call = {"device": small, "format": "bf16", "exact": False, "n": 300}
    fits = hwsim.run(m=256, k=512, **call)
    assert fits.options["reuse"] and "IFMAP holds all of K" in fits.gemm.decided("reuse").why
    long = hwsim.run(m=256, k=513, **call)
    assert not long.options["reuse"] and "IFMAP is too small" in long.gemm.decided("reuse").why
    with pytest.raises(InputError, match="reuse = True: IFMAP is too small for all of K of a tile"):
        hwsim.run(m=256, k=513, **call, reuse=True)
    # two tiles of rows lie there one after the other: a panel is loaded while the one before is read
    tile = {"m": 128, "n": 128, "k": 128}
    assert hwsim.run(m=256, k=512, **call, tile=tile).options["reuse"]
    assert not hwsim.run(m=256, k=640, **call, tile=tile).options["reuse"]
    with pytest.raises(InputError, match="each product of pieces streams its own operand"):
        hwsim.run(m=64, n=64, k=64, device=square, scheme="ape-fp32-b", exact=False, reuse=True)


@STATIONARY
@pytest.mark.parametrize("pe_tiles", [1, 2])
def test_any_legal_order_of_execution_gives_the_same_bits(pe_tiles: int, stationary: str, square: Path) -> None:
    sizes = {"m": 5, "n": 2, "k": 300}
    tile = {"m": 128, "n": 128, "k": 128} | {SIDES[stationary][2]: 2 if stationary != "outputs" else 100}
    result = hwsim.run(
        **sizes, device=square, format="bf16", exact=False, tile=tile, pe_tiles=pe_tiles, stationary=stationary
    )
    chip, (a, b) = hwsim.device(square), draw("normal", sizes["m"], sizes["n"], sizes["k"])
    program = program_of(result.gemm, chip)
    codes = {name: x.view(np.uint16) for name, x in zip(program.inputs, (a, b), strict=True)}
    wanted = hwsim.run(a, b, device=square, stationary=stationary).c.view(np.uint32)
    for order in range(3):
        dots = CPU.gemm if order else exact_gemm  # one order by Python's integers, which are slow
        assert np.array_equal(reference.run(program, chip, codes, order=order, dots=dots), wanted)


@STATIONARY
def test_any_legal_order_gives_the_same_bits_where_a_panel_is_read_again(
    stationary: str, arrays: dict[tuple[int, int], Path]
) -> None:
    file = arrays[16, 32]
    m, n, k = (5, 70, 33) if stationary != "inputs" else (70, 5, 33)
    call = {"device": file, "stationary": stationary, "reuse": True}
    if stationary != "outputs":  # several tiles of what streams, past which the other operand is kept
        call["tile"] = {"m": 2, "n": 32, "k": 16} if stationary == "weights" else {"m": 32, "n": 2, "k": 16}
    else:
        m = 40
    result = hwsim.run(m=m, n=n, k=k, format="bf16", exact=False, **call)
    assert any(setting.name == "resident" for setting in result.gemm.mapping.kernels[0].settings)
    chip, (a, b) = hwsim.device(file), draw("normal", m, n, k)
    program = program_of(result.gemm, chip)
    check(program, chip)
    codes = {name: x.view(np.uint16) for name, x in zip(program.inputs, (a, b), strict=True)}
    wanted = hwsim.run(a, b, **call).c.view(np.uint32)
    for order in range(2):
        assert np.array_equal(reference.run(program, chip, codes, order=order, dots=CPU.gemm), wanted)


def test_the_record_says_all_of_the_program(square: Path) -> None:
    result = hwsim.run(m=130, n=140, k=150, device=square, format="bf16", exact=False, stationary="inputs", pe_tiles=2)
    assert {x.name: x.by for x in result.gemm.decisions}["stationary"] == "user"
    again = type(result.gemm).from_dict(json.loads(result.gemm.to_json()))
    chip = hwsim.device(square)
    assert again == result.gemm and program_of(again, chip) == program_of(result.gemm, chip)
    check(program_of(again, chip), chip)
    assert timing.run(program_of(again, chip), chip).cycles == result.cycles


def test_what_does_not_fit_is_refused(square: Path) -> None:
    with pytest.raises(InputError, match="m from 1 to 8192, n=128, k=128"):
        cycles(square, 64, 64, 64, tile={"m": 64, "n": 64, "k": 128})
    with pytest.raises(InputError, match="k from 1 to 16384"):
        cycles(square, 64, 64, 64, tile={"m": 128, "n": 128, "k": 16385}, stationary="outputs")
    with pytest.raises(InputError, match=r"pe_tiles = 3; allowed: an integer of at least 1 and at most 2"):
        cycles(square, 64, 64, 64, pe_tiles=3)
    with pytest.raises(InputError, match="stationary = 'rows'; allowed: weights, outputs, inputs"):
        cycles(square, 64, 64, 64, stationary="rows")
    with pytest.raises(UnsupportedError, match="carry no runs of K"):
        cycles(square, 64, 64, 256, k_group=128)
    with pytest.raises(UnsupportedError, match="carry no beta, c"):
        hwsim.run(m=8, n=8, k=8, device=square, format="bf16", c=np.ones((8, 8), np.float32), exact=False)


def changed(square: Path, path: Path, *pairs: tuple[str, str]) -> Path:
    text = square.read_text(encoding="utf-8")
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return path


def test_devices_that_are_no_array_are_refused(square: Path, tmp_path: Path) -> None:
    one = changed(square, tmp_path / "one.yaml", ("PE: {capacity_bytes: 131072}", "PE: {capacity_bytes: 65536}"))
    assert cycles(one, 64, 64, 64, stationary="outputs") > 0
    with pytest.raises(InputError, match=r"pe_tiles = 2; allowed: at most 1 \(memory PE of r128c128\)"):
        cycles(one, 64, 64, 64, stationary="outputs", pe_tiles=2)
    small = changed(
        square, tmp_path / "small.yaml", ("OFMAP: {capacity_bytes: 8388608}", "OFMAP: {capacity_bytes: 64}")
    )
    with pytest.raises(UnsupportedError, match="memory OFMAP needs at least 1024 bytes"):
        cycles(small, 64, 64, 64)
    places = changed(
        square, tmp_path / "places.yaml", ("memories: [IFMAP, PE, OFMAP]", "memories: [IFMAP, FILTER, OFMAP]")
    )
    with pytest.raises(UnsupportedError, match=r"needs memories: \[IFMAP, PE, OFMAP\], "):
        cycles(places, 64, 64, 64)
    lone = hwsim.device(square)
    name = lone.native["bf16"]
    alone = lone.model_copy(update={"matrix_instructions": {name: lone.matrix_instructions[name]}})
    assert PeArray.of(alone, name).stays == "b"


def test_a_file_of_another_size_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "edge.yaml"
    new = ["devices", "new", str(file), "--template", "systolic"]
    assert template_sizes("systolic") == {"rows": 128, "cols": 128} and template_sizes("accelerator") == {}
    assert main([*new, "--set", "rows=16", "--set", "cols=32"]) == 0
    text = file.read_text(encoding="utf-8")
    assert "# sizes: rows=16 cols=32" in text and "${" not in text and "16 x 32 PEs" in text
    assert main(["devices", "check", str(file)]) == 0
    assert (
        main(
            [
                "run",
                "--device",
                str(file),
                "--format",
                "bf16",
                "--no-exact",
                "--m",
                "64",
                "--n",
                "64",
                "--k",
                "64",
                "--json",
            ]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["cycles"] == formula(16, 32, "weights", {"m": 64, "n": 64, "k": 64})
    file.unlink()
    for sizes, said in (
        (["--set", "row=16"], "size 'row'; allowed: rows, cols; did you mean 'rows'"),
        (["--set", "clock_mhz=800"], "size 'clock_mhz'; allowed: rows, cols; any other number stands in the file"),
        (["--set", "rows=0"], "rows = 0; allowed: an integer from 1 to 65536"),
        (["--set", "rows=x"], "--set rows=x; allowed: NAME=N with an integer, as rows=16"),
        (["--template", "accelerator", "--set", "rows=1"], "allowed: none: template accelerator has no sizes"),
    ):
        assert main([*new, *sizes]) == 2
        assert said in capsys.readouterr().err
        assert not file.exists()


def test_the_example_prints_the_formula_s_cycles(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE / "compare.py"), run_name="__main__")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(rows) == 12 and all(row[-4] == row[-3] for row in rows)
    for row in rows:  # fill, stream, skew and drain are all of the cycles, and skew is R + C - 2 of each fold
        fill, stream, skew, drain, total = (int(number.replace(",", "")) for number in row[-8:-3])
        assert fill + stream + skew + drain == total and skew % (32 + 32 - 2) == 0 and skew > 0 < stream
