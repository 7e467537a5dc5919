"""What a comparison asks: operands in the format, the kernel that a run takes, sizes against the RMS, errors, notes."""

from __future__ import annotations

import json
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.compute.call import sort_by_owner
from hwsim.errors import InputError
from hwsim.operands.operand import operand
from hwsim.request.operands import operands_of
from hwsim.schemes import scheme_of
from hwsim.studies.diff_operands import random_operands
from hwsim.studies.diff_sizes import size_histogram

SIZES = {"m": 24, "n": 40, "k": 128}


@pytest.mark.parametrize("name", ["fp16", "bf16", "tf32", "e4m3", "e5m2", "fp64", "e2m3"])
def test_operands_are_numbers_of_the_format(name: str) -> None:
    for distribution in ("normal", "uniform", "positive"):
        for side in random_operands(9, 8, 33, seed=3, distribution=distribution, format=name):
            values = side.astype(np.float64)
            wide = operand("A", values).converted(name)
            assert np.array_equal(wide.values().astype(np.float64), values) and len(np.unique(values)) > 5


@pytest.mark.parametrize("name", ["bf16", "e4m3", "fp64", "int8", "int16"])
@pytest.mark.parametrize("distribution", ["normal", "anybits", "cancel"])
def test_operands_are_the_ones_that_run_draws(name: str, distribution: str) -> None:
    scheme = scheme_of("ape-int16" if name == "int16" else "native")
    values = {"m": 9, "n": 8, "k": 67, "seed": 3, "input_format": name, "operand_distribution": distribution}
    pair = operands_of(None, None, sort_by_owner(values, scheme), scheme).pair
    assert pair is not None
    sides = random_operands(9, 8, 67, seed=3, distribution=distribution, format=name)
    for of_run, side in zip(pair, sides, strict=True):
        assert operand("A", side).codes.tobytes() == of_run.codes.tobytes()
    if name == "int8":
        assert (len(np.unique(sides[0])) > 50) == (distribution == "anybits")


def test_operands_of_int16_have_one_distribution() -> None:
    with pytest.raises(InputError, match=r"'positive'.*of int16 are uniform over all values; leave it out"):
        hwsim.diff(left="ascend910a", right="a100", scheme="ape-int16", distribution="positive")


def test_random_operands_have_no_input_rounding() -> None:
    difference = hwsim.diff(left="h100", right="b200", format="e4m3", **SIZES)
    assert [side.input_rounding for side in difference.accuracy] == [0.0, 0.0]
    assert difference.accuracy[0].arithmetic > 1e-5 > difference.accuracy[1].arithmetic  # 13 and 25 fraction bits
    assert "drawn in e4m3" in difference.to_text()


def test_given_operands_show_their_rounding_apart() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((24, 128), np.float32), rng.standard_normal((128, 40), np.float32)
    difference = hwsim.diff(a, b, "h100", "a100", format="bf16")
    short = [x.astype(ml_dtypes.bfloat16).astype(np.float64) for x in (a, b)]
    exact, rounded = a.astype(np.float64) @ b, short[0] @ short[1]
    rounding = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
    assert difference.accuracy[0].input_rounding == pytest.approx(rounding)
    result = hwsim.run(a, b, device="h100", format="bf16")
    arithmetic = np.linalg.norm(result.c - rounded) / np.linalg.norm(rounded)
    assert difference.accuracy[0].arithmetic == pytest.approx(arithmetic)
    e = difference.errors
    assert e is not None and e.exact == pytest.approx(float(short[0][e.row] @ short[1][:, e.column]), rel=1e-14)


@pytest.mark.parametrize("settings", [{"format": "e4m3"}, {"format": "fp16"}, {"scheme": "bf16x9"}, {}])
def test_the_instruction_is_the_runs(settings: dict[str, str]) -> None:
    difference = hwsim.diff(left="b200", right="h100", m=256, n=256, k=64, **settings)
    for name, side in zip(("b200", "h100"), difference.instructions, strict=True):
        taken = settings.get("format", "fp32")
        result = hwsim.run(m=256, n=256, k=64, device=name, input_format=taken, **settings)
        assert side == result.options["unit"]
        assert side in (difference.left, difference.right)[name == "h100"]


def test_sides_are_what_run_computes() -> None:
    a, b = random_operands(24, 40, 300, seed=5, format="fp16")
    left, right = hwsim.Variant("ascend910a", scheme="sgemm-cube"), hwsim.Variant("h100", library="cublas")
    for side in (left, right):
        other = hwsim.Variant("a100")
        difference = hwsim.diff(a, b, side, other, first=10_000)
        run = hwsim.run(a, b, device=side.device, scheme=side.scheme, library=side.library)
        assert {(p.row, p.column): p.left for p in difference.first}.items() <= {
            at: value.item() for at, value in np.ndenumerate(run.c)
        }.items()


def test_sizes_are_counted_once_in_bins_of_powers_of_two() -> None:
    left = np.array([[4.0, -4.0, 4.0, 4.0], [4.0, 4.0, np.inf, 4.0]])
    right = left + np.array([[0.0, 1.0, 0.25, -0.25], [0.0, 0.3, 0.0, 0.0]])
    sizes = size_histogram(left, right)
    distance = np.array([1.0, 0.25, 0.25, 0.3])
    used = np.isfinite(left) & np.isfinite(right)
    assert sizes.rms == pytest.approx(np.sqrt(np.mean(np.concatenate([left[used], right[used]]) ** 2)))
    assert sizes.equal == 3 and sum(sizes.counts) == 4
    bins = np.floor(np.log2(distance / sizes.rms)).astype(int)
    assert dict(zip(sizes.exponents, sizes.counts, strict=True)) == {
        e: int((bins == e).sum()) for e in range(bins.min(), bins.max() + 1)
    }
    assert sizes.largest == pytest.approx(1.0 / sizes.rms) and sizes.median == pytest.approx(0.275 / sizes.rms)
    for most in (2, 3, 12):
        groups = sizes.grouped(most)
        assert len(groups) <= most and sum(count for _, _, count in groups) == 4
        assert all(low < high == after for (low, high, _), (after, _, _) in pairwise(groups))
    same = size_histogram(left, left)
    assert same.counts == () and same.equal == 7 and same.grouped() == []


def test_the_element_looked_into_has_the_largest_difference_not_the_most_ulps() -> None:
    difference = hwsim.diff(left="h100", right="b200", format="e4m3", first=10_000, **SIZES)
    assert difference.largest is not None and difference.worst is not None and difference.step is not None
    distance = {(p.row, p.column): abs(p.left - p.right) for p in difference.first}
    at = difference.largest.row, difference.largest.column
    assert distance[at] == max(distance.values()) and (difference.step.row, difference.step.column) == at
    assert difference.largest.over_rms == pytest.approx(distance[at] / difference.sizes.rms)
    assert difference.worst.ulps == max(p.ulps or 0 for p in difference.first)
    assert float(difference.where.largest.max()) == pytest.approx(difference.sizes.largest)


def test_notes_say_what_is_no_matrix_unit() -> None:
    plain = hwsim.diff(left="h100", right="b200", **SIZES)
    assert plain.notes == ("compares FP32 FMA on CUDA cores; --format (format=) picks a matrix unit",)
    one = hwsim.diff(None, None, hwsim.Variant("b200", "bf16x9"), hwsim.Variant("b200"), **SIZES)
    assert len(one.notes) == 1 and one.notes[0].startswith("right multiplies by FP32 FMA")
    assert hwsim.diff(left="h100", right="b200", format="bf16", **SIZES).notes == ()
    assert hwsim.diff(left="mi300x", right="mi210", **SIZES).notes == ()  # matrix units of fp32


def test_evidence_is_that_of_the_runs() -> None:
    difference = hwsim.diff(left="h100", right="b200", format="bf16", **SIZES)
    for name, evidence in zip(("h100", "b200"), difference.evidence, strict=True):
        run = hwsim.run(**SIZES, device=name, format="bf16", input_format="bf16")
        assert evidence == {key: run.evidence[key] for key in ("numerics", "schedule")}
        assert f"units' arithmetic {evidence['numerics']}" in difference.to_text()
    scheme = hwsim.diff(left="b200", right="h100", scheme="bf16x9", **SIZES)  # rests on more than its instruction
    assert scheme.reason.evidence == tuple(side["numerics"] for side in scheme.evidence)
    library = hwsim.diff(left="h100", right="b200", format="bf16", library="cublas", **SIZES)
    assert all(confidence is not None for confidence in library.confidence)


def test_the_first_line_is_the_reason() -> None:
    difference = hwsim.diff(left="h100", right="b200", format="e4m3", **SIZES)
    share, largest = f"{100 * difference.share:.0f} %", f"{difference.sizes.largest:.2g} of the RMS"
    first = difference.to_text().splitlines()[0]
    assert first.startswith("verdict  h100 keeps 13 fraction bits in e4m3 sums, b200 25: ")
    assert share in first and largest in first and "evidence of the units' arithmetic: silicon | " in first
    assert difference.to_dict()["reason"]["text"] == str(difference.reason)
    same = hwsim.diff(left="h100", right="h200", format="e4m3", **SIZES)
    assert "compute alike" in str(same).splitlines()[0] and "no element differs" in str(same).splitlines()[0]
    cut = hwsim.diff(
        left="h200", right={"device": "h200", "schedule": {"split_k": 2}}, format="fp16", m=16, n=16, k=512
    )
    assert "order of summation" in str(cut).splitlines()[0]


def test_one_product_on_both_sides_is_said_first() -> None:
    """A library on both sides is the same kernel; the reader wanted the chip's own order beside it."""
    library = hwsim.diff(left="h100", right="h100", library="cublas", format="fp16", **SIZES)
    said = "verdict  both sides are the same product; --library none on one side compares with the chip's own order"
    assert library.to_text().startswith(f"{said}: no element differs")
    bare = hwsim.diff(left="h100", right="h100", format="fp16", **SIZES)
    assert bare.to_text().startswith("verdict  both sides are the same product; a second --device, --scheme, ")


def test_schemes_with_scales_are_compared() -> None:
    sides = hwsim.Variant("b200", "mxfp8"), hwsim.Variant("b200", "nvfp4")
    difference = hwsim.diff(None, None, *sides, **SIZES)
    assert difference.differing and difference.step is not None and difference.step.left_steps == ()
    roundings = [side.input_rounding for side in difference.accuracy]
    assert roundings[0] < roundings[1] and max(x.arithmetic for x in difference.accuracy) < 1e-6


def test_results_print() -> None:
    difference = hwsim.diff(left="h100", right="b200", format="e4m3", **SIZES)
    assert str(difference) == difference.to_text() and "median of the differing" in str(difference)
    assert json.loads(json.dumps(difference.to_dict()))["sizes"]["largest"] == difference.sizes.largest
    record = hwsim.explain("h100", "wgmma.m64n8k16.f32.f16.f16", np.ones(4, np.float16), np.ones(4, np.float16))
    assert str(record).startswith("instruction") and json.loads(json.dumps(record)) == record


def test_a_side_may_be_a_mapping_of_arguments() -> None:
    difference = hwsim.diff(left="h200", right={"device": "h200", "schedule": {"split_k": 2}}, format="fp16", **SIZES)
    assert [schedule["split_k"] for schedule in difference.schedules] == [1, 2] and "drawn in fp16" in str(difference)


def test_bad_questions() -> None:
    with pytest.raises(InputError, match=r"two ways are needed"):
        hwsim.diff(m=4, n=4, k=4)
    with pytest.raises(InputError, match=r"m = 0; allowed: an integer of at least 1"):
        hwsim.diff(left="h100", right="b200", m=0)
    with pytest.raises(InputError, match=r"'gauss'; allowed: normal, uniform, positive"):
        hwsim.diff(left="h100", right="b200", distribution="gauss")
    with pytest.raises(InputError, match=r"m = 3, but the matrices give m = 4"):
        hwsim.diff(np.ones((4, 4)), np.ones((4, 4)), "h100", "b200", m=3)
    with pytest.raises(InputError, match=r"format beside a Variant"):
        hwsim.diff(None, None, hwsim.Variant("h100"), hwsim.Variant("b200"), format="fp16")
    with pytest.raises(InputError, match=r"got one of A and B"):
        hwsim.diff(np.ones((4, 4)), None, "h100", "b200")


def test_arrays_that_lost_their_format_get_a_hint(tmp_path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones((4, 4), ml_dtypes.float8_e4m3fn))
    with pytest.raises(InputError, match=r"numpy.save does not keep .* x.view\(np.uint8\)"):
        hwsim.run(np.load(path), np.load(path), device="h100")
