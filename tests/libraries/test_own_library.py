"""A library that hwsim does not know: examples/own_library, found through its entry point as if it were installed."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import hwsim
from hwsim.cli import main
from hwsim.errors import ConfigError, UnsupportedError
from hwsim.libraries import providers

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "own_library"
MODULE, NAME = "hwsim_tinyblas", "tinyblas"
LINES = 200
CALL = {"device": "h200", "library": NAME}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installation leaves beside the package: its metadata, with the entry points of its pyproject.toml."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path_factory.mktemp("site")
    info = folder / f"{MODULE}-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head, encoding="utf-8")
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), ""])
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
    return folder


@pytest.fixture
def library(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The package, in this process."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.syspath_prepend(str(PACKAGE))
    yield importlib.import_module(MODULE)
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.split(".")[0] == MODULE]:
        del sys.modules[name]


def rounded(value: float) -> float:
    return float(np.float32(value))


def straight_sum(a: np.ndarray, b: np.ndarray, lengths: list[int]) -> np.ndarray:
    """The product of integers as TinyBLAS sums it: FP32 after each product of a slice, then after each slice.

    Products and sums of two terms are exact in double precision, so that each addition rounds once.
    """
    out = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i, j in np.ndindex(*out.shape):
        start, partial = 0, []
        for length in lengths:
            total = 0.0
            for k in range(start, start + length):
                total = rounded(total + float(a[i, k]) * float(b[k, j]))
            partial.append(total)
            start += length
        total = partial[0]
        for one in partial[1:]:
            total = rounded(total + one)
        out[i, j] = total
    return out


def test_hwsim_does_not_know_of_it() -> None:
    known = ["batch-invariant", "cublas", "cudnn", "cutlass", "deepgemm", "pytorch"]
    assert providers.known_libraries() == known
    with pytest.raises(UnsupportedError, match=rf"no library '{NAME}'; there is {', '.join(known)}, and files"):
        hwsim.library(NAME, device="h200")
    texts = [path.read_text(encoding="utf-8").lower() for path in (ROOT / "hwsim").rglob("*.py")]
    assert len(texts) > 100 and not any(NAME in text for text in texts)


def test_it_is_small() -> None:
    files = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".yaml", ".toml", ".md")]
    assert len(files) >= 3 and sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= LINES


def test_it_knows_nothing_of_cublas() -> None:
    for path in PACKAGE.rglob("*.*"):
        if path.suffix in (".py", ".yaml", ".toml"):
            assert not re.search("cublas|nvjet|algorithm", path.read_text(encoding="utf-8"), re.IGNORECASE)


def test_the_registry_finds_it(library: ModuleType) -> None:
    assert providers.known_libraries() == ["batch-invariant", "cublas", "cudnn", "cutlass", "deepgemm", "pytorch", NAME]
    assert providers.provider(NAME) is library.TINYBLAS
    found = hwsim.library(NAME, device="a100")
    assert (found.id.name, found.id.version, found.device, found.cores) == (NAME, "1.0", "a100", 108)
    with pytest.raises(UnsupportedError, match=r"tinyblas: no version '2'; there is '1\.0'"):
        hwsim.library(NAME, device="a100", version="2")


@pytest.mark.parametrize(
    ("m", "n", "k", "kernel", "lengths"),
    [
        (3, 5, 400, "tiny_flat 64x64", [400]),
        (3, 5, 1700, "tiny_flat 64x64", [576, 576, 548]),
        (65, 2, 1030, "tiny_tall 128x128", [544, 486]),
    ],
)
def test_bits_are_a_straight_sum_of_its_slices(library: ModuleType, m, n, k, kernel, lengths) -> None:
    rng = np.random.default_rng(k)
    a, b = (rng.integers(-2047, 2048, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    result = hwsim.run(a, b, format="fp32", **CALL)
    expected = straight_sum(a, b, lengths)
    assert np.array_equal(result.c.view(np.uint32), expected.view(np.uint32))
    assert len(lengths) == 1 or not np.array_equal(expected, straight_sum(a, b, [k]))
    record = result.gemm
    assert record.library == hwsim.library(NAME, device="h200").id
    assert record.decided("kernel").value == kernel and record.decided("kernel").by == "library"
    assert record.decided("split_k").value == str(len(lengths))
    assert not [one for one in result.warnings if "library" in one["code"]]
    again = hwsim.run(a, b, gemm=json.loads(record.to_json()))
    assert again.c.tobytes() == result.c.tobytes() and again.seconds == result.seconds


def test_cycles_are_those_of_its_tile_and_slices(library: ModuleType) -> None:
    sizes = {"m": 64, "n": 256, "k": 4096, "format": "fp16", "exact": False}
    found = hwsim.run(**sizes, **CALL)
    told = hwsim.run(**sizes, device="h200", tile=(128, 128, 32), split_k=8)
    assert found.cycles == told.cycles > 0
    assert found.seconds == pytest.approx(told.seconds + (3.0 + 8 * 0.5) * 1e-6)
    times = found.gemm.decided("times")
    assert times.by == "library" and "tinyblas.yaml" in times.why


def test_a_scheme_of_several_calls_takes_it(library: ModuleType) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((8, 2048)), rng.standard_normal((2048, 8))
    found = hwsim.run(a, b, scheme="bf16x9", **CALL)
    plain = hwsim.run(a, b, scheme="bf16x9", accumulation="termwise", device="h200")
    assert found.gemm.library.name == NAME and not np.array_equal(found.c, plain.c)
    assert np.allclose(found.c, a @ b, rtol=1e-4, atol=1e-3)


def test_invariance_sees_both_kernels_and_the_rule(library: ModuleType) -> None:
    """One chain or slices by the number of tiles: on 132 cores 66 tiles of C are enough."""
    weight = {"n": 1280, "k": 1024, "format": "bf16", **CALL}
    labels = hwsim.invariance(m=[1, 63, 64, 128, 800, 900], **weight)
    slices = [
        hwsim.library(NAME, device="h200").choose(m=m, n=1280, k=1024, format="bf16").split_k for m in (1, 800, 900)
    ]
    assert slices == [2, 1, 1] and labels[4] == labels[5]
    assert labels[0] == labels[1] == labels[2] == labels[3] != labels[4]


def test_what_it_does_not_take_is_refused(library: ModuleType) -> None:
    with pytest.raises(UnsupportedError, match="tinyblas: operands of fp64; allowed: fp16, bf16, tf32, fp32"):
        hwsim.run(m=8, n=8, k=8, format="fp64", **CALL)
    with pytest.raises(hwsim.InputError, match="library = 'tinyblas' decides stages"):
        hwsim.run(m=8, n=8, k=8, format="fp16", stages=2, **CALL)


def test_nothing_of_cublas_appears(library: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--m", "64", "--n", "64", "--k", "4096", "--format", "fp16", "--device", "h200", "--library", NAME]
    assert main(["run", *sizes, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    told.pop("device_sha256", None)
    assert not re.search("cublas|nvjet|algorithm", json.dumps(told), re.IGNORECASE)
    assert main(["run", *sizes]) == 0
    assert not re.search("cublas|nvjet|algorithm", "".join(capsys.readouterr()), re.IGNORECASE)
    weight = ["--n", "1280", "--k", "4096", "--format", "fp16", "--device", "h200", "--library", NAME]
    assert main(["invariance", *weight, "--m", "1:900:7"]) == 0
    told = capsys.readouterr().out
    assert "What to do for equal bits" in told and not re.search("cublas|nvjet|algorithm", told, re.IGNORECASE)
    weight[1] = "64"
    assert main(["invariance", *weight, "--m", "1:200", "--json"]) == 0
    classes = json.loads(capsys.readouterr().out)["classes"]
    assert {one["kernel"] for one in classes} == {"tiny_flat"} and "algorithm" not in classes[0]


def test_an_entry_point_that_is_no_library_is_refused(library: ModuleType, monkeypatch) -> None:
    monkeypatch.setattr(library, "TINYBLAS", "no library")
    with pytest.raises(ConfigError, match=r"hwsim_tinyblas:TINYBLAS in hwsim\.libraries: got 'no library'"):
        hwsim.library(NAME, device="h200")


def test_run_in_a_process_of_its_own(site: Path, tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, (ROOT, PACKAGE, site)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    sizes = ["--m", "64", "--n", "256", "--k", "4096", "--format", "fp16", "--no-exact"]
    command = ["-m", "hwsim", "run", "--device", "h200", "--library", NAME, *sizes, "--json"]
    found = subprocess.run(
        [sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["gemm"]["library"] == {"is": "LibraryId", "name": NAME, "version": "1.0"}
