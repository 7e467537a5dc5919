"""FP8 products with scales equal the bits of an H100, by cuBLAS's orders and through hwsim.torch."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import hwsim

sys.path.insert(0, str(Path(__file__).parent))
import modern

CAPTURES = np.load(modern.FOLDER / "kernels.npz")
SCALED = [key for key in CAPTURES.files if key.startswith("fp8 ")]
E4M3 = ml_dtypes.float8_e4m3fn
BLOCK = 128


def operand(seed: int, rows: int, columns: int) -> NDArray[np.float32]:
    """About normal, with full significands."""
    return np.asarray(modern.operand(seed, rows, columns, "fp32"))


def scale(seed: int, rows: int, columns: int, power_of_two: bool) -> NDArray[np.float32]:
    x = np.abs(operand(seed, rows, columns))
    four = np.float32(4)
    return np.exp2(np.floor(x * four) - 6).astype(np.float32) if power_of_two else np.float32(0.01) + x / np.float32(8)


def picked(size: int, count: int, seed: int) -> list[int]:
    return [int(place) for place in modern.picked(size, count, seed)]


def scales_of(kind: str, m: int, n: int, k: int, power_of_two: bool) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scales as of hwsim.run: one row for each row of A, and for each column of B."""
    kb, nb, mb = k // BLOCK, -(-n // BLOCK), -(-m // BLOCK)
    padded = -(-kb // 4) * 4
    p2 = power_of_two
    match kind:
        case "tensor":
            return scale(1, 1, 1, p2), scale(2, 1, 1, p2)
        case "row":
            return scale(1, m, 1, p2), scale(2, 1, n, p2).T
        case "vec_vec":
            return scale(1, kb, m, p2).T, scale(2, kb, n, p2).T
        case "vec_blk":
            return scale(1, kb, m, p2).T, scale(2, nb, padded, p2)[:, :kb]
    return scale(1, mb, padded, p2)[:, :kb], scale(2, kb, n, p2).T


@pytest.mark.parametrize("key", SCALED)
def test_cublas_multiplies_scales_as_on_an_h100(key: str) -> None:
    """The sampled rows and columns of each capture, in every bit."""
    words = key.split()
    kind, output, sizes, p2 = words[1], words[2], words[-2], words[-1] == "pow2=True"
    is_fast = words[3] == "True" if len(words) == 6 else "bias" in kind
    m, n, k = map(int, sizes.split("x"))
    scale_a, scale_b = scales_of(kind.removesuffix("_bias"), m, n, k, p2)
    bias = operand(113, 1, n)[0].astype(ml_dtypes.bfloat16) if "bias" in kind else None
    count = 64 if output == "bf16" else 12
    got = hwsim.matmul(
        operand(111, m, k).astype(E4M3),
        operand(112, n, k).astype(E4M3).T,
        device="h100",
        library="cublas",
        accumulate="fast" if is_fast else "promoted",
        scale_a=scale_a,
        scale_b=scale_b,
        bias=bias,
        output=output,
        b_layout="columns",
        rows=picked(m, count, 1),
        cols=picked(n, count, 2),
    )
    want = CAPTURES[key]
    assert np.array_equal(got.view(want.dtype), want)


@pytest.mark.parametrize(
    "key", [key for key in SCALED if "128x256x512 pow2=False" in key and (" fp32 " in key or "bias" in key)]
)
def test_torch_s_scaled_mm_gives_the_same(key: str) -> None:
    torch = pytest.importorskip("torch")
    import hwsim.torch

    words = key.split()
    kind, output, sizes = words[1], words[2], words[-2]
    is_fast = words[3] == "True" if len(words) == 6 else "bias" in kind
    m, n, k = map(int, sizes.split("x"))
    scale_a, scale_b = scales_of(kind.removesuffix("_bias"), m, n, k, False)
    a, b = (
        torch.from_numpy(operand(seed, rows, k).astype(E4M3).view(np.uint8)).view(torch.float8_e4m3fn)
        for seed, rows in ((111, m), (112, n))
    )
    bias = torch.from_numpy(operand(113, 1, n)[0]).bfloat16() if "bias" in kind else None
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[output]
    first, second = (torch.from_numpy(np.ascontiguousarray(x)) for x in (scale_a, scale_b))
    with hwsim.torch.emulate(device="h100", library="pytorch") as record:
        for _ in range(2):  # the second time by the product that was made ready
            result = torch._scaled_mm(
                a, b.t(), scale_a=first, scale_b=second.t(), bias=bias, out_dtype=dtype, use_fast_accum=is_fast
            )
    assert not record.not_caught
    want = CAPTURES[key]
    count = 64 if output == "bf16" else 12
    part = result[torch.tensor(picked(m, count, 1))][:, torch.tensor(picked(n, count, 2))].contiguous()
    ints = {2: torch.int16, 4: torch.int32}[part.element_size()]
    assert np.array_equal(np.asarray(part.view(ints)), want)


@pytest.mark.parametrize("key", [key for key in CAPTURES.files if key.startswith("grouped e4m3")])
def test_torch_s_scaled_grouped_mm_gives_the_same(key: str) -> None:
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "_scaled_grouped_mm"):
        pytest.skip("this PyTorch has no _scaled_grouped_mm")
    import hwsim.torch

    words = key.split()
    groups = int(words[3])
    m, n, k = map(int, words[4].split("x"))
    a, b = (
        torch.from_numpy(operand(seed, rows, k).astype(E4M3).view(np.uint8)).view(torch.float8_e4m3fn)
        for seed, rows in ((81, m), (82, groups * n))
    )
    ends = [m * (i + 1) // groups // 16 * 16 if i + 1 < groups else m for i in range(groups)]
    of_rows, of_columns = (
        1 + torch.from_numpy(operand(seed, rows, columns)).abs() / 8
        for seed, rows, columns in ((83, 1, m), (84, groups, n))
    )
    with hwsim.torch.emulate(device="h100", library="pytorch") as record:
        result = torch._scaled_grouped_mm(
            *(a, b.view(groups, n, k).transpose(1, 2), of_rows[0], of_columns),
            offs=torch.tensor(ends, dtype=torch.int32),
            out_dtype=torch.bfloat16,
            use_fast_accum=words[2] == "True",
        )
    assert not record.not_caught
    part = result[torch.tensor(picked(m, 64, 4))][:, torch.tensor(picked(n, 64, 5))].contiguous()
    assert np.array_equal(np.asarray(part.view(torch.int16)), CAPTURES[key])
