"""Run GEMMs through cuBLAS (by way of PyTorch) and keep a block of each result: what a library does with K.

    python lab/tools/record/cublas_survey.py --out survey.npz [--shapes 60] [--seed 1] [--seconds 120]

Needs a GPU, PyTorch with CUDA, and NumPy; nothing of hwsim. Only the sampled rows of A, columns of B and elements of
C and D matter, and those operands are drawn by NumPy from (seed, index), so that whoever reads the file draws them
again: see hwsim_lab.golden.survey. The rest of the matrices is random and is not kept.
"""

import argparse
import functools
import json
import time

import numpy as np
import torch

BLOCK = 24
CASES = (  # format, output, accumulate, alpha, beta
    ("fp16", "fp32", None, 1.0, 0.0),
    ("fp16", "fp16", None, 1.0, 0.0),
    ("fp16", "fp16", None, 0.5, 1.0),
    ("bf16", "fp32", None, 1.0, 0.0),
    ("bf16", "bf16", None, 1.0, 0.0),
    ("bf16", "bf16", None, -1.5, 0.75),
    ("tf32", "fp32", None, 1.0, 0.0),
    ("tf32", "fp32", None, 1.0, 1.0),
    ("tf32", "fp32", None, 1.7, -0.3),
    ("e4m3", "fp32", "fast", 1.0, 0.0),
    ("e4m3", "bf16", "fast", 1.0, 0.0),
    ("e4m3", "fp32", "promoted", 1.0, 0.0),
    ("e4m3", "bf16", "promoted", 1.0, 0.0),
)
DTYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "fp32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
}
WORDS = {2: torch.int16, 4: torch.int32, 1: torch.uint8}


def shapes(count: int, seed: int) -> list[tuple[int, int, int]]:
    """Log-uniform in 16 .. 8192, whole multiples of 16 and of 8, and odd ones in turn, at most 2^36 products."""
    rng = np.random.default_rng(seed)
    found = [(1024, 1024, 1024), (4096, 4096, 256), (256, 256, 4096), (64, 64, 8192), (8192, 128, 2048)]
    while len(found) < count:
        m, n, k = (int(2 ** rng.uniform(4, 13)) for _ in range(3))
        step = (16, 8, 16, 1)[len(found) % 4]
        m, n, k = (max(step, x // step * step) for x in (m, n, k))
        if m * n * k <= 2**36:
            found.append((m, n, k))
    return found[:count]


def drawn(seed: int, index: int, m: int, n: int, k: int):
    """(rows, columns, A rows, B columns, C block), fp32 before rounding to the format: kept in step with the reader."""
    rng = np.random.default_rng([seed, index])
    rows = np.sort(rng.choice(m, min(m, BLOCK), replace=False))
    cols = np.sort(rng.choice(n, min(n, BLOCK), replace=False))
    a = rng.standard_normal((len(rows), k), np.float32)
    b = rng.standard_normal((k, len(cols)), np.float32)
    return rows, cols, a, b, rng.standard_normal((len(rows), len(cols)), np.float32)


def multiply(a, b, c, format, output, accumulate, alpha, beta):
    """D by cuBLAS; a (m, k), b (k, n) stored by columns, c (m, n) or None."""
    out = DTYPES[output]
    if format == "e4m3":
        one = torch.ones((), device="cuda")
        return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=accumulate == "fast")
    torch.backends.cuda.matmul.allow_tf32 = format == "tf32"
    if c is None:
        return torch.mm(a, b) if out == a.dtype else torch.mm(a, b, out_dtype=out)
    return torch.addmm(c, a, b, alpha=alpha, beta=beta)


def kernels(work) -> list[str]:
    """Names of the device kernels that `work` starts; empty where the profiler does not run."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
            torch.cuda.synchronize()
        return [event.key for event in profile.key_averages()]
    except Exception:
        return []


def main() -> None:
    """Survey and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--shapes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120)
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    start, arrays, entries, index = time.time(), {}, [], 0
    for m, n, k in shapes(arguments.shapes, arguments.seed):
        for format, output, accumulate, alpha, beta in CASES:
            index += 1
            if time.time() - start > arguments.seconds:
                break
            rows, cols, a_rows, b_cols, c_block = drawn(arguments.seed, index, m, n, k)
            dtype = DTYPES[format]
            a = torch.randn(m, k, device="cuda").to(dtype)
            bt = torch.randn(n, k, device="cuda").to(dtype)
            a[torch.from_numpy(rows).cuda()] = torch.from_numpy(a_rows).cuda().to(dtype)
            bt[torch.from_numpy(cols).cuda()] = torch.from_numpy(np.ascontiguousarray(b_cols.T)).cuda().to(dtype)
            c = None
            if beta:
                c = torch.randn(m, n, device="cuda").to(DTYPES[output])
                block = torch.from_numpy(c_block).cuda().to(DTYPES[output])
                c[torch.from_numpy(rows).cuda()[:, None], torch.from_numpy(cols).cuda()[None, :]] = block
            entry = {
                "index": index,
                "m": m,
                "n": n,
                "k": k,
                "format": format,
                "output": output,
                "accumulate": accumulate,
                "alpha": alpha,
                "beta": beta,
            }
            try:
                d = multiply(a, bt.t(), c, format, output, accumulate, alpha, beta)
                torch.cuda.synchronize()
            except Exception as error:
                entries.append(entry | {"error": str(error).splitlines()[0][:200]})
                continue
            operands = (a, bt.t(), c, format, output, accumulate, alpha, beta)
            entry["kernels"] = kernels(functools.partial(multiply, *operands))
            sample = d[torch.from_numpy(rows).cuda()[:, None], torch.from_numpy(cols).cuda()[None, :]].contiguous()
            words = sample.view(WORDS[sample.element_size()]).cpu().numpy()
            arrays[f"{index}/d"] = words.view(f"u{words.dtype.itemsize}")
            entries.append(entry)
    meta = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "seed": arguments.seed,
        "entries": entries,
    }
    np.savez_compressed(arguments.out, meta=np.array(json.dumps(meta)), **arrays)
    print(f"{len(arrays)} GEMMs kept, {sum('error' in e for e in entries)} refused, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
