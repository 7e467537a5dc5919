"""Run listed GEMMs as PyTorch calls cuBLAS: kernels, times, and a block of each result.

    python lab/tools/record/cublas_gemms.py --list gemms.csv --out gemms.npz [--seed 1] [--seconds 120] [--no-times]

gemms.csv has kind, a_layout, b_layout, m, n, k and perhaps batch (every product of it is the same); kinds are those of
cublaslt.py ("bf16>bf16+bias"). Needs a GPU, PyTorch with CUDA and NumPy; nothing of hwsim. Only the sampled rows of A
and columns of B matter; `drawn` draws them again from (seed, index). Times: copies of the GEMM in one CUDA graph, the
median replay, over their number.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.append(
    str(Path(__file__).resolve().parents[3] / "hwsim" / "libraries" / "recording")
)  # none of these needs hwsim
from gemm_list import drawn, pair, parse
from pytorch_gemms import PytorchGemms, stored

GEMMS = PytorchGemms()


def call(kind: str, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> Callable[[], torch.Tensor]:
    """The PyTorch call of a kind."""
    operand, output, fast, _ = parse(kind)
    return GEMMS.call(operand, output, fast, a, b, bias)


def stacked(x: torch.Tensor, batch: int) -> torch.Tensor:
    """(batch, rows, columns) of the same matrix, each stored as it is."""
    if x.is_contiguous():
        return x.unsqueeze(0).repeat(batch, 1, 1)
    return x.t().unsqueeze(0).repeat(batch, 1, 1).transpose(1, 2)


def main() -> int:
    """Run, and write what came out so far when the time is up. The exit code: 2 where GEMMs are left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--no-times", action="store_true")
    arguments = parser.parse_args()
    with Path(arguments.list).open() as file:
        wanted = list(csv.DictReader(file))
    start, arrays, entries = time.time(), {}, []
    timed = [] if arguments.no_times else [row["kind"] for row in wanted]
    for kind in dict.fromkeys(timed):  # what launching costs, in this setting
        try:
            entries.append({"kind": kind, "launch_us": round(GEMMS.launch_microseconds(*parse(kind)), 4)})
        except Exception as error:
            print(kind, str(error).splitlines()[0][:200])
    for index, row in enumerate(wanted):
        if time.time() - start > arguments.seconds:
            break
        kind, (m, n, k) = row["kind"], (int(row[x]) for x in "mnk")
        operand, output, _, has_bias = parse(kind)
        first, second = pair(operand)
        rows, columns, a_rows, b_columns, bias_values = drawn(arguments.seed, index, m, n, k)
        entry = {"index": index, **{x: row[x] for x in ("kind", "a_layout", "b_layout")}, "m": m, "n": n, "k": k}
        try:
            a, b, bias = GEMMS.fill(m, k, first), GEMMS.fill(n, k, second), None
            at, over = torch.from_numpy(rows).cuda(), torch.from_numpy(columns).cuda()
            wide = torch.float64 if operand == "fp64" else torch.float32
            if operand != "int8":
                a[at] = torch.from_numpy(a_rows).to(wide).cuda().to(a.dtype)
                b[over] = torch.from_numpy(np.ascontiguousarray(b_columns.T)).to(wide).cuda().to(b.dtype)
            if has_bias:
                bias = GEMMS.fill(1, n, output)[0]
                bias[over] = torch.from_numpy(bias_values).to(wide).cuda().to(bias.dtype)
            left, right = stored(a, row["a_layout"] == "columns"), stored(b, row["b_layout"] != "columns").t()
            batch = int(row.get("batch") or 1)
            if batch > 1:
                left, right = stacked(left, batch), stacked(right, batch)
                entry["batch"] = batch
            work = call(kind, left, right, bias)
            d = work()[-1] if batch > 1 else work()
            torch.cuda.synchronize()
            entry["kernels"] = GEMMS.kernels(work)
            if not arguments.no_times:
                entry["us"] = round(GEMMS.microseconds(work, m * n * k * batch), 4)
        except Exception as error:
            entries.append(entry | {"error": str(error).splitlines()[0][:200]})
            continue
        arrays[f"{index}/d"] = GEMMS.words(d[at[:, None], over[None, :]], output)
        entries.append(entry)
    meta = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "seed": arguments.seed, "entries": entries,
    }  # fmt: skip
    np.savez_compressed(arguments.out, meta=np.array(json.dumps(meta)), **arrays)
    refused = sum("error" in x for x in entries)
    left = len(wanted) - sum("index" in x for x in entries)
    print(f"{len(arrays)} of {len(wanted)} GEMMs kept, {refused} refused, {left} left, {time.time() - start:.0f} s")
    return 2 if left else 0


if __name__ == "__main__":
    sys.exit(main())
