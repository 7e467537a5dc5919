"""Programs of products with scales, inside the instruction and outside of it: their bits, and the bytes of scales."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.formats import codes_of, format_of
from hwsim.host.places import package_folder
from hwsim.machines import reference
from hwsim.operands.scales import of_quantized

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((150, 330)).astype(np.float32), RNG.standard_normal((330, 70)).astype(np.float32)


@pytest.mark.parametrize("device", ["b200", "rtx5090"])
@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp6", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("options", [{}, {"split_k": 2}, {"output": "bf16"}, {"stages": 1}], ids=str)
def test_programs_of_vectors_give_the_evaluator_s_bits(device: str, scheme: str, options: dict[str, Any]) -> None:
    """Tiles at the edges, a last block of K that is no whole instruction, slices, one stage."""
    direct = hwsim.run(A, B, device=device, scheme=scheme, **options)
    program = hwsim.run(A, B, device=device, scheme=scheme, functional=True, **options)
    assert program.result_sha256 == direct.result_sha256
    assert direct.cycles == program.cycles > 0


def test_nvfp4_s_codes_without_a_factor_have_a_program() -> None:
    left, right = (hwsim.quantize(x, "nvfp4", rule="cublaslt", axis=axis) for x, axis in ((A, -1), (B, -2)))
    operands = {"scale_a": left.scales, "scale_b": right.scales, "device": "b200"}
    direct = hwsim.run(left.elements, right.elements, **operands)
    program = hwsim.run(left.elements, right.elements, functional=True, **operands)
    assert program.result_sha256 == direct.result_sha256


@pytest.mark.parametrize(("scheme", "block"), [("mxfp8", 32), ("mxfp4", 32), ("nvfp4", 16)])
def test_programs_load_a_byte_for_each_vector(scheme: str, block: int) -> None:
    _, program = hwsim.api.program(device="b200", scheme=scheme, m=512, n=256, k=1024)
    sizes = {array.name: array.rows * array.cols for array in program.arrays}
    assert sizes["A.scale"] == 512 * 1024 // block and sizes["B.scale"] == 256 * 1024 // block
    assert program.inputs[2:4] == ("A.scale", "B.scale")


def test_scales_take_time() -> None:
    """Of the same tiles and stages; FP4's instructions are twice as fast, its scales as many in half of the time."""
    sizes = {"m": 2048, "n": 2048, "k": 4096, "device": "b200", "exact": False}
    mapping = {"tile": {"m": 128, "n": 256, "k": 128}, "stages": 4, "cta_group": 2}
    plain = hwsim.run(format="e4m3", **sizes, **mapping).cycles
    scaled = hwsim.run(scheme="mxfp8", **sizes, **mapping).cycles
    assert plain < scaled < 1.2 * plain
    assert hwsim.run(scheme="mxfp4", **sizes).cycles < 0.9 * scaled


def test_scales_are_copied_into_tensor_memory() -> None:
    """Two stages of one tile by hand: an instruction writes 2048 bytes, which hold the scales of 128 rows by 4 of K."""
    chip, tile = hwsim.device("b200"), {"m": 128, "n": 192, "k": 256}
    sizes = {"m": 128, "n": 192, "k": 512, "device": "b200", "scheme": "nvfp4", "tile": tile, "cta_group": 1}
    rate = chip.links["SMEM_TMEM"].bytes_per_cycle
    _, program = hwsim.api.program(**sizes)
    [kernel] = program.kernels
    assert {b.memory for b in kernel.buffers if b.name in ("A.scale.op", "B.scale.op")} == {"TMEM"}
    result = hwsim.run(exact=False, **sizes)
    of_a, of_b = 4 * 128 * 16, 4 * 192 * 16  # bytes of a stage, four times those in shared memory
    assert result.traffic_bytes["SMEM_TMEM"] == 2 * (of_a + of_b)
    busy = sum(2 * -(-size // 2048) * 2048 / rate for size in (of_a, of_b))
    assert result.engines["TMEMCP"]["busy_cycles"] == pytest.approx(busy, rel=0.01)


def test_what_hangs_on_the_rate_of_the_copies() -> None:
    """At the slow end of its span products of FP4 take longer, of FP8 the same: they wait for the matrix unit."""
    tile = {"m": 128, "n": 192, "k": 256}
    sizes = {"m": 2048, "n": 2304, "k": 4096, "tile": tile, "cta_group": 2, "exact": False}
    slow = {"links.SMEM_TMEM.bytes_per_cycle": 30.4}
    nvfp4 = hwsim.run(device="b200", scheme="nvfp4", **sizes).with_numbers(slow)
    mxfp8 = hwsim.run(device="b200", scheme="mxfp8", **{**sizes, "tile": {**tile, "k": 128}}).with_numbers(slow)
    assert nvfp4.cycles[1] > 1.2 * nvfp4.cycles[0] and mxfp8.cycles[1] < 1.02 * mxfp8.cycles[0]


def test_programs_on_a_chip_without_tensor_memory_copy_scales_to_registers() -> None:
    """Two warps of a row of them read a fragment each: the scales of A are read by every column of warps."""
    sizes = {"m": 256, "n": 128, "k": 512, "device": "rtx5090", "tile": {"m": 128, "n": 128, "k": 128}, "exact": False}
    plain, scaled = (hwsim.run(**kind, **sizes) for kind in ({"format": "e4m3"}, {"scheme": "mxfp8"}))
    assert scaled.traffic_bytes["GM_SMEM"] - plain.traffic_bytes["GM_SMEM"] == 2 * (128 + 128) * 512 // 32
    warps = scaled.gemm.mapping.kernels[0].warp
    reads = 128 // warps[1], 128 // warps[0]
    more = scaled.traffic_bytes["SMEM_RF"] - plain.traffic_bytes["SMEM_RF"]
    assert more == 2 * 128 * (reads[0] + reads[1]) * 512 // 32


def test_a_chip_whose_file_does_not_say_where_scales_are_read_has_no_program(tmp_path: Path) -> None:
    file = (package_folder("devices") / "rtx5090.yaml").read_text(encoding="utf-8")
    (tmp_path / "own.yaml").write_text(file.replace(" scale_memory: RF,", ""), encoding="utf-8")
    result = hwsim.run(device=tmp_path / "own.yaml", scheme="mxfp8", m=64, n=64, k=512)
    assert result.c is not None and result.cycles is None
    assert "has to say from where it reads their scales (scale_memory)" in str(result.verdict)


def test_scales_outside_the_instruction_are_traffic() -> None:
    """Four bytes each: of runs once for every tile and 128 of K, of rows and columns once for every tile."""
    sizes = {"m": 256, "n": 384, "k": 1024, "device": "h200", "exact": False, "stages": 3}
    tile, tiles, runs = {"m": 128, "n": 128, "k": 128}, 2 * 3, 1024 // 128
    plain = hwsim.run(format="e4m3", tile=tile, **sizes).traffic_bytes
    blocks = hwsim.run(scheme="fp8-block", tile=tile, **sizes).traffic_bytes
    of_runs = 4 * tiles * runs * (128 + 1)  # of 128 rows of A, and one for the columns of B
    assert blocks["GM_SMEM"] - plain["GM_SMEM"] == blocks["SMEM_RF"] == of_runs and "SMEM_RF" not in plain
    rows = hwsim.run(scheme="fp8-row", tile=tile, **sizes).traffic_bytes
    assert rows["GM_SMEM"] == plain["GM_SMEM"] and "GM_RF" not in plain
    assert rows["GM_RF"] == 4 * tiles * (128 + 128)
    narrow = hwsim.run(scheme="fp8-block", tile={**tile, "n": 96}, **sizes).traffic_bytes
    assert narrow["SMEM_RF"] == 4 * 2 * 4 * runs * (128 + 96)  # tiles of 96 columns lie in two blocks of B


OUTSIDE = [
    ("h200", "fp8-row", {}),
    ("h200", "fp8-block", {}),
    ("l40s", "fp8-row", {}),
    ("l40s", "fp8-block", {}),
    ("b200", "fp8-block", {}),
    ("b200", "nvfp4", {}),
    ("h200", "fp8-row", {"scale_order": "a"}),
    ("h200", "fp8-block", {"scale_order": "a"}),
    ("h200", "fp8-block", {"scale_order": "b"}),
    ("h200", "fp8-block", {"tile": {"m": 64, "n": 64, "k": 64}}),
    ("h200", "fp8-block", {"library": "deepgemm"}),
    ("h200", "fp8-row", {"library": "cutlass"}),
]


@pytest.mark.parametrize("more", [{}, {"split_k": 2}, {"output": "bf16", "alpha": 1.5}], ids=str)
@pytest.mark.parametrize(("device", "scheme", "options"), OUTSIDE, ids=str)
def test_programs_of_scales_outside_the_instruction_give_the_evaluator_s_bits(
    device: str, scheme: str, options: dict[str, Any], more: dict[str, Any]
) -> None:
    """Of tensors, rows and blocks, in each order of the factors; with C and a bias, slices and a narrow output."""
    if "library" in options and "split_k" in more:
        more = {}
    added = {"c": A[:, :70], "bias": B[0]} if more else {}
    operands = {"device": device, "scheme": scheme, **options, **more, **added}
    direct, program = hwsim.run(A, B, **operands), hwsim.run(A, B, functional=True, **operands)
    assert program.result_sha256 == direct.result_sha256
    assert direct.cycles == program.cycles > 0


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (3, 5, 3), (67, 130, 67), (257, 129, 1030)])
@pytest.mark.parametrize(("device", "scheme"), [("h200", "fp8-row"), ("h200", "fp8-block"), ("b200", "nvfp4")])
def test_programs_of_scales_at_the_edges(device: str, scheme: str, m: int, n: int, k: int) -> None:
    """Fewer rows than a block of scales, a last block of K that is not whole, tiles in two blocks."""
    draw = np.random.default_rng(m)
    left, right = (draw.standard_normal(shape) * np.exp2(draw.integers(-20, 20, shape)) for shape in ((m, k), (k, n)))
    operands = {"device": device, "scheme": scheme}
    direct, program = hwsim.run(left, right, **operands), hwsim.run(left, right, functional=True, **operands)
    assert program.result_sha256 == direct.result_sha256


def test_random_orders_of_a_program_with_scales_give_the_same_bits() -> None:
    """The machine that executes one instruction at a time, in legal orders."""
    left, right = A[:40, :200], B[:200, :30]
    for device, scheme in (("h200", "fp8-row"), ("h200", "fp8-block"), ("b200", "nvfp4")):
        direct = hwsim.run(left, right, device=device, scheme=scheme)
        chip, program = hwsim.api.program(device=device, scheme=scheme, m=40, n=30, k=200)
        codes = codes_of_inputs(left, right, scheme)
        assert set(codes) == set(program.inputs)
        for order in range(3):
            out = reference.run(program, chip, codes, order=order, dots=CPU.gemm)
            assert np.array_equal(out.view(np.float32), direct.c), (scheme, order)


def test_elements_of_products_with_scales_are_followed() -> None:
    result = hwsim.run(A, B, device="h200", scheme="fp8-block", values=[(140, 60)])
    steps = result.values[140, 60]
    fused = [step for step in steps if "multiplier" in step.operands]
    assert [step.opcode for step in fused] == ["fma"] * 3  # blocks of 128 of K
    assert float(steps[-1].after) == result.c[140, 60]


def codes_of_inputs(left: Any, right: Any, scheme: str) -> dict[str, Any]:
    """The codes that a program of a scheme takes, by array."""
    kinds = {"fp8-row": ("fp8-row",) * 2, "fp8-block": ("fp8-1x128", "fp8-128x128"), "nvfp4": ("nvfp4",) * 2}[scheme]
    codes: dict[str, Any] = {}
    for name, x, kind, axis in zip("AB", (left, right), kinds, (-1, -2), strict=True):
        quantized = hwsim.quantize(x, kind, axis=axis)
        scales = of_quantized(quantized).values
        codes[name] = codes_of(quantized.elements, format_of("e2m1" if kind == "nvfp4" else "e4m3"))
        codes[f"{name}.scale"] = (scales if name == "A" else scales.T).view(f"u{scales.itemsize}")
        if quantized.factor is not None:
            codes[f"{name}.factor"] = np.full((1, 1), quantized.factor, np.float32).view(np.uint32)
    return codes
