"""Products of a 2:4 sparse A: pruning, compression, the evaluator and the program, what is refused."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest

import hwsim
from hwsim.devices.query import entry as entry_of
from hwsim.devices.query import example, instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.numerics.sparsity import group_of, stored_bits
from hwsim.operands.operand import operand
from hwsim.operands.sparse import compress, decompress, positions

FORMATS = ("fp16", "bf16", "e4m3", "int8", "tf32")


#: Chips whose rule is an assumption: an H100's.
ASSUMED = (
    ("a100", "fp16"), ("a100", "tf32"), ("a100", "int8"), ("rtx3090", "bf16"), ("l40s", "e4m3"), ("l40s", "fp16"),
    ("rtx5090", "e4m3"), ("b200", "fp16"), ("b200", "tf32"), ("b200", "e4m3"), ("b200", "int8"), ("mi300x", "bf16"),
    ("mi300x", "int8"),
)  # fmt: skip


def pair(fmt: str, m: int = 70, n: int = 40, k: int = 96) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    if fmt == "int8":
        draw = rng.integers(-128, 128, m * k + k * n).astype(np.int8)
    else:
        draw = rng.standard_normal(m * k + k * n).astype({"fp16": np.float16}.get(fmt, np.float32))
    return hwsim.prune(draw[: m * k].reshape(m, k)), draw[m * k :].reshape(k, n)


def test_pruning_keeps_the_larger_two_of_four_and_one_of_two_words() -> None:
    a = np.array([[1, -3, 2, 2, 0, 0, 5, np.nan]], np.float16)
    assert np.array_equal(hwsim.prune(a), np.array([[0, -3, 2, 0, 0, 0, 5, np.nan]], np.float16), equal_nan=True)
    words = np.array([[1, -3, 2, 2]], np.float32)
    assert np.array_equal(hwsim.prune(words), np.array([[0, -3, 2, 0]], np.float32))


def test_metadata_are_index_pairs_of_ptx() -> None:
    """0b0100 for the first two of four, 0b1110 for the last two; the first group in the lowest bits."""
    for low, high in itertools.combinations(range(4), 2):
        a = np.zeros((1, 8), np.float16)
        a[0, [low, high]] = 1, 2
        values, metadata = compress(a)
        assert metadata[0, 0] & 0xF == low | high << 2 and np.array_equal(values[0, :2], [1, 2])
        assert metadata[0, 0] >> 4 == 0b0100  # of a group of zeros the first two are stored
    words = compress(np.array([[0, 1, 1, 0]], np.float32))[1]
    assert words[0, 0] == 0b0100_1110


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.float32])
def test_compression_and_back(dtype: type) -> None:
    a = hwsim.prune((np.random.default_rng(1).standard_normal((3, 5, 68)) * 40).astype(dtype))
    values, metadata = compress(a)
    assert values.shape == (3, 5, 34) and metadata.dtype == np.uint32
    assert np.array_equal(decompress(values, metadata), a)
    with pytest.raises(InputError, match="increasing order"):
        decompress(values, np.zeros_like(metadata))


@pytest.mark.parametrize("fmt", FORMATS)
def test_program_and_evaluator_have_the_same_bits(fmt: str) -> None:
    a, b = pair(fmt)
    asked = {"device": "h100", "format": fmt, "sparsity": "2:4"}
    direct, program = hwsim.run(a, b, **asked), hwsim.run(a, b, functional=True, **asked)
    assert direct.gemm == program.gemm and direct.result_sha256 == program.result_sha256
    again = hwsim.run(a, b, gemm=json.loads(direct.gemm.to_json()))
    assert again.result_sha256 == direct.result_sha256 and ".sp." in direct.gemm.unit


@pytest.mark.parametrize(("device", "fmt"), ASSUMED)
def test_other_chips_add_stored_elements_as_an_h100_does(device: str, fmt: str) -> None:
    """The bits are the dense instruction's of the stored elements, each row of A with its own rows of B."""
    a, b = pair(fmt, m=5, n=9, k=128)
    direct, program = (
        hwsim.run(a, b, device=device, format=fmt, sparsity="2:4", functional=functional)
        for functional in (False, True)
    )
    assert direct.result_sha256 == program.result_sha256
    chip = hwsim.device(device)
    entry = chip.matrix_instructions[entry_of(chip, direct.gemm.unit)]
    assert direct.evidence["numerics"] == ("assumption" if entry.d != "int32" or device == "mi300x" else "datasheet")
    dense = [
        name for name, model in chip.matrix_instructions.items()
        if model.sparsity is None and (model.k * 2, model.m, model.unit, model.a, model.d, model.scale_format)
        == (entry.k, entry.m, entry.unit, entry.a, entry.d, None)
    ]  # fmt: skip
    elements = group_of(fmt)[1]
    for row, values in enumerate(a):
        places = positions(operand("A", values[None]).converted(fmt)) + elements * np.arange(128 // elements)[:, None]
        places = places.reshape(-1)
        packed = values[places][None], b[places]
        key = dense[0]
        schedule = {"instruction": example(chip, key, n=chip.matrix_instructions[key].n_last, a=fmt, b=fmt)}
        alone = hwsim.matmul(*packed, device=device, format=fmt, schedule=schedule)
        assert np.array_equal(alone[0], direct.c[row]), row


def test_half_the_rate_s_cycles_on_ampere_and_cdna() -> None:
    """Twice the dense rate: as many stored elements in the same time."""
    for device, dense, sparse in (
        ("a100", "mma.m16n8k16.f32.f16.f16.f32", "mma.sp.m16n8k32.f32.f16.f16.f32"),
        ("rtx4090", "mma.m16n8k32.f32.e4m3.e4m3.f32", "mma.sp.m16n8k64.f32.e4m3.e4m3.f32"),
        ("b300", "mma.m16n8k32.s32.s8.s8.s32", "mma.sp.m16n8k64.s32.s8.s8.s32"),
        ("mi300x", "v_mfma_i32_32x32x16_i8", "v_smfmac_i32_32x32x32_i8"),
    ):
        chip = hwsim.device(device)
        assert instruction(chip, sparse).interval_cycles() == instruction(chip, dense).interval_cycles(), device


def test_exact_sums_are_those_of_the_dense_product() -> None:
    a, b = pair("int8")
    assert np.array_equal(hwsim.matmul(a, b, device="h200", sparsity="2:4"), a.astype(np.int32) @ b.astype(np.int32))


def test_what_is_not_stored_has_no_product() -> None:
    """An infinity of B beside zeros that are not stored makes no NaN."""
    a, b = pair("fp16")
    b[0, 0] = np.inf
    a[:, :4] = [0, 1, 0, 2]
    c = hwsim.matmul(a, b, device="h100", sparsity="2:4")
    assert np.isfinite(c).all() and np.isnan(hwsim.matmul(a, b, device="h100")[:, 0]).all()
    rest = b.copy()
    rest[0, 0] = 0
    assert np.array_equal(c, hwsim.matmul(a, rest, device="h100", sparsity="2:4"))
    with pytest.raises(UnsupportedError, match="finite operands"):
        hwsim.run(a, b, device="h100", sparsity="2:4", functional=True)


def test_half_of_a_and_its_metadata_travel() -> None:
    """9 of 16 bits of fp16, and less time than the dense product."""
    assert [stored_bits(fmt) for fmt in ("fp16", "e4m3", "tf32")] == [9, 5, 18]
    asked = {"m": 4096, "n": 128, "k": 4096, "device": "h100", "format": "fp16", "exact": False}
    dense, sparse = hwsim.run(**asked), hwsim.run(sparsity="2:4", **asked)
    assert sparse.cycles < dense.cycles
    saved = 4096 * 4096 * 7 / 8
    assert dense.traffic_bytes["GM_SMEM"] - sparse.traffic_bytes["GM_SMEM"] >= 0.9 * saved


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"device": "v100"}, UnsupportedError, "v100 has no instruction for 2:4 sparsity of fp16 x fp16"),
        ({"scheme": "bf16x9"}, InputError, "sparsity is for scheme='native'"),
        ({"library": "cublas"}, UnsupportedError, "library cublas has no kernels for sparsity 2:4"),
        ({"schedule": {"instruction": "wgmma.m64n256k16.f32.f16.f16"}}, InputError, "is for A dense; A is 2:4"),
    ],
)
def test_what_is_refused(arguments: dict, error: type, message: str) -> None:
    a, b = pair("fp16")
    with pytest.raises(error, match=message):
        hwsim.run(a, b, **{"device": "h100", "sparsity": "2:4", **arguments})


def test_an_a_that_is_not_sparse_is_refused_by_its_place() -> None:
    a, b = pair("fp16")
    a[3, 8:12] = 1
    with pytest.raises(InputError, match=r"A\[3, 8:12\] has 4 elements that are not zero"):
        hwsim.matmul(a, b, device="h100", sparsity="2:4")
    with pytest.raises(InputError, match="multiples of 4"):
        hwsim.matmul(a[:, :90], b[:90], device="h100", sparsity="2:4")


def test_random_matrices_are_pruned() -> None:
    for fmt in ("fp16", "tf32"):
        result = hwsim.run(m=32, n=16, k=64, device="h100", format=fmt, sparsity="2:4")
        assert np.isfinite(result.c).all() and result.c.any()


@pytest.mark.parametrize("name", ["wgmma.sp.m64n8k32.f32.f16.f16", "wgmma.sp.m64n8k16.f32.tf32.tf32"])
def test_an_instruction_refuses_an_a_that_it_cannot_store(name: str) -> None:
    device = hwsim.device("h100")
    model = instruction(device, name)
    a = np.zeros((model.m, model.k), np.float16 if model.a == "fp16" else np.float32)
    b, c = np.ones((model.k, model.n), a.dtype), np.zeros((model.m, model.n), np.float32)
    stored, elements = group_of(model.a)
    a[3, elements : elements + stored] = 1
    a[3, elements + stored : 2 * elements] = -0.0
    assert device.mma(name, a, b, c)[3, 0] == stored
    assert device.dot(name, a[3], b[:, 0], c[3, 0]) == stored
    a[3, elements : 2 * elements] = 1
    with pytest.raises(
        InputError, match=rf"{re.escape(name)}: A\[3, {elements}:{2 * elements}\] .* allows {stored} of"
    ):
        device.mma(name, a, b, c)
    with pytest.raises(InputError, match="set the others to zero"):
        device.dot(name, a[3], b[:, 0], c[3, 0])
