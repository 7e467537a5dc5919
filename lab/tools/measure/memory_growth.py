"""Memory of one process over many runs: what it holds after the hundredth run of each kind, and at the end.

`python lab/tools/measure/memory_growth.py --runs 10000` runs each kind of request so often, with other operands each
time, and prints the growth of resident memory; exit code 1 where it is more than --most-kb. Free memory of the C
library is given back before each look. Requests and devices that are new each time fill bounded caches first (128
resolved requests, some thousand parts of programs): these are looked at after the two thousandth run.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tqdm import tqdm

import hwsim

SETTLED = 100  # runs after which the first look is taken
SETTLED_NEW = 2000  # where each run is a new request: bounded caches fill


def product(index: int, device: str, scheme: str, *, is_new: bool = False, **options: object) -> None:
    """One product; is_new: of sizes that change with the index."""
    rng = np.random.default_rng(index)
    m, n, k = (16 + index % 50, 16 + index % 7, 64 + 16 * (index % 3)) if is_new else (17, 33, 96)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    hwsim.run(a, b, device=device, scheme=scheme, **options)  # type: ignore[arg-type]


def matmul(index: int) -> None:
    """One product without cycles."""
    a = np.random.default_rng(index).standard_normal((16, 64)).astype(np.float16)
    hwsim.matmul(a, a.T, device="h200")


def refused(index: int) -> None:
    """A request and a device file that are refused."""
    for wrong in ({"schema_version": 1, f"key{index}": index}, f"device{index}"):
        try:
            hwsim.device(wrong)
        except hwsim.HwsimError:
            continue


def device(index: int) -> None:
    """A device of its own, and a product on it."""
    own = hwsim.device({"schema_version": 1, "name": f"own{index}", "extends": "a2"})
    hwsim.matmul(np.eye(4, dtype=np.float16), np.eye(4, dtype=np.float16), device=own)


#: Kinds of which each run is a new request.
NEW = ("sizes", "devices")
KINDS: dict[str, Callable[[int], None]] = {
    "run, native": lambda index: product(index, "h200", "native", format="fp16"),
    "run, bf16x9": lambda index: product(index, "h200", "bf16x9"),
    "run, le-gemm by a program": lambda index: product(index, "v100", "le-gemm", functional=True),
    "run, cuBLAS": lambda index: product(index, "h200", "native", format="fp16", library="cublas"),
    "matmul": matmul,
    "refusals": refused,
    "sizes": lambda index: product(index, "h200", "native", is_new=True, format="fp16"),
    "devices": device,
}


def resident_kb() -> int:
    """Resident memory of this process in KiB, counted page by page, free memory of the C library given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


def main() -> int:
    """Run every kind, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000, help="of each kind (default 10000)")
    parser.add_argument("--most-kb", type=int, default=1000, help="growth in KiB that is allowed (default 1000)")
    parser.add_argument("--only", help="kinds whose name contains this")
    parser.add_argument(
        "--collect", type=int, help="gc.collect() after so many runs: it empties CPython's lists of free objects"
    )
    arguments = parser.parse_args()
    failed = 0
    for name, call in KINDS.items():
        if arguments.only and arguments.only not in name:
            continue
        settled = SETTLED_NEW if name in NEW else SETTLED
        start = 0
        # From the first run, as its thread takes up to 1.5 MB.
        for index in tqdm(range(arguments.runs), desc=name, leave=False):
            if index == settled:
                start = resident_kb()
            call(index)
            if arguments.collect and index % arguments.collect == 0:
                gc.collect()
        growth = resident_kb() - start
        failed += growth > arguments.most_kb
        print(
            f"{name:30}  {arguments.runs:>7} runs  {start:>8} KiB after {settled}  {growth:+7} KiB at the end",
            flush=True,
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
