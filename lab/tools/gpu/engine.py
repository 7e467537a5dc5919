"""The engine `cuda` beside the CPU's kernels, on a machine with an NVIDIA GPU: results that differ, and speeds.

    python lab/tools/gpu/engine.py compile --workers 16
    python lab/tools/gpu/engine.py compare --results 1e9 --budget 400 --json compare.json
    python lab/tools/gpu/engine.py golden tests/golden --workers 16 --json golden.json
    python lab/tools/gpu/engine.py manifest --budget 200 --workers 14 --json manifest.json
    python lab/tools/gpu/engine.py speed --size 8192 --json speed.json
    python lab/tools/gpu/engine.py speed --block 4x32
    python lab/tools/gpu/engine.py calls --json calls.json

compare: every dot unit of the device files, on random operands of several kinds, until it has so many results or took
so long. golden: sets of instructions, every product on the GPU, however small, file by file; their kernels are
compiled before by --workers processes. manifest: the recorded runs that give bits, in the same way. These three
continue a --json that is there already. speed: a product of each chip beside the GPU's own FP32 product. calls: whole
calls of arrays of the host and of the GPU, beside the CPU's kernels. compile: kernels of every unit, into the cache.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from comparison import Effort, compare, operands, units
from recorded import golden, manifest

import hwsim
from hwsim.backend.by_name import CUDA
from hwsim.backend.cuda import source
from hwsim.backend.cuda.device import compiled, cupy, to_gpu
from hwsim.backend.cuda.source import FEWER, MOST_TERMS_OF_FEWER, SUMS, loop_of, program_text
from hwsim.backend.cuda.unit_programs import product
from hwsim.devices import load
from hwsim.devices.query import dot_spec
from hwsim.numerics.dot_operands import DotOperands

DRAWN = 2048  # rows and columns of operands of speed, which are repeated
NVF4 = "mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16"
SPEEDS = (
    *(("h100", "mma.m16n8k16.f32.f16.f16.f32"), ("h100", "mma.m16n8k16.f32.bf16.bf16.f32")),
    *(("a100", "mma.m16n8k16.f32.f16.f16.f32"), ("a100", "mma.m16n8k16.f32.bf16.bf16.f32")),
    *(("v100", "mma.m8n8k4.f32.f16.f16.f32"), ("h100", "wgmma.m64nNk32.f32.A.B"), ("mi210", "v_mfma_f32_32x32x8f16")),
    *(("mi300x", "v_mfma_f32_32x32x8_f16"), ("ascend910a", "mmad.m16n16k16.f32.f16.f16"), ("h100", "fma.rn.f32")),
    *(("h100", "mma.m16n8k16.f64.f64.f64.f64"), ("ascend910a", "mmad.m16n16k32.s32.s8.s8")),
    *(("mi300x", "v_mfma_f32_32x32x16_fp8_fp8"), ("h100", "mma.m16n8k32.f32.A.B.f32")),
    *(("b200", "tcgen05.mma.m128nNk32.mxf8f6f4.f32.A.B"), ("b200", f"tcgen05.mma.m128nNk64.{NVF4}")),
)
#: Units that a compiler's fault once reached: they are compared before others.
BEFORE_OTHERS = (("h100", "mma.m16n8k32.f16.A.B.f16"),)
CALLS = (("a100", "native"), ("ascend910a", "sgemm-cube"), ("b200", "bf16x9"))
FUSED = "fused.cuh"


def compile_all(workers: int, only_fused: bool) -> None:
    """The kernels of every unit, with large and with small blocks, into the cache, by so many processes."""
    chosen = [spec for spec in units() if not only_fused or loop_of(spec) == FUSED]
    texts = [SUMS, *(program_text(spec, divided=False) for spec in chosen)]
    small = [spec for spec in chosen if loop_of(spec) is not None and spec.unit.terms <= MOST_TERMS_OF_FEWER]
    texts += [program_text(spec, False, FEWER) for spec in small]
    with ProcessPoolExecutor(workers) as pool:
        print(f"{sum(map(len, pool.map(compiled, texts)))} bytes of {len(texts)} programs")


def seconds_of(work: Any) -> float:
    """The least of three times of work on the GPU, after a first one."""
    gpu, least = cupy(), float("inf")
    for turn in range(4):
        begin = time.perf_counter()
        work()
        gpu.cuda.Device().synchronize()
        least = least if not turn else min(least, time.perf_counter() - begin)
    return least


def block_of(text: str) -> tuple[int, int]:
    """Rows of a thread and warps of a block of fused.cuh: "4x32"."""
    rows, _, warps = text.partition("x")
    return int(rows), int(warps)


def takes_block(block: tuple[int, int] | None) -> bool:
    """Whether there is a shape of blocks instead of the present one; it is taken from now on."""
    if block is not None:
        source.FUSED_ROWS, source.FUSED_WARPS = block
    return block is not None


def speed(size: int, only_fused: bool, file: Path | None) -> None:
    """Multiply-accumulates a second of several chips' units, beside the GPU's own FP32 product."""
    rng, gpu = np.random.default_rng(1), cupy()
    x = gpu.asarray(rng.standard_normal((size, size), np.float32))
    own = size**3 / seconds_of(lambda: gpu.matmul(x, x)) / 1e12
    blocks = f"{source.FUSED_ROWS}x{source.FUSED_WARPS}"
    found: dict[str, Any] = {"size": size, "fp32_product_tmacs": own, "fused_block": blocks}
    print(f"FP32 product of the GPU: {own:.2f} TMAC/s; blocks of {FUSED}: {blocks}")
    for device, name in SPEEDS:
        spec = dot_spec(load(device), name)
        if only_fused and loop_of(spec) != FUSED:
            continue
        few, _ = operands(rng, spec, DRAWN, size, "normal")
        turns = size // DRAWN  # the same lines again: they change no speed
        tiled = (None if x is None else to_gpu(np.tile(x, (turns, 1))) for x in (few.a, few.scale_a))
        across = (None if x is None else to_gpu(np.tile(x, (1, turns))) for x in (few.b, few.scale_b))
        (a, scale_a), (b, scale_b) = tiled, across
        given = DotOperands(a, b, None, scale_a, scale_b)
        rate = size**3 / seconds_of(lambda spec=spec, given=given: product(spec, given)) / 1e12
        found[f"{device} {name}"] = {"tmacs": rate, "of_fp32_product": rate / own}
        print(f"{device} {name}: {rate:.2f} TMAC/s, {rate / own:.3f} of it", flush=True)
        if file is not None:
            file.write_text(json.dumps(found, indent=1) + "\n")


def calls(size: int, threads: int, file: Path | None) -> int:
    """Seconds of whole calls, size^3; returns how many have other bits on the GPU."""
    rng, differ, found = np.random.default_rng(1), 0, dict[str, Any]()
    a, b = (rng.standard_normal((size, size), np.float32) for _ in range(2))
    on_gpu = [cupy().asarray(x) for x in (a, b)]
    for device, scheme in CALLS:
        options: dict[str, Any] = {"device": device, "scheme": scheme, "threads": threads}
        times = {
            "host_arrays_s": seconds_of(lambda options=options: hwsim.matmul(a, b, engine=CUDA, **options)),
            "gpu_arrays_s": seconds_of(lambda options=options: hwsim.matmul(*on_gpu, engine=CUDA, **options)),
        }
        begin = time.perf_counter()
        want = hwsim.matmul(a, b, engine="cpu", **options)
        times["cpu_s"] = time.perf_counter() - begin
        of_gpu: Any = hwsim.matmul(*on_gpu, engine=CUDA, **options)
        results = hwsim.matmul(a, b, engine=CUDA, **options), of_gpu.get()
        wrong = sum(int((x.view(np.uint32) != want.view(np.uint32)).sum()) for x in results)
        differ += wrong > 0
        found[f"{device} {scheme}"] = times | {"size": size, "differ": wrong}
        print(device, scheme, found[f"{device} {scheme}"], flush=True)
        if file is not None:
            file.write_text(json.dumps(found, indent=1) + "\n")
    return differ


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compare", "golden", "manifest", "speed", "calls", "compile"))
    parser.add_argument("paths", type=Path, nargs="*", help="files and folders of golden sets")
    parser.add_argument("--results", type=float, help="of each unit (1e9), or of each golden set (all)")
    parser.add_argument("--seconds", type=float, default=60, help="at most, of each unit (60)")
    parser.add_argument("--budget", type=float, default=1800, help="seconds of compare or manifest, at most (1800)")
    parser.add_argument("--threads", type=int, default=16, help="of the CPU (16)")
    parser.add_argument("--workers", type=int, default=4, help="processes (4)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, help="m, n and k of speed (8192) and of calls (4096)")
    parser.add_argument("--block", type=block_of, metavar="ROWSxWARPS", help=f"of {FUSED}, whose units alone count")
    parser.add_argument("--json", type=Path, help="file of what was found")
    chosen = parser.parse_args()
    differ, only_fused = 0, takes_block(chosen.block)
    if chosen.what == "compile":
        compile_all(chosen.workers, only_fused)
    elif chosen.what == "speed":
        speed(chosen.size or 8192, only_fused, chosen.json)
    elif chosen.what == "calls":
        differ = calls(chosen.size or 4096, chosen.threads, chosen.json)
    elif chosen.what == "golden":
        few = None if chosen.results is None else int(chosen.results)
        differ = golden(chosen.paths, few, chosen.workers, chosen.json)
    elif chosen.what == "manifest":
        differ = manifest(chosen.budget, chosen.workers, chosen.json)
    else:
        effort = Effort(chosen.results or 1e9, chosen.seconds, chosen.budget, chosen.threads, chosen.seed)
        every = units((*SPEEDS, *BEFORE_OTHERS))
        some = {spec: name for spec, name in every.items() if not only_fused or loop_of(spec) == FUSED}
        differ = compare(some, effort, chosen.json)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
