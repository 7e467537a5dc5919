"""Power, clock and time of GEMMs and copies that hold a GPU busy: one row a case, for the joules of configs/energy.

    python power.py OUT.csv        # on the GPU's machine, beside nvml.py and tidy.py; about a minute

Each case runs for SECONDS; power and clock are of its last part. It changes no setting of the card. Needs PyTorch.
"""

from __future__ import annotations

import csv
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from nvml import Sampler
from tidy import COLUMNS

SECONDS, LAST, BATCH_S = 1.3, 0.8, 0.04
HALVES = ("fit", "held")
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32,
         "fp64": torch.float64, "e4m3": torch.float8_e4m3fn, "int8": torch.int8}  # fmt: skip
SHAPES = ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 8192, 4096), (512, 8192, 8192), (32, 16384, 8192))
SLOW = ((4096, 4096, 4096), (2048, 2048, 2048), (512, 8192, 8192))
OF_FORMAT = {"fp32": SLOW, "fp64": SLOW}
ZEROS = (("bf16", SHAPES[0]), ("e4m3", SHAPES[0]), ("fp32", SLOW[0]))
COPIES = {"copy of 1 GiB": 1 << 30, "copy of 4 MiB": 1 << 22}


def half(label: str) -> str:
    """`fit` or `held`, by a hash of the label."""
    return HALVES[hashlib.sha256(label.encode()).digest()[0] & 1]


def operand(rows: int, cols: int, name: str, operands: str) -> torch.Tensor:
    """A matrix of normal random values, or of zeros."""
    if operands == "zeros":
        return torch.zeros(rows, cols, device="cuda").to(TYPES[name])
    if name == "int8":
        return torch.randint(-127, 128, (rows, cols), device="cuda", dtype=torch.int8)
    return torch.randn(rows, cols, device="cuda").to(TYPES[name])


def product(name: str, m: int, n: int, k: int, operands: str) -> Callable[[], Any]:
    """A call that enqueues one GEMM, B by columns."""
    a, b = operand(m, k, name, operands), operand(n, k, name, operands).t()
    if name == "e4m3":
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    if name == "int8":
        return lambda: torch._int_mm(a, b)
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    out = torch.empty(m, n, device="cuda", dtype=a.dtype)
    return lambda: torch.mm(a, b, out=out)


def cases() -> Iterator[tuple[dict[str, Any], Callable[[], Any]]]:
    """What is known of each case, and the call."""
    yield {"what": "idle"}, lambda: time.sleep(BATCH_S)
    for what, size in COPIES.items():
        one, other = (torch.randint(0, 255, (size,), device="cuda", dtype=torch.uint8) for _ in range(2))
        yield {"what": what}, lambda: other.copy_(one)  # noqa: B023
    work = [(name, shape, "random") for name in TYPES for shape in OF_FORMAT.get(name, SHAPES)]
    for name, (m, n, k), operands in (*work, *((name, shape, "zeros") for name, shape in ZEROS)):
        about = {"what": "gemm", "format": name, "m": m, "n": n, "k": k, "operands": operands}
        yield about, product(name, m, n, k, operands)


def measured(call: Callable[[], Any]) -> dict[str, Any]:
    """Microseconds of one call, and clock and power in the last part of SECONDS of them."""
    call()
    torch.cuda.synchronize()
    begin = time.monotonic()
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    count = max(1, int(BATCH_S / ((time.monotonic() - begin) / 5 + 1e-7)))
    times = []
    with Sampler(0.005) as sampler:
        begin = time.monotonic()
        while time.monotonic() - begin < SECONDS:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(count):
                call()
            last.record()
            torch.cuda.synchronize()
            times.append((time.monotonic() - begin, first.elapsed_time(last) * 1e3 / count))
        end = time.monotonic()
    rows = [row for row in sampler.rows if row[0] >= end - LAST]
    watts = [row[3] for row in rows]
    return {
        "us": round(median(us for at, us in times if at >= SECONDS - LAST), 3),
        "sm_mhz": round(mean(row[1] for row in rows), 1), "power_w": round(mean(watts), 1),
        "power_w_least": round(min(watts), 1), "power_w_most": round(max(watts), 1),
        "temperature_c": max(row[5] for row in rows), "samples": len(rows),
    }  # fmt: skip


def main() -> None:
    """Write a row for each case as soon as it is there."""
    with Path(sys.argv[1]).open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS["h100_power"], lineterminator="\n")
        writer.writeheader()
        for about, call in cases():
            try:
                row = about | measured(call)
            except RuntimeError as error:
                print(about, str(error).splitlines()[0], flush=True)
                continue
            row["half"] = half(" ".join(str(x) for x in about.values()))
            writer.writerow(row)
            file.flush()
            print(row, flush=True)


if __name__ == "__main__":
    main()
