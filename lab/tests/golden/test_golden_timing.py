"""The own timings of an H200 (lab/hwsim_lab/configs/measured): what may set parameters and what may only be compared
with.
"""

import csv

import pytest
import yaml

from hwsim.devices import instruction, load
from hwsim.errors import InputError
from hwsim_lab.papers import anchor_data, measured

ROWS = measured.gemm_times()
GEMMS = [row for row in ROWS if row.role != "launch"]
SETS = yaml.safe_load(measured.path("sets.yaml").read_text())


def shapes(set: str, role: str, state: str = "rested") -> set[tuple[str, str]]:
    """(format, shape) of each GEMM of a set and role."""
    return {(row.format, row.shape) for row in GEMMS if (row.set, row.role, row.state) == (set, role, state)}


def test_five_gemms_calibrate_and_no_other_set_has_them() -> None:
    calibration = shapes("gemm", "calibration")
    assert len(calibration) == 5
    assert calibration < shapes("gemm", "calibration", "held")
    assert not calibration & shapes("gemm", "validation")


def test_no_shape_is_one_of_the_given_timings() -> None:
    given = {(row.format, row.shape) for row in GEMMS if row.set == "earlier"}
    assert len(given) > 60
    assert not given & {(row.format, row.shape) for row in GEMMS if row.set == "gemm"}


def test_every_row_has_numbers_and_a_set_that_is_described() -> None:
    assert len(ROWS) == 3770
    for row in ROWS:
        assert row.us > 0 and min(row.m, row.n, row.k, row.batch) >= 1 and row.set in SETS, row
        assert len(row.kernels) == len(row.grids) == len(row.kernel_us), row
        assert row.device == "h200" and (row.b_layout == "columns" or row.format != "e4m3"), row


def test_every_case_of_a_microbenchmark_has_numbers() -> None:
    sets = [name for name, about in SETS.items() if "microbenchmark" in about["what"]]
    assert len(sets) > 8
    for name in (*sets, "outer", "outer_warps", "turn", "shared_reads", "clusters", "earlier"):
        assert all(values for values in measured.microbenchmarks(name).values()), name
    with pytest.raises(InputError, match="no set 'matrices'; it has earlier, matrix,"):
        measured.microbenchmarks("matrices")


def test_kernels_of_gemms_are_in_their_table() -> None:
    with measured.path("kernels.csv").open(newline="") as file:
        known = {row["name"]: row for row in csv.DictReader(file)}
    launched = {(name, grid != "") for row in ROWS for name, grid in zip(row.kernels, row.grids, strict=True)}
    assert len(launched) > 700
    assert all((name in known) == is_kernel for name, is_kernel in launched)
    assert {name for name, is_kernel in launched if not is_kernel} == {"Memset (Device)"}


def test_wgmma_interval_is_the_larger_of_products_and_operand_bytes() -> None:
    """N / 2 cycles of products; A from shared memory adds 2 KiB, B 32 N bytes, at 128 bytes per cycle."""
    results = measured.microbenchmarks("matrix")
    seen = {name: v["interval"] for name, v in results.items() if name.startswith("wgmma") and "interval" in v}
    assert len(seen) > 60
    for name, interval in seen.items():
        n = int(name.split(".n")[1].split(".")[0])
        expected = max(n / 2, 16 + n / 4) if ".ss." in name else max(n / 2, 13)
        assert abs(interval / expected - 1) < 0.01, name


def test_the_rate_of_mn_major_operands_is_from_the_calibration_gemm() -> None:
    """How busy the tensor pipe was with B by rows, of how busy with B by columns; one wait more for each K of 8."""
    busy = {row.b_layout: row.tensor_pipe_busy_percent for row in measured.tensor_pipe() if row.role == "calibration"}
    rows, columns = busy["rows"], busy["columns"]
    timing = instruction(load("h200"), "wgmma.m64n128k8.f32.tf32.tf32").timing
    assert timing is not None
    rate = timing.mn_major_macs_per_cycle
    assert rate["any"] == round(timing.macs_per_cycle * rows / columns)
    wait = 128 * (columns / rows - 1)
    assert rate["128x64"] == round(timing.macs_per_cycle * 64 / (64 + wait))


def test_clusters_of_a_grid_can_all_be_active() -> None:
    """A persistent kernel starts as many CTAs as can be active, or fewer: of clusters of 4 and 8 no more than 120."""
    active = {int(name.split()[-1]): found["active"] for name, found in measured.microbenchmarks("clusters").items()}
    active[1] = load("h200").cores
    sizes = set()
    for row in measured.clusters():
        size = row.cluster_x * row.cluster_y
        assert not row.grid_x % row.cluster_x and not row.grid_y % row.cluster_y, row
        assert row.grid_x * row.grid_y <= active[size] * size, row
        sizes.add(size)
    assert {2, 4, 8} < sizes


def test_every_time_that_may_be_compared_is_in_one_set_of_the_anchors() -> None:
    """Of validation and blind rows none is left out, none stands twice; those seen are compared with nothing."""
    compared = [
        (times.role, times.format, times.columns, shape, us)
        for times in anchor_data.read().times
        for shape, us in times.us.items()
        if times.role != "calibration"
    ]
    kept = [
        (row.role, row.format, row.b_layout == "columns", row.shape, row.us)
        for row in GEMMS
        if row.role in ("validation", "blind")
    ]
    assert len(kept) > 3400 and sorted(compared) == sorted(kept)


def test_what_is_not_compared_is_in_an_earlier_set() -> None:
    sets: dict[str, set[tuple[str, str]]] = {}  # shapes of each, in the order of the file: oldest first
    seen = 0
    for row in GEMMS:
        sets.setdefault(row.set, set()).add((row.format, row.shape))
        if row.role == "seen" and row.state == "rested":
            assert any((row.format, row.shape) in sets[name] for name in sets if name != row.set), row
            seen += 1
    assert seen > 200


HEAD = ",".join(measured.GemmTime.__dataclass_fields__)
LINE = "a,2026-11-21,h200,fp16,fp16,,rows,rows,64,64,64,1,blind,rested,random,2.5,,,,,,,,,"


def test_a_table_is_read_as_it_is_written(tmp_path) -> None:
    file = tmp_path / "times.csv"
    file.write_text(f"{HEAD}\n{LINE.removesuffix(',,')}x | Memset,2x1x1 | ,1.5 | 0.8\n")
    (row,) = measured.gemm_times(file)
    assert (row.shape, row.us, row.least_us, row.batch) == ("64x64x64", 2.5, None, 1)
    assert (row.kernels, row.grids, row.kernel_us) == (("x", "Memset"), ("2x1x1", ""), (1.5, 0.8))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("m,n,k\n", "columns m, n, k; needed: set, date, device"),
        ("", "columns none; needed: set"),
        (f"{HEAD}\n{LINE},\n", ":2: 26 fields; needed: 25"),
        (f"{HEAD}\n{LINE}\n{LINE.replace('2.5', 'fast')}\n", ":3: us: 'fast' is no number"),
        (f"{HEAD}\n{LINE.replace('blind', 'bling')}\n", ":2: role: 'bling'; allowed: calibration, validation, blind"),
    ],
)
def test_a_bad_table_is_told(tmp_path, text, told) -> None:
    file = tmp_path / "times.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=told.replace("|", r"\|")):
        measured.gemm_times(file)
