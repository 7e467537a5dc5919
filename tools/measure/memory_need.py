"""Memory that products take beside the need that hwsim states before it computes them.

`python tools/measure/memory_need.py` runs each kind with little K and with little C, and prints the largest resident
memory of the process beyond what it had before, and what was stated for operands, pieces, sums and C. Linux only.
Exit code 1 where a run took more than was stated and 16 MiB.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import hwsim
from hwsim import product

KINDS = [
    ("h200", "native", {"format": "fp16"}),
    ("h200", "native", {"format": "fp64"}),
    ("h200", "tf32x3", {}),
    ("h200", "bf16x9", {}),
    ("ascend910a", "sgemm-cube", {}),
    ("h200", "ozaki-int8", {}),
]
SIZES = ((4096, 4096, 16), (32, 32, 262144))
ALLOWANCE_MIB = 16  # what Python and NumPy keep


def status_mib(field: str) -> float:
    """A field of /proc/self/status in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def main() -> int:
    """Run every kind, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, help="of each product (default 2)")
    threads = parser.parse_args().threads
    stated: list[int] = []
    product.check_memory = lambda needed, *_: stated.append(needed)
    failed = 0
    for device, scheme, options in KINDS:
        for m, n, k in SIZES:
            hwsim.run(m=64, n=64, k=64, device=device, scheme=scheme, **options)
            before = status_mib("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
            hwsim.run(m=m, n=n, k=k, device=device, scheme=scheme, threads=threads, timing=False, **options)
            taken, need = status_mib("VmHWM") - before, (4 * (m * k + k * n) + stated[-1]) / (1 << 20)
            failed += taken > need + ALLOWANCE_MIB
            kind = f"{scheme} {options.get('format', '')}"
            print(f"{device} {kind:14} {m} x {n} x {k}: {taken:6.0f} MiB taken, {need:6.0f} stated", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
