"""Run listed GEMMs as PyTorch calls cuBLAS: kernels, times, and a block of each result.

    python tools/record/cublas_gemms.py --list gemms.csv --out gemms.npz [--seed 1] [--seconds 120] [--no-times]

gemms.csv has kind, a_layout, b_layout, m, n, k (and batch); kinds are those of cublaslt.py ("bf16>bf16+bias"). Needs a
GPU, PyTorch with CUDA and NumPy; nothing of hwsim. Only the sampled rows of A and columns of B matter; `drawn` draws
them again from (seed, index). Times: copies of the GEMM in one CUDA graph, the median replay, over their number.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from gemm_list import drawn, parse
from torch.nn import functional

DTYPES = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "fp32": torch.float32, "fp64": torch.float64,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "int8": torch.int8, "int32": torch.int32,
}  # fmt: skip
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fill(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Random values of a format."""
    if dtype == torch.int8:
        return torch.randint(-128, 128, (rows, columns), device="cuda", dtype=torch.int8)
    if dtype == torch.float64:
        return torch.randn(rows, columns, device="cuda", dtype=dtype)
    return torch.randn(rows, columns, device="cuda").to(dtype)


def stored(values: torch.Tensor, by_columns: bool) -> torch.Tensor:
    """The same matrix, stored by rows or by columns."""
    return values.t().contiguous().t() if by_columns else values.contiguous()


def call(kind: str, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> Callable[[], torch.Tensor]:
    """The PyTorch call."""
    operand, output, fast, _ = parse(kind)
    out, one = DTYPES[output], torch.ones((), device="cuda")
    if fast is not None:
        return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=fast)
    if operand == "int8":
        return lambda: torch._int_mm(a, b)
    torch.backends.cuda.matmul.allow_tf32 = operand == "tf32"
    if bias is not None:
        weight = b.t()
        return lambda: functional.linear(a, weight, bias)
    if out == a.dtype:
        return lambda: torch.mm(a, b)
    return lambda: torch.mm(a, b, out_dtype=out)


def kernels(work: Callable[[], torch.Tensor]) -> list[str]:
    """Names of what the device ran, in order."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    events = [x for x in profile.events() if x.device_type == torch.autograd.DeviceType.CUDA]
    return [x.name for x in sorted(events, key=lambda x: x.time_range.start)]


def microseconds(work: Callable[[], torch.Tensor], products: float) -> float:
    """Per GEMM, of copies in a graph."""
    copies = 20 if products < 2**36 else 4
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(copies):
            work()
    replays = 7
    events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    graph.replay()
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return statistics.median(x.elapsed_time(y) for x, y in itertools.pairwise(events)) * 1e3 / copies


def main() -> None:
    """Run, and write what came out so far when the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--no-times", action="store_true")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    with Path(arguments.list).open() as file:
        wanted = list(csv.DictReader(file))
    start, arrays, entries = time.time(), {}, []
    for kind in dict.fromkeys(row["kind"] for row in wanted):  # what launching costs, in this setting
        operand, _, _, bias = parse(kind)
        a, b = fill(16, 16, DTYPES[operand]), stored(fill(16, 16, DTYPES[operand]), True)
        if operand == "int8":
            a = fill(32, 16, DTYPES[operand])
        work = call(kind, a, b, fill(1, 16, DTYPES[parse(kind)[1]])[0] if bias else None)
        try:
            work()
            torch.cuda.synchronize()
            entries.append({"kind": kind, "launch_us": round(microseconds(work, 4096), 4)})
        except Exception as error:
            print(kind, str(error).splitlines()[0][:200])
    for index, row in enumerate(wanted):
        if time.time() - start > arguments.seconds:
            break
        kind, (m, n, k) = row["kind"], (int(row[x]) for x in "mnk")
        operand, output, _, has_bias = parse(kind)
        dtype = DTYPES[operand]
        rows, columns, a_rows, b_columns, bias_values = drawn(arguments.seed, index, m, n, k)
        entry = {"index": index, **{x: row[x] for x in ("kind", "a_layout", "b_layout")}, "m": m, "n": n, "k": k}
        try:
            a, b, bias = fill(m, k, dtype), fill(n, k, dtype), None
            at, over = torch.from_numpy(rows).cuda(), torch.from_numpy(columns).cuda()
            if operand != "int8":
                wide = torch.float64 if operand == "fp64" else torch.float32
                a[at] = torch.from_numpy(a_rows).to(wide).cuda().to(dtype)
                b[over] = torch.from_numpy(np.ascontiguousarray(b_columns.T)).to(wide).cuda().to(dtype)
            if has_bias:
                bias = fill(1, n, DTYPES[output])[0]
                bias[over] = torch.from_numpy(bias_values).float().cuda().to(DTYPES[output])
            work = call(
                kind, stored(a, row["a_layout"] == "columns"), stored(b, row["b_layout"] != "columns").t(), bias
            )
            d = work()
            torch.cuda.synchronize()
            entry["kernels"] = kernels(work)
            if not arguments.no_times:
                entry["us"] = round(microseconds(work, m * n * k), 4)
        except Exception as error:
            entries.append(entry | {"error": str(error).splitlines()[0][:200]})
            continue
        sample = d[at[:, None], over[None, :]].contiguous()
        arrays[f"{index}/d"] = sample.view(WORDS[sample.element_size()]).cpu().numpy()
        entries.append(entry)
    meta = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "seed": arguments.seed, "entries": entries,
    }  # fmt: skip
    np.savez_compressed(arguments.out, meta=np.array(json.dumps(meta)), **arrays)
    refused = sum("error" in x for x in entries)
    print(f"{len(arrays)} of {len(wanted)} GEMMs kept, {refused} refused, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
