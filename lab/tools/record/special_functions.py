"""All 2^32 results of NVIDIA's special functions: recorded on a GPU as hashes and samples, compared with hwsim's.

    python lab/tools/record/special_functions.py record results.npz  # needs a GPU, nvcc, NumPy, CuPy; nothing of hwsim
    python lab/tools/record/special_functions.py check tests/golden/h200_mufu/results.npz --processes 8

`record` takes 10 seconds. `check` computes hwsim's results of every code, on the CPU: 2 to 3 minutes of a core for each
instruction and up to 9 for a function of CUDA. It exits with 1 where a hash differs and says in which codes.

results.npz has, by name of hwsim.mufu (and "NAME fast": by -use_fast_math): "hash/NAME", (256,) uint64, one for each
2^24 codes; "samples/NAME", results of the codes "samples"; "all/NAME", every result of an instruction of 16 bits. A
hash is the sum, modulo 2^64, of `mixed` codes and results: a result that differs changes it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK, CHUNKS, BLOCK = 1 << 24, 256, 1 << 14  # codes of a hash, hashes, codes that caches hold
THREADS = 256  # of a block on the GPU
FAST = " fast"
INSTRUCTIONS = {
    **{name: f"{name}.approx.ftz.f32" for name in ("ex2", "rcp", "rsqrt", "sqrt", "lg2", "sin", "cos")},
    "tanh": "tanh.approx.f32",
    **{f"{name}.approx.f32": f"{name}.approx.f32" for name in ("ex2", "rcp", "rsqrt", "sqrt", "lg2")},
}
NARROW = {
    "ex2.approx.f16": "ex2.approx.f16x2",
    "ex2.approx.ftz.bf16": "ex2.approx.ftz.bf16x2",
    "tanh.approx.f16": "tanh.approx.f16x2",
    "tanh.approx.bf16": "tanh.approx.bf16x2",
}
CUDA = ("expf", "exp2f", "rsqrtf", "logf", "tanhf", "erff", "sinf", "cosf", "__expf", "__logf", "__sinf", "__cosf")
NO_FAST = ("tanhf", "erff")  # hwsim has no form of theirs by -use_fast_math
NAMES = (*INSTRUCTIONS, *CUDA, *(name + FAST for name in CUDA if name not in NO_FAST))

HEAD = """
#include <cstdint>
extern "C" __global__ void hash_of(const uint32_t *results, uint32_t first, unsigned long long *sum) {
    unsigned long long total = 0;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < 1u << 24; i += gridDim.x * blockDim.x) {
        uint64_t z = (uint64_t)(first + i) << 32 | results[i];
        z *= 0x9E3779B97F4A7C15ull;
        z ^= z >> 32;
        z *= 0xD6E8FEB86659FD93ull;
        total += z ^ z >> 32;
    }
    atomicAdd(sum, total);
}
"""
KERNEL = """
extern "C" __global__ void k%(number)d(const uint32_t *given, uint32_t first, uint32_t *results) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    float y, x = __uint_as_float(given ? given[i] : first + i);
    %(body)s;
    results[i] = __float_as_uint(y);
}
"""
PAIR = """
extern "C" __global__ void k%(number)d(const uint32_t *given, uint32_t first, uint32_t *results) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, y, x = (first + i) * 0x10001;
    asm volatile("%(text)s %%0, %%1;" : "=r"(y) : "r"(x));
    results[i] = y;
}
"""


def mixed(first: int, results: NDArray[np.uint32]) -> int:
    """The hash of the results of consecutive codes."""
    z = (np.arange(len(results), dtype=np.uint64) + np.uint64(first)) << np.uint64(32) | results
    z *= np.uint64(0x9E3779B97F4A7C15)
    z ^= z >> np.uint64(32)
    z *= np.uint64(0xD6E8FEB86659FD93)
    z ^= z >> np.uint64(32)
    return int(z.sum(dtype=np.uint64))


def sample_codes() -> NDArray[np.uint32]:
    """32 codes of each sign and exponent: edges, borders of segments, drawn ones."""
    draw = np.random.default_rng(44)
    rows = []
    for top in range(512):
        borders = (draw.integers(0, 128, 16) << 16) + draw.integers(-1, 2, 16)
        fractions = np.concatenate([[0, 1, 0x400000, 0x7FFFFF], borders % (1 << 23), draw.integers(0, 1 << 23, 12)])
        rows.append((top << 23 | fractions).astype(np.uint32))
    return np.concatenate(rows)


def source_of(names: list[str]) -> str:
    """CUDA's source of the kernels of some names."""
    parts = [HEAD]
    for number, name in enumerate(names):
        if name in NARROW:
            parts.append(PAIR % {"number": number, "text": NARROW[name]})
        else:
            text = f'asm volatile("{INSTRUCTIONS.get(name)} %0, %1;" : "=f"(y) : "f"(x))'
            call = f"y = {name.removesuffix(FAST)}(x)"
            parts.append(KERNEL % {"number": number, "body": text if name in INSTRUCTIONS else call})
    return "".join(parts)


def record(path: Path) -> None:
    """Record on the GPU of this machine."""
    import cupy

    device = cupy.cuda.runtime.getDeviceProperties(0)
    major, minor = device["major"], device["minor"]
    usual = [*NARROW, *(name for name in NAMES if not name.endswith(FAST))]
    fast = [name for name in NAMES if name.endswith(FAST)]
    codes = sample_codes()
    arrays: dict[str, Any] = {"samples": codes}
    results, no_codes = cupy.empty(CHUNK, cupy.uint32), np.uintp(0)
    with tempfile.TemporaryDirectory() as folder:
        for names, flags in ((usual, []), (fast, ["-use_fast_math"])):
            source, binary = Path(folder, "kernels.cu"), Path(folder, f"kernels{len(names)}.cubin")
            source.write_text(source_of(names))
            subprocess.run(["nvcc", f"-arch=sm_{major}{minor}", "-cubin", *flags, "-o", binary, source], check=True)
            module = cupy.RawModule(path=str(binary))
            hash_of = module.get_function("hash_of")
            for number, name in enumerate(names):
                kernel = module.get_function(f"k{number}")
                if name in NARROW:
                    kernel(((1 << 16) // THREADS,), (THREADS,), (no_codes, np.uint32(0), results))
                    pairs = cupy.asnumpy(results[: 1 << 16])
                    assert np.array_equal(pairs & 0xFFFF, pairs >> 16), name
                    arrays[f"all/{name}"] = pairs.astype(np.uint16)
                    continue
                sums = cupy.zeros(CHUNKS, cupy.uint64)
                for chunk in range(CHUNKS):
                    first = np.uint32(chunk * CHUNK)
                    kernel((CHUNK // THREADS,), (THREADS,), (no_codes, first, results))
                    hash_of((4096,), (THREADS,), (results, first, sums[chunk:]))
                arrays[f"hash/{name}"] = cupy.asnumpy(sums)
                kernel((len(codes) // THREADS,), (THREADS,), (cupy.asarray(codes), np.uint32(0), results))
                arrays[f"samples/{name}"] = cupy.asnumpy(results[: len(codes)])
    compiler = subprocess.run(["nvcc", "--version"], check=True, capture_output=True, text=True).stdout
    about = {"hardware": device["name"].decode(), "compiler": compiler.strip().splitlines()[-2]}
    np.savez_compressed(path, about=json.dumps(about), **arrays)


def hwsim_hash(name: str, chunk: int) -> int:
    """The hash of hwsim's results of a chunk."""
    import hwsim

    function, fast_math, device = name.removesuffix(FAST), name.endswith(FAST), hwsim.device("h100")
    total = 0
    for first in range(chunk * CHUNK, (chunk + 1) * CHUNK, BLOCK):
        codes = np.arange(first, first + BLOCK, dtype=np.uint32)
        total += mixed(first, hwsim.mufu(function, codes, device, fast_math=fast_math))
    return total % 2**64


def check(path: Path, names: list[str], processes: int) -> bool:
    """Whether hwsim's results have the recorded hashes; names the codes of the chunks where they have not.

    No names: every function that is recorded. Raises ValueError where one is not.
    """
    with np.load(path) as archive:
        recorded = [name for name in NAMES if f"hash/{name}" in archive]
        names = names or recorded
        if missing := [name for name in names if name not in recorded]:
            raise ValueError(f"{path} has no hashes of {', '.join(missing)}; it has {', '.join(recorded)}")
        wanted = {name: archive[f"hash/{name}"] for name in names}
    is_equal = True
    with ProcessPoolExecutor(processes) as pool:
        for name in names:
            jobs = {pool.submit(hwsim_hash, name, chunk): chunk for chunk in range(CHUNKS)}
            wrong = sorted(jobs[job] for job in as_completed(jobs) if job.result() != int(wanted[name][jobs[job]]))
            for chunk in wrong:
                print(f"{name}: differs in codes {chunk * CHUNK:#010x} to {(chunk + 1) * CHUNK - 1:#010x}")
            print(f"{name}: {CHUNKS - len(wrong)} of {CHUNKS} chunks of 2^24 results equal", flush=True)
            is_equal &= not wrong
    return is_equal


def main() -> int:
    """Run a verb."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    recorder = verbs.add_parser("record", help="results of this machine's GPU")
    recorder.add_argument("path", type=Path, help="file to write, .npz")
    checker = verbs.add_parser("check", help="hwsim's results beside recorded ones")
    checker.add_argument("path", type=Path, help="recorded file, .npz")
    checker.add_argument(
        "--names", nargs="+", choices=NAMES, default=[], metavar="NAME", help="default: all that the file has"
    )
    checker.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.verb == "record":
        record(arguments.path)
        return 0
    try:
        return 0 if check(arguments.path, arguments.names, arguments.processes) else 1
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
