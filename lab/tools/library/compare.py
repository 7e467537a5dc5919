"""hwsim's library calls beside GEMMs recorded on a GPU: how many come out to the bit, by kind, and which do not.

    python lab/tools/library/compare.py FILE.npz --device h200 [--json]

FILE is what lab/tools/record/cublas_gemms.py wrote (or such a file cut to smaller blocks). Exit 1 where a GEMM differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np

import hwsim
from hwsim.libraries.recording.gemm_list import drawn, pair, parse

DTYPES = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "fp32": np.float32, "fp64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def block(entry: dict, seed: int, shape: tuple[int, int], device: str, library: str = "cublas") -> np.ndarray:
    """The recorded block as hwsim has it."""
    operand, output, fast, has_bias = parse(entry["kind"])
    m, n, k = entry["m"], entry["n"], entry["k"]
    rows, columns, *_ = drawn(seed, entry["index"], m, n, 1)
    _, _, a, b, bias = drawn(seed, entry["index"], m, n, k)

    def typed(x: np.ndarray, name: str) -> np.ndarray:
        return x if name == "fp64" else x.astype(np.float32).astype(DTYPES[name])

    options = {} if fast is None else {"accumulate": "fast" if fast else "promoted"}
    first, second = pair(operand)
    options |= {"format": first, "output": output, "shape": (m, n), "at": (rows[: shape[0]], columns[: shape[1]])}
    options |= {} if first == second else {"format_b": second}
    layouts = {"a_layout": entry.get("a_layout", "rows"), "b_layout": entry["b_layout"]}
    left, right = typed(a[: shape[0]], first), typed(b[:, : shape[1]], second)
    if entry.get("batch", 1) > 1:  # all products of a batch have one schedule
        # the recorder's copies of a vector are stored by rows, whatever was asked for
        layouts |= ({"a_layout": "rows"} if m == 1 else {}) | ({"b_layout": "rows"} if n == 1 else {})
        choice = hwsim.library(library, device=device).choose(
            m=m, n=n, k=k, format=operand, output=output, batch=entry["batch"], **layouts,
            reductions="compute" if output in ("fp16", "bf16") else "any",
        )  # fmt: skip
        return hwsim.matmul(left, right, device=device, schedule=choice.schedule, **options)
    bias_of = typed(bias[: shape[1]], output) if has_bias else None
    return hwsim.matmul(left, right, device=device, library=library, bias=bias_of, **layouts, **options)


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--library", default="cublas", help="a library's name, or a file of hwsim library record")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    equal, count, differing = Counter(), Counter(), []
    with np.load(arguments.file) as archive:
        said = json.loads(str(archive["meta"]))
        for entry in said["entries"]:
            name = f"{entry.get('index')}/d"
            if name not in archive or entry["kind"].startswith("int8"):  # exact in any order
                continue
            d = archive[name]
            expected = block(entry, said["seed"], d.shape, arguments.device, arguments.library)
            same = np.array_equal(np.ascontiguousarray(expected).view(d.dtype), d)
            operand = entry["kind"].partition(">")[0]
            count[operand] += 1
            equal[operand] += same
            if not same:
                names = ("kind", "a_layout", "b_layout", "m", "n", "k", "batch", "kernels")
                differing.append({x: entry[x] for x in names if x in entry})
    if arguments.json:
        print(json.dumps({"equal": dict(equal), "count": dict(count), "differing": differing}))
    else:
        for operand in sorted(count):
            share = equal[operand] / count[operand]
            print(f"{operand:5} {equal[operand]:5} of {count[operand]:5} GEMMs equal in every bit, {100 * share:.1f} %")
        for one in differing:
            sizes = " x ".join(str(one[name]) for name in "mnk")
            batch = f" of {one['batch']}" if "batch" in one else ""
            layouts = f"A by {one.get('a_layout', 'rows')}, B by {one['b_layout']}"
            print(f"differs: {one['kind']} {sizes}{batch}, {layouts}: {one['kernels'][0][:80]}")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
