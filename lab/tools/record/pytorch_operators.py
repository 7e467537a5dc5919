"""PyTorch's functions of elements and reductions of rows on this GPU: bits, and checksums over all fp32 numbers.

    python lab/tools/record/pytorch_operators.py record operators.npz --seconds 40      # a GPU
    python lab/tools/record/pytorch_operators.py check operators.npz --blocks 16       # hwsim
    python lab/tools/record/pytorch_operators.py shorten operators.npz --out short.npz

`record` needs PyTorch with CUDA and NumPy; nothing of hwsim. `check` prints for each array how many of hwsim's results
differ, and compares the sums of so many blocks, spread over all; exit 1 where one differs. `shorten` keeps what hwsim
follows: sums of 16 bits by 256 codes in place of results, SHORT samples, fewer rows. FILE:

* `sum/NAME`: (4096,) uint64: of the results of a function for each block of 2^20 fp32 bit patterns, in order, the sum
  of bits times (2 i + 1) modulo 2^64, i the place in the block. NaNs count as 0x7fffffff.
* `fp32/NAME`: uint32 results of `sample()`; `fp16/NAME`, `bf16/NAME`: uint16 results of all bit patterns.
* `rows/NAME/DTYPE/WIDTH/COUNT`: bits of a reduction or norm of `drawn_rows`, of norms and softmax only KEPT rows.
* `meta`: JSON: GPU and versions.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  its usual name

BLOCK, SAMPLES = 1 << 20, 1 << 16
KEPT = {1: 1, 7: 4, 128: 1}  # rows that are kept of norms and softmax, by number of rows; of other numbers none
LONGEST = 1 << 14  # of kept rows
NAN, MASK = 0x7FFFFFFF, (1 << 64) - 1
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh,
    "sin": torch.sin,
    "cos": torch.cos,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "exp": torch.exp,
    "log": torch.log,
    "rsqrt": torch.rsqrt,
    "sqrt": torch.sqrt,
    "reciprocal": torch.reciprocal,
    "pow3": lambda x: torch.pow(x, 3.0),
    "pow2": lambda x: torch.pow(x, 2),
    "softplus": F.softplus,
    "exp2": torch.exp2,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "log2": torch.log2,
    "mish": F.mish,
}
SHORT, SHORT_ROWS, SHORT_WIDTH = 1 << 12, 64, 1024
SHORT_FUNCTIONS = ("tanh", "sin", "cos", "erf", "sigmoid", "silu", "gelu", "gelu_tanh", "exp", "exp2", "log",
                   "rsqrt", "sqrt", "pow3")  # fmt: skip
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
WIDTHS = (3, 8, 16, 32, 33, 64, 96, 100, 128, 200, 256, 384, 512, 576, 640, 768, 1000, 1024, 1280, 1536, 2048, 2304,
          2816, 3072, 4096, 5120, 8192, 11008, 16384, 32000, 50257)  # fmt: skip
COUNTS = (1, 2, 7, 64, 128, 1000)
MOST = 1 << 22  # elements of the rows of a reduction
REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda x: x.mean(-1),
    "sum": lambda x: x.sum(-1),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], eps=1e-5),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-6),
}


def sample() -> np.ndarray:
    """(SAMPLES,) uint32: bits of fp32 numbers, half of them any pattern, half of usual size."""
    rng = np.random.default_rng(42)
    usual = (rng.standard_normal(SAMPLES // 2) * 4).astype(np.float32).view(np.uint32)
    return np.concatenate([rng.integers(0, 1 << 32, SAMPLES // 2, np.uint64).astype(np.uint32), usual])


def drawn_rows(width: int, count: int) -> np.ndarray:
    """(count, width) fp32; narrower operands are these, rounded."""
    return np.random.default_rng([width, count]).standard_normal((count, width), dtype=np.float32)


def checksum(function: Callable[[torch.Tensor], torch.Tensor], block: int, device: str) -> torch.Tensor:
    """Of one block."""
    place = torch.arange(BLOCK, device=device)
    code = (place + block * BLOCK).to(torch.int32)  # wraps, as it should
    result = function(code.view(torch.float32))
    bits = torch.where(result.isnan(), NAN, result.view(torch.int32)).to(torch.int64) & 0xFFFFFFFF
    return (bits * (2 * place + 1)).sum()


def checksums(function: Callable[[torch.Tensor], torch.Tensor], blocks: int = 4096) -> np.ndarray:
    """(blocks,) uint64."""
    out = torch.empty(blocks, dtype=torch.int64, device="cuda")
    for block in range(blocks):
        out[block] = checksum(function, block, "cuda")
    return out.cpu().numpy().view(np.uint64)


def bits_of(x: torch.Tensor) -> np.ndarray:
    """The bits of a tensor."""
    x = x.contiguous().cpu()
    return x.view(torch.int32).numpy().view(np.uint32) if x.dtype == torch.float32 else x.view(torch.int16).numpy()


def record(out: Path, seconds: float) -> None:
    """Record until the time is up, and write what came out so far."""
    start, arrays = time.time(), dict[str, Any]()
    codes = torch.from_numpy(sample().view(np.int32)).cuda()
    short = torch.arange(1 << 16, device="cuda").to(torch.int16)
    for name, function in FUNCTIONS.items():
        arrays[f"fp32/{name}"] = bits_of(function(codes.view(torch.float32)))
        for format in ("fp16", "bf16"):
            arrays[f"{format}/{name}"] = bits_of(function(short.view(DTYPES[format]))).view(np.uint16)
    for width in WIDTHS:
        for count in COUNTS:
            if width * count > MOST or time.time() - start > seconds / 2:
                continue
            rows = torch.from_numpy(drawn_rows(width, count)).cuda()
            for name, reduction in REDUCTIONS.items():
                is_row = name not in ("mean", "sum")
                if is_row and (count not in KEPT or width > LONGEST):
                    continue
                for format, dtype in DTYPES.items():
                    result = reduction(rows.to(dtype))
                    arrays[f"rows/{name}/{format}/{width}/{count}"] = bits_of(
                        result[: KEPT[count]] if is_row else result
                    )
    for name, function in FUNCTIONS.items():
        if time.time() - start > seconds:
            break
        arrays[f"sum/{name}"] = checksums(function)
    meta = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    np.savez_compressed(out, meta=np.array(json.dumps(meta)), **arrays)
    print(f"{len(arrays)} arrays, {time.time() - start:.0f} s", flush=True)


def checked(name: str, wanted: np.ndarray) -> int:
    """How many of hwsim's results differ from an array of the file."""
    kind, *words = name.split("/")
    if kind == "rows":
        operation, format, width, count = words[0], words[1], int(words[2]), int(words[3])
        rows = torch.from_numpy(drawn_rows(width, count)).to(DTYPES[format])
        result = REDUCTIONS[operation](rows)
        got = bits_of(result if operation in ("mean", "sum") else result[: KEPT[count]])
    else:
        codes = sample() if kind == "fp32" else np.arange(1 << 16, dtype=np.uint16)
        x = torch.from_numpy(codes.view(np.int32 if kind == "fp32" else np.int16)).view(DTYPES[kind])
        got = bits_of(FUNCTIONS[words[0]](x))
    got, wanted = torch.from_numpy(got.view(f"i{got.itemsize}")), torch.from_numpy(wanted.view(f"i{wanted.itemsize}"))
    dtype = DTYPES[words[1] if kind == "rows" else kind]
    both_nan = got.view(dtype).isnan() & wanted.view(dtype).isnan()
    return int(((got != wanted) & ~both_nan).sum())


def check(path: Path, blocks: int, device: str) -> bool:
    """Prints what differs, by operator; whether nothing does."""
    import hwsim.torch

    total: dict[str, list[int]] = {}
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name != "meta"}
    with hwsim.torch.emulate(device=device, library="pytorch", measure_every=0) as run:
        for name, wanted in arrays.items():
            if name.startswith("sum/"):
                continue
            kind, *words = name.split("/")
            key = " ".join([words[0], words[1] if kind == "rows" else kind])
            entry = total.setdefault(key, [0, 0, 0])
            wrong = checked(name, wanted)
            entry[0] += wrong
            entry[1] += wanted.size
            entry[2] += bool(wrong)
            if wrong and kind == "rows":
                print(f"{name}: {wrong} of {wanted.size} differ")
        followed = set(run.record.own_kernels)
        for name, (wrong, count, files) in total.items():
            print(f"{name:20} {wrong:7} of {count:8} differ, in {files} arrays")
        for name in followed & set(FUNCTIONS):
            wanted, wrong = arrays[f"sum/{name}"], 0
            for block in range(0, 4096, 4096 // blocks) if blocks else ():
                wrong += checksum(FUNCTIONS[name], block, "cpu").item() & MASK != int(wanted[block])
            print(f"{name:20} {wrong} of {blocks} sums over {BLOCK:,} numbers differ", flush=True)
            total[name] = [wrong, blocks, 0]
    ours = [key for key in total if key.split()[0] in followed and total[key][0]]
    print("computed as PyTorch's kernel:", ", ".join(sorted(followed)), "; differ:", ", ".join(ours) or "none")
    return not ours


def is_short(kind: str, words: list[str]) -> bool:
    """Whether an array is kept as it is."""
    if kind == "sum":
        return words[0] in SHORT_FUNCTIONS and words[0] != "pow3"
    if kind == "rows":
        operation, _, width, count = words
        if operation in ("mean", "sum"):
            return int(count) <= SHORT_ROWS
        return operation in ("softmax", "layer_norm") and count == "7" and int(width) <= SHORT_WIDTH
    return kind == "meta"


def shorten(path: Path, out: Path) -> None:
    """A file for the tests: `sum16/FORMAT/NAME` has (256,) sums of 256 results each, times (2 i + 1), NaNs as NAN."""
    kept: dict[str, np.ndarray] = {}
    with np.load(path) as archive:
        for name in archive.files:
            kind, *words = name.split("/")
            if is_short(kind, words):
                kept[name] = archive[name]
            elif kind in DTYPES and words[0] in SHORT_FUNCTIONS:
                if kind == "fp32":
                    kept[name] = archive[name][:: SAMPLES // SHORT]
                else:
                    kept[f"sum16/{kind}/{words[0]}"] = sums_of_codes(archive[name], DTYPES[kind])
    np.savez_compressed(out, **kept)


def sums_of_codes(results: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """(256,) uint64 of the results of all codes of 16 bits."""
    is_nan = torch.from_numpy(results.view(np.int16)).view(dtype).isnan().numpy()
    bits = np.where(is_nan, np.uint64(NAN), results.astype(np.uint64)).reshape(256, 256)
    result: np.ndarray = (bits * (2 * np.arange(256, dtype=np.uint64) + 1)).sum(1)
    return result


def main() -> int:
    """Run a verb."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("record", "check", "shorten"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=40, help="after which `record` stops")
    parser.add_argument("--out", type=Path, help="of `shorten`")
    parser.add_argument("--blocks", type=int, default=16, help="whose sums `check` compares")
    parser.add_argument("--device", default="h200", help="hwsim's device of the GPU that was recorded")
    given = parser.parse_args()
    if given.verb == "shorten":
        shorten(given.file, given.out)
        return 0
    if given.verb == "record":
        record(given.file, given.seconds)
        return 0
    return 0 if check(given.file, given.blocks, given.device) else 1


if __name__ == "__main__":
    sys.exit(main())
