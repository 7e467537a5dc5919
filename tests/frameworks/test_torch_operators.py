"""PyTorch's operators without products beside an H200's results: functions of elements, sums and norms of rows.

The captures are lab/tools/record/pytorch_operators.py's, which says what each array is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402, N812

import hwsim.torch  # noqa: E402

CAPTURES = np.load(Path(__file__).parents[1] / "golden" / "h200_pytorch" / "operators.npz")
SETTINGS = {"device": "h200", "library": "pytorch", "measure_every": 0}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
FUNCTIONS = {
    "tanh": torch.tanh,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "pow3": lambda x: torch.pow(x, 3.0),
}
ROWS = {
    "mean": lambda x: x.mean(-1),
    "sum": lambda x: x.sum(-1),
    "softmax": lambda x: torch.softmax(x, -1)[:4],
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-5)[:4],
}
BLOCK, SAMPLES, SHORT = 1 << 20, 1 << 16, 1 << 12
NAN = np.uint64(0x7FFFFFFF)
VECTOR = 4  # layer norms whose width it divides are followed


def bits(x):
    return x.contiguous().view(torch.int32 if x.dtype == torch.float32 else torch.int16).numpy()


def weighted(result, count):
    """Sums of so many results each, times (2 i + 1), modulo 2^64."""
    words = bits(result).view(np.uint32 if result.dtype == torch.float32 else np.uint16).astype(np.uint64)
    words[result.isnan().numpy()] = NAN
    return (words.reshape(-1, count) * (2 * np.arange(count, dtype=np.uint64) + 1)).sum(1)


def sample():
    rng = np.random.default_rng(42)
    usual = (rng.standard_normal(SAMPLES // 2) * 4).astype(np.float32).view(np.uint32)
    drawn = np.concatenate([rng.integers(0, 1 << 32, SAMPLES // 2, np.uint64).astype(np.uint32), usual])
    return torch.from_numpy(drawn[:: SAMPLES // SHORT].copy().view(np.float32))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_an_h200_s_bits(name):
    function, x = FUNCTIONS[name], sample()
    with hwsim.torch.emulate(**SETTINGS) as run:
        got = function(x)
        narrow = {fmt: function(torch.arange(1 << 16).to(torch.int16).view(DTYPES[fmt])) for fmt in ("fp16", "bf16")}
    want = torch.from_numpy(CAPTURES[f"fp32/{name}"].view(np.float32))
    assert np.array_equal(bits(got)[~got.isnan()], bits(want)[~want.isnan()]) and torch.equal(got.isnan(), want.isnan())
    for fmt, result in narrow.items():
        assert np.array_equal(weighted(result, 256), CAPTURES[f"sum16/{fmt}/{name}"]), fmt
    assert sum(run.record.own_kernels.values()) == 3


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "pow3"])
def test_a_block_of_all_numbers_has_an_h200_s_sum(name):
    """Of 4,096 blocks: one of small numbers, one beside 1."""
    wanted = CAPTURES[f"sum/{name}"]
    for block in (0x3F8, 0xC1A):  # 1 to 1.125; -8 to -10
        codes = (np.arange(BLOCK, dtype=np.uint32) + np.uint32(block * BLOCK)).view(np.float32)
        with hwsim.torch.emulate(**SETTINGS):
            result = FUNCTIONS[name](torch.from_numpy(codes))
        assert weighted(result, BLOCK)[0] == wanted[block], hex(block)


def test_sums_and_norms_of_rows_have_an_h200_s_bits():
    names = [name for name in CAPTURES.files if name.startswith("rows/")]
    followed = 0
    with hwsim.torch.emulate(**SETTINGS) as run:
        for key in names:
            _, name, fmt, width, count = key.split("/")
            rows = np.random.default_rng([int(width), int(count)]).standard_normal((int(count), int(width)), np.float32)
            got = ROWS[name](torch.from_numpy(rows).to(DTYPES[fmt]))
            if name == "layer_norm" and int(width) % VECTOR:
                continue  # another kernel
            followed += 1
            assert np.array_equal(bits(got).view(CAPTURES[key].dtype), CAPTURES[key]), key
    assert followed > 500 and run.record.own_kernels.total() == followed
