"""Workloads: layers of a topology CSV and of an ONNX model, their multiply-adds counted by hand, and their errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hwsim
from hwsim.studies.sweep_study import read_study
from hwsim.studies.workload import Layer, merged

CONV = """Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,
Conv1, 230, 230, 7, 7, 3, 64, 2,

FC, 1, 1, 1, 1, 512, 1000, 1,
"""
GEMM = "Layer, M, N, K,\nup, 8, 16, 4,\n\ndown, 8, 4, 16,,\nup again, 8, 16, 4\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "net.csv"
    path.write_text(text, encoding="utf-8")
    return path


def sizes(found: Any) -> list[tuple[int, int, int, int]]:
    return [(x.m, x.n, x.k, x.count) for x in found]


def test_scalesim_convolutions(tmp_path: Path) -> None:
    found = hwsim.workload(write(tmp_path, CONV))
    # (230 - 7) / 2 = 111.5, rounded up, and one: 113 pixels a side.
    assert sizes(found) == [(113 * 113, 64, 147, 1), (1, 1000, 512, 1)]
    assert found.multiply_adds == 113 * 113 * 64 * 147 + 512000


def test_scalesim_gemms_and_merge(tmp_path: Path) -> None:
    path = write(tmp_path, GEMM)
    assert [x.name for x in hwsim.workload(path)] == ["up", "down", "up again"]
    assert sizes(hwsim.workload(path, merge=True)) == [(8, 16, 4, 2), (8, 4, 16, 1)]
    assert hwsim.workload(path).multiply_adds == hwsim.workload(path, merge=True).multiply_adds == 3 * 512


def test_merged_layers_add_up_counts_above_one() -> None:
    same = (Layer("up", 8, 16, 4, 3), Layer("down", 8, 4, 16, 2), Layer("up again", 8, 16, 4, 5))
    assert merged(same) == (Layer("up", 8, 16, 4, 8), Layer("down", 8, 4, 16, 2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Layer, M, N, K,\nx, 1, 2,\n", "line 2: got 3 columns"),
        ("Layer, M, N, K,\nx, 1, 0, 2\n", "N is '0'"),
        ("Layer, M\n", "needs a header"),
        ("", "no line"),
        ("Layer, M, N, K,\n", "no layer"),
        (CONV.replace("230, 230", "5, 5"), "line 2: a filter of 7 x 7 on an input of 5 x 5"),
    ],
)
def test_scalesim_errors(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(hwsim.InputError, match=message):
        hwsim.workload(write(tmp_path, text))


def test_study(tmp_path: Path) -> None:
    write(tmp_path, GEMM)
    study = tmp_path / "study.yaml"
    study.write_text("devices: h200\nworkload: {scalesim: net.csv}\n", encoding="utf-8")
    assert [(x.shape, x.options["m"], x.options["n"]) for x in read_study(study).points()] == [
        ("up (x 2)", 8, 16),
        ("down", 8, 4),
    ]
    for wrong in ("workload: {}", "workload: {scalesim: no.csv}", "workload: {scalesim: net.csv}\nm: 3"):
        study.write_text(wrong + "\n", encoding="utf-8")
        with pytest.raises(hwsim.ConfigError, match="workload"):
            read_study(study)


def model(folder: Path, *extra: str) -> Path:
    onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'hwsim[sweep]'")
    helper, kind = onnx.helper, onnx.TensorProto

    def value(name: str, *shape: int | str) -> Any:
        return helper.make_tensor_value_info(name, kind.FLOAT, shape)

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="linear"),
        helper.make_node("Transpose", ["y"], ["yt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["y", "yt"], ["s"], name="scores"),
        helper.make_node("Gemm", ["p", "q"], ["g"], name="gemm", transA=1, transB=1),
        helper.make_node("Conv", ["i", "f"], ["o"], name="conv", group=2, pads=[1, 1, 1, 1], strides=[2, 2]),
        *(helper.make_node(name, ["p"], ["e"], name="other", equation="ij->ij") for name in extra),
    ]
    inputs = [
        value("x", "batch", 5, 8),
        value("w", 8, 16),
        value("p", 6, 7),
        value("q", 9, 6),
        value("i", "batch", 4, 8, 8),
        value("f", 10, 2, 3, 3),
    ]
    outputs = [value("s", "batch", 5, 5), value("g", 7, 9), value("o", "batch", 10, 4, 4)]
    path = folder / "net.onnx"
    opset = helper.make_opsetid("", 13)
    onnx.save(helper.make_model(helper.make_graph(nodes, "net", inputs, outputs), opset_imports=[opset]), path)
    return path


def test_onnx(tmp_path: Path) -> None:
    found = hwsim.workload(model(tmp_path), dimensions={"batch": 3})
    assert sizes(found) == [(15, 16, 8, 1), (5, 5, 16, 3), (7, 9, 6, 1), (3 * 16, 5, 18, 2)]
    assert found.multiply_adds == 1920 + 1200 + 378 + 8640
    assert found.refused == ()


def test_onnx_dimensions(tmp_path: Path) -> None:
    path = model(tmp_path)
    with pytest.raises(hwsim.InputError, match="symbolic dimensions batch"):
        hwsim.workload(path)
    with pytest.raises(hwsim.InputError, match="no dimension tokens"):
        hwsim.workload(path, dimensions={"batch": 1, "tokens": 2})
    path.write_bytes(b"no model")
    with pytest.raises(hwsim.InputError, match="not an ONNX model"):
        hwsim.workload(path)


def test_onnx_refused(tmp_path: Path) -> None:
    path = model(tmp_path, "Einsum")
    found = hwsim.workload(path, dimensions={"batch": 3})
    assert [name for name, _ in found.refused] == ["other"]
    request = {"onnx": str(path), "dimensions": {"batch": 3}}
    with pytest.raises(hwsim.ConfigError, match="node other"):
        read_study({"workload": request})
    assert [name for name, _ in read_study({"workload": request | {"partial": True}}).shapes][1] == "scores (x 3)"
