"""The own timings of an H200 (h200_timing): what may set parameters and what may only be compared with."""

import json
from pathlib import Path

from hwsim.devices import instruction, load
from hwsim.papers import anchors

HERE = Path(__file__).parent
OURS = json.loads((HERE / "h200_timing" / "gemm.json").read_text())
GIVEN = json.loads((HERE / "h200" / "timing.json").read_text())
NAMES = {"f16": "fp16", "f32": "fp32", "f64": "fp64"}


def shapes(section: str) -> set[tuple[str, str]]:
    """(format, shape) of each GEMM of a section."""
    return {(key.split()[0], key.split()[1]) for key in OURS[section]}


def test_five_gemms_calibrate_and_no_other_set_has_them() -> None:
    calibration = shapes("calibration")
    assert len(calibration) == 5
    assert shapes("calibration_held") == calibration
    assert not calibration & shapes("validation")


def test_no_shape_is_one_of_the_given_timings() -> None:
    given = {(NAMES.get(key.split()[0], key.split()[0]), key.split()[1]) for key in GIVEN["gemm_us"]}
    assert len(given) > 60
    assert not given & (shapes("calibration") | shapes("validation") | shapes("long_run"))


def test_every_case_has_numbers() -> None:
    for path in sorted((HERE / "h200_timing").glob("*.json")):
        results = json.loads(path.read_text()).get("results", {"": {"x": 1}})
        assert results, path
        assert not [name for name, values in results.items() if "error" in values or not values], path


def test_wgmma_interval_is_the_larger_of_products_and_operand_bytes() -> None:
    """N / 2 cycles of products; A from shared memory adds 2 KiB, B 32 N bytes, at 128 bytes per cycle."""
    results = json.loads((HERE / "h200_timing" / "matrix.json").read_text())["results"]
    seen = {name: v["interval"] for name, v in results.items() if name.startswith("wgmma") and "interval" in v}
    assert len(seen) > 60
    for name, interval in seen.items():
        n = int(name.split(".n")[1].split(".")[0])
        expected = max(n / 2, 16 + n / 4) if ".ss." in name else max(n / 2, 13)
        assert abs(interval / expected - 1) < 0.01, name


def test_the_rate_of_turned_operands_is_from_the_calibration_gemm() -> None:
    """How busy the tensor pipe was with B by rows, of how busy with B by columns; one wait more for each K of 8."""
    gemms = json.loads((HERE / "h200_timing" / "turn_counters.json").read_text())["gemms"]
    rows, columns = (gemms[f"tf32 3072x3072x3072 {layout}"]["tensor_pipe_busy_percent"] for layout in ("nn", "nt"))
    timing = instruction(load("h200"), "wgmma.m64n128k8.f32.tf32.tf32").timing
    assert timing is not None
    rate = timing.turned_macs_per_cycle
    assert rate["any"] == round(timing.macs_per_cycle * rows / columns)
    wait = 128 * (columns / rows - 1)
    assert rate["128x64"] == round(timing.macs_per_cycle * 64 / (64 + wait))


def test_clusters_of_a_grid_can_all_be_active() -> None:
    """A persistent kernel starts as many CTAs as can be active, or fewer: of clusters of 4 and 8 no more than 120."""
    found = json.loads((HERE / "h200_timing" / "clusters.json").read_text())
    active = {"1": load("h200").cores} | found["active_clusters"]
    sizes = set()
    for name, gemm in found["gemms"].items():
        (across, down), grid = gemm["cluster"], gemm["grid"]
        size = across * down
        assert not grid[0] % across and not grid[1] % down, name
        assert grid[0] * grid[1] <= active[str(size)] * size, name
        sizes.add(size)
    assert {2, 4, 8} < sizes


def test_the_sets_compared_are_the_times_measured() -> None:
    measured = set()
    for path in sorted((HERE / "h200_timing").glob("*.json")):
        data = json.loads(path.read_text())
        default = "nt" if path.name == "gemm_nt.json" else "nn"
        for section in ("times", "calibration", "validation", "long_run"):
            for key, value in data.get(section, {}).items():
                name, shape, layout = [*key.split(), default][:3]
                measured.add((name, shape, layout == "nt" or name == "e4m3", value["us"]))
    sets = [times for times in anchors.read().times if times.source == "OWN"]
    assert len(sets) > 40
    for times in sets:
        compared = {(times.format, shape, times.columns, us) for shape, us in times.us.items()}
        assert compared <= measured, (times.format, sorted(compared - measured)[:3])
