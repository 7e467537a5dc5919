"""Memory that products take beside the need that hwsim states before it computes them.

`python lab/tools/measure/memory_need.py` runs each kind, and prints the largest resident memory of the process beyond
what it had before, and what was stated for operands, pieces, sums and C; for kinds with errors what these take and
state after the product. Linux only. Exit code 1 where a run took more than was stated and 16 MiB.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hwsim
from hwsim.compute import bits as product

MIB = 1 << 20
ALLOWANCE_MIB = 16  # what Python and NumPy keep
DRAWN_BYTES = 4  # of an element of A and B, drawn as fp32


@dataclass(frozen=True)
class Kind:
    """Runs of some sizes. with_errors: their errors are what is measured."""

    device: str
    scheme: str
    options: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[tuple[int, int, int], ...] = ((4096, 4096, 16), (32, 32, 262144))
    with_errors: bool = False


BY_PROGRAM = ((2048, 2048, 256), (64, 64, 65536))
KINDS = [
    Kind("h200", "native", {"format": "fp16"}),
    Kind("h200", "native", {"format": "fp64"}),
    Kind("h200", "tf32x3"),
    Kind("h200", "bf16x9"),
    Kind("ascend910a", "sgemm-cube"),
    Kind("h200", "ozaki-int8"),
    Kind("h200", "native", {"format": "fp16", "functional": True}, BY_PROGRAM),
    Kind("v100", "le-gemm", {"functional": True}, ((1024, 1024, 256), (64, 64, 16384))),
    Kind("ascend910a", "sgemm-cube", {"functional": True}, BY_PROGRAM),
    Kind("h200", "native", {"format": "tf32", "library": "cublas"}, ((2048, 2560, 4096),)),
    Kind("h200", "native", {"format": "fp64", "library": "cublas"}, ((300, 300, 20000),)),
    Kind("h200", "native", {"format": "fp32", "library": "cublas"}, ((65536, 1, 1024),)),
    Kind("h200", "native", {"format": "fp16"}, with_errors=True),
    Kind("h200", "native", {"format": "fp64"}, ((1024, 1024, 16), (32, 32, 65536)), with_errors=True),
]


def status_bytes(name: str) -> int:
    """A field of /proc/self/status, which has it in KiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def taken(call: Callable[[], object]) -> int:
    """Bytes by which a call raises the resident memory of this process at most."""
    before = status_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    call()
    return status_bytes("VmHWM") - before


def measured(kind: Kind, threads: int) -> Iterator[tuple[tuple[int, int, int], int, int]]:
    """(sizes, bytes taken, bytes stated) of each run of a kind."""
    stated: list[int] = []
    check, product.check_memory = product.check_memory, lambda needed, *_: stated.append(needed)
    given = {"device": kind.device, "scheme": kind.scheme, "timing": False, **kind.options}
    try:
        for m, n, k in kind.sizes:
            first = hwsim.run(m=64, n=64, k=64, **given)  # what a first run loads
            if not kind.with_errors:
                bytes_taken = taken(lambda m=m, n=n, k=k: hwsim.run(m=m, n=n, k=k, threads=threads, **given))  # type: ignore[misc]
                yield (m, n, k), bytes_taken, DRAWN_BYTES * (m * k + k * n) + stated[-1]
                continue
            assert first.error is not None
            result = hwsim.run(m=m, n=n, k=k, threads=threads, **given)
            bytes_taken = taken(lambda result=result: (result.error, result.error_map))  # type: ignore[misc]
            yield (m, n, k), bytes_taken, stated[-1]
    finally:
        product.check_memory = check


def main() -> int:
    """Run every kind, print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2, help="of each product (default 2)")
    threads = parser.parse_args().threads
    failed = 0
    for kind in KINDS:
        what = " ".join([kind.device, kind.scheme, *map(str, kind.options.values()), "errors" * kind.with_errors])
        for (m, n, k), is_taken, is_stated in measured(kind, threads):
            failed += is_taken > is_stated + ALLOWANCE_MIB * MIB
            said = f"{is_taken / MIB:6.0f} MiB taken, {is_stated / MIB:6.0f} stated"
            print(f"{what:32} {m} x {n} x {k}: {said}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
