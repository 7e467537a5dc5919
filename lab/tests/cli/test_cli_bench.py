"""hwsim bench: every section gives its rows; nothing here looks at how fast they were."""

from __future__ import annotations

import pytest

from hwsim_lab.bench import rows as bench_rows


def test_quick_measures_everything_once_per_number_of_threads(cli):
    """Every row of the benchmark runs and its figures agree with each other; none is compared with a time."""
    done = cli("bench", "--quick", "--threads", "1", "--threads", "2", "--json")
    assert (done.code, done.err) == (0, "")
    found = done.json
    assert found["schema"] == "hwsim.bench/3"
    units = [(row["device"], row["format"], row["exponents"], row["threads"]) for row in found["units"]]
    assert units == [(row.device, row.format, row.exponents, t) for t in (1, 2) for row in bench_rows.UNITS]
    for row in found["units"]:
        assert row["gmac_per_second"] > 0
        assert row["ratio"] == row["gmac_per_second"] / row["numpy_gmac_per_second"]
    assert {row["model"] for row in found["units"]} == {
        "fused", "pairwise", "exact", "two_level", "fma_chain", "integer",
    }  # fmt: skip
    conversions = [(row["format"], row["rounding"], row["wanted"]) for row in found["conversions"]]
    assert conversions == [(row.format, row.rounding, row.wanted) for row in bench_rows.CONVERSIONS]
    assert [(row["device"], row["scheme"]) for row in found["timing"]] == [row[:2] for row in bench_rows.PROGRAMS]
    for row in found["timing"]:
        assert 0 < row["simulated"] <= row["of_program"] and 0 < row["engine_seconds"] < row["seconds"]
        assert row["per_second"] == row["simulated"] / row["engine_seconds"]
    schemes = [(row["scheme"], row["threads"]) for row in found["schemes"]]
    assert schemes == [(row.scheme, t) for t in (1, 2) for row in bench_rows.SCHEMES]
    assert all(0 < row["dot_seconds"] < row["seconds"] and 0 < row["outside"] < 1 for row in found["schemes"])
    executions = {(row["scheme"], row["device"], row["threads"]) for row in found["execution"]}
    assert executions == {("native", device, t) for t in (1, 2) for device in bench_rows.EXECUTED_ON}
    for row in found["execution"]:
        assert row["ratio"] == row["seconds"] / row["evaluator_seconds"] > 0 < row["first_seconds"]


def test_programs_of_ones_own_choice(cli):
    """Schemes without a program on a device are left out."""
    words = ("--device", "v100", "--device", "b200", "--scheme", "tf32x3", "--scheme", "sgemm-cube")
    done = cli("bench", "--quick", "--threads", "1", "--section", "execution", *words)
    assert (done.code, done.err) == (0, "")
    lines = [line.split()[:3] for line in done.out.splitlines() if line.endswith("wanted 4")]
    assert lines == [["sgemm-cube", "v100", "1"], ["tf32x3", "b200", "1"], ["sgemm-cube", "b200", "1"]]


def test_text_has_the_wishes_beside_the_ratios(cli):
    done = cli("bench", "--quick", "--threads", "1", "--section", "units", "--device", "mi300x", "--size", "32")
    assert done.code == 0
    lines = [line for line in done.out.splitlines() if line.startswith("  mi300x")]
    assert len(lines) > 3
    assert [line for line in lines if "wanted" in line] == [line for line in lines if line.endswith("wanted 1/15")]
    assert sum("two_level" in line and "wanted 1/15" in line for line in lines) == 1
    assert "Conversions" not in done.out and "Schemes" not in done.out


def test_scheme_of_ones_own_choice(cli):
    done = cli(
        "bench", "--quick", "--threads", "1", "--section", "schemes", "--section", "timing", "--scheme", "native"
    )
    assert done.code == 0
    assert "native" in done.out and "outside dot kernels" in done.out and "instructions/s" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--size", "0"), "--size 0"),
        (("--threads", "0"), "--threads 0"),
        (("--threads", "2147483648"), "at most 1024"),
        (("--scheme-size", "-1"), "--scheme-size -1"),
    ],
)
def test_bad_numbers(refused, words, message):
    assert message in refused("bench", *words)


def test_what_fails_in_the_other_process_fails_here(cli):
    done = cli("bench", "--quick", "--threads", "1", "--section", "units", "--device", "h20O")
    assert (done.code, done.out) == (2, "")
