"""Schemes made of cuBLAS calls and fp32 elementwise steps on an H200, bit for bit (h200_schemes, h200/gemm.npz)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.api import fma_chain

HERE = Path(__file__).parent
ARCHIVE = HERE / "h200_schemes" / "schemes.npz"
# fp32 on the CUDA cores: these kernels do not add in order of K (64 x 64 tiles by xmma; split-K).
OTHER_ORDER = {(512, 384, 1000), (300, 500, 333), (128, 128, 4096)}


def entries():
    with np.load(ARCHIVE) as archive:
        return json.loads(str(archive["meta"]))["entries"]


def scheme_of(name: str) -> tuple[str, dict[str, object]]:
    """Scheme and options of a recorded name."""
    name, _, shift = name.partition(".")
    options: dict[str, object] = {"scaling_exponent": int(shift)} if shift else {}
    if name.startswith(("bf16", "ape", "markidis")):
        options["accumulation"] = "termwise"
    return name, options | ({"rounding": "RNE"} if name == "markidis" else {})


@pytest.mark.parametrize("recorded", sorted({e["scheme"] for e in entries()} - {"fp32"}))
def test_scheme_equals_the_library_calls(recorded):
    name, options = scheme_of(recorded)
    with np.load(ARCHIVE) as archive:
        cases = [e for e in entries() if e["scheme"] == recorded]
        assert len(cases) == 16
        for entry in cases:
            a, bt, d = (archive[f"{entry['case']}/{key}"] for key in ("a", "bt", f"{recorded}/d"))
            c = hwsim.matmul(a, bt.T, device="h200", scheme=name, **options)
            assert np.array_equal(c.view(np.uint32), d.view(np.uint32)), entry


def test_plain_fp32_is_one_chain_in_order_of_k():
    with np.load(ARCHIVE) as archive:
        for entry in (e for e in entries() if e["scheme"] == "fp32"):
            a, bt, d = (archive[f"{entry['case']}/{key}"] for key in ("a", "bt", "fp32/d"))
            equal = np.array_equal(fma_chain(a, bt.T).view(np.uint32), d.view(np.uint32))
            assert equal == ((entry["m"], entry["n"], entry["k"]) not in OTHER_ORDER), entry


@pytest.mark.parametrize(
    ("key", "scheme", "options"),
    [
        ("tf32x3", "tf32x3", {}),
        ("halfhalf", "sgemm-cube", {"scaling_exponent": 11, "accumulation": "termwise"}),
        ("bf16x9", "bf16x9", {"accumulation": "termwise"}),
    ],
)
def test_first_captures(key, scheme, options):
    with np.load(HERE / "h200" / "gemm.npz") as data:
        a, b, d = data["scheme.tf32x3/a"], data["scheme.tf32x3/bt"].T, data[f"scheme.{key}/d"]
    c = hwsim.matmul(a, b, device="h200", scheme=scheme, **options)
    assert np.array_equal(c.view(np.uint32), d.view(np.uint32))
