"""The table of measured times: its file, a few points, the page that shows them."""

import re
from pathlib import Path

import pytest

from hwsim.cli import main
from hwsim.errors import InputError
from hwsim_lab.papers import anchor_data, anchors, ascend910b, ascend910b_data, measured
from hwsim_lab.papers.anchors_text import points_text, pooled_text, roles_text, spreads_text

PAGE = (Path(__file__).parents[2] / "docs" / "cycles.md").read_text()
DATA = anchor_data.read()
POINTS = {entry.id: entry for entry in DATA.points}
QUICK = (
    "910a-double",
    "910a-single",
    "a100-m256",
    "mi210-512",
    "tcgen05-k16-s2",
    "a100-pcie-fp16-4096",
    "a100-pcie-tf32-10240",
    "h200-torch-fp16",
)


def test_points_have_names_of_their_own_and_known_sources():
    assert len(POINTS) == len(DATA.points) >= 70
    for entry in (*DATA.points, *DATA.times):
        assert all(key in DATA.sources for key in entry.source.split(", ")), entry


def test_every_device_of_the_issue_has_points():
    assert {"ascend910a", "a100", "a800", "b200", "h100", "h200", "mi210", "t4", "v100"} <= {
        entry.run.device for entry in DATA.points
    }


@pytest.mark.parametrize("name", QUICK)
def test_points_that_pass_do_so_and_stand_on_the_page(name):
    row = anchors.row(POINTS[name])
    assert row.passes, row
    assert points_text([row]).splitlines()[-1] in PAGE


def test_a_miss_is_shown_with_its_reason():
    row = anchors.row(POINTS["gb300-one-sm-4096x4096"])
    assert not row.passes and row.why
    assert "**no**: " in points_text([row]) and row.why in PAGE


def test_a_point_that_moved_a_choice_says_which_and_is_no_validation():
    seen = [entry for entry in DATA.points if entry.role == "seen"]
    assert len(seen) >= 15 and all(entry.moved for entry in seen)
    with pytest.raises(ValueError, match="has to say what it moved"):
        anchor_data.Measurement.model_validate(POINTS["mi210-512"].model_dump() | {"role": "seen"})
    row = anchors.row(POINTS["ape-f"])
    assert f"| seen: {row.moved} |" in points_text([row])
    assert roles_text([row, anchors.row(POINTS["mi210-512"])]).count("\n") == 4


def test_no_range_is_wide_enough_to_hold_anything():
    ranges = [entry.measured for entry in DATA.points if isinstance(entry.measured, tuple)]
    assert max(high / low for low, high in ranges) < 1.21


def test_the_stage_sweep_of_one_sm_is_within_its_tolerance_at_its_own_clock():
    sweep = [entry for entry in DATA.points if entry.id.startswith("tcgen05-")]
    assert len(sweep) == 16 and {entry.run.clock_mhz for entry in sweep} == {1300}
    assert [entry.id for entry in sweep if not anchors.row(entry).passes] == []
    at_boost = POINTS["tcgen05-k64-s4"]
    at_boost = at_boost.model_copy(update={"run": at_boost.run.model_copy(update={"clock_mhz": 1965.0})})
    assert anchors.row(at_boost).error < -0.3


def test_pairs_of_sms_beat_single_ones_as_measured():
    for shape in ("4096x4096", "8192x8192", "16384x512", "32768x512", "512x16384"):
        pair, alone = (anchors.row(POINTS[f"gb300-{kind}-{shape}"]) for kind in ("pair", "one-sm"))
        assert pair.passes and abs(pair.error) < 0.06
        assert pair.simulated > 1.02 * alone.simulated


def test_the_order_of_tiles_is_the_points():
    entry = POINTS["gb300-one-sm-16384x512"]
    assert anchors.row(entry).passes
    chosen = entry.model_copy(update={"run": entry.run.model_copy(update={"swizzle": None})})
    assert anchors.row(chosen).error > 0.3


def test_every_point_stands_on_the_page():
    assert [entry.what for entry in DATA.points if f"| {entry.what} |" not in PAGE] == []


def test_time_of_the_host_is_added_to_the_devices():
    entry = POINTS["a100-k512"]
    assert entry.host_us == 21
    alone, with_host = (anchors.row(e).simulated for e in (entry.model_copy(update={"host_us": 0.0}), entry))
    flop = 2 * 8192 * 512 * 512
    assert flop / with_host - flop / alone == pytest.approx(21e6)
    in_ms = entry.model_copy(update={"quantity": "ms"})
    assert anchors.row(in_ms).simulated == pytest.approx(flop / alone * 1e-9 + 0.021)


def test_the_share_of_kernels():
    entry = POINTS["ape-split-t4"]
    row = anchors.row(entry)
    assert row.passes
    both = [anchors.row(entry.model_copy(update={"kernels": (name,)})).simulated for name in entry.kernels]
    assert sum(both) == pytest.approx(row.simulated) and min(both) > 0.07
    for kernels in ((), ("split_c",)):
        with pytest.raises(InputError, match="the program has split_a, split_b, gemm"):
            anchors.row(entry.model_copy(update={"kernels": kernels}))


def test_errors_are_from_the_nearest_end_of_a_range():
    def error(low: float, high: float, simulated: float) -> float:
        return anchors.Row("", "", "", (low, high), simulated, 0.1, "validation", "").error

    assert error(2.0, 4.0, 3.0) == 0
    assert error(2.0, 4.0, 1.0) == -0.5
    assert error(2.0, 4.0, 5.0) == 0.25


def test_calibration_gemms_of_an_h200_are_within_ten_percent():
    sets = {times.format: times for times in DATA.times if times.role == "calibration"}
    assert set(sets) == {"fp16", "bf16", "tf32", "e4m3", "fp64"}
    assert [name for name, times in sets.items() if not anchors.spread(times).passes(times.tolerance)] == []


def test_validation_gemms_are_not_in_any_calibration():
    shapes = {
        role: {(t.format, s) for t in DATA.times if t.role == role for s in t.us}
        for role in ("calibration", "validation")
    }
    assert not shapes["calibration"] & shapes["validation"]
    assert len(shapes["validation"]) > 200


def test_blind_gemms_are_in_no_other_set():
    sets = {
        is_blind: {(t.format, t.columns, s) for t in DATA.times if (t.role == "blind") == is_blind for s in t.us}
        for is_blind in (True, False)
    }
    assert not sets[True] & sets[False]
    assert len(sets[True]) > 400


def test_every_set_is_timed_with_k_cut_as_well():
    times = next(t for t in DATA.times if t.role == "validation" and t.format == "fp32")
    few = times.model_copy(update={"us": {"128x128x4096": times.us["128x128x4096"]}})
    found = anchors.spread(few)
    ((_, plain),), ((_, cut),) = found.plain, found.cut
    assert abs(cut) < plain / 3
    assert found.plain == tuple(anchors.time_errors(few).items())
    assert found.cut == tuple(anchors.time_errors(few, "auto").items())
    assert f"| 0 of 1 large |  |  | {plain:.1%} | {abs(cut):.1%} |" in spreads_text([(few, found)])


def test_all_sets_of_a_format_together():
    times = next(t for t in DATA.times if t.role == "validation" and t.format == "fp32")
    small = "64x64x64"
    one = anchors.Spread((("1024x1024x1024", 0.2), (small, -0.4)), (("1024x1024x1024", 0.1), (small, 0.0)))
    other = anchors.Spread((("2048x2048x2048", -0.06),), (("2048x2048x2048", 0.02),))
    calibration = times.model_copy(update={"role": "calibration"})
    left_out = anchors.Spread((("8x8x8", 9.0),), (("8x8x8", 9.0),))
    found = anchors.pooled([(times, one), (calibration, left_out), (times, other)])
    assert set(found) == {"fp32"}
    assert found["fp32"] == anchors.Spread(one.plain + other.plain, one.cut + other.cut)
    assert "| fp32 | 2 of 3 large | 13.0% | 6.0% | 22.0% | 4.0% | **no** |" in pooled_text(found)


@pytest.mark.parametrize(
    ("plain", "cut", "small", "verdict"),
    [
        (0.10, 0.10, 0.19, "yes"),  # of all, K cut: 15 %
        (0.11, 0.10, 0.19, "**no**"),
        (0.10, 0.11, 0.01, "**no**"),  # one setting for both limits
        (0.10, 0.10, 0.21, "**no**"),
    ],
)
def test_a_format_is_within_by_one_setting_and_plain_runs_of_large_ones(plain, cut, small, verdict):
    pool = {
        "fp16": anchors.Spread((("1024x1024x1024", plain), ("8x8x8", 0.9)), (("1024x1024x1024", cut), ("8x8x8", small)))
    }
    assert pooled_text(pool).endswith(f"| {verdict} |\n")


CHOSEN = anchor_data.Selection(set="blind", format="fp16", b_layout="rows", role="blind", tolerance=0.1, source="OWN")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"set": "blend"}, "0 rows of 0 shapes, 0 devices and outputs, 0 launches"),
        ({"role": "calibration"}, "0 rows of 0 shapes, 0 devices and outputs, 1 launches"),
        ({"shapes": ("1472x1472x1472", "7x7x7")}, "1 rows of 1 shapes.*each shape of 1472x1472x1472, 7x7x7 once"),
        ({"set": "gemm", "format": "tf32", "role": "calibration", "state": "held", "shapes": ("3x3x3",)}, "0 rows"),
    ],
)
def test_a_set_that_the_rows_do_not_have_is_told(changed, told):
    rows = measured.gemm_times()
    assert len(anchor_data.times_of(CHOSEN, rows).us) == 41
    with pytest.raises(InputError, match=told):
        anchor_data.times_of(CHOSEN.model_copy(update=changed), rows)


def test_a_shape_twice_is_told():
    rows = [row for row in measured.gemm_times() if row.set == "blind"]
    twice = next(row for row in rows if row.role == "blind" and row.format == "fp16" and row.b_layout == "rows")
    with pytest.raises(InputError, match="42 rows of 41 shapes"):
        anchor_data.times_of(CHOSEN, [*rows, twice])


@pytest.mark.parametrize(
    "words", [("cycles",), ("sgemm-cube", "fig10"), ("ascend910b", "gemm"), ("ascend910b", "readings")]
)
def test_without_the_files_it_is_told(words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    ascend910b_data.published.cache_clear()
    assert main(["reproduce", *words]) == 2
    told = capsys.readouterr()
    assert told.out == "" and "install it again: pip install ./lab" in told.err and "Traceback" not in told.err


@pytest.mark.parametrize("format", ["fp16", "e4m3"])
def test_a_few_times_of_an_h200(format):
    times = next(
        t for t in DATA.times if t.role == "validation" and t.format == format and t.columns == (format == "e4m3")
    )
    few = {
        shape: us for shape, us in times.us.items() if shape in ("2048x2048x8192", "4096x4096x512", "4096x4096x2048")
    }
    errors = anchors.time_errors(times.model_copy(update={"us": few}))
    assert len(errors) == 3 and max(abs(e) for e in errors.values()) < 0.1


@pytest.mark.parametrize(
    "text", ["schema_version: 2", "points: [", "schema_version: 1\nsources: {}\nreasons: {}\npoints: 3\ntimes: []"]
)
def test_a_bad_file_is_told(tmp_path, text):
    file = tmp_path / "anchors.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=re.escape(str(file))):
        anchor_data.read(file)


def test_reasons_are_those_of_several_points(tmp_path):
    text = measured.path("anchors.yaml").read_text()
    assert text.count('why: "SIZES"') == 3
    explained = [point for point in DATA.points if point.id.startswith("910a-fig11-") and point.why]
    assert {point.why for point in explained} == {"the paper gives neither its sizes nor its tiles"}
    file = tmp_path / "anchors.yaml"
    file.write_text(text.replace('why: "SIZES"', 'why: "sizes"', 2))
    with pytest.raises(InputError, match="reasons SIZES: not the `why` of several points"):
        anchor_data.read(file)
    file.write_text(text.replace('why: "CLOCKS"', 'why: "CLOKS"', 1))
    with pytest.raises(InputError, match="why: CLOKS; there is no such reason"):
        anchor_data.read(file)


def test_points_of_the_910b_keep_what_set_a_number(monkeypatch):
    def point(role: ascend910b.Role) -> ascend910b.Comparison:
        return ascend910b.Comparison("GEMM", "rate", "TFLOP/s", (80.0, 81.0), 82.0, role)

    given = {"huawei": ["calibration"], "guide": ["validation"], "torch": ["calibration", "validation"], "paper": []}
    for name, roles in given.items():
        monkeypatch.setattr(ascend910b, name, lambda roles=roles: [point(role) for role in roles])
    assert [row.role for row in anchors.huawei_rows()] == ["calibration", "validation", "calibration", "validation"]
