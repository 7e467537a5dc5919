"""Plots: what a reader sees (labels with units, legends, values), files by suffix, and what is refused."""

import json

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs hwsim[plot]")

import hwsim
from hwsim import plots
from hwsim.cli import main
from hwsim.cli.plot import KINDS
from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.report.text.compare_text import peak_tflops

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
ROWS = [
    {
        "device": device,
        "scheme": "native",
        "format": "fp16",
        "m": 64,
        "n": 64,
        "k": k,
        "relative_frobenius": e,
        "tflops": 2 * e,
    }
    for device, scale in (("h200", 1.0), ("b200", 0.5))
    for k, e in ((256, 3.0 * scale), (16, 1.0 * scale), (64, 2.0 * scale))
]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "cache"))


def lines(figure):
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in figure.axes[0].lines}


def test_lines_have_the_rows_values_in_order():
    assert lines(plots.error_over_k(ROWS)) == {
        "h200": ([16, 64, 256], [1, 2, 3]),
        "b200": ([16, 64, 256], [0.5, 1, 1.5]),
    }
    by_size = lines(plots.error_over_size(ROWS))["h200"]
    assert np.allclose(by_size[0], [(64 * 64 * k) ** (1 / 3) for k in (16, 64, 256)])
    assert lines(plots.tflops_over_size(ROWS))["b200"][1] == [1, 2, 3]
    twice = [*ROWS, *(row | {"relative_frobenius": row["relative_frobenius"] * 3} for row in ROWS)]  # another seed
    assert lines(plots.error_over_k(twice))["h200"][1] == [2, 4, 6]
    with pytest.raises(InputError, match="no row has both k and relative_frobenius"):
        plots.error_over_k([{"k": 3, "relative_frobenius": None}])


def test_axes_say_what_they_are_and_in_which_unit():
    figure = plots.error_over_k(ROWS)
    axes = figure.axes[0]
    assert (
        axes.get_xlabel() == "K, products in each dot product" and "relative to the exact product" in axes.get_ylabel()
    )
    assert axes.get_title() == "error: native, fp16"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["h200", "b200"]
    assert plots.tflops_over_size(ROWS).axes[0].get_ylabel() == "TFLOP/s"


def test_errors_over_the_exponent_are_those_of_runs():
    figure = plots.error_over_exponent("ascend910a", ["native", "sgemm-cube"], exponents=(-24, 0, 20), size=16, k=32)
    found = lines(figure)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 32), (32, 16)))
    error = hwsim.run(np.ldexp(a, -24), b, device="ascend910a", scheme="sgemm-cube", timing=False).error
    x, y = found["sgemm-cube"]
    assert y[x.index(-24)] == error["relative_frobenius"]
    assert found["native"][1][1] > 100 * y[x.index(0)]


def test_rooflines_and_bars_are_the_devices_numbers():
    result = hwsim.run(device="h200", format="bf16", m=4096, n=4096, k=4096, exact=False)
    figure = plots.rooflines(["h200", "v100", "mi300x"], "bf16", [result])
    found = lines(figure)
    assert len(found) == 3  # v100 has no bf16
    roof = next(points for label, points in found.items() if label.startswith("h200:"))
    assert roof[1][-1] == peak_tflops(load("h200"), load("h200").native["bf16"])
    assert next(y for label, (_, y) in found.items() if "4096" in label) == [result.roofline.achieved]
    bars = plots.device_bars(["h200", "b200"], ["bf16", "e2m1"]).axes[0]
    assert [text.get_text() for text in bars.get_xticklabels()] == ["bf16", "e2m1"] and len(bars.patches) == 3
    with pytest.raises(InputError, match="no rate"):
        plots.device_bars(["v100"], ["e4m3"])


def test_tiles_are_those_that_were_timed():
    found = hwsim.tune("h200", 512, 512, 256, format="bf16", budget=40)
    figure = plots.tile_landscape(found, "title")
    shown = figure.axes[0].images[0].get_array()
    assert float(np.nanmax(shown)) == 1.0 and figure.axes[0].get_xlabel() == "tile n, columns"


@pytest.mark.parametrize("suffix", MAGIC)
def test_files_are_of_their_suffix(tmp_path, suffix):
    path = plots.save(plots.error_over_k(ROWS), tmp_path / f"x{suffix}")
    assert path.read_bytes().startswith(MAGIC[suffix])


@pytest.mark.parametrize("kind", KINDS)
def test_the_verb_draws_every_kind(kind, tmp_path, capsys):
    places = {"error-over-exponent": ["-8", "0"], "error-over-k": ["16", "32"]}.get(kind, ["64", "128"])
    path = tmp_path / "x.svg"
    assert main(["plot", kind, "--format", "bf16", "--out", str(path), "--json", "--at", *places]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(path)
    assert path.read_bytes().startswith(b"<?xml")


def test_what_is_refused(tmp_path, capsys):
    for words, text in (
        (["error-over-kk", "--out", "x.svg"], "did you mean 'error-over-k'"),
        (["devices"], "give --out"),
        (["devices", "--out", "x.gif"], "ends in .png, .svg, .pdf"),
    ):
        assert main(["plot", *words]) == 2
        assert text in capsys.readouterr().err
    assert main(["plot"]) == 0
    shown = capsys.readouterr().out
    assert all(kind in shown for kind in KINDS)
    path = tmp_path / "x.png"
    assert (
        main(
            [
                "plot",
                "error-over-k",
                "--scheme",
                "native",
                "--scheme",
                "tf32x3",
                "--format",
                "bf16",
                "--out",
                str(path),
                "--at",
                "16",
            ]
        )
        == 0
    )
    assert "left out: tf32x3 on h200" in capsys.readouterr().err
