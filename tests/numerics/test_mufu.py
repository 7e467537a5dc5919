"""hwsim.mufu: values and codes, an H200's results, CUDA's functions at special values and within bounds, refusals."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.arithmetic.mufu import NAMES, NARROW
from hwsim.devices.special_functions import narrow_forms, special_functions, tables_evidence
from hwsim.numerics.special_functions import FUNCTIONS

GOLDEN = Path(__file__).parents[1] / "golden" / "h200_mufu"
H100 = hwsim.device("h100")
TABLES = special_functions(H100)
CODES = np.random.default_rng(3).integers(0, 2**32, (3, 1 << 17), dtype=np.uint32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_codes_and_parts_the_whole(name: str) -> None:
    """More elements than a chunk has."""
    got = hwsim.mufu(name, CODES)
    assert got.dtype == np.uint32 and np.array_equal(got, FUNCTIONS[name](CODES, TABLES))
    values = hwsim.mufu(name, CODES.view(np.float32), device="a100")
    assert values.dtype == np.float32 and np.array_equal(values.view(np.uint32), got)
    turned = hwsim.mufu(name, CODES.T)
    assert np.array_equal(turned, got.T)
    assert hwsim.mufu(name, CODES[0, 0]).shape == () and hwsim.mufu(name, CODES[:0]).shape == (0, 1 << 17)


#: Largest difference to the rounded exact value, in ulp (CUDA C++ Programming Guide, mathematical functions).
ULPS = {"expf": (np.exp, -103, 88, 2), "exp2f": (np.exp2, -148, 127, 2), "logf": (np.log, 0, 3e38, 1)}


@pytest.mark.parametrize("name", ULPS)
def test_cuda_s_functions_are_within_their_bounds(name: str) -> None:
    exact, low, high, bound = ULPS[name]
    draw = np.random.default_rng(4)
    x = draw.uniform(low, high, 100_000).astype(np.float32)
    if name == "logf":
        x = np.concatenate([x, draw.integers(1, 0x7F800000, 100_000, dtype=np.uint32).view(np.float32)])
    want = exact(x.astype(np.float64)).astype(np.float32)
    error = np.abs(hwsim.mufu(name, x) - want) / np.spacing(np.abs(want))
    assert 0 < error.max() <= bound


INF, NAN = np.inf, np.nan
SPECIAL = [
    *(("expf", x, y) for x, y in ((0.0, 1.0), (-0.0, 1.0), (-INF, 0.0), (INF, INF), (100.0, INF), (-1000.0, 0.0))),
    *(("exp2f", x, y) for x, y in ((10.0, 1024.0), (-149.0, 2.0**-149), (-INF, 0.0), (INF, INF), (128.0, INF))),
    *(("logf", x, y) for x, y in ((1.0, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (-INF, NAN))),
    *(("__logf", x, y) for x, y in ((1.0, 0.0), (0.0, -INF), (INF, INF), (-1.0, NAN))),
    *((name, NAN, NAN) for name in ("expf", "exp2f", "logf", "__logf", "ex2", "rcp", "rsqrt", "lg2")),
]


@pytest.mark.parametrize(("name", "x", "y"), SPECIAL)
def test_special_values(name: str, x: float, y: float) -> None:
    got = hwsim.mufu(name, np.array([x, -x if np.isnan(x) else x], np.float32)).view(np.uint32)
    want = np.array([0x7FFFFFFF], np.uint32) if np.isnan(y) else np.array([y], np.float32).view(np.uint32)
    assert got.tolist() == want.tolist() * 2


@pytest.mark.parametrize("name", ["tanh", "tanh.approx.f16", "ex2.approx.f16", "ex2.approx.ftz.bf16"])
def test_a_chip_without_an_instruction_says_so(name: str) -> None:
    with pytest.raises(hwsim.UnsupportedError, match=f"device v100: mufu: it has no instruction {name}; another chip"):
        hwsim.mufu(name, np.ones(3, np.float32), device="v100")


def test_values_of_16_bits() -> None:
    x = np.array([[0.5, -8.0], [np.inf, np.nan]], np.float32)
    for name, dtype in (("ex2.approx.f16", np.float16), ("tanh.approx.bf16", ml_dtypes.bfloat16)):
        got = hwsim.mufu(name, x.astype(dtype))
        assert got.dtype == dtype and got.shape == (2, 2)
        assert np.array_equal(got.view(np.uint16), hwsim.mufu(name, x.astype(dtype).view(np.uint16)))
    with pytest.raises(hwsim.InputError, match=r"bf16: x has dtype float16; allowed: bfloat16 \(values\), uint16"):
        hwsim.mufu("tanh.approx.bf16", x.astype(np.float16))


def test_other_names_dtypes_and_chips_are_refused() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(hwsim.InputError, match=r"'exp2' is no function; there are ex2.*did you mean 'exp2f'"):
        hwsim.mufu("exp2", x)
    with pytest.raises(hwsim.InputError, match="ex2 is an instruction; fast_math is of expf, exp2f"):
        hwsim.mufu("ex2", x, fast_math=True)
    with pytest.raises(hwsim.InputError, match=r"x has dtype float64; allowed: float32 \(values\), uint32"):
        hwsim.mufu("ex2", x.astype(np.float64))
    for device in ("mi300x", "ascend910a"):
        with pytest.raises(hwsim.UnsupportedError, match=f"device {device}: its special functions are not known"):
            hwsim.mufu("ex2", x, device=device)


def test_evidence_is_the_weakest() -> None:
    assert tables_evidence(hwsim.device("h200"), ["ex2", "lg2", "cos"]) == "silicon"
    assert tables_evidence(H100, ["ex2", "rcp"]) == "microbenchmark"  # by captures of attention
    assert tables_evidence(H100, ["ex2", "cos"]) == "assumption"  # nobody compared its cosines
    assert tables_evidence(hwsim.device("a100"), ["ex2"]) == "assumption"
    with pytest.raises(hwsim.InputError, match="'expf' has no table; ex2, rcp"):
        tables_evidence(H100, ["expf"])
    with pytest.raises(hwsim.UnsupportedError, match="device v100: it has no instruction tanh"):
        tables_evidence(hwsim.device("v100"), ["tanh"])


def test_a_compute_capability_says_which_forms_there_are():
    """PTX ISA 8.7: ex2.approx.ftz.bf16 and tanh.approx.bf16 from sm_90 on, the fp16 forms and tanh from sm_75 on."""
    forms = {name: set(narrow_forms(hwsim.device(name))) for name in ("v100", "t4", "l4", "h200", "rtx5090", "mi300x")}
    half = {"ex2.approx.f16", "tanh.approx.f16"}
    every = half | {"ex2.approx.ftz.bf16", "tanh.approx.bf16"}
    none = set()
    assert forms == {"v100": none, "t4": half, "l4": half, "h200": every, "rtx5090": every, "mi300x": none}
    derived = hwsim.device({"schema_version": 1, "name": "mine", "title": "Mine", "extends": "v100"})
    assert "tanh" not in special_functions(derived)


with np.load(GOLDEN / "results.npz") as archive:
    RESULTS = dict(archive)


@pytest.mark.parametrize("name", [key.removeprefix("samples/") for key in RESULTS if key.startswith("samples/")])
def test_an_h200_s_results(name: str) -> None:
    """32 codes of each sign and exponent, NaNs, infinities and subnormals among them. " fast": by -use_fast_math."""
    got = hwsim.mufu(name.removesuffix(" fast"), RESULTS["samples"], fast_math=name.endswith(" fast"))
    assert np.array_equal(got, RESULTS[f"samples/{name}"])


def test_an_h200_s_results_of_16_bits() -> None:
    """Every result; ones of NaNs too."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    assert [key for key in RESULTS if key.startswith("all/")] == [f"all/{name}" for name in NARROW]
    for name in NARROW:
        assert np.array_equal(hwsim.mufu(name, codes), RESULTS[f"all/{name}"])


def test_every_function_has_an_h200_s_results() -> None:
    recorded = {key.removeprefix("hash/").removesuffix(" fast") for key in RESULTS if key.startswith("hash/")}
    assert recorded == set(NAMES) - set(NARROW)


def test_a_file_without_a_compute_capability_is_named() -> None:
    unsaid = hwsim.device("h100").model_copy(update={"compute_capability": None})
    with pytest.raises(
        hwsim.UnsupportedError, match="the instruction tanh its compute_capability says, which its file"
    ):
        hwsim.mufu("tanh", np.ones(1, np.float32), device=unsaid)
    with pytest.raises(hwsim.UnsupportedError, match="it has no instruction tanh; another chip has"):
        hwsim.mufu("tanh", np.ones(1, np.float32), device="v100")
