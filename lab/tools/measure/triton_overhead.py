"""Processor time that hwsim.triton adds to Triton's interpreter.

    python lab/tools/measure/triton_overhead.py --repeats 5   # needs PyTorch and Triton; no GPU

A product of 512 x 512 x 512 in fp16 and an attention of two heads of 512 x 64 in bf16, by Triton's interpreter alone
and with `hwsim.triton.emulate`: medians of processor time, and the first run's, in which Triton's compiler is asked.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
sys.path.insert(0, str(Path(__file__).parents[1] / "record"))

import torch
from tile_kernels import attention, product

import hwsim.triton

SIZE, LENGTH, WIDTH = 512, 512, 64


def run_product() -> None:
    """One product."""
    a, b, d = torch.randn(SIZE, SIZE).half(), torch.randn(SIZE, SIZE).half(), torch.empty(SIZE, SIZE)
    grid = (SIZE // 128, SIZE // 128)
    product[grid](
        a, b, d, SIZE, SIZE, SIZE, SIZE, 1, 1, SIZE, BM=128, BN=128, BK=64, PREC="tf32", IMP=-1, INTEGER=False
    )


def run_attention() -> None:
    """One attention."""
    q, k, v = (torch.randn(2, LENGTH, WIDTH).bfloat16() for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty(2, LENGTH)
    attention[(LENGTH // 128, 2)](q, k, v, out, lse, WIDTH**-0.5, LENGTH, WIDTH, 128, 64, False)


def seconds(run: Callable[[], None], context: AbstractContextManager[Any], repeats: int) -> list[float]:
    """Processor time of each of `repeats` runs in one context."""
    times = []
    with context:
        for _ in range(repeats):
            begin = time.process_time()
            run()
            times.append(time.process_time() - begin)
    return times


def main() -> int:
    """Print a line for each kernel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="h100", help="device of hwsim")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, run in (("product", run_product), ("attention", run_attention)):
        plain = median(seconds(run, nullcontext(), given.repeats))
        emulated = seconds(run, hwsim.triton.emulate(given.device), given.repeats + 1)
        later = median(emulated[1:])
        print(
            f"{name}: interpreter {plain:.3f} s, with hwsim {later:.3f} s, {later / plain:.2f} times;"
            f" first run {emulated[0]:.3f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
