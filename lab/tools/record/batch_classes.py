"""For which numbers of rows does cuBLAS give a row of a product the same bits? Runs them on a GPU, as PyTorch calls it.

    python lab/tools/record/batch_classes.py --out classes.csv [--weights 4096x14336,1024x8192]

Needs a GPU and PyTorch with CUDA; nothing of hwsim. Writes a row per weight (n x k), kind and m with the class of row
0: equal numbers, equal bits in every column for each of DRAWS operands (a row of one may be rounded to the same 16 bits
from sums of two orders). Operands have full significands and seven binades, weights are (n, k) by rows.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
from pathlib import Path

import torch

sys.path.append(
    str(Path(__file__).resolve().parents[3] / "hwsim" / "libraries" / "recording")
)  # none of these needs hwsim
from cublas_gemms import call
from gemm_list import parse

KINDS = ("bf16>bf16", "fp16>fp16", "e4m3>bf16fast", "tf32>fp32", "fp32>fp32")
WEIGHTS = (
    (4096, 4096), (14336, 4096), (4096, 14336), (1024, 8192), (8192, 1024), (5120, 5120), (3584, 18944),
    (2560, 9728), (6144, 4096),
)  # fmt: skip
SIZES = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 24, 31, 32, 33, 40, 48, 63, 64, 65, 80, 96, 100, 112, 128, 129, 144, 160),
    *(192, 200, 224, 256, 257, 288, 320, 384, 448, 512, 513, 640, 768, 1000, 1024, 1280, 1536, 2048, 3072, 4096),
    *(6144, 8192),
)
DRAWS = 6
DTYPES = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "e4m3": torch.float8_e4m3fn, "tf32": torch.float32,
    "fp32": torch.float32,
}  # fmt: skip


def operands(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Normal values times 2^-6 .. 1."""
    values = torch.randn(rows, columns, device="cuda")
    return (values * 2.0 ** torch.randint(-6, 1, (rows, columns), device="cuda")).to(dtype)


def digest(x: torch.Tensor) -> str:
    """Of the bits."""
    return hashlib.sha256(x.contiguous().view(torch.uint8).cpu().numpy().tobytes()).hexdigest()


def listed(text: str) -> list[tuple[int, int]]:
    """Weights from "NxK,NxK"."""
    return [(int(n), int(k)) for n, k in (pair.split("x") for pair in text.split(","))]


def main() -> None:
    """Run, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--weights", type=listed, default=WEIGHTS)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    found = []
    for n, k in arguments.weights:
        for kind in KINDS:
            dtype = DTYPES[parse(kind)[0]]
            rows = [""] * len(SIZES)
            for _ in range(DRAWS):
                a, w = operands(max(SIZES), k, dtype), operands(n, k, dtype)
                rows = [row + digest(call(kind, a[:m], w.t(), None)()[0]) for row, m in zip(rows, SIZES, strict=True)]
            classes: dict[str, int] = {}
            found += [
                [kind, n, k, m, classes.setdefault(row, len(classes))] for row, m in zip(rows, SIZES, strict=True)
            ]
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kind", "n", "k", "m", "row_class"])
        writer.writerows(found)
    print(f"{len(found)} products on {torch.cuda.get_device_name()}")


if __name__ == "__main__":
    main()
