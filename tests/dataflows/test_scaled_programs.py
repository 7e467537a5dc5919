"""Programs of products with scales: their bits, the bytes of scales, and what stands for time alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.errors import UnsupportedError

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((150, 330)).astype(np.float32), RNG.standard_normal((330, 70)).astype(np.float32)


@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp6", "mxfp4"])
@pytest.mark.parametrize("options", [{}, {"split_k": 2}, {"output": "bf16"}], ids=str)
def test_programs_of_vectors_give_the_evaluator_s_bits(scheme: str, options: dict[str, Any]) -> None:
    """Tiles at the edges, a last block of K that is no whole instruction, slices."""
    direct = hwsim.run(A, B, device="b200", scheme=scheme, **options)
    program = hwsim.run(A, B, device="b200", scheme=scheme, functional=True, **options)
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
    assert program.inputs[2:] == ("A.scale", "B.scale")


def test_scales_take_time() -> None:
    """Of the same tiles and stages; FP4's instructions are twice as fast."""
    sizes = {"m": 2048, "n": 2048, "k": 4096, "device": "b200", "exact": False}
    mapping = {"tile": {"m": 128, "n": 256, "k": 128}, "stages": 4, "cta_group": 2}
    plain = hwsim.run(format="e4m3", **sizes, **mapping).cycles
    scaled = hwsim.run(scheme="mxfp8", **sizes, **mapping).cycles
    assert plain < scaled < 1.2 * plain
    assert hwsim.run(scheme="nvfp4", **sizes).cycles < 0.8 * scaled


@pytest.mark.parametrize(("device", "scheme"), [("h200", "fp8-block"), ("h200", "fp8-row"), ("b200", "nvfp4")])
def test_scales_outside_the_instruction_stand_for_time_alone(device: str, scheme: str) -> None:
    assert hwsim.run(A, B, device=device, scheme=scheme).cycles
    with pytest.raises(UnsupportedError, match="scales outside the instruction"):
        hwsim.run(A, B, device=device, scheme=scheme, functional=True)
