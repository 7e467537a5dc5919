"""Run drawn calls of PyTorch with its switches as they are: a block of each result, kernels, cuBLASLt's own answers.

Other modes: serving's batch-invariant one; `narrow`, fp16 alone with allow_fp16_accumulation; `whole`, reduced
precision and slices off (allow_splitk=False).

    python lab/tools/record/pytorch_calls.py --draw calibration --seed 1 --count 400 --out calls.npz
    python lab/tools/record/pytorch_calls.py --draw blind --seed 2 --count 300 --out blind.npz
    python lab/tools/record/pytorch_calls.py --list calls.json --out answers.npz --answers-alone
    CUBLASLT_WORKSPACE_SIZE=1 CUBLAS_WORKSPACE_CONFIG=:16:8 \\
        python lab/tools/record/pytorch_calls.py --mode invariant --seed 3 --count 150 --out serving.npz

Calls are `mm`, `linear` with a bias, `addmm` and `bmm` of fp16 and bf16, a third of them with rows that are not whole
16 bytes. Needs a GPU, PyTorch with CUDA and NumPy; nothing of hwsim. Only the sampled rows of A, columns of B, values
of the bias and of C matter: hwsim/libraries/recording/gemm_list.py draws them again from (seed, index). OUT has `meta`
(JSON) and blocks of 64 x 64 at most ("INDEX/d", the bits).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))  # none of these needs hwsim
sys.path.append(str(Path(__file__).resolve().parents[3] / "hwsim" / "libraries" / "recording"))
from cublaslt import ANY_REDUCTION, COMPUTE_TYPE_REDUCTION, WORKSPACE_BYTES, CublasLt, Kind
from gemm_list import drawn_wide
from measure_cublas_times import LAYERS, kernel_names, log_uniform
from pytorch_gemms import PytorchGemms, stored

BLOCK = 64
MOST_PRODUCTS, MOST_ELEMENTS = 2**36, 2**29
TOGETHER, TOGETHER_BYTES = 40, 8e9  # calls whose kernels are recorded in one go
#: By mode: workspace and reductions of linear with a bias, and of the other calls with narrow and with wide outputs.
TOLD = {
    "default": ((1 << 20, ANY_REDUCTION), (WORKSPACE_BYTES, ANY_REDUCTION), (WORKSPACE_BYTES, ANY_REDUCTION)),
    "invariant": ((1 << 10, COMPUTE_TYPE_REDUCTION), (1 << 17, COMPUTE_TYPE_REDUCTION), (1 << 17, ANY_REDUCTION)),
}
TOLD |= {
    "narrow": TOLD["default"],
    "whole": TOLD["default"],
}  # the preference of the default mode: PyTorch's is another
Call = dict[str, Any]


def set_switches(mode: str) -> None:
    """PyTorch's switches of a mode."""
    switches, is_on = torch.backends.cuda.matmul, mode in ("default", "narrow")
    switches.allow_fp16_reduced_precision_reduction = is_on if mode != "whole" else (False, False)
    switches.allow_bf16_reduced_precision_reduction = is_on if mode != "whole" else (False, False)
    switches.allow_fp16_accumulation = mode == "narrow"


def drawn_call(rng: random.Random, layers: tuple[tuple[int, int], ...]) -> Call:
    """One call."""
    call: Call = {"format": rng.choice(["fp16", "bf16"]), "batch": 1, "a_layout": "rows", "b_layout": "columns"}
    call |= ragged(rng) if rng.random() < 1 / 3 else regular(rng, layers)
    call["output"] = call["format"]
    if call["what"] == "mm" and rng.random() < 0.3:
        call["output"] = "fp32"
    if call["what"] == "addmm":
        call["alpha"], call["beta"] = rng.choice([(1.0, 1.0), (1.0, 1.0), (0.5, 1.0), (1.0, 0.5)])
    if call["what"] in ("mm", "addmm") and rng.random() < 0.25:
        call["b_layout"] = "rows"
    if call["what"] == "mm" and rng.random() < 0.08:
        call["a_layout"] = "columns"
    return call


def ragged(rng: random.Random) -> Call:
    """Rows that are not whole 16 bytes."""
    if rng.random() < 0.6:
        m, n, k = rng.randint(1, 640), rng.randint(128, 3072), rng.randint(512, 13312)
    else:
        m, n, k = log_uniform(rng, 1, 4096), log_uniform(rng, 8, 8192), log_uniform(rng, 16, 16384)
    if n % 8 == k % 8 == 0:
        k += 1
    return {"what": rng.choice(["linear", "linear", "mm"]), "m": m, "n": n, "k": k}


def regular(rng: random.Random, layers: tuple[tuple[int, int], ...]) -> Call:
    """Of layers, of batches of attention, or whole multiples of 8."""
    what = rng.choices(["mm", "linear", "addmm", "bmm"], weights=[9, 6, 2, 3])[0]
    if what == "bmm":
        heads, length = rng.choice([8, 12, 16, 32, 64]), rng.choice([64, 128, 197, 256, 512, 577, 1024])
        width = rng.choice([32, 64, 80, 96, 128])
        scores = {"n": length, "k": width, "b_layout": "columns"}
        values = {"n": width, "k": length, "b_layout": "rows"}
        rows = rng.choice([1, length, length, length])
        return {"what": what, "batch": heads, "m": rows, **rng.choice([scores, values])}
    m = rng.choice([1, 2, 3, 5, 8, 16, 17, 33, 64, 65, 100, 128, 197, 200, 256, 300, 512, 577, 777, 1024, 2048])
    if rng.random() < 0.7:
        n, k = rng.choice(layers)
        return {"what": what, "m": m, "n": n, "k": k}
    step = rng.choice([8, 32, 64])
    return {"what": what, "m": log_uniform(rng, 1, 4096), "n": log_uniform(rng, 8, 8192, step),
            "k": log_uniform(rng, 16, 16384, step)}  # fmt: skip


def is_feasible(call: Call) -> bool:
    """Whether it runs in a moment."""
    m, n, k, batch = call["m"], call["n"], call["k"], call["batch"]
    return batch * m * n * k <= MOST_PRODUCTS and batch * (m * k + k * n + m * n) <= MOST_ELEMENTS


def asked(lt: CublasLt, call: Call, mode: str) -> list[int]:
    """cuBLASLt's answer to the preference that PyTorch gives."""
    is_linear, is_narrow = call["what"] == "linear", call["output"] == call["format"]
    is_lt = is_linear and call["n"] > 1 and call["k"] > 1
    workspace, reductions = TOLD[mode][0 if is_lt else 1 if is_narrow else 2]
    return list(
        lt.ask(
            Kind(call["format"], call["output"], bias=is_lt), call["m"], call["n"], call["k"],
            a_columns=call["a_layout"] == "columns", b_columns=call["b_layout"] == "columns", batch=call["batch"],
            workspace=workspace, reductions=reductions,
        )
    )  # fmt: skip


def work_of(gemms: PytorchGemms, call: Call, a: Any, b: Any, vector: Any, c: Any) -> Any:
    """PyTorch's call, as a function."""
    out = gemms.dtype(call["output"])
    if call["what"] == "linear":
        weight = b.t()
        return lambda: torch.nn.functional.linear(a, weight, vector)
    if call["what"] == "addmm":
        return lambda: torch.addmm(c, a, b, alpha=call["alpha"], beta=call["beta"])
    multiply = torch.bmm if call["batch"] > 1 else torch.mm
    return (lambda: multiply(a, b)) if out == a.dtype else (lambda: multiply(a, b, out_dtype=out))


def operands(gemms: PytorchGemms, call: Call, seed: int, index: int) -> tuple[Any, ...]:
    """The sampled rows and columns, and what PyTorch's call takes."""
    m, n, k, batch, format = (call[name] for name in ("m", "n", "k", "batch", "format"))
    rows, columns, a_rows, b_columns, bias, block = drawn_wide(seed, index, m, n, k, BLOCK)
    at, over = torch.from_numpy(rows).cuda(), torch.from_numpy(columns).cuda()
    a, b = gemms.fill(batch * m, k, format), gemms.fill(batch * n, k, format)
    a[at + (batch - 1) * m] = torch.from_numpy(a_rows).cuda().to(a.dtype)
    b[over + (batch - 1) * n] = torch.from_numpy(np.ascontiguousarray(b_columns.T)).cuda().to(b.dtype)
    vector = c = None
    if call["what"] == "linear":
        vector = gemms.fill(1, n, call["output"])[0].clone()
        vector[over] = torch.from_numpy(bias).cuda().to(vector.dtype)
    if call["what"] == "addmm":
        c = gemms.fill(m, n, call["output"])
        c[at[:, None], over[None, :]] = torch.from_numpy(block).cuda().to(c.dtype)
    if batch > 1:
        a, b = a.view(batch, m, k), b.view(batch, n, k).transpose(1, 2)
        b = b.contiguous() if call["b_layout"] == "rows" else b
    else:
        a, b = stored(a, call["a_layout"] == "columns"), stored(b, call["b_layout"] != "columns").t()
    return at, over, a, b, vector, c


def main() -> int:
    """Run, and write what came out so far when the time is up. The exit code: 2 where calls are left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", choices=list(LAYERS), default="calibration")
    parser.add_argument("--list", type=Path, help="JSON of calls to take in place of drawn ones")
    parser.add_argument("--mode", choices=list(TOLD), default="default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--answers-alone", action="store_true")
    arguments = parser.parse_args()
    start, rng = time.time(), random.Random(f"calls{arguments.draw}{arguments.seed}")
    calls: list[Call] = [] if arguments.list is None else json.loads(arguments.list.read_text())
    while arguments.list is None and len(calls) < arguments.count:
        call = drawn_call(rng, LAYERS[arguments.draw])
        if is_feasible(call) and (arguments.mode != "narrow" or call["format"] == "fp16"):
            calls.append(call)
    gemms, lt = PytorchGemms(), CublasLt()
    set_switches(arguments.mode)
    arrays: dict[str, np.ndarray] = {}
    entries: list[Call] = []
    works: list[tuple[Call, Any]] = []
    held = 0.0
    for index, call in enumerate(calls):
        if time.time() - start > arguments.seconds:
            break
        entry = {"index": index, **call, "answer": asked(lt, call, arguments.mode)}
        entries.append(entry)
        if arguments.answers_alone:
            continue
        try:
            at, over, *rest = operands(gemms, call, arguments.seed, index)
            work = work_of(gemms, call, *rest)
            d = work()[-1] if call["batch"] > 1 else work()
            arrays[f"{index}/d"] = gemms.words(d[at[:, None], over[None, :]], call["output"])
        except Exception as error:
            entry["error"] = str(error).splitlines()[0][:200]
            continue
        works.append((entry, work))
        held += 2.0 * call["batch"] * (call["m"] * call["k"] + call["k"] * call["n"] + 2 * call["m"] * call["n"])
        if len(works) == TOGETHER or held > TOGETHER_BYTES:
            for (of, _), names in zip(works, kernel_names(torch, [work for _, work in works]), strict=True):
                of["kernels"] = names
            works, held = [], 0.0
    if works:
        for (of, _), names in zip(works, kernel_names(torch, [work for _, work in works]), strict=True):
            of["kernels"] = names
    meta = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "cublaslt": lt.version, "mode": arguments.mode, "draw": arguments.draw, "seed": arguments.seed,
        "entries": entries,
    }  # fmt: skip
    np.savez_compressed(arguments.out, meta=np.array(json.dumps(meta)), **arrays)
    left = len(calls) - len(entries)
    print(f"{len(arrays)} of {len(calls)} calls kept, {left} left, {time.time() - start:.0f} s", flush=True)
    return 2 if left else 0


if __name__ == "__main__":
    sys.exit(main())
