"""`hwsim schemes --device NAME` says what the device then does: every scheme on every device of the package."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.cli import main
from hwsim.errors import HwsimError, UnsupportedError
from hwsim.request.operands import problem_of_scheme
from hwsim.resolve.prepare import prepare
from hwsim.schemes import OWN, Scheme

DEVICES = sorted(path.stem for path in (Path(__file__).parents[2] / "configs" / "devices").glob("*.yaml"))
DTYPES = {"fp64": np.float64, "fp32": np.float32, "int16": np.int16}
# A device of each sort: coupled cube, all dataflows, no fp32, no vector unit, no memory, and one that does not exist.
SORTS = ("ascend910a", "v100", "t4", "ada", "a2", "mi210")


#: Schemes that quantise take multiples of so much, of at most twice it, as they are.
STEPS = {"nvfp4": 21, "mxfp4": 3}


def whole(rng: np.random.Generator, scheme: Scheme, shape: tuple[int, ...]) -> np.ndarray:
    """Small whole numbers that the scheme's pieces or quantisation keep."""
    if scheme.quantizes is None:
        return rng.integers(-9, 9, shape).astype(DTYPES[scheme.input_formats[0]])
    return (STEPS.get(scheme.name, 7) * rng.integers(-2, 3, shape)).astype(np.float32)


def operands(scheme: Scheme, size: int = 8) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [whole(rng, scheme, (size, size)) for _ in range(2)]


@pytest.mark.parametrize("device", DEVICES)
def test_bits_come_out_where_a_scheme_runs(device: str) -> None:
    """Small whole numbers: whatever runs gives the exact product, and what does not says why in one line."""
    ran = []
    for scheme in OWN:
        a, b = operands(scheme)
        try:
            prepare(hwsim.device(device), scheme, problem_of_scheme(scheme, 8, 8, 8))
        except HwsimError as refusal:
            with pytest.raises(type(refusal)) as raised:
                hwsim.matmul(a, b, device=device, scheme=scheme)
            assert str(raised.value) == str(refusal) and "\n" not in str(refusal)
            continue
        assert np.array_equal(hwsim.matmul(a, b, device=device, scheme=scheme), a.astype(np.float64) @ b)
        ran.append(scheme.name)
    assert {"native", "sgemm-cube", "le-gemm", "markidis", "egemm-tc", "ozaki-fp16"} <= set(ran)


@pytest.mark.parametrize("device", SORTS)
def test_the_command_line_says_so(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schemes", "--device", device, "--json"]) == 0
    listed = {x["name"]: x for x in json.loads(capsys.readouterr().out)["schemes"]}
    for scheme in OWN:
        said, (a, b) = listed[scheme.name], operands(scheme, 64)
        try:
            result = hwsim.run(a, b, device=device, scheme=scheme)
        except HwsimError as error:
            assert not said["runs"] and said["why_not"] == str(error)
            continue
        assert said["runs"] and said["why_not"] is None
        assert (said["why_no_program"] is None) == (result.cycles is not None), scheme.name
        assert result.cycles is not None or said["why_no_program"] in (result.timing_note or "")


def test_show_names_the_types_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    for scheme in OWN:
        assert main(["schemes", "show", scheme.name]) == 0
        lines = capsys.readouterr().out.splitlines()
        for option in scheme.options:
            start = next(i for i, line in enumerate(lines) if line.startswith(f"  {option.flag} "))
            rest = itertools.takewhile(lambda line: line.startswith("      "), lines[start + 1 :])
            entry = " ".join(line.strip() for line in (lines[start], *rest))
            assert entry.startswith(f"{option.flag} {option.metavar} ")
            for allowed in (", ".join(option.choices), option.limits, *option.words):
                assert allowed in entry, option


@pytest.mark.parametrize("scheme", OWN, ids=lambda scheme: scheme.name)
def test_stacks_strides_and_c(scheme: Scheme) -> None:
    """Whole numbers, so that every scheme is exact: broadcast stacks, any strides, 2 A B - 3 C."""
    if scheme.quantizes is not None or scheme.name == "ozaki2-fp8":
        device = "b200"
    else:
        device = "tf64" if scheme.name.startswith("tf64") else "a100"
    if scheme.name.startswith("ozaki2"):  # a sum of residues in fp64 is not correctly rounded
        scheme = scheme(sum="exact")
    rng = np.random.default_rng(1)
    a = whole(rng, scheme, (2, 1, 5, 38))[..., ::2]
    b = whole(rng, scheme, (3, 19, 14))[..., ::-2]
    want = a.astype(np.int64) @ b.astype(np.int64)
    if scheme.quantizes is not None:
        with pytest.raises(UnsupportedError, match="scales of stacks of matrices"):
            hwsim.matmul(a, b, device=device, scheme=scheme)
        a, b, want = a[1, 0], b[2], want[1, 2]
    got = hwsim.matmul(a, b, device=device, scheme=scheme)
    assert np.array_equal(got, want)
    c = rng.integers(-9, 9, want.shape).astype(got.dtype)
    blended = hwsim.matmul(a, b, c, device=device, scheme=scheme, alpha=2, beta=-3)
    assert np.array_equal(blended, 2 * want - 3 * c.astype(np.int64)) and blended.dtype == got.dtype
    if scheme.quantizes is None:
        a, b, want = a[1, 0], b[2], want[1, 2]
    part = hwsim.matmul(np.asfortranarray(a), b, device=device, scheme=scheme, rows=[3, 1], cols=slice(2, 6))
    assert np.array_equal(part, want[[3, 1], 2:6])
