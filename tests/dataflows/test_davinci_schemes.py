"""Programs of schemes on coupled cores: terms of several products, sums that leave the cube early, epilogues."""

from __future__ import annotations

import numpy as np
import pytest
from operands import bits

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.dataflows.davinci.coupled import COUPLED
from hwsim.devices import load
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.machines import functional, reference
from hwsim.program.check import check
from hwsim.resolve.gemm_record import record_of
from hwsim.schemes import scheme_of

CHIP = load("ascend910a")
SCHEMES = {
    "native": ("native", {"format": "fp16"}),
    "sgemm-cube": ("sgemm-cube", {}),
    "sgemm-cube-elementwise": ("sgemm-cube", {"accumulation": "elementwise"}),
    "le-gemm": ("le-gemm", {}),
    "le-gemm-by-k": ("le-gemm", {"interleave": "k"}),
    "ape-fp32-f": ("ape-fp32-f", {}),
    "ape-fp32-f-termwise": ("ape-fp32-f", {"accumulation": "termwise"}),
    "markidis": ("markidis", {}),
    "markidis-by-k": ("markidis", {"interleave": "k"}),
    "egemm-tc-termwise": ("egemm-tc", {"accumulation": "termwise"}),
    "ootomo-fp16": ("ootomo-fp16", {}),
    "ootomo-fp16-unit": ("ootomo-fp16", {"leading": "unit"}),
}
ENDS = {
    "plain": ({}, False, False),
    "alpha": ({"alpha": 0.75}, False, False),
    "c": ({"alpha": 0.75, "beta": -1.25}, True, False),
    "c-added": ({}, True, False),
    "c-unread": ({"beta": 0.0, "alpha": 3.0}, True, False),
    "bias": ({}, False, True),
    "all-in-fp16": ({"alpha": 1.5, "beta": 0.3, "output": "fp16"}, True, True),
    "bf16": ({"output": "bf16"}, False, False),
}
SMALL = {"tile": (32, 32, 32), "n_fused": 2, "device": "ascend910a"}
EVERY_SCHEME = pytest.mark.parametrize("how", SCHEMES)
EVERY_END = pytest.mark.parametrize("end", ENDS)


def lowered(how, sizes, *, slices=1, problem=None, epilogue=None, **options):
    name, chosen = SCHEMES[how]
    own, problem = scheme_of(name), problem or Problem.of("fp32", *sizes)
    schedule = Schedule(split_k=slices, epilogue=epilogue or Epilogue())
    gemm = record_of(own.plan(own.complete(chosen), problem), CHIP, problem, schedule)
    program = COUPLED.lower(COUPLED.map(gemm, CHIP, {"tile": (32, 32, 32), "n_fused": 2} | options), CHIP)
    check(program, CHIP)
    return program


@pytest.mark.covering("how", ("shape", "specials"))
@EVERY_SCHEME
@pytest.mark.parametrize(("shape", "specials"), [((70, 40, 250), False), ((33, 65, 150), True), ((1, 1, 1), False)])
def test_program_and_evaluator_give_the_same_bits(how, shape, specials):
    """Groups of 64 of K: several groups, partial ones, and terms that keep other numbers of pieces of A in L1."""
    name, chosen = SCHEMES[how]
    m, n, k = shape
    a, b = bits((m, k), 1, -8, 8, specials=specials), bits((k, n), 2, -8, 8, specials=specials)
    direct, program = (hwsim.run(a, b, scheme=name, functional=one, **SMALL, **chosen) for one in (False, True))
    assert direct.result_sha256 == program.result_sha256 and direct.cycles == program.cycles
    assert np.array_equal(direct.c.view(np.uint32), program.c.view(np.uint32))


@pytest.mark.covering(("how", "slices"), "end")
@pytest.mark.parametrize(
    ("how", "slices"), [("native", 1), ("sgemm-cube", 3), ("sgemm-cube-elementwise", 2), ("ootomo-fp16", 1)]
)
@EVERY_END
def test_epilogues_by_program_and_by_evaluator(how, slices, end):
    name, chosen = SCHEMES[how]
    options, has_c, has_bias = ENDS[end]
    m, n, k = 50, 37, 150
    a, b = bits((m, k), 3, -6, 6, specials=True), bits((k, n), 4, -6, 6, specials=True)
    c = bits((m, n), 5, -6, 10, specials=True) if has_c else None
    bias = np.random.default_rng(6).standard_normal(n).astype(np.float32) if has_bias else None
    given = {"scheme": name, "split_k": slices, "bias": bias, **SMALL, **chosen, **options}
    direct, program = (hwsim.run(a, b, c, functional=one, **given) for one in (False, True))
    assert direct.result_sha256 == program.result_sha256 and direct.cycles == program.cycles
    steps = hwsim.run(a, b, c, values=[(m - 1, n - 1)], **given).values[m - 1, n - 1]
    assert float(steps[-1].after) == float(np.asarray(program.c, np.float64)[-1, -1])


@pytest.mark.covering("how", "options")
@EVERY_SCHEME
@pytest.mark.parametrize("options", [{"buffering": "single"}, {"grid": (2, 1)}, {"n_fused": 1, "grid": (1, 2)}])
def test_every_legal_order_gives_the_same_bits(how, options):
    m, n, k = 20, 40, 70
    program = lowered(how, (m, n, k), tile=(16, 16, 16), **options)
    arrays = (bits((m, k), 7, -8, 8).view(np.uint32), bits((k, n), 8, -8, 8).view(np.uint32))
    inputs = dict(zip(program.inputs, arrays, strict=True))
    expected = functional.run(program, CHIP, inputs)
    for order in range(2):
        assert np.array_equal(reference.run(program, CHIP, inputs, order=order, dots=CPU.gemm), expected)


def integers(shape, seed):
    return np.random.default_rng(seed).integers(-(1 << 15), 1 << 15, shape).astype(np.int16)


def doubles(shape, seed):
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.standard_normal(shape), rng.integers(-20, 20, shape))


def singles(shape, seed):
    return bits(shape, seed, -8, 8)


WIDE = {  # scheme, its options, operands
    "ape-int16": ("ape-int16", {}, integers),
    "ape-int16-int32": ("ape-int16", {"accumulate": "int32"}, integers),
    "ape-int16-signed": ("ape-int16", {"low_byte": "signed"}, integers),
    "quantensor": ("quantensor", {}, singles),
    "ozaki-fp16": ("ozaki-fp16", {}, doubles),
    "ozaki-fp16-of-fp32": ("ozaki-fp16", {"slices": 3}, singles),
    "ozaki-int8": ("ozaki-int8", {"slices": 5}, doubles),
    "ozaki-int8-of-25-terms": ("ozaki-int8", {"slices": 5, "truncate": False}, doubles),
}
EVERY_WIDE = pytest.mark.parametrize("how", WIDE)


@pytest.mark.covering("how", ("options", "total"))
@EVERY_WIDE
@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({}, False),
        ({"split_k": 2}, False),
        ({"schedule": {"promotion_k": 64}}, True),
        ({"schedule": {"promotion_k": 64, "split_k": 2}, "grid": (2, 2)}, True),
    ],
)
def test_sums_in_wider_formats_by_program_and_by_evaluator(how, options, total):
    """Groups of 64 of K: sums of groups in the cube's format where that rounds nothing, else in the terms' own."""
    name, chosen, made = WIDE[how]
    m, n, k = 40, 37, 200
    given = {"scheme": name, **SMALL, **chosen, **options}
    direct, program = (hwsim.run(made((m, k), 1), made((k, n), 2), functional=one, **given) for one in (False, True))
    assert direct.result_sha256 == program.result_sha256 and direct.cycles == program.cycles
    if direct.gemm.single.arithmetic != "int32":  # the cube's own, whose promotion interval records have named before
        assert (direct.gemm.schedule.promotion_k is not None) == total
    formats = {array.format for array in lowered_of(direct).arrays if array.name.startswith("T")}
    assert direct.gemm.single.arithmetic in formats if total else formats <= {"int32", "fp32", "fp64"}


def lowered_of(result):
    program = COUPLED.lower(result.gemm, CHIP)
    check(program, CHIP)
    return program


@pytest.mark.covering("how", "end")
@EVERY_WIDE
@pytest.mark.parametrize("end", ["c", "c-unread", "bias", "all-in-fp16"])
def test_epilogues_of_sums_in_wider_formats(how, end):
    name, chosen, made = WIDE[how]
    is_whole, (options, has_c, has_bias) = how.startswith("ape"), ENDS[end]
    m, n, k = 33, 20, 70
    rng = np.random.default_rng(4)
    c, bias = rng.integers(-99, 99, (m, n)), rng.integers(-99, 99, n).astype(np.float64)
    if is_whole:
        options = {} if has_bias and has_c else {key: round(4 * value) for key, value in options.items()}
    else:
        c = c.astype(np.float32)
    given = {"scheme": name, "bias": bias if has_bias else None, **SMALL, **chosen, **options}
    runs = [
        hwsim.run(made((m, k), 5), made((k, n), 6), c if has_c else None, functional=one, **given)
        for one in (False, True)
    ]
    assert runs[0].result_sha256 == runs[1].result_sha256 and runs[0].cycles == runs[1].cycles


@EVERY_WIDE
def test_every_legal_order_gives_the_same_sums(how):
    name, chosen, made = WIDE[how]
    a, b = made((20, 40), 7), made((40, 18), 8)
    result = hwsim.run(a, b, scheme=name, device="ascend910a", tile=(16, 32, 32), n_fused=1, grid=(1, 1), **chosen)
    program = lowered_of(result)
    inputs = {name: x.view(f"u{x.itemsize}") for name, x in zip(program.inputs, (a, b), strict=True)}
    expected = functional.run(program, CHIP, inputs)
    for order in range(2):
        assert np.array_equal(reference.run(program, CHIP, inputs, order=order, dots=CPU.gemm), expected)


def test_arithmetic_in_software_takes_as_many_instructions_as_on_the_910b():
    """The routines that tests/devices/test_software_arithmetic.py counts are of words, as both units have them."""
    assert CHIP.vector.software == load("ascend910b3").vector.software
    n = 64
    given = {"scheme": "ape-int16", "device": "ascend910a", "exact": False, "m": n, "n": n, "k": n}
    wide, narrow = (hwsim.run(accumulate=one, **given).cycles for one in ("int64", "int32"))
    assert wide > narrow
