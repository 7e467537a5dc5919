"""GEMM kernels without staging (staging=none): the staged ones' bits, traffic counted by hand, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered import facts, lower
from operands import bits

import hwsim
from hwsim.devices import changed, load
from hwsim.errors import InputError
from hwsim.evaluate.product import Evaluator
from hwsim.gemm.problem import Problem
from hwsim.machines import functional, reference, timing
from hwsim.operands.operand import Operand
from hwsim.program.check import check
from hwsim.schemes import scheme_of

BARE = {"staging": "none"}
MMA = {"instruction": "mma.m16n8k16.f32.f16.f16.f32"}
DEVICES: dict[str, dict[str, Any]] = {
    "v100": {},
    "t4": {},
    "a100": {},
    "h100": MMA,
    "b200": MMA,
    "mi210": {},
    "mi300x": {},
}


def plan_of(scheme, sizes, **options):
    chosen = scheme_of(scheme)
    return chosen.plan(chosen.complete(options), Problem.of("fp32", *sizes))


def both(device, plan, sizes, options, machine):
    """Codes of the program's C and of the evaluator's, for operands from bit fields."""
    m, n, k = sizes
    chip = load(device)
    a, b = bits((m, k), m + k, -8, 8).view(np.uint32), bits((k, n), n + k, -8, 8).view(np.uint32)
    program = lower(plan, chip, m, n, k, options)
    check(program, chip)
    got = machine(program, chip, dict(zip(program.inputs, (a, b), strict=True)))
    ready = Evaluator(program.gemm, chip)
    return got, ready.evaluate(*ready.pieces(Operand(a, "fp32"), Operand(b, "fp32")))


@pytest.mark.covering("k", ("device", "scheme"))
@pytest.mark.parametrize("k", [1, 3, 67])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scheme", ["native", "le-gemm", "markidis", "ootomo-fp16"])
def test_the_bits_are_the_staged_kernels(scheme, device, k):
    a, b = bits((35, k), k, -8, 8), bits((k, 37), k + 1, -8, 8)
    given: dict[str, Any] = {"device": device, "functional": True}
    given |= {"format": "fp16"} if scheme == "native" else {"scheme": scheme}
    found = hwsim.run(a, b, **given, **BARE, **DEVICES[device])
    assert found.result_sha256 == hwsim.run(a, b, **given).result_sha256
    assert found.options["staging"] == "none" and found.cycles > 0


@pytest.mark.covering("machine", ("device", "options"), "scheme")
@pytest.mark.parametrize("machine", [functional.run, reference.run])
@pytest.mark.parametrize(
    ("device", "options"),
    [
        ("a100", {}),
        ("a100", {"stages": 1}),
        ("a100", {"tile": {"m": 64, "n": 32, "k": 32}, "warp": (32, 16), "split_k": 2}),
        ("mi210", {"a_layout": "columns", "b_layout": "columns"}),
        ("h100", MMA),
    ],
)
@pytest.mark.parametrize("scheme", ["native", "le-gemm", "ootomo-fp16"])
def test_machines_give_the_evaluators_bits(machine, device, options, scheme):
    sizes = (70, 41, 100) if machine is functional.run else (19, 9, 67)  # the reference is slow
    plan = plan_of(scheme, sizes, **({"format": "fp16"} if scheme == "native" else {}))
    got, expected = both(device, plan, sizes, BARE | options, machine)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize(("device", "edge"), [("a100", 16), ("mi210", 32)])
def test_traffic_by_hand(device, edge):
    """One CTA of 4 x 4 warps: each loads a fragment of A and one of B for each of 8 steps of K, and stores its C."""
    chip, sizes = load(device), (4 * edge, 4 * edge, 128)
    plan = scheme_of("native").plan(scheme_of("native").complete({"format": "fp16"}), Problem.of("fp16", *sizes))
    [kernel] = timing.run(lower(plan, chip, *sizes, BARE), chip).kernels
    warps, steps, element = 16, 8, 2
    fragments = warps * steps * 2 * edge * 16 * element
    assert kernel.traffic_bytes["GM_RF"] == fragments
    assert kernel.traffic_bytes["L2 read"] == fragments // 4  # L1 gives three of four warps what the first has read
    assert kernel.traffic_bytes["RF_GM"] == kernel.traffic_bytes["L2 write"] == warps * edge * edge * 4
    assert kernel.traffic_bytes["HBM read"] == 2 * 4 * edge * 128 * element
    assert not [name for name in kernel.traffic_bytes if "SMEM" in name or "LDS" in name]


def test_without_l1_or_with_a_small_one_every_warp_reads_from_l2():
    chip, sizes = load("a100"), (64, 64, 128)
    step_bytes = 2 * 64 * 16 * 2
    plan = scheme_of("native").plan(scheme_of("native").complete({"format": "fp16"}), Problem.of("fp16", *sizes))

    def read(l1_bytes):
        device = changed(chip, {"links.GM_RF.l1_bytes": l1_bytes})
        [kernel] = timing.run(lower(plan, device, *sizes, BARE | {"stages": 1}), device).kernels
        assert kernel.traffic_bytes["GM_RF"] == 16 * 8 * 2 * 16 * 16 * 2
        return kernel.traffic_bytes["L2 read"]

    assert read(step_bytes) * 4 == read(step_bytes - 1) == read(1)


@pytest.mark.parametrize("device", ["v100", "a100", "mi210", "h100"])
def test_it_is_slower_than_the_staged_kernel(device):
    given = {"device": device, "format": "fp16", "exact": False, "m": 4096, "n": 4096, "k": 4096}
    bare = hwsim.run(**given, **BARE, **DEVICES[device])
    assert bare.cycles > 1.5 * hwsim.run(**given).cycles


def test_as_many_ctas_as_a_core_holds():
    """4 CTAs of 16 warps fill an SM's 64, 2 a CU's 32; with one CTA nothing hides the latency."""
    for device, count in (("a100", 4), ("mi210", 2)):
        chip, sizes = load(device), (1024, 1024, 512)
        plan = plan_of("native", sizes, format="fp16")
        whole = lower(plan, chip, *sizes, BARE)
        assert facts(whole, chip)["stages"] == count
        one = lower(plan, chip, *sizes, BARE | {"stages": 1})
        assert timing.run(one, chip).cycles > 1.2 * timing.run(whole, chip).cycles


@pytest.mark.parametrize(
    ("device", "options", "message"),
    [
        ("h100", {}, "reads B from SMEM; allowed: an instruction whose operands are in registers"),
        ("b200", {"cta_group": 2}, "CTAs share operands in shared memory only"),
        ("a100", {"staging": "l1"}, "allowed: shared, none"),
        ("a100", {"warp": (12, 16)}, r"warp = 12,16: .* gives 16 x 8 of C; allowed: multiples of these"),
        ("mi210", {"warp": (16, 16)}, "gives 32 x 32 of C; allowed: multiples of these"),
        ("a100", {"tile": {"m": 128, "n": 128, "k": 16}}, "64 warps for 128 x 128; a CTA has at most 32"),
        ("a100", {"tile": {"m": 64, "n": 40, "k": 16}}, "warp = 16,16: a tile of 64 x 40; allowed: what divides it"),
        ("a100", {"stages": 40}, "40 CTAs a core need .* bytes of RF, which holds 262144"),
        ("a100", {"staging": "shared", "warp": (64, 64)}, "give the tile, too"),
        ("ascend910a", {}, "programs of family davinci have"),
    ],
)
def test_bad_combinations_are_refused(device, options, message):
    with pytest.raises(InputError, match=message):
        lower(plan_of("native", (128, 128, 64), format="fp16"), load(device), 128, 128, 64, BARE | options)


def test_the_warp_tile_of_a_staged_kernel():
    """Smaller warp tiles read more fragments from shared memory."""
    chip, sizes, tile = load("a100"), (512, 512, 512), {"tile": {"m": 128, "n": 128, "k": 32}}
    plan = plan_of("native", sizes, format="fp16")

    def read(warp):
        return timing.run(lower(plan, chip, *sizes, tile | {"warp": warp}), chip).traffic_bytes["SMEM_RF"]

    assert read((32, 32)) == 2 * read((64, 64))
    assert read((64, 64)) == timing.run(lower(plan, chip, *sizes, tile), chip).traffic_bytes["SMEM_RF"]
