"""Times of a library's kernels: beside recorded ones, and where no program carries a kernel's order."""

import csv
import gzip
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import hwsim
import hwsim.api
import hwsim.libraries.adopt
from hwsim.devices import find
from hwsim.devices.least_time import LeastTime, least_time
from hwsim.errors import UnsupportedError
from hwsim.libraries.call import LibraryCall
from hwsim.libraries.cublas import rules
from hwsim.libraries.cublas.times import network
from hwsim.libraries.cublas.times.factor import MOST_LOGARITHM, factor_at, networks_of
from hwsim.libraries.cublas.times.fitted_times import FittedTimes, TimeRow, rows_of, with_factor
from hwsim.libraries.cublas.times.kernel_facts import FACTS, QUANTITIES, facts, quantities
from hwsim.libraries.cublas.times.network import EQUAL, LOGARITHM, LOGARITHM_RAMP, MOST, PLAIN, RAMP, Networks
from hwsim.libraries.cublas.versions import versions
from hwsim.libraries.gemm_call import PYTORCH, GemmCall
from hwsim.libraries.times import kernel_seconds, least_of

ROOT = Path(__file__).parents[2]
HELD, EVERY = "blind5", 20  # no number is fitted to this set
ACCUMULATE = {"fast": "fast", "slow": "promoted"}
LEAST = LeastTime(products_us=2.0, l2_us=1.0, hbm_us=4.0, hbm_bytes_per_second=4e12)
#: Relative differences that rounding a time to microseconds and back makes.
ROUNDING = 1e-12
LAUNCH_US = 2.1


def recorded(device):
    with gzip.open(ROOT / "tests" / "golden" / "h200_library" / "times.csv.gz", "rt") as file:
        rows = [x for x in csv.DictReader(file) if x["device"] == device and x["set"] == HELD]
        launch_us = min(float(row["launch_us"]) for row in rows)
        return [(row, launch_us) for row in rows[::EVERY]]


def run_of(row):
    operand, _, output = row["kind"].partition(">")
    more = {"accumulate": ACCUMULATE[output[-4:]]} if output[-4:] in ACCUMULATE else {}
    sizes = {name: int(row[name]) for name in "mnk"}
    return hwsim.run(
        device=row["device"], library="cublas", exact=False, format=operand, b_layout=row["b_layout"],
        output=output.removesuffix("fast").removesuffix("slow"), **sizes, **more,
    )  # fmt: skip


@pytest.mark.parametrize("device", ["h200", "h100"])
def test_times_are_near_recorded_ones(device) -> None:
    """Errors of times against GEMMs that no number is fitted to: what docs/library.md says of them."""
    errors = defaultdict(list)
    for row, launch_us in recorded(device):
        try:
            run = run_of(row)
        except UnsupportedError:  # cuBLASLt refused it as well
            continue
        error = (run.seconds * 1e6 + launch_us) / float(row["us"]) - 1
        errors["nvjet" if "nvjet" in row["kernels"] else "others"].append(abs(error))
    assert len(errors["nvjet"]) > 15 and len(errors["others"]) > 25
    assert np.mean(errors["nvjet"]) < 0.07 and np.mean(errors["others"]) < 0.10


def test_a_kernel_whose_order_no_program_carries_has_cycles_of_the_same_kernel_in_order() -> None:
    """It is one of CUDA cores."""
    call = {"device": "h200", "library": "cublas", "format": "fp32", "m": 209, "n": 491, "k": 1430}
    run = hwsim.run(exact=False, **call)
    assert run.gemm.schedule.sum is not None and run.cycles > 0 and run.seconds > 0
    _, program = hwsim.api.program(**call)
    assert program.gemm.schedule.sum is None
    assert run.gemm.decided("times").by == "library" and run.gemm.decided("times").evidence == "fitted"


def test_a_kernel_without_a_program_has_seconds_and_says_why_no_cycles() -> None:
    run = hwsim.run(device="h200", library="cublas", format="fp16", m=1, n=1, k=4096, exact=False)
    assert run.cycles is None and run.timing_note
    assert 0 <= run.seconds < 1e-4


def test_bits_are_the_same_with_and_without_times() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((30, 1001)).astype(np.float16), rng.standard_normal((1001, 33)).astype(np.float16)
    call = {"device": "h200", "library": "cublas", "format": "fp16"}
    timed, bare = (hwsim.run(a, b, timing=x, **call) for x in (True, False))
    assert timed.c.tobytes() == bare.c.tobytes() and timed.seconds > 0 and bare.seconds is None


def choice_and_call():
    call = GemmCall(m=300, n=520, k=1024, format="fp16")
    return hwsim.library("cublas", device="h200").choose(call), call


def test_a_row_is_a_sum_and_never_below_the_least_time() -> None:
    choice, call = choice_and_call()
    point = quantities(choice, call, 132, LEAST)
    assert len(point) == len(QUANTITIES) and point[:5] == (1.0, 4.0, 2.0, 1.0, 4.0)
    row = TimeRow((1.0, 2.0, *(0.0,) * (len(QUANTITIES) - 2)), 9, 0.1, ("h200",), ())
    assert row.microseconds(point, LEAST) == pytest.approx(1 + 2 * LEAST.us)
    nothing = TimeRow((0.0,) * len(QUANTITIES), 9, 0.1, ("h200",), ())
    assert nothing.microseconds(point, LEAST) == LEAST.us


def constant(value: float) -> Networks:
    """One network that gives a value for each point."""
    weights, biases = np.zeros((1, 1, 1)), np.zeros((1, 1, 1))
    one = np.ones(1, np.float32)
    return Networks(
        np.zeros(1, np.uint8), np.zeros(1, np.uint8), one, one, (weights,) * 3, (biases, biases, biases + value)
    )


@pytest.mark.parametrize(("logarithm", "efficiency"), [(-1.0, 1.0), (math.log(2), 4 / (6 * 2 - 2))])
def test_an_efficiency_is_at_most_one(logarithm: float, efficiency: float) -> None:
    """A time that the numbers put below the least one is the least one."""
    choice, call = choice_and_call()
    row = TimeRow((0.0, 1.0, *(0.0,) * (len(QUANTITIES) - 2)), 9, 0.1, ("h200",), ())
    times = FittedTimes(row, constant(logarithm), choice, call, 132, "fitted")
    assert times.efficiency(LEAST) == pytest.approx(efficiency, rel=1e-3)
    assert times.seconds(0.0, LEAST) * 1e6 == pytest.approx(LEAST.us / efficiency, rel=1e-3)


def test_the_least_time_is_of_bytes_and_products() -> None:
    chip = hwsim.device("h100")
    unit = chip.native["bf16"]
    large, small = 4 * chip.l2.capacity_bytes, chip.l2.capacity_bytes // 2
    cold = least_time(chip, unit, 10**9, small, is_series=False)
    assert cold.hbm_us == pytest.approx(small / chip.hbm.bytes_per_second * 1e6)
    assert least_time(chip, unit, 10**9, small, is_series=True).hbm_us == 0
    warm = least_time(chip, unit, 10**9, large, is_series=True)
    assert warm.hbm_us == pytest.approx(large / chip.hbm.bytes_per_second * 1e6)
    per_us = float(find(chip, unit).macs_per_cycle) * chip.cores * chip.clock_mhz
    assert warm.products_us == pytest.approx(1e9 / per_us) and warm.us == warm.hbm_us


@pytest.mark.parametrize(
    ("device", "fmt", "m", "n", "k"),
    [
        ("h100", "bf16", 1, 201088, 2880),  # 276 us were said, and 473 measured
        ("h100", "bf16", 1, 256000, 4096),
        ("h100", "fp16", 8, 201088, 2048),
        ("h200", "bf16", 4, 201088, 14336),
        ("h100", "e4m3", 16, 128256, 8192),
    ],
)
def test_no_time_is_below_bytes_over_bandwidth(device: str, fmt: str, m: int, n: int, k: int) -> None:
    result = hwsim.run(m=m, n=n, k=k, device=device, format=fmt, library="cublas", exact=False, b_layout="columns")
    item = {"e4m3": 1}.get(fmt, 2)
    assert result.seconds * (1 + ROUNDING) >= (m * k + k * n) * item / hwsim.device(device).hbm.bytes_per_second


def test_a_kernel_without_recorded_times_has_its_programs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "row_of", lambda *_: None)
    result = hwsim.run(m=512, n=768, k=2048, device="h200", format="fp16", library="cublas", exact=False)
    assert not result.times.by_library and result.gemm.decided("times").value == "the program's"
    assert "library_times_of_program" in [warning["code"] for warning in result.warnings]


def test_a_kernel_much_slower_than_for_aligned_sizes_warns() -> None:
    """233 x 2317 x 11868 with a bias: 3,035 us were measured, where the padded product takes less than 40."""
    sizes = {"m": 233, "n": 2317, "k": 11868}
    call = {"device": "h100", "format": "fp16", "output": "fp16", "library": "cublas", "b_layout": "columns"}
    slow = hwsim.run(exact=False, bias=np.zeros(2317, np.float32), **sizes, **call)
    assert 1.5e-3 < slow.seconds < 6e-3
    (warning,) = [warning for warning in slow.warnings if warning["code"] == "library_kernel_slow"]
    assert "233 x 2,320 x 11,872" in warning["message"]
    padded = hwsim.run(exact=False, m=233, n=2320, k=11872, bias=np.zeros(2320, np.float32), **call)
    assert "library_kernel_slow" not in [warning["code"] for warning in padded.warnings]


def test_a_kernel_whose_tile_goes_by_the_bias_has_a_row_without_one() -> None:
    """An H200 took 53.4 us with tiles of 64 x 64; the row of the kernel with a bias, of 256 x 64, gives 170."""
    sizes = {"m": 19, "n": 1216, "k": 2112, "batch": 4}
    call = GemmCall(**sizes, format="bf16", output="bf16", a_layout="columns", reductions="any", caller=PYTORCH)
    library = hwsim.library("cublas", device="h200")
    choice = library.choose(call)
    assert "sm90_xmma" in choice.family
    seconds = kernel_seconds(hwsim.device("h200"), call, library.times(call, choice))
    assert seconds * 1e6 + LAUNCH_US == pytest.approx(53.4, rel=0.4)


def test_a_scheme_takes_its_program_with_the_librarys_products() -> None:
    call = {"device": "h200", "library": "cublas", "exact": False, "m": 512, "n": 512, "k": 512}
    scheme, product = hwsim.run(scheme="bf16x9", **call), hwsim.run(format="bf16", output="fp32", **call)
    others = [phase["seconds"] for phase in scheme.phases if not phase["name"].startswith("gemm")]
    assert len(others) == len(scheme.phases) - 9
    assert scheme.seconds == pytest.approx(math.fsum(others) + 9 * product.seconds, rel=0.15)


def test_every_chip_has_rows_and_networks() -> None:
    rows = rows_of(versions()[0].times)
    for device in versions()[0].devices:
        row = rows[66, "fp16", False, False]
        assert device in row.chips and device in row.batch_chips
    networks = networks_of(versions()[0].factors)
    assert len(networks.weights[0]) > 1 and networks.number.max() < len(FACTS)


def two_networks() -> Networks:
    """Of x0, of the logarithm of x1, and of whether x0 is 7; by hand."""
    weights = np.zeros((2, 3, 2)), np.zeros((2, 2, 1)), np.ones((2, 1, 1))
    weights[0][:, 0, 0] = weights[0][:, 1, 1] = 1
    weights[0][1, 2, 0] = 10
    weights[1][:, :, 0] = 1
    biases = np.zeros((2, 1, 2)), np.zeros((2, 1, 1)), np.full((2, 1, 1), 0.25)
    return network.unpack(
        {
            "number": np.array([0, 1, 0]), "kind": np.array([PLAIN, LOGARITHM, EQUAL]), "shift": np.array([1, 0, 7]),
            "scale": np.array([0.5, 2, 1]),
            **{f"weights_{i}": x for i, x in enumerate(weights)}, **{f"biases_{i}": x for i, x in enumerate(biases)},
        }
    )  # fmt: skip


def gate(x: float) -> float:
    return x / (1 + math.exp(-x))


@pytest.mark.parametrize(
    ("point", "inputs"),
    [((3.0, math.e), (1, 2, 0)), ((7.0, 1.0), (3, 0, 1)), ((-99.0, 0.0), (-MOST, -MOST, 0))],
)
def test_networks_take_scaled_numbers_logarithms_and_names(
    point: tuple[float, float], inputs: tuple[float, ...]
) -> None:
    """And nothing beyond what was recorded. Their value is the mean of both, each layer by hand."""
    networks = two_networks()
    assert networks.inputs(np.array([point]))[0] == pytest.approx(inputs)
    plain, logarithm, is_seven = inputs
    each = [gate(gate(plain + more * is_seven) + gate(logarithm)) + 0.25 for more in (0, 10)]
    assert networks.each_at(point).tolist() == pytest.approx(each)
    assert networks.at(point) == pytest.approx(sum(each) / 2)


@pytest.mark.parametrize(("x", "rises"), [(1.0, (0, 0)), (3.0, (0.5, 0.75)), (99.0, (1, 1))])
def test_a_ramp_rises_once_from_0_to_1(x: float, rises: tuple[float, float]) -> None:
    """Of 2 to 4, and of logarithms from 0 to log 3 / 0.75."""
    kinds, shift = np.array([RAMP, LOGARITHM_RAMP], np.uint8), np.array([2, 0], np.float32)
    scale = np.array([0.5, 0.75 / math.log(3)], np.float32)
    networks = Networks(np.zeros(2, np.uint8), kinds, shift, scale, (), ())
    assert networks.inputs(np.array([[x]]))[0] == pytest.approx(rises)


def test_networks_are_the_same_packed_and_refuse_other_shapes() -> None:
    parts = two_networks().pack()
    assert network.unpack(parts).at((3.0, 2.0)) == two_networks().at((3.0, 2.0))
    for name in ("weights_1", "biases_2", "kind", "scale", "number"):
        with pytest.raises(ValueError, match="inputs"):
            network.unpack(parts | {name: parts[name][:-1]})
    with pytest.raises(KeyError):
        network.unpack({name: array for name, array in parts.items() if name != "weights_2"})


def test_a_factor_is_the_geometric_mean_of_networks_and_has_bounds() -> None:
    point = (3.0, 2.0)
    networks = two_networks()
    mean = sum(networks.each_at(point)) / 2
    assert mean > MOST_LOGARITHM and factor_at(networks, point) == pytest.approx(math.exp(MOST_LOGARITHM))
    for value in (0.5, -0.25, -9.0):
        bounded = max(value, -MOST_LOGARITHM)
        assert factor_at(constant(value), point) == pytest.approx(math.exp(bounded))
    low = (-99.0, 0.001)  # both gates nearly shut
    assert factor_at(networks, low) == pytest.approx(math.exp(sum(networks.each_at(low)) / 2))
    assert network.unpack(networks.pack()).at(low) == pytest.approx(networks.at(low), rel=1e-3)


def test_a_factor_is_of_the_time_with_a_launch() -> None:
    assert with_factor(10.0, 2.0) == pytest.approx(2 * 12 - 2)


def test_facts_of_a_gemm() -> None:
    choice, call = choice_and_call()
    values = dict(zip(FACTS, facts(choice, call, 132, least_of(hwsim.device("h200"), call), 7.0), strict=True))
    rows, columns = choice.tile
    assert (values["m"], values["n"], values["k"], values["b_by_rows"], values["has_bias"]) == (300, 520, 1024, 1, 0)
    assert (values["m_alignment"], values["n_alignment"], values["k_alignment"]) == (4, 8, 128)
    assert values["edge_m"] == (300 % rows or rows) / rows and values["edge_n"] == (520 % columns or columns) / columns
    assert values["row_bytes"] == 16 and values["sum_logarithm"] == pytest.approx(math.log(9))
    assert (values["stride_a"], values["stride_power_a"]) == (2048, 2048)  # A by rows: 1,024 elements of 2 bytes
    assert (values["stride_b"], values["stride_power_b"], values["stride_power_d"]) == (1040, 16, 16)  # 520 elements
    ctas = -(-300 // rows) * -(-520 // columns)
    assert values["ctas"] == ctas and values["rounds_of_2"] == math.ceil(ctas / 264)
    assert values["filled_of_4"] == pytest.approx(ctas / (528 * math.ceil(ctas / 528)))
    assert (values["m_of_64"], values["n_of_128"], values["k_of_32"]) == (44 / 64, 8 / 128, 0)
    steps = values["waves"] * values["steps_of_a_tile"]
    assert values["sum_per_step"] == pytest.approx(7 / steps)


def test_a_batch_takes_longer_and_a_clock_of_ones_own_has_the_programs_time() -> None:
    call = {"device": "h200", "library": "cublas", "format": "fp16"}
    a, b = np.ones((256, 512), np.float16), np.ones((512, 384), np.float16)
    one, many = (hwsim.run(x, b, exact=False, **call) for x in (a, np.stack([a] * 64)))
    assert one.seconds < many.seconds and many.evidence["timing"]
    slow = hwsim.run(a, b, exact=False, clock_mhz=1000.0, **call)
    assert slow.seconds == pytest.approx(slow.cycles / 1e9)


def test_a_scheme_whose_kernels_are_no_calls_keeps_its_programs_times_and_launches(monkeypatch) -> None:
    asked = {"m": 256, "n": 512, "k": 384, "library": "cublas", "exact": False}
    monkeypatch.setattr(LibraryCall, "has_times_of", lambda call, gemm: False)
    plain = hwsim.run(device="h200", scheme="bf16x3", **asked)
    launched = hwsim.run(device="h200", scheme="bf16x3", launch_overhead=True, **asked)
    launch_us = hwsim.device("h200").launch_overhead_us
    assert not plain.times.by_library and plain.gemm.decided("times").by == "device"
    assert launched.seconds == pytest.approx(plain.seconds + len(launched.phases) * launch_us * 1e-6, rel=1e-12)
    assert launched.state["launches"] and not plain.state["launches"]


@pytest.mark.parametrize(("scheme", "calls", "passes"), [("native", 1, 0), ("bf16x3", 3, 2)])
def test_launches_come_on_top_of_the_librarys_times(scheme: str, calls: int, passes: int) -> None:
    call = {"device": "h200", "library": "cublas", "scheme": scheme, "m": 256, "n": 512, "k": 384, "exact": False}
    call |= {"format": "bf16"} if scheme == "native" else {}
    plain, launched = hwsim.run(**call), hwsim.run(**call, launch_overhead=True)
    added_us = calls * 2.0 + passes * hwsim.device("h200").launch_overhead_us
    assert plain.times.by_library and launched.seconds == pytest.approx(plain.seconds + added_us * 1e-6, rel=1e-12)
    assert launched.tflops * launched.seconds == pytest.approx(plain.tflops * plain.seconds)
    assert launched.cycles == plain.cycles and launched.state["launches"] and not plain.state["launches"]
    assert launched.state["clock_mhz"] == plain.state["clock_mhz"]
