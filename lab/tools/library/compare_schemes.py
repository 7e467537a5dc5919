"""hwsim's schemes by library calls beside such calls recorded on a GPU: how many products come out to the bit.

    python lab/tools/library/compare_schemes.py FILE.npz --device h200 [--json]

FILE is what lab/tools/record/cublas_schemes.py --draw wrote. Exit 1 where a product differs, 2 where nothing was
compared.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import hwsim
from hwsim.errors import UnsupportedError


def drawn(kind: str, rng: np.random.Generator, rows: int, k: int) -> np.ndarray:
    """As lab/tools/record/cublas_schemes.py draws them, which needs PyTorch."""
    if kind == "normal":
        return rng.standard_normal((rows, k), np.float32)
    if kind == "uniform":
        return rng.random((rows, k), np.float32)
    bits = rng.integers(0, 1 << 32, (rows, k), dtype=np.uint32)
    if kind == "wide":
        exponent = rng.integers(127 - 60, 127 + 10, (rows, k), dtype=np.uint32)
        return (bits & np.uint32(0x807FFFFF) | exponent << np.uint32(23)).view(np.float32)
    x = rng.standard_normal((rows, k), np.float32)
    which = rng.integers(0, 8, (rows, k))
    x[which == 0] = 0
    x[which == 1] = -0.0
    return np.where(which == 2, (bits & np.uint32(0x807FFFFF)).view(np.float32), x)


def scheme_of(recorded: str) -> tuple[str, dict[str, object]]:
    """Scheme and options of a recorded name."""
    name, _, shift = recorded.partition(".")
    options: dict[str, object] = {"scaling_exponent": int(shift)} if shift else {}
    return name, options | ({"rounding": "RNE"} if name == "markidis" else {})


def compared(file: Path, device: str, most: int | None = None) -> tuple[Counter, Counter, list[dict]]:
    """Of each scheme the products equal in every bit, and all; and what is known of the others. most: elements of A and
    B, beyond which a case is left out (its operands are drawn whole).
    """
    equal, count, others = Counter(), Counter(), []
    with np.load(file) as archive:
        said = json.loads(str(archive["meta"]))
        operands: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for entry in said["entries"]:
            index, (m, n, k) = entry["case"], (entry[x] for x in "mnk")
            if most is not None and (m + n) * k > most:
                continue
            if index not in operands:
                rng = np.random.default_rng([said["seed"], index])
                operands = {index: (drawn(entry["operands"], rng, m, k), drawn(entry["operands"], rng, n, k))}
            d = archive[f"{index}/{entry['scheme']}/d"]
            a, bt = (x[:rows] for x, rows in zip(operands[index], d.shape, strict=True))
            name, options = scheme_of(entry["scheme"])
            at = np.arange(len(a)), np.arange(len(bt))
            line = {x: entry[x] for x in ("scheme", "m", "n", "k", "operands")}
            try:
                run = hwsim.run(
                    a, bt.T, device=device, scheme=name, library="cublas", b_layout="columns",
                    shape=(m, n), at=at, timing=False, **options,
                )  # fmt: skip
            except UnsupportedError as error:
                count[entry["scheme"]] += 1
                others.append(line | {"why": str(error)})
                continue
            same = np.array_equal(run.c.view(np.uint32), d.view(np.uint32))
            count[entry["scheme"]] += 1
            equal[entry["scheme"]] += same
            if not same:
                kernel, cut = run.gemm.decided("kernel"), run.gemm.decided("split_k")
                ran = [x for x in entry["kernels"] if "gemm" in x.lower() or "nvjet" in x or "cutlass" in x.lower()]
                others.append(line | {"hwsim": f"{kernel.value}, {cut.value} slices: {kernel.why}", "ran": ran})
    return equal, count, others


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--most", type=int, help="elements of A and B, beyond which a case is left out")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    equal, count, others = compared(arguments.file, arguments.device, arguments.most)
    if arguments.json:
        print(json.dumps({"equal": dict(equal), "count": dict(count), "others": others}))
    else:
        for scheme in sorted(count):
            print(f"{scheme:14} {equal[scheme]:4} of {count[scheme]:4} products equal in every bit")
        print(f"{sum(equal.values())} of {sum(count.values())}")
        for one in others:
            print(one)
    if not count:
        print(f"{arguments.file}: no product in it", file=sys.stderr)
        return 2
    return int(bool(others))


if __name__ == "__main__":
    sys.exit(main())
