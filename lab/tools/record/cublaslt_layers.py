"""Ask cuBLASLt for its choice for weights of layers, over every m: where along m does the order of summation change?

    python lab/tools/record/cublaslt_layers.py --out layers.npz [--kinds nvjet|wide|all] [--besides FILE.npz]
    python lab/tools/record/cublaslt_layers.py --out drawn.npz --kinds classes --drawn 300 --seed 5
    python lab/tools/record/cublaslt_layers.py --out spans.npz --kinds nvjet --spans 512:4096:64

Needs a GPU and libcublasLt; nothing of hwsim. Weights are those of the models in layers.csv (their own config files),
whole and sharded, all pairs of SIZES, and others of small networks; or, with --drawn, as many drawn at random (n and k
multiples of 64, log-uniform in 512 .. 32768); or, with --spans, of each n the ends of each span of K within which
nvjet's slices hardly change (hwsim/libraries/cublas/answers/neighbours.py). Not every m is asked for: a grid that holds
each m to 64, and of larger ones multiples of a step and what comes after them, and between two that differ by
bisection. On 84 sweeps that were asked for every m to 8192 (an H100, CUDA 13.0, 2026-11-23) this gives every change.
Writes the answers and, for each kind and weight, the first m of each run of equal answers.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing as mp
import os
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np

sys.path.append(
    str(Path(__file__).resolve().parents[3] / "hwsim" / "libraries" / "recording")
)  # none of these needs hwsim
from cublaslt import CublasLt, Kind, LtAnswer
from cublaslt_choices import ANY, NARROW, SMALL, SMALL_ANY
from rows_asked import grid, runs

LARGEST = 8192
SPAN, LINE, LONGEST = 1280, 64, 32768  # of K, elements of 16 bits: a span has 20 tiles; those of 8 bits have two spans
NVJET = 66  # whose tiles, stages and clusters change often along m and change no bit
#: Kinds as PyTorch asks for them.
HALVES = [
    *((Kind(x, x), NARROW) for x in ("bf16", "fp16")),
    *((Kind(x, x, bias=True), SMALL) for x in ("bf16", "fp16")),
    *((Kind("e4m3", "bf16", fast=fast), SMALL_ANY) for fast in (True, False)),
]
WIDE = [
    *((Kind(x, "fp32"), ANY) for x in ("tf32", "fp32")),
    *((Kind(x, "fp32", bias=True), SMALL_ANY) for x in ("tf32", "fp32")),
]
CLASSES = [*HALVES[:2], (Kind("e4m3", "bf16", fast=True), SMALL_ANY), *WIDE[:2]]  # those of batch_classes.py
SETS = {"nvjet": HALVES, "wide": WIDE, "all": [*HALVES, *WIDE], "classes": CLASSES}
SIZES = (
    *(512, 768, 1024, 1280, 1536, 2048, 2304, 2560, 2880, 3072, 3584, 3840, 4096, 4608, 4864, 5120, 5376, 6144, 6912),
    *(7168, 7680, 8192, 8960, 9216, 9728, 10240, 10944, 11008, 12288, 13696, 13824, 14336, 15360, 16384, 17408, 17920),
    *(18432, 18944, 20480, 21504, 22016, 22528, 24576, 25600, 27648, 28672, 29568, 32768, 36864),
)  # fmt: skip
#: Of small networks: outputs, and inputs.
SMALL_N = (10, 16, 32, 64, 100, 128, 192, 256, 320, 384, 512, 640, 768, 1000, 1024)
SMALL_K = (64, 128, 192, 256, 320, 384, 512, 640, 768, 784, 1000, 1024, 1536, 2048)
STEPPED = ((256, 8192), (512, 16384))  # all pairs of multiples of the first, up to the second
Order = tuple[int, ...]


def weights() -> list[tuple[int, int]]:
    """(n, k) of every weight: n outputs, k inputs."""
    found = {*product(SIZES, SIZES), *product(SMALL_N, SMALL_K)}
    for step, largest in STEPPED:
        found.update(product(range(step, largest + 1, step), repeat=2))
    with (Path(__file__).parent / "layers.csv").open() as file:
        for row in csv.DictReader(file):
            hidden, q, kv, inner, vocabulary = (int(row[x]) for x in ("hidden", "q", "kv", "intermediate", "vocab"))
            for shards in map(int, row["shards"].split()):
                whole = [(q, hidden), (kv, hidden), (q + 2 * kv, hidden), (inner, hidden), (2 * inner, hidden)]
                found.update((n // shards, k) for n, k in [*whole, (vocabulary, hidden)] if n % shards == 0)
                found.update((hidden, k // shards) for k in (q, inner) if k % shards == 0)
    return sorted(x for x in found if x[1] >= 64)


def drawn_weights(count: int, seed: int) -> list[tuple[int, int]]:
    """(n, k) of weights of no known network."""
    rng, found = np.random.default_rng(seed), set()
    while len(found) < count:
        n, k = (round(512 * 64 ** rng.random() / 64) * 64 for _ in range(2))
        found.add((n, k))
    return sorted(found)


def span_weights(sizes_n: range) -> list[tuple[int, int]]:
    """(n, k) of both ends of each span of K, in whole tiles, for each n."""
    ends = sorted({end for first in range(0, LONGEST, SPAN) for end in (first + LINE, min(first + SPAN, LONGEST))})
    return list(product(sizes_n, ends))


def order(answer: LtAnswer) -> Order:
    """What of an answer may fix bits: id, stages, slices, reduction, custom option, tile, cluster, swizzle; of nvjet
    the first four, the others 0 and -1.
    """
    first = (answer.id, answer.stages, answer.splitk, answer.reduction)
    if answer.id == NVJET:
        return (*first, 0, -1, -1, -1)
    return (*first, answer.custom, answer.tile, answer.cluster, answer.swizzle)


def work(task: tuple[int, int, int, str]) -> list[tuple[int, Order]]:
    """The runs of one kind and weight."""
    index, n, k, name = task
    kind, (workspace, reductions) = SETS[name][index]
    global lt
    if "lt" not in globals():
        lt = CublasLt()
    return list(
        runs(
            lambda m: order(lt.ask(kind, m, n, k, b_columns=True, workspace=workspace, reductions=reductions)),
            grid(1, LARGEST),
        )
    )


def main() -> None:
    """Ask, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--kinds", default="all", choices=sorted(SETS))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--besides", type=Path, help="a file of this command: its weights are not asked for again")
    parser.add_argument("--drawn", type=int, default=0, help="so many weights drawn at random in place of the layers'")
    parser.add_argument("--seed", type=int, default=1, help="of --drawn")
    parser.add_argument("--spans", help="FIRST:LAST:STEP of n (LAST included), for the ends of each span of K")
    arguments = parser.parse_args()
    begun, wanted = time.time(), SETS[arguments.kinds]
    listed = drawn_weights(arguments.drawn, arguments.seed) if arguments.drawn else weights()
    if arguments.spans:
        first, last, step = map(int, arguments.spans.split(":"))
        listed = span_weights(range(first, last + 1, step))
    if arguments.besides is not None:
        with np.load(arguments.besides) as file:
            known = {(n, k) for n, k in file["weights"].tolist()}
        listed = [weight for weight in listed if weight not in known]
    tasks = [(i, n, k, arguments.kinds) for i in range(len(wanted)) for n, k in listed]
    with mp.get_context("spawn").Pool(arguments.processes) as pool:
        found = pool.map(work, tasks, chunksize=8)
        version = pool.apply(_version)
    table: dict[Order, int] = {}
    labels = [[table.setdefault(answer, len(table)) for _, answer in sweep] for sweep in found]
    np.savez_compressed(
        arguments.out,
        version=np.int64(version),
        largest=np.int64(LARGEST),
        kinds=np.array([f"{kind.name} {workspace} {mask}" for kind, (workspace, mask) in wanted]),
        weights=np.array(listed, np.int32),
        answers=np.array(list(table), np.int32),
        counts=np.array([len(x) for x in found], np.int32).reshape(len(wanted), len(listed)),
        firsts=np.array([m for sweep in found for m, _ in sweep], np.uint16),
        labels=np.array([x for sweep in labels for x in sweep], np.uint16),
    )
    print(f"{len(tasks)} sweeps, {sum(map(len, found))} runs, {len(table)} orders, {time.time() - begun:.0f} s")


def _version() -> int:
    return CublasLt().version


if __name__ == "__main__":
    main()
