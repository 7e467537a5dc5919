"""The engine `cuda` beside the CPU's kernels, on a machine with an NVIDIA GPU: results that differ, and speeds.

    python lab/tools/gpu/engine.py compare --results 1e9 --seconds 30 --json compare.json
    python lab/tools/gpu/engine.py golden tests/golden/self tests/golden/h200/instructions.npz --json golden.json
    python lab/tools/gpu/engine.py speed --size 8192 --json speed.json
    python lab/tools/gpu/engine.py compile --workers 16

compare: every dot unit of the device files, on random operands of several kinds, until it has so many results or took
so long; --shard 0/2 takes every second unit. golden: sets of instructions, every product on the GPU, however small,
file by file; their kernels are compiled before by --workers processes. Both continue a --json that is there already.
speed: a product of each chip beside the GPU's own FP32 product. compile: the kernels of every unit, into the cache.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.backend.cuda import backend as cuda_backend
from hwsim.backend.cuda import unit_programs
from hwsim.backend.cuda.device import compiled, cupy, to_gpu
from hwsim.backend.cuda.source import FEWER, MOST_TERMS_OF_FEWER, SUMS, loop_of, program_text
from hwsim.backend.cuda.unit_programs import product
from hwsim.devices import load
from hwsim.devices.query import dot_spec
from hwsim.formats import code_dtype, format_of
from hwsim.golden import simulated
from hwsim.golden.verify import all_sets, golden_files, verify
from hwsim.host.places import package_folder
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]
SIZE = 4096  # rows and columns of a product of `compare`
DEPTHS = (1, 3, 67, 32, 48, 96)
KINDS = ("normal", "finite bits", "wide", "cancelling", "sparse", "all bits")
ROW_STEP = 17  # accumulators come again, so many places on in the next row
SMALL = 512  # of a few products of each unit of `speed`, whose blocks have fewer rows
FEW = 2048  # rows and columns of products of which scalar steps of the CPU compute much
WIDE_BITS = 8  # of an exponent field: sums of such bit fields leave fp32's range
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


def units() -> dict[DotSpec, str]:
    """Every dot unit that the CPU's kernels take, and an instruction that has it; those of `speed` first."""
    found = {dot_spec(load(device), name): f"{device} {name}" for device, name in SPEEDS}
    for file in sorted(Path(str(package_folder("devices"))).glob("*.yaml")):
        device = load(file.stem)
        for instruction in device.matrix_instructions:
            spec = dot_spec(device, instruction)
            if CPU.takes(spec):
                found.setdefault(spec, f"{file.stem} {instruction}")
    return found


def drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...], kind: str) -> Codes:
    """Random codes of a format."""
    fmt = format_of(name)
    if fmt.is_integer or kind.endswith("bits"):
        words = rng.integers(0, 1 << 32, shape, np.uint64)
        if fmt.bits > 32:
            words = words << np.uint64(32) | rng.integers(0, 1 << 32, shape, np.uint64)
        codes: Codes = (words & np.uint64((1 << fmt.bits) - 1)).astype(code_dtype(fmt))
        if kind == "finite bits" and not fmt.is_integer:
            is_special = ~np.isfinite(CPU.decode(codes, fmt, np.float64))
            codes[is_special] = 0
        return codes
    values = rng.standard_normal(shape)
    if kind == "wide":
        values *= 2.0 ** rng.integers(-12, 12, shape)
    elif kind == "cancelling":
        values = np.round(values * 4) / 4
    elif kind == "sparse":
        values *= rng.random(shape) < 0.3
    result: Codes = CPU.encode(values, fmt, "RNE", "saturate")
    return result


def few_or_many(spec: DotSpec, kind: str) -> int:
    """Rows and columns of a product that takes the CPU about as long as others."""
    is_float = not format_of(spec.a).is_integer
    wide = max(format_of(name).exponent_bits for name in (spec.a, spec.b)) >= WIDE_BITS
    leaves_range = kind == "all bits" or (kind == "finite bits" and wide) or format_of(spec.d).exponent_bits < WIDE_BITS
    return FEW if loop_of(spec) is None or (is_float and leaves_range) else SIZE


def in_rows(pool: Codes, size: int, of: Any) -> Codes:
    """Accumulators of a product, as a view. of: NumPy or CuPy."""
    strides = (ROW_STEP * pool.itemsize, pool.itemsize)
    rows: Codes = of.lib.stride_tricks.as_strided(pool, (size, size), strides)
    return rows


def operands(rng: np.random.Generator, spec: DotSpec, size: int, k: int, kind: str) -> tuple[DotOperands, Codes | None]:
    """Random operands of a unit, and of every other product what accumulators are made of."""
    scales: list[Codes | None] = [None, None]
    if spec.scale_format is not None and spec.scale_block is not None:
        blocks, fmt = -(-k // spec.scale_block), format_of(spec.scale_format)
        scales = [drawn(rng, fmt.name, shape, "all bits") for shape in ((size, blocks), (blocks, size))]
        if kind != "all bits":  # no NaN, and powers of two near 1
            least, count = (fmt.bias - 8, 16) if spec.scale_format == "ue8m0" else (0, fmt.largest_magnitude + 1)
            scales = [(least + side % count).astype(np.uint8) for side in scales if side is not None]
    pool = drawn(rng, spec.c, ((ROW_STEP + 1) * size,), kind) if k % 2 else None
    return DotOperands(drawn(rng, spec.a, (size, k), kind), drawn(rng, spec.b, (k, size), kind), None, *scales), pool


def pinned(size: int, dtype: np.dtype[Any]) -> Codes:
    """A square array of the host from which the GPU copies fast."""
    memory = cupy().cuda.alloc_pinned_memory(size * size * dtype.itemsize)
    return np.frombuffer(memory, dtype, size * size).reshape(size, size)


def differing(spec: DotSpec, given: DotOperands, pool: Codes | None, threads: int, want: Codes) -> int:
    """Results of the GPU that are not the CPU's. want: memory for the CPU's."""
    on_gpu = DotOperands(*(None if x is None else to_gpu(x) for x in given[:-1]))
    if pool is not None:
        given = given._replace(c=in_rows(pool, len(want), np))
        on_gpu = on_gpu._replace(c=in_rows(to_gpu(pool), len(want), cupy()))
    got = product(spec, on_gpu)
    CPU.gemm(spec, given, threads=threads, out=want)
    return int((got != to_gpu(want)).sum())


def shard_of(text: str) -> slice:
    """Which of the units: "1/3" is every third one, from the second on."""
    first, count = map(int, text.split("/"))
    return slice(first, None, count)


def compare(
    results: float, others: float, seconds: float, threads: int, seed: int, shard: slice, file: Path | None
) -> int:
    """Compare every unit of a shard; returns the number of results that differ."""
    known: dict[str, Any] = json.loads(file.read_text()) if file is not None and file.is_file() else {}
    with ThreadPoolExecutor(1) as ahead:
        for spec, name in list(units().items())[shard]:
            is_fast = tuple(name.split(" ", 1)) in SPEEDS
            wanted = results if is_fast else others
            before = known.get(name, {"results": 0, "differ": 0})
            if before["results"] >= wanted:
                continue
            rng, begin, turn = np.random.default_rng((seed, before["results"])), time.monotonic(), 0
            count, wrong = before["results"], before["differ"]

            def next_operands(
                turn: int, spec: DotSpec = spec, rng: np.random.Generator = rng, is_fast: bool = is_fast
            ) -> tuple[int, Any]:
                kind, k = KINDS[turn % len(KINDS)], DEPTHS[turn // len(KINDS) % len(DEPTHS)]
                size = SMALL if is_fast and turn < len(KINDS) else few_or_many(spec, kind)
                return size, operands(rng, spec, size, k, kind)

            memory = {size: pinned(size, code_dtype(format_of(spec.d))) for size in (SMALL, FEW, SIZE)}
            drawing = ahead.submit(next_operands, turn)
            while count < wanted and time.monotonic() - begin < seconds:
                size, (given, pool) = drawing.result()
                turn += 1
                drawing = ahead.submit(next_operands, turn)
                wrong += differing(spec, given, pool, threads, memory[size])
                count += size * size
            drawing.result()
            formats = {"a": spec.a, "b": spec.b, "c": spec.c, "d": spec.d}
            known[name] = formats | {"loop": loop_of(spec) or "scalar.cuh", "results": count, "differ": wrong}
            print(f"{name}: {count:.3g} results, {wrong} differ, {time.monotonic() - begin:.1f} s", flush=True)
            if file is not None:
                file.write_text(json.dumps(known, indent=1) + "\n")
    differ = int(sum(unit["differ"] for unit in known.values()))
    print(f"{len(known)} units, {sum(unit['results'] for unit in known.values()):.4g} results, {differ} differ")
    return differ


def specs_of(paths: list[Path]) -> list[DotSpec]:
    """The dot units of golden sets."""
    named = dict.fromkeys((meta.device, golden.instruction) for _, meta, golden in all_sets(paths))
    return list(dict.fromkeys(dot_spec(load(device), instruction) for device, instruction in named))


def golden(paths: list[Path], results: int | None, workers: int, file: Path | None) -> int:
    """Golden sets with every product on the GPU; returns the number of results that differ."""
    cuda_backend.LEAST_MACS = cuda_backend.LEAST_MACS_PER_BYTE = 0
    unit_programs.MOST_TERMS_OF_FEWER = 0  # a unit's sets are small: one program computes them
    with ProcessPoolExecutor(workers) as pool:  # before this process has the GPU
        texts = [program_text(spec, divided=False) for spec in specs_of(paths)]
        for done, _ in enumerate(pool.map(compiled, texts), 1):
            if done % 10 == 0 or done == len(texts):
                print(f"{done} of {len(texts)} programs compiled", flush=True)
    known: dict[str, Any] = json.loads(file.read_text()) if file is not None and file.is_file() else {}
    gpu = cuda_backend.cuda_backend()
    for path in golden_files(paths):
        if str(path) not in known:
            begin, sets = time.monotonic(), list(all_sets([path]))
            if not sets:
                continue  # operands alone
            report = verify([path], partial(simulated.mma, backend=gpu), results=results)
            known[str(path)] = report.to_json()
            print(
                f"{path}: {report.results} results, {report.mismatches} differ, {time.monotonic() - begin:.1f} s",
                flush=True,
            )
            for line in report.to_text().splitlines()[:-1]:
                if not line.startswith("ok "):
                    print(line, flush=True)
            if file is not None:
                file.write_text(json.dumps(known, indent=1) + "\n")
    results_of, differ = (sum(x[name] for x in known.values()) for name in ("results", "mismatches"))
    print(f"{len(known)} files, {results_of} results, {differ} differ")
    return int(differ)


def compile_all(workers: int) -> None:
    """The kernels of every unit, and of those of `speed` with small blocks, into the cache, by so many processes."""
    texts = [SUMS, *(program_text(spec, divided=False) for spec in units())]
    chosen = [spec for spec, name in units().items() if tuple(name.split(" ", 1)) in SPEEDS]
    texts += [program_text(spec, False, FEWER) for spec in chosen if spec.unit.terms <= MOST_TERMS_OF_FEWER]
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


def speed(size: int, file: Path | None) -> None:
    """Multiply-accumulates a second of several chips' units, beside the GPU's own FP32 product."""
    rng, gpu = np.random.default_rng(1), cupy()
    x = gpu.asarray(rng.standard_normal((size, size), np.float32))
    own = size**3 / seconds_of(lambda: gpu.matmul(x, x)) / 1e12
    found: dict[str, Any] = {"size": size, "fp32_product_tmacs": own}
    print(f"FP32 product of the GPU: {own:.2f} TMAC/s")
    for device, name in SPEEDS:
        spec = dot_spec(load(device), name)
        few, _ = operands(rng, spec, FEW, size, "normal")
        turns = size // FEW  # the same lines again: they change no speed
        tiled = (None if x is None else to_gpu(np.tile(x, (turns, 1))) for x in (few.a, few.scale_a))
        across = (None if x is None else to_gpu(np.tile(x, (1, turns))) for x in (few.b, few.scale_b))
        (a, scale_a), (b, scale_b) = tiled, across
        given = DotOperands(a, b, None, scale_a, scale_b)
        rate = size**3 / seconds_of(lambda spec=spec, given=given: product(spec, given)) / 1e12
        found[f"{device} {name}"] = {"tmacs": rate, "of_fp32_product": rate / own}
        print(f"{device} {name}: {rate:.2f} TMAC/s, {rate / own:.3f} of it", flush=True)
    if file is not None:
        file.write_text(json.dumps(found, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compare", "golden", "speed", "compile"))
    parser.add_argument("paths", type=Path, nargs="*", help="files and folders of golden sets")
    parser.add_argument("--results", type=float, help="of each unit (1e8), or of each golden set (all)")
    parser.add_argument("--others", type=float, default=1e7, help="of each unit that speed does not measure (1e7)")
    parser.add_argument("--seconds", type=float, default=60, help="at most, of each unit (60)")
    parser.add_argument("--threads", type=int, default=16, help="of the CPU (16)")
    parser.add_argument("--workers", type=int, default=4, help="processes that compile (4)")
    parser.add_argument("--shard", type=shard_of, default=slice(None), metavar="I/N", help="units of compare (all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=8192, help="m, n and k of speed (8192)")
    parser.add_argument("--json", type=Path, help="file of what was found")
    chosen = parser.parse_args()
    differ = 0
    if chosen.what == "compile":
        compile_all(chosen.workers)
    elif chosen.what == "speed":
        speed(chosen.size, chosen.json)
    elif chosen.what == "golden":
        few = None if chosen.results is None else int(chosen.results)
        differ = golden(chosen.paths, few, chosen.workers, chosen.json)
    else:
        results = chosen.results or 1e8
        settings = chosen.seconds, chosen.threads, chosen.seed, chosen.shard, chosen.json
        differ = compare(results, chosen.others, *settings)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
