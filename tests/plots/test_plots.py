"""Plots: what a reader sees (labels with units, legends, values), files by suffix, and what is refused."""

import json
import math

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs hwsim[plot]")

import hwsim
from hwsim import plots
from hwsim.analysis.inputs import normal
from hwsim.cli import main
from hwsim.cli import plot as verb
from hwsim.cli.plot import KINDS
from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.report.plots.error_figures import exponent_rows
from hwsim.report.text.compare_text import peak_tflops
from hwsim.result import plain

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


def legend(figure):
    """The legend's words; it lies beside the axes, not on them."""
    (box,) = figure.legends
    figure.draw_without_rendering()
    assert all(box.get_window_extent().x0 >= axes.get_window_extent().x1 for axes in figure.axes)
    return [text.get_text() for text in box.get_texts()]


def looks(figure):
    return {
        line.get_label(): (line.get_color(), line.get_marker(), line.get_linestyle()) for line in figure.axes[0].lines
    }


def row(device, scheme, k, error, **more):
    return {"device": device, "scheme": scheme, "m": 64, "n": 64, "k": k, "relative_frobenius": error, **more}


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
    assert axes.get_title() == "Error over K\nnative, fp16, m = 64, n = 64"
    assert legend(figure) == ["h200", "b200"]
    assert plots.tflops_over_size(ROWS).axes[0].get_ylabel() == "TFLOP/s"


def test_errors_that_are_nearly_equal_have_places_that_differ():
    near = [row(d, "native", k, e) for d, e in (("h100", 2e-3), ("b200", 2.000001e-3)) for k in (16, 64)]
    low, high = plots.error_over_k(near).axes[0].get_ylim()
    assert low == pytest.approx(1e-3, rel=1e-4) and high == pytest.approx(4e-3, rel=1e-4)
    low, high = plots.error_over_k(near, bounds=["2^-16"]).axes[0].get_ylim()
    assert low < 2.0**-16 and 2.1e-3 < high < 4e-3  # what spreads by itself is left alone


DEVICES, SCHEMES = ("h100", "b200", "a100", "mi300x", "v100"), ("native", "bf16x9", "tf32x3")


def test_colours_are_devices_and_marks_are_schemes():
    rows = [row(d, s, k, 1e-6 * k * (1 + i)) for d in DEVICES for i, s in enumerate(SCHEMES) for k in (16, 64)]
    figure = plots.error_over_k(rows)
    told = looks(figure)
    assert set(told) == {f"{d}, {s}" for d in DEVICES for s in SCHEMES} == set(legend(figure))
    assert len(set(told.values())) == 15  # no two look the same
    for device in DEVICES:
        assert len({told[f"{device}, {scheme}"][0] for scheme in SCHEMES}) == 1
    for scheme in SCHEMES:
        assert len({told[f"{device}, {scheme}"][1:] for device in DEVICES}) == 1
    assert len({told[f"{device}, native"][0] for device in DEVICES}) == 5
    assert figure.axes[0].get_title() == "Error over K\nm = 64, n = 64"


def test_equal_lines_are_all_seen():
    rows = [row(d, s, k, 1e-6 * k) for d in ("h100", "b200") for s in SCHEMES for k in (16, 64)]
    drawn = plots.error_over_k(rows).axes[0].lines
    sizes = {line.get_label(): (line.get_linewidth(), line.get_markersize()) for line in drawn}
    assert sizes["h100, native"] > sizes["b200, native"]  # the one below is wider
    assert sizes["h100, native"][1] > sizes["h100, bf16x9"][1] > sizes["h100, tf32x3"][1]
    rows = [
        row(d, "native", k, 1e-6 * k * (2 if d == "a100" else 1)) for d in ("h100", "b200", "a100") for k in (16, 64)
    ]
    assert plots.error_over_k(rows).get_supxlabel() == "equal lines, one over the other: b200 = h100"


def test_what_neither_colour_nor_mark_tells_has_a_panel():
    rows = [
        row(d, s, k, 1e-6 * k, format=f)
        for d in ("h100", "b200")
        for s in SCHEMES[:2]
        for f in ("fp16", "bf16")
        for k in (1, 9)
    ]
    figure = plots.error_over_k(rows)
    assert [axes.get_title() for axes in figure.axes] == ["fp16", "bf16"]
    assert all(len(axes.lines) == 4 for axes in figure.axes) and len(legend(figure)) == 4
    mixed = [one | ({"format": None} if one["scheme"] == "bf16x9" else {}) for one in rows]
    (axes,) = plots.error_over_k(mixed).axes  # a scheme without formats is beside the others
    assert {line.get_label() for line in axes.lines} == {
        f"{d}, {s}" for d in ("h100", "b200") for s in ("native, fp16", "native, bf16", "bf16x9")
    }


def test_seeds_are_a_mean_and_a_band():
    rows = [row("h100", "native", k, k * (1 + seed), seed=seed) for k in (16, 64) for seed in range(5)]
    figure = plots.error_over_k(rows)
    (line,), (band,) = figure.axes[0].lines, figure.axes[0].collections
    assert list(line.get_ydata()) == [48, 192]
    assert {tuple(point) for point in band.get_paths()[0].vertices} >= {(16, 16), (16, 80), (64, 64), (64, 320)}
    assert "mean and range of 5 seeds" in figure.axes[0].get_title()


def test_bounds_and_slopes_are_in_the_legend():
    rows = [row("h100", "native", k, 1e-7 * k**0.75) for k in (16, 64, 256)]
    figure = plots.error_over_k(rows, bounds=["K u", "sqrt(K) u"], bound_format="fp16", slopes=True)
    linear, root = "K u, u = 2^-11 (fp16), slope 1.00", "sqrt(K) u, u = 2^-11 (fp16), slope 0.50"
    assert legend(figure) == ["slope 0.75", linear, root]
    told = lines(figure)
    assert told[linear] == ([16, 64, 256], [k / 2048 for k in (16, 64, 256)])
    assert told[root][1] == [k**0.5 / 2048 for k in (16, 64, 256)]
    with pytest.raises(InputError, match="allowed: K u, sqrt"):
        plots.error_over_k(rows, bounds=["k u"])
    with pytest.raises(InputError, match="grows with K; the axis is exponent"):
        plots.over([one | {"exponent": 3} for one in rows], "exponent", "relative_frobenius", bounds=["K u"])


def test_bounds_have_factors_and_may_be_numbers():
    rows = [row("h100", "native", k, 1e-7 * k) for k in (16, 64)]
    told = lines(plots.error_over_k(rows, bounds=["3 K u", "2^-16", "0.5 sqrt(K) u", "K 1e-6"]))
    u = 2.0**-24
    assert told["3 K u, u = 2^-24 (fp32)"][1] == [48 * u, 192 * u]
    assert told["2^-16"][1] == [2.0**-16] * 2
    assert told["0.5 sqrt(K) u, u = 2^-24 (fp32)"][1] == [2 * u, 4 * u]
    assert told["K 1e-6"][1] == [16e-6, 64e-6]
    for wrong in ("", "K K u", "u u", "three u", "-1 u", "0 u", "2^5000", "K/u"):
        with pytest.raises(InputError, match=r"allowed: K u, sqrt.K. u, u, or factors of them with numbers"):
            plots.error_over_k(rows, bounds=[wrong])
    assert main(["plot", "error-over-k", "--bound", "two u", "--out", "x.svg"]) == 2


def test_what_is_not_drawn_is_said():
    rows = [row("h100", "native", k, 0.0 if k == 16 else 1.0) for k in (16, 64)]
    rows.append(row("v100", "native", 16, None, refused="no bf16"))
    figure = plots.error_over_k(rows)
    assert figure.get_supxlabel() == "exactly 0, not drawn: all at 16\nnot drawn, refused: v100"


def test_any_columns_are_axes():
    rows = [
        {"device": "h200", "m": m, "n": 8, "k": 8, "format": f, "cycles": m * f_, "instructions.*.macs_per_cycle": w}
        for m in (8, 64)
        for f, f_ in (("fp16", 1), ("bf16", 2))
        for w in (512, 1024)
    ]
    figure = plots.over(rows, "m", "cycles")
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("m, rows of C", "cycles of the core clock")
    assert set(lines(figure)) == {f"{f}, macs_per_cycle {w}" for f in ("fp16", "bf16") for w in (512, 1024)}
    over_format = plots.over(rows, "format", "cycles")
    assert lines(over_format)["m 8, macs_per_cycle 512"] == (["fp16", "bf16"], [8, 16])
    factors = [
        one | {"instructions.*.macs_per_cycle": f"{one['instructions.*.macs_per_cycle'] / 1024}x"} for one in rows
    ]
    of_file = plots.over(factors, "instructions.*.macs_per_cycle", "cycles")
    assert of_file.axes[0].get_xlabel() == "instructions.*.macs_per_cycle, times the file's"
    assert lines(of_file)["fp16, m 8"][0] == [0.5, 1.0]
    with pytest.raises(InputError, match="did you mean 'cycles'"):
        plots.over(rows, "m", "cyclse")
    with pytest.raises(InputError, match="a column of numbers"):
        plots.over(rows, "m", "format")


def test_errors_over_the_exponent_are_those_of_runs():
    figure = plots.error_over_exponent("ascend910a", ["native", "sgemm-cube"], exponents=(-24, 0, 20), size=16, k=32)
    found = lines(figure)
    a, b = normal(16, 16, 32, 0)  # as hwsim.run draws them
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
    small = hwsim.run(device="h200", format="bf16", m=64, n=64, k=64, exact=False)  # L2 holds all of it
    figure = plots.rooflines(["h200"], "bf16", [small])
    assert len(lines(figure)) == 1 and figure.get_supxlabel() == (
        "not drawn, no byte from or to HBM: h200, native, 64 x 64 x 64"
    )
    bars = plots.device_bars(["h200", "b200"], ["bf16", "e2m1"]).axes[0]
    assert [text.get_text() for text in bars.get_xticklabels()] == ["bf16", "e2m1"] and len(bars.patches) == 3
    with pytest.raises(InputError, match="no rate"):
        plots.device_bars(["v100"], ["e4m3"])


def test_equal_rooflines_are_all_seen():
    run = hwsim.run(device="h200", format="bf16", m=2048, n=2048, k=2048, exact=False, l2="cold")
    roofs, points = {}, []
    for line in plots.rooflines(["h100", "h200"], "bf16", [run, run]).axes[0].lines:
        if len(line.get_xdata()) > 1:
            roofs[line.get_linewidth()] = line.get_ydata()[1]
        else:
            points.append((line.get_markersize(), line.get_fillstyle()))
    assert list(roofs) == sorted(roofs, reverse=True) and len(roofs) == 2
    assert points == [(8, "full"), (12, "none")]


def test_rooflines_of_several_formats_are_panels():
    result = hwsim.run(device="h200", format="bf16", m=4096, n=4096, k=4096, exact=False)
    figure = plots.rooflines(["h200", "mi300x"], ["bf16", "e4m3"], {"bf16": [result]})
    assert [axes.get_title() for axes in figure.axes] == ["bf16", "e4m3"]
    assert [len(axes.lines) for axes in figure.axes] == [
        3,
        1,
    ] and figure.get_supxlabel() == "no known rate: mi300x, e4m3"


def test_tiles_are_those_that_were_timed():
    found = hwsim.tune("h200", 512, 512, 256, format="bf16", budget=40)
    figure = plots.tile_landscape(found, "title")
    shown = figure.axes[0].images[0].get_array()
    assert float(np.nanmax(shown)) == 1.0 and figure.axes[0].get_xlabel() == "tile n, columns"
    both = plots.tile_landscape({"left": found, "right": found})
    assert [axes.get_title() for axes in both.axes[:2]] == ["left", "right"]


@pytest.mark.parametrize("suffix", MAGIC)
def test_files_are_of_their_suffix(tmp_path, suffix):
    path = plots.save(plots.error_over_k(ROWS), tmp_path / f"x{suffix}")
    assert path.read_bytes().startswith(MAGIC[suffix])


def drawn(monkeypatch, tmp_path, *words):
    """The figure that the verb saves, and its exit code is 0."""
    figures = []
    monkeypatch.setattr(verb, "save", lambda figure, path: figures.append(figure) or path)
    assert main(["plot", *words, "--out", str(tmp_path / "x.svg"), "-q"]) == 0
    return figures[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_verb_draws_every_kind(kind, tmp_path, capsys):
    study = tmp_path / "study.yaml"
    study.write_text("devices: h200\nm: [64, 128]\nn: 64\nk: 64\n")
    places = {"error-over-exponent": ["-8", "0"], "error-over-k": ["16", "32"]}.get(kind, ["64", "128"])
    words = {"sweep": ["--study", str(study), "--x", "m", "--y", "cycles"], "devices": ["--format", "bf16"]}
    if kind in ("tiles", "rooflines"):
        places = places[:1]
    path = tmp_path / "x.svg"
    taken = words.get(kind, ["--format", "bf16", "--at", *places])
    assert main(["plot", kind, "--out", str(path), "--json", *taken]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["file"] == str(path)
    assert path.read_bytes().startswith(b"<?xml")
    check_rows(kind, printed["rows"])


def check_rows(kind, rows):
    """The rows of the JSON are the figure's: a point each, with the runs' own numbers."""
    sizes = {"device": "h200", "format": "bf16"}
    if kind == "tiles":
        best = hwsim.tune("h200", 64, 64, 64, format="bf16").best
        assert best.cycles == min(row["cycles"] for row in rows if row["cycles"] is not None)
        assert {row["panel"] for row in rows} == {"h200, native, bf16"}
    elif kind == "rooflines":
        point = hwsim.run(m=64, n=64, k=64, exact=False, **sizes).roofline
        assert [(row["intensity"], row["achieved"], row["bound"]) for row in rows] == [
            (plain(point.intensity), point.achieved, point.bound)
        ]
    elif kind == "devices":
        (row,) = rows
        assert (row["device"], row["format"]) == ("h200", "bf16") and row["peak_tflops"] > 800
    elif kind == "error-over-exponent":
        assert [row["exponent"] for row in rows] == [-8, 0] and all(row["relative_frobenius"] > 0 for row in rows)
    else:
        of_run = {"error-over-k": "k", "error-over-size": "n", "tflops-over-size": "n", "sweep": "m"}[kind]
        assert [row[of_run] for row in rows] == ([16, 32] if kind == "error-over-k" else [64, 128])
        value = {"tflops-over-size": "tflops", "sweep": "cycles"}.get(kind, "relative_frobenius")
        options = {"device": "h200"} if kind == "sweep" else sizes
        first = hwsim.run(**{side: rows[0][side] for side in "mnk"}, exact=kind.startswith("error"), **options)
        wanted = first.error[value] if value == "relative_frobenius" else getattr(first, value)
        assert rows[0][value] == wanted


def test_every_device_scheme_and_format_is_drawn(monkeypatch, tmp_path, capsys):
    two = ["--device", "h100", "--device", "b200"]
    ways = [*two, "--scheme", "native", "--scheme", "tf32x3"]
    exponents = drawn(monkeypatch, tmp_path, "error-over-exponent", *ways, "--at", "0", "--at", "4")
    assert set(lines(exponents)) == {f"{d}, {s}" for d in ("h100", "b200") for s in ("native", "tf32x3")}
    assert all(len(x) == 2 for x, _ in lines(exponents).values())  # --at may be repeated
    formats = [*two, "--format", "fp16", "--format", "bf16"]
    both = drawn(monkeypatch, tmp_path, "error-over-exponent", *formats, "--at", "0")
    assert set(lines(both)) == {f"{d}, {f}" for d in ("h100", "b200") for f in ("fp16", "bf16")}
    mixed = drawn(monkeypatch, tmp_path, "error-over-k", *ways, "--format", "bf16", "--at", "16")
    assert set(lines(mixed)) == {f"{d}, {s}" for d in ("h100", "b200") for s in ("native, bf16", "tf32x3")}
    tiles = drawn(monkeypatch, tmp_path, "tiles", *formats, "--at", "256")
    assert [axes.get_title() for axes in tiles.axes[:4]] == [
        f"{d}, native, {f}" for d in ("h100", "b200") for f in ("fp16", "bf16")
    ]
    seeds = drawn(
        monkeypatch, tmp_path, "error-over-k", "--seeds", "3", "--at", "16", "64", "--bound", "K u", "--slopes"
    )
    assert "3 seeds" in " ".join(seeds.axes[0].get_title().split()) and len(seeds.axes[0].collections) == 1
    assert any("slope" in word for word in legend(seeds)) and "K u, u = 2^-24 (fp32), slope 1.00" in legend(seeds)


def test_errors_are_drawn_without_times_unless_these_are_asked_for(tmp_path, capsys):
    def rows(*more):
        words = ["error-over-k", "--device", "a100", "--at", "16", "64", "--json", "-q", *more]
        assert main(["plot", *words, "--out", str(tmp_path / "x.svg")]) == 0
        return json.loads(capsys.readouterr().out)["rows"]

    of_errors, timed = rows(), rows("--y", "cycles")
    assert [row["cycles"] for row in of_errors] == [None, None] and all(row["cycles"] for row in timed)
    assert [row["relative_frobenius"] for row in of_errors] == [row["relative_frobenius"] for row in timed]


def test_operands_in_the_format_show_the_arithmetic_alone(monkeypatch, tmp_path, capsys):
    words = ["error-over-k", "--device", "h100", "--format", "e4m3", "--at", "64"]
    cast, own = (drawn(monkeypatch, tmp_path, *words, *more) for more in ([], ["--drawn-in-format"]))
    ((_, (of_cast,)),), ((_, (of_own,)),) = lines(cast).values(), lines(own).values()
    assert (
        of_own
        == hwsim.run(m=64, n=64, k=64, device="h100", format="e4m3", input_format="e4m3").error["relative_frobenius"]
    )
    assert of_cast > 100 * of_own
    assert main(["plot", "error-over-k", "--drawn-in-format", "--out", "x.svg"]) == 2
    assert "--format too" in capsys.readouterr().err


def test_an_option_of_a_scheme_is_refused_with_the_way_to_give_it(capsys):
    assert main(["plot", "error-over-k", "--scheme", "bf16x9", "--k-group", "64", "--out", "x.svg"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "unrecognized arguments: --k-group 64" in told and "plot sweep --study STUDY.yaml" in told
    assert told.startswith("usage: hwsim plot")


def test_size_and_title_of_a_figure_for_a_paper(monkeypatch, tmp_path, capsys):
    words = ["devices", "--device", "h100"]
    figure = drawn(monkeypatch, tmp_path, *words, "--size", "3.4,2.6", "--no-title")
    assert list(figure.get_size_inches()) == [3.4, 2.6]
    assert not figure.axes[0].get_title() and not figure.get_suptitle()
    titled = drawn(monkeypatch, tmp_path, *words)
    assert titled.axes[0].get_title() or titled.get_suptitle()
    for wrong in ("3", "a,b", "0,3", "3,nan", "3,4,5"):
        assert main(["plot", *words, "--size", wrong, "--out", "x.svg"]) == 2
        assert "each from 1 to 100 inches" in capsys.readouterr().err


def test_what_is_refused(tmp_path, capsys):
    for words, text in (
        (["error-over-kk", "--out", "x.svg"], "did you mean 'error-over-k'"),
        (["devices"], "give --out"),
        (["devices", "--out", "x.gif"], "ends in .png, .svg, .pdf"),
        (["devices", "--scheme", "native", "--out", "x.svg"], "plot devices does not take --scheme; it takes --device"),
        (["tiles", "--at", "64", "128", "--out", "x.svg"], "allowed: one size"),
        (["sweep", "--x", "k", "--out", "x.svg"], "give --study, --y too"),
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
                "--device",
                "h200",
                "--device",
                "v100",
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
    assert "left out: native (bf16) on v100" in capsys.readouterr().err


def test_a_scheme_without_a_format_gets_operands_of_the_format_asked_for(tmp_path, capsys):
    ways = ("--scheme", "ozaki2-int8", "--scheme", "native", "--device", "h100")
    words = ["plot", "tflops-over-size", *ways, "--at", "64", "--out", str(tmp_path / "x.svg"), "--json", "-q"]
    assert main([*words, "--format", "fp64"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["scheme"], row["format"]) for row in rows] == [("ozaki2-int8", "fp64"), ("native", "fp64")]
    size = dict.fromkeys("mnk", 64)
    wanted = hwsim.run(device="h100", scheme="ozaki2-int8", input_format="fp64", exact=False, **size)
    assert rows[0]["cycles"] == wanted.cycles
    assert main([*words, "--format", "fp16"]) == 2
    assert "scheme ozaki2-int8 takes operands of fp64, fp32; give one of these too" in capsys.readouterr().err


def test_json_has_the_bounds_and_slopes_of_the_figure(tmp_path, capsys):
    words = ["plot", "error-over-k", "--format", "bf16", "--bound", "K u", "--slopes", "--json", "-q"]
    assert main([*words, "--at", "16", "64", "--out", str(tmp_path / "x.svg")]) == 0
    series, bound = json.loads(capsys.readouterr().out)["lines"]
    assert "slope" in series["label"]
    assert (bound["x"], bound["y"]) == ([16.0, 64.0], [16 * 2.0**-24, 64 * 2.0**-24])


def test_exponents_beyond_the_range_give_no_raw_warning(recwarn):
    rows = exponent_rows(["h200"], [("native", "fp16", {})], exponents=(-140, 0, 128), size=8, k=8)
    assert [row["exponent"] for row in rows] == [-140, 0, 128]
    assert not [warning for warning in recwarn if "ldexp" in str(warning.message)]


def test_distributions_are_lines_that_say_what_they_are(monkeypatch, tmp_path):
    both = ["--operand-distribution", "normal", "--operand-distribution", "positive"]
    wanted = {"N(0, 1)", "uniform in [0, 1)"}
    over_k = lines(drawn(monkeypatch, tmp_path, "error-over-k", *both, "--at", "16", "64"))
    over_exponent = lines(drawn(monkeypatch, tmp_path, "error-over-exponent", *both, "--at", "0", "4"))
    for found in (over_k, over_exponent):
        assert set(found) == wanted and found["N(0, 1)"][1] != found["uniform in [0, 1)"][1]


def test_a_distribution_is_said_of_the_operands_format():
    """Integers of 16 bits are drawn over all values, whatever a normal distribution is of floats."""
    rows = [
        {"operand_distribution": "normal", "memory_format": form, "k": k, "relative_frobenius": 1e-6}
        for form in ("int16", "fp32")
        for k in (64, 128)
    ]
    for some, said in ((rows[:2], "uniform over all values of int16"), (rows[2:], "N(0, 1)")):
        assert said in plots.over(some, "k", "relative_frobenius").axes[0].get_title()
        apart = [row | {"operand_distribution": name} for row in some for name in ("normal", "cancel")]
        assert said in lines(plots.over(apart, "k", "relative_frobenius"))


def test_seeds_along_an_axis_are_whole_numbers_and_no_mean():
    rows = [{"device": "h200", "k": 64, "seed": seed, "relative_frobenius": 1e-6 * (1 + seed)} for seed in range(3)]
    (axes,) = plots.over(rows, "seed", "relative_frobenius").axes
    assert "mean" not in axes.get_title() and all(tick == int(tick) for tick in axes.get_xticks())
    assert "mean and range of 3 seeds" in plots.over(rows, "k", "relative_frobenius").axes[0].get_title()


def test_options_of_one_scheme_give_no_panel_of_their_own():
    """Where two schemes cross is seen in one panel, also if one of them alone has slices."""
    ways = (("native", None), ("ozaki-int8", 8))
    rows = [
        {"device": device, "scheme": scheme, "slices": slices, "m": n, "n": n, "k": n, "tflops": 1.0 + index * n}
        for device in ("h100", "h200")
        for index, (scheme, slices) in enumerate(ways)
        for n in (64, 128)
    ]
    figure = plots.over(rows, "size", "tflops")
    assert len(figure.axes) == 1 and {"h200, native", "h200, ozaki-int8, slices 8"} < set(lines(figure))
    several = [row | {"slices": slices} for row in rows for slices in (7, 8)]
    assert len(plots.over(several, "size", "tflops").axes) == 2


def test_a_bound_has_its_slope_beside_the_lines():
    rows = [{"device": "h200", "k": k, "relative_frobenius": 1e-8 * k} for k in (64, 256)]
    figure = plots.over(rows, "k", "relative_frobenius", bounds=["sqrt(K) u"], slopes=True)
    assert "sqrt(K) u, u = 2^-24 (fp32), slope 0.50" in [line.get_label() for line in figure.axes[0].lines]


def test_every_scheme_has_operands_of_the_format_that_they_are_drawn_in(tmp_path, capsys):
    ways = ["--device", "a100", "--scheme", "bf16x3", "--scheme", "native", "--format", "bf16", "--at", "64"]
    words = ["plot", "error-over-k", *ways, "--out", str(tmp_path / "x.svg"), "--json", "-q"]
    assert main([*words, "--drawn-in-format"]) == 0
    done = capsys.readouterr()
    rows = json.loads(done.out)["rows"]
    size = dict.fromkeys("mnk", 64)
    for row in rows:
        options = {"format": "bf16"} if row["scheme"] == "native" else {}
        wanted = hwsim.run(device="a100", scheme=row["scheme"], input_format="bf16", **options, **size).error
        assert row["relative_frobenius"] == wanted.relative_frobenius and row["memory_format"] == "bf16"
    assert "is not of bf16x3" not in done.err
    assert main(words) == 0
    done = capsys.readouterr()
    assert "--format bf16 is not of bf16x3: its operands are fp32; --drawn-in-format draws" in done.err
    assert [row["memory_format"] for row in json.loads(done.out)["rows"]] == ["fp32", "fp32"]


def test_the_title_says_the_format_of_the_operands_and_no_format_of_some_rows_alone():
    rows = [
        row("a100", scheme, 64, 1e-6, format=form, memory_format="fp32")
        for scheme, form in (("bf16x3", None), ("native", "bf16"))
    ]
    title = plots.error_over_k(rows).axes[0].get_title()
    assert "A and B in fp32" in title and "bf16" not in title
    rows[0] |= {"memory_format": "fp64"}
    assert "A and B in fp64 and fp32" in plots.error_over_k(rows).axes[0].get_title()
    assert "A and B" not in plots.over([one | {"tflops": 3.0} for one in rows], "k", "tflops").axes[0].get_title()


def test_points_that_overflow_are_named(tmp_path, capsys):
    words = ["plot", "error-over-exponent", "--device", "a100", "--out", str(tmp_path / "x.svg"), "--json", "-q"]
    ways = ["--scheme", "sgemm-cube", "--scheme", "bf16x9"]
    assert main([*words, *ways, "--at", "0", "16", "20"]) == 0
    done = capsys.readouterr()
    assert "hwsim: not drawn, infinite or NaN: sgemm-cube at 16, 20" in done.err
    rows = [x for x in json.loads(done.out)["rows"] if x["scheme"] == "sgemm-cube"]
    assert [x["undefined_elements"] for x in rows] == [None, 64 * 64, 64 * 64]
    assert main([*words, "--scheme", "sgemm-cube", "--at", "16", "20"]) == 2
    assert "elements of C are infinite or NaN, and the points have no error" in capsys.readouterr().err
    figure = plots.over([row("h100", "a", 1, 1.0), row("h100", "b", 2, math.nan)], "k", "relative_frobenius")
    assert figure.get_supxlabel() == "not drawn, infinite or NaN: b at 2"


def test_a_slope_is_of_a_part_of_the_axis_where_asked_for(monkeypatch, tmp_path, capsys):
    places = (16, 64, 256, 1024, 4096)
    rows = [row("h100", "native", k, max(1e-6, 1e-6 * k / 256)) for k in places]  # flat, then linear
    assert legend(plots.error_over_k(rows, slopes=(256, 4096))) == ["slope 1.00 from 256 to 4096"]
    assert legend(plots.error_over_k(rows, slopes=(16, 256))) == ["slope 0.00 from 16 to 256"]
    figure = drawn(monkeypatch, tmp_path, "error-over-k", "--at", "16", "64", "--slopes", "16:64")
    assert "from 16 to 64" in legend(figure)[0]
    assert main(["plot", "error-over-k", "--slopes", "64:16", "--out", "x.svg"]) == 2
    assert "'64:16'; allowed: FROM:TO" in capsys.readouterr().err


def test_an_error_over_two_values_of_k_has_logarithmic_axes():
    rows = [row("h100", "native", k, 1e-7 * k) for k in (64, 256)]
    axes = plots.error_over_k(rows).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
