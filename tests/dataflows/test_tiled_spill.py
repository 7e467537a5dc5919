"""Kernels that spill accumulators to local memory (spill=True): bits, traffic by hand, time, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered import facts, lower
from operands import bits

import hwsim
from hwsim.devices import load
from hwsim.errors import InputError, ProgramError, UnsupportedError
from hwsim.evaluate.product import Evaluator
from hwsim.gemm.problem import Problem
from hwsim.machines import functional, reference, timing
from hwsim.operands.operand import Operand
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.check import check
from hwsim.program.ir import GlobalArray, Program
from hwsim.schemes import scheme_of

SPILL = {"spill": True}
BIG: dict[str, Any] = {"tile": {"m": 256, "n": 256, "k": 32}} | SPILL


def plan_of(scheme, sizes, input_format="fp32", **options):
    chosen = scheme_of(scheme)
    return chosen.plan(chosen.complete(options), Problem.of(input_format, *sizes))


@pytest.mark.parametrize("k", [1, 3, 67])
@pytest.mark.parametrize(
    ("device", "scheme", "options"),
    [
        ("a100", "native", BIG),
        ("a100", "le-gemm", SPILL | {"tile": {"m": 128, "n": 256, "k": 32}}),  # Table 2 of its paper
        ("a100", "le-gemm", SPILL | {"tile": {"m": 128, "n": 256, "k": 32}, "stages": 1}),
        ("a100", "markidis", BIG | {"interleave": "k", "tile": {"m": 256, "n": 256, "k": 16}}),
        ("a100", "native", BIG | {"staging": "none", "warp": (128, 64), "tile": {"m": 256, "n": 256, "k": 16}}),
        ("v100", "markidis", BIG | {"tile": {"m": 256, "n": 256, "k": 16}}),
        ("mi210", "le-gemm", BIG | {"tile": {"m": 256, "n": 256, "k": 16}}),
    ],
)
def test_the_bits_are_those_without_a_spill(device, scheme, options, k):
    a, b = bits((260, k), k, -8, 8), bits((k, 270), k + 1, -8, 8)
    given: dict[str, Any] = {"device": device, "functional": True}
    given |= {"format": "fp16"} if scheme == "native" else {"scheme": scheme}
    plain = {name: options[name] for name in options if name not in ("tile", "spill", "staging", "warp", "stages")}
    found = hwsim.run(a, b, **given, **options)
    assert found.options["spilled_rows"] > 0
    assert found.result_sha256 == hwsim.run(a, b, **given, **plain).result_sha256


@pytest.mark.parametrize("machine", [functional.run, reference.run])
@pytest.mark.parametrize("scheme", ["native", "markidis"])
def test_machines_give_the_evaluators_bits(machine, scheme):
    """A warp of 64 x 64 in 32 threads: some of its rows are spilled."""
    sizes, chip = (70, 9, 67), load("a100")
    options = SPILL | {"tile": {"m": 64, "n": 128, "k": 16}, "warp": (64, 128)}
    program = lower(plan_of(scheme, sizes, **({"format": "fp16"} if scheme == "native" else {})), chip, *sizes, options)
    check(program, chip)
    assert facts(program, chip)["spilled_rows"] > 0
    a, b = bits((70, 67), 1, -8, 8).view(np.uint32), bits((67, 9), 2, -8, 8).view(np.uint32)
    got = machine(program, chip, dict(zip(program.inputs, (a, b), strict=True)))
    ready = Evaluator(program.gemm, chip)
    assert np.array_equal(got, ready.evaluate(*ready.pieces(Operand(a, "fp32"), Operand(b, "fp32"))))


@pytest.mark.parametrize(
    ("tile", "warp", "rows"),
    [
        # 256 KB of accumulators and 2 x 16 KB of fragments in 256 KB of registers: 32 rows of 1 KB
        ((256, 256, 32), (64, 64), 32),
        # 64 threads of 255 registers have 65,280 bytes; 64 KB and 2 x 8 KB are needed: 33 rows of 512 bytes
        ((128, 128, 32), (64, 128), 33),
        ((128, 128, 32), (64, 64), 0),
    ],
)
def test_traffic_by_hand(tile, warp, rows):
    """Spilled rows are stored and read back once for every block of K."""
    chip, (m, n, k) = load("a100"), tile
    sizes = (m, n, 4 * k)
    options = SPILL | {"tile": {"m": m, "n": n, "k": k}, "warp": warp}
    program = lower(plan_of("native", sizes, "fp16", format="fp16"), chip, *sizes, options)
    assert facts(program, chip).get("spilled_rows", 0) == rows
    moved = timing.run(program, chip).traffic_bytes
    assert moved.get("GM_RF", 0) == 4 * rows * n * 4
    assert moved["RF_GM"] == 4 * rows * n * 4 + m * n * 4
    assert moved["GM_SMEM"] == (m + n) * 4 * k * 2


def test_a_spill_takes_time():
    """At 4096 cubed: two warps a CTA spill, four do not."""
    given: dict[str, Any] = {"device": "a100", "format": "fp16", "exact": False, "m": 4096, "n": 4096, "k": 4096}
    given |= {"tile": (128, 128, 32)}
    held, spilled = (hwsim.run(**given, **SPILL, warp=warp) for warp in ((64, 64), (64, 128)))
    assert spilled.cycles > 1.2 * held.cycles
    assert hwsim.run(**given).cycles <= held.cycles


@pytest.mark.parametrize(
    ("device", "scheme", "options", "error", "message"),
    [
        ("a100", "native", SPILL, InputError, "give the tile, too"),
        ("a100", "native", {"tile": {"m": 256, "n": 256, "k": 32}}, InputError, "needs .* bytes of RF"),
        ("a100", "ootomo-fp16", BIG, UnsupportedError, "terms that are added outside the unit"),
        (
            *("a100", "le-gemm", SPILL | {"tile": {"m": 64, "n": 128, "k": 16}, "warp": (64, 128)}),
            *(InputError, "needs 102400 bytes of RF; 32 threads have 32640"),
        ),
        (
            *("a100", "native", BIG | {"staging": "none", "warp": (128, 64), "stages": 2}),
            *(InputError, "a core has one CTA that spills"),
        ),
        ("ascend910a", "native", SPILL, InputError, "programs of family davinci have"),
    ],
)
def test_bad_combinations_are_refused(device, scheme, options, error, message):
    plan = plan_of(scheme, (512, 512, 512), **({"format": "fp16"} if scheme == "native" else {}))
    with pytest.raises(error, match=message):
        lower(plan, load(device), 512, 512, 512, options)


def test_no_more_is_spilled_than_a_buffer_has():
    builder, stream = KernelBuilder("too much"), StreamBuilder("load")
    builder.buffer("X", "RF", 1, 1024, spilled=1028)
    stream.emit("LDG", "sync")
    builder.group(0, 1, stream)
    program = Program((GlobalArray("C", 16, 16, "fp32"),), (builder.finish(),), (), "C")
    with pytest.raises(ProgramError, match="1028 bytes spilled; allowed: at most 1024"):
        check(program, load("a100"))
