"""scheme="auto": the fastest scheme that meets a target, and what it says about the others."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError, UnsupportedError
from hwsim.operands.operand import operand
from hwsim.resolve.choice.auto_scheme import choose
from hwsim.schemes import schemes as all_schemes

SIZE = 96


def pair(scale: float = 1.0, dtype=np.float32, seed: int = 0):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((SIZE, SIZE)) * scale for _ in range(2))
    return a.astype(dtype), b.astype(dtype)


@pytest.fixture
def few(monkeypatch):
    """Fewer candidates, where their number does not matter."""
    names = ("native", "sgemm-cube", "ape-fp32-f", "ozaki-int8")
    monkeypatch.setattr(
        "hwsim.resolve.choice.auto_scheme.schemes", lambda: {name: all_schemes()[name] for name in names}
    )


@functools.cache
def near(target: float, device: str = "a100"):
    """Choice for N(0, 1)."""
    return chosen(target, device, *pair())


def chosen(target: float, device: str, a, b):
    chip = hwsim.device(device)
    return choose(chip, (a.shape[0], b.shape[1], a.shape[1]), target, (operand("A", a), operand("B", b)))


@pytest.mark.parametrize(("device", "target"), [("a100", 1e-6), ("ascend910a", 1e-5)])
def test_the_target_is_met_and_nothing_faster_would_meet_it(device, target):
    a, b = pair()
    result = hwsim.run(a, b, device=device, scheme="auto", error_target=target)
    choice = result.options["choice"]
    taken, *others = choice["candidates"]
    assert taken["scheme"] == result.scheme and taken["verdict"] == "taken" and taken["error"] <= target
    assert result.error["relative_frobenius"] <= target
    for other in others:
        if other["verdict"] == "slower":
            assert other["seconds"] >= taken["seconds"] and other["error"] <= target
        elif other["verdict"] == "error above the target":
            assert other["error"] > target and other["seconds"] is None
        else:
            assert other["verdict"] in ("does not run", "no time") and other["detail"]
    assert json.loads(result.to_json())["options"]["choice"]["candidates"][0]["scheme"] == result.scheme


def test_the_predicted_time_is_what_the_run_finds(few):
    a, b = pair()
    result = hwsim.run(a, b, device="a100", scheme="auto", error_target=1e-12)
    assert result.options["choice"]["candidates"][0]["cycles"] == result.cycles
    named = hwsim.run(a, b, device="a100", scheme=result.scheme, format="fp64")
    assert (named.codes == result.codes).all() and named.cycles == result.cycles


def test_tighter_targets_are_dearer(few):
    found = [chosen(target, "a100", *pair()) for target in (1e-3, 1e-12)]
    times = [one.taken.seconds for one in found]
    assert times == sorted(times)
    assert found[0].taken.scheme == "native" and found[0].taken.options["format"] in ("fp16", "bf16", "tf32")
    assert found[1].taken.error <= 1e-12


def test_ranges_of_the_data_decide():
    for scale in (1.0, 2.0**-40):
        found = near(1e-3) if scale == 1.0 else chosen(1e-3, "a100", *pair(scale))
        verdicts = {(one.scheme, one.options.get("format")): one.verdict for one in found.candidates}
        in_range = scale == 1.0
        assert (verdicts["native", "fp16"] != "error above the target") == in_range
        assert (verdicts["ape-fp32-f", None] != "error above the target") == in_range
        assert verdicts["ape-fp32-b", None] != "error above the target"


def test_all_schemes_that_fit_the_operands_are_told():
    names = {one.scheme for one in near(1e-3).candidates}
    assert names == {scheme.name for scheme in all_schemes().values() if scheme.input_formats != ("int16",)}
    whole = np.arange(SIZE * SIZE, dtype=np.int16).reshape(SIZE, SIZE)
    integers = chosen(1e-30, "a100", whole, whole)
    assert integers.taken.scheme == "ape-int16" and integers.taken.error == 0


def test_sizes_alone_and_large_problems(few, monkeypatch):
    given = {"m": 64, "n": 64, "k": 1024, "device": "a100", "scheme": "auto", "error_target": 1e-5, "exact": False}
    result = hwsim.run(**given)
    assert result.options["choice"]["basis"] == "N(0, 1) assumed"
    assert result.options["choice"]["candidates"][0]["cycles"] == result.cycles
    monkeypatch.setattr("hwsim.resolve.choice.auto_scheme.LARGE", 1 << 20)
    by_samples = hwsim.run(**given)
    assert by_samples.scheme == result.scheme
    assert by_samples.options["choice"]["candidates"][0]["cycles"] == pytest.approx(result.cycles, rel=0.1)


def test_progress_goes_through_the_choice_and_the_product(few):
    seen: list[float] = []
    hwsim.run(*pair(), device="a100", scheme="auto", error_target=1e-3, progress=seen.append)
    assert seen == sorted(seen) and 0 < seen[0] < 0.5 and 0.5 in seen and seen[-1] == 1
    seen.clear()
    sizes = {"m": SIZE, "n": SIZE, "k": SIZE, "exact": False}
    hwsim.run(**sizes, device="a100", scheme="auto", error_target=1e-3, progress=seen.append)
    assert seen == sorted(seen) and seen[0] < 0.5 and seen[-1] == 1


def test_what_is_refused(few):
    a, b = pair()
    with pytest.raises(InputError, match="needs error_target"):
        hwsim.matmul(a, b, device="a100", scheme="auto")
    with pytest.raises(InputError, match="error_target is for scheme='auto'"):
        hwsim.matmul(a, b, device="a100", scheme="native", error_target=1e-3)
    with pytest.raises(InputError, match="leave out format"):
        hwsim.matmul(a, b, device="a100", scheme="auto", error_target=1e-3, format="fp16")
    for bad in (0, -1.0, float("inf"), float("nan"), True, "1e-3"):
        with pytest.raises(InputError, match="error_target = "):
            hwsim.matmul(a, b, device="a100", scheme="auto", error_target=bad)
    with pytest.raises(UnsupportedError, match=r"most accurate is (ozaki|native fp64)"):
        hwsim.matmul(a, b, device="a100", scheme="auto", error_target=1e-25)
    with pytest.raises(UnsupportedError, match="no times to choose by"):
        chip = hwsim.device("ascend910a").model_copy(update={"hbm": None})
        hwsim.matmul(a, b, device=chip, scheme="auto", error_target=1e-4)


def test_a_scheme_whose_sums_the_unit_cannot_add_does_not_run():
    """On a V100 tf64's plan takes fp64 units; a predicted error would say that it runs, without a time."""
    result = hwsim.run(device="v100", scheme="auto", error_target=5e-5, m=64, n=64, k=128, exact=False)
    rows = {row["scheme"]: row for row in result.options["choice"]["candidates"]}
    for scheme in ("tf64x1", "tf64x3", "tf64x4"):
        assert rows[scheme]["verdict"] == "does not run" and rows[scheme]["error"] is None
        assert "adds fp64 terms; this unit gives fp32" in rows[scheme]["detail"]
