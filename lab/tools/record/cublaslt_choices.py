r"""Ask cuBLASLt for its choice for many GEMMs, in several processes: what the model of the choice is fitted to.

    python lab/tools/record/cublaslt_choices.py --out FOLDER --seconds 150 --parts aligned:0.6,any:0.4 \
        [--check h200.csv.gz]

Needs a GPU and libcublasLt; nothing of hwsim. Shapes are drawn from (seed, part, chunk) and are not kept: `draw` gives
them again. Writes FOLDER/choices.json (the distinct answers, and what was asked) and one xz file per kind and layout:
indices of answers, uint16, chunk after chunk in the order of choices.json.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import lzma
import multiprocessing as mp
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.append(
    str(Path(__file__).resolve().parents[3] / "hwsim" / "libraries" / "recording")
)  # none of these needs hwsim
from cublaslt import ALIGNMENT_BYTES, ANY_REDUCTION, COMPUTE_TYPE_REDUCTION, WORKSPACE_BYTES, CublasLt, Kind, LtAnswer

CHUNK = 1000  # shapes
HALF = [Kind("fp16", "fp32"), Kind("bf16", "fp32")]
FP8 = [Kind("e4m3", "bf16", fast=True), Kind("e4m3", "fp32", fast=False)]
WIDE = [Kind("tf32", "fp32"), Kind("fp32", "fp32"), Kind("fp64", "fp64")]
INT8 = [Kind("int8", "int32")]
VARIANTS = [
    Kind("fp16", "fp16"), Kind("bf16", "bf16"), Kind("fp16", "fp16", bias=True), Kind("bf16", "bf16", bias=True),
    Kind("tf32", "fp32", bias=True), Kind("fp32", "fp32", bias=True), Kind("e4m3", "fp16", fast=True),
    Kind("e4m3", "fp32", fast=True), Kind("e4m3", "bf16", fast=False), Kind("e4m3", "fp16", fast=False),
    Kind("e5m2", "bf16", fast=True),
]  # fmt: skip
BIASED = [Kind("fp16", "fp16", bias=True), Kind("bf16", "bf16", bias=True)]
BIASED_WIDE = [Kind("tf32", "fp32", bias=True), Kind("fp32", "fp32", bias=True)]
BIASED_DOUBLE = [Kind("fp64", "fp64", bias=True), Kind("fp64", "fp64")]  # refused: PyTorch falls back to cublasGemmEx
SCALED = [
    Kind("e4m3", "bf16", fast=True), Kind("e4m3", "bf16", fast=False), Kind("e4m3", "fp32", fast=False),
    Kind("e4m3", "fp32", fast=True),
]  # fmt: skip
#: 8-bit floats of two formats beside those of one, asked for the same shapes.
MIXED = [
    Kind(first, output, fast, operand_b=second)
    for output in ("bf16", "fp16", "fp32") for fast in (True, False)
    for first, second in (("e4m3", None), ("e4m3", "e5m2"), ("e5m2", "e4m3"))
]  # fmt: skip
#: Workspace in bytes and allowed reductions, as PyTorch 2.11 asks: for mm of wide outputs (and by default), for mm of
#: narrow ones, for addmm, linear and _scaled_mm, and for _int_mm.
ANY, NARROW = (WORKSPACE_BYTES, ANY_REDUCTION), (WORKSPACE_BYTES, COMPUTE_TYPE_REDUCTION)
SMALL, SMALL_ANY, NONE = (1 << 20, COMPUTE_TYPE_REDUCTION), (1 << 20, ANY_REDUCTION), (0, ANY_REDUCTION)
#: The same as batch-invariant serving asks (CUBLASLT_WORKSPACE_SIZE=1, CUBLAS_WORKSPACE_CONFIG=:16:8): for linear, for
#: mm of narrow outputs and of wide ones.
LEAST, LITTLE = (1 << 10, COMPUTE_TYPE_REDUCTION), (1 << 17, COMPUTE_TYPE_REDUCTION)
LITTLE_ANY = (1 << 17, ANY_REDUCTION)
POINTERS = (2, 4, 8, 16)  # bytes to which pointers are aligned, beside 256
ALIGNED = (
    "aligned",
    "linear_aligned",
    "scaled",
    "int8",
    "long_aligned",
    "mixed",
    "default_aligned",
    "invariant_aligned",
)
UNALIGNED = (
    "unaligned", "narrow", "linear_unaligned", "long_unaligned", "default_linear", "default_mm", "invariant_unaligned",
    "pointers",
)  # fmt: skip
OF_LAYERS = ("default_linear_layers", "default_mm_layers")  # rows that are not whole 16 bytes, sizes as of layers
ROWS_ROWS, ROWS_COLUMNS, COLUMNS_ROWS, COLUMNS_COLUMNS = (False, False), (False, True), (True, False), (True, True)


Asked = tuple[Kind, tuple[bool, bool], tuple[int, ...]]  # the last: workspace, reductions, perhaps alignment


def asked(part: str) -> list[Asked]:
    """Kinds, layouts (A by columns, B by columns) and preferences of a part."""
    both, two = (ROWS_ROWS, ROWS_COLUMNS), (COLUMNS_ROWS, COLUMNS_COLUMNS)
    if part == "aligned":
        return [(x, y, ANY) for x in HALF for y in both] + [(x, ROWS_COLUMNS, ANY) for x in FP8]
    if part == "turned":
        return [(x, y, ANY) for x in (*HALF, *WIDE) for y in two]
    if part in ("unaligned", "long_aligned"):
        return [(x, y, ANY) for x in HALF for y in both]
    if part == "long_unaligned":
        narrow = (Kind("fp16", "fp16"), Kind("bf16", "bf16"))
        return [(x, y, ANY) for x in HALF for y in both] + [(x, y, NARROW) for x in narrow for y in both]
    if part == "long_any":
        return [(x, y, ANY) for x in WIDE for y in both]
    if part == "any":
        return [(x, y, ANY) for x in WIDE for y in both] + [(x, ROWS_COLUMNS, ANY) for x in INT8]
    if part in ("variants", "vector"):
        every = [*HALF, *WIDE, *VARIANTS]
        return [(x, y, ANY) for x in every for y in both if x.fast is None or y == ROWS_COLUMNS] + [
            (x, ROWS_COLUMNS, ANY) for x in (*FP8, *INT8)
        ]
    if part == "mixed":
        return [(x, ROWS_COLUMNS, SMALL_ANY) for x in MIXED]
    if part == "batch_narrow":  # whose tiles may be other ones than those of wide results
        every = [Kind("bf16", "bf16"), Kind("fp16", "fp16"), *WIDE[:2]]
        return [(x, y, ANY) for x in every for y in (*both, *two)]
    if part == "batch_turned":
        return [(x, y, ANY) for x in (*HALF, *WIDE) for y in two]
    if part == "batch":
        return [(x, y, ANY) for x in (*HALF, *WIDE) for y in both]
    if part == "narrow":
        return [(x, y, NARROW) for x in (Kind("fp16", "fp16"), Kind("bf16", "bf16")) for y in both]
    if part in ("linear", "linear_vector"):
        return [(x, y, SMALL) for x in BIASED for y in both] + [(x, y, SMALL_ANY) for x in BIASED_WIDE for y in both]
    if part in ("linear_double", "linear_double_vector"):
        return [(x, y, SMALL_ANY) for x in BIASED_DOUBLE for y in both]
    if part == "linear_aligned":
        return [(x, y, SMALL) for x in BIASED for y in both]
    if part == "linear_unaligned":
        return [(x, y, SMALL) for x in BIASED for y in both]
    if part == "scaled":
        return [(x, ROWS_COLUMNS, SMALL_ANY) for x in SCALED]
    if part == "layers":
        every = [(x, ANY) for x in (*HALF, Kind("tf32", "fp32"), Kind("fp32", "fp32"))]
        every += [(Kind("e4m3", "bf16", fast=True), SMALL_ANY), *((x, SMALL) for x in BIASED)]
        return [(x, ROWS_COLUMNS, preference) for x, preference in every]
    if part == "weights":
        every = [(Kind(x, x), NARROW) for x in ("bf16", "fp16")]
        every += [(Kind("e4m3", "bf16", fast=True), SMALL_ANY), *((Kind(x, "fp32"), ANY) for x in ("tf32", "fp32"))]
        return [(x, ROWS_COLUMNS, preference) for x, preference in every]
    biased, narrow = [(x, y) for x in BIASED for y in both], [(Kind(x, x), y) for x in ("fp16", "bf16") for y in both]
    if part.startswith(("default_linear", "default_aligned", "default_vector")):
        return [(x, y, SMALL_ANY) for x, y in biased]
    if part.startswith("default_mm"):
        return [(x, y, ANY) for x, y in narrow]
    if part.startswith("invariant"):
        every = [(x, y, LEAST) for x, y in biased] + [(x, y, LITTLE) for x, y in narrow]
        return every + [(x, y, LITTLE_ANY) for x in HALF for y in both]
    if part == "pointers":
        return [(BIASED[0], y, (1 << 20, ANY_REDUCTION, size)) for y in both for size in (*POINTERS, ALIGNMENT_BYTES)]
    if part == "int8":
        return [(x, ROWS_COLUMNS, NONE) for x in INT8]
    raise SystemExit(f"no part {part}")


def draw(part: str, seed: int, chunk: int) -> np.ndarray:
    """(CHUNK, 4) sizes m, n, k and batch. Log-uniform in 8 .. 16384, a sixth in 1 .. 131072, cut to multiples.

    Two thirds have one multiple for all sizes, the others one each; "aligned" ones are of 8 at least, "unaligned" ones
    of 1, 2 or 4 in a size at least; "vector" ones have m or n of 1; "long" ones have m and n to 10,240, K of 4,096 to
    40,960; for "layers" see drawn_layers, for "weights" drawn_weights.
    """
    rng = np.random.default_rng([seed, sum(part.encode()), chunk])
    if part == "layers":
        return drawn_layers(rng)
    if part == "weights":
        return drawn_weights(rng)
    if part in OF_LAYERS:
        return drawn_ragged(rng)
    wide = rng.random(CHUNK) < 1 / 6
    x = np.where(wide[:, None], 2 ** rng.uniform(0, 17, (CHUNK, 3)), 2 ** rng.uniform(3, 14, (CHUNK, 3)))
    if part.startswith("long"):
        x = np.stack([*(10240 ** rng.uniform(0, 1, (2, CHUNK))), 4096 * 10 ** rng.uniform(0, 1, CHUNK)], 1)
    if part in ALIGNED:
        units = np.array([64, 64, 16, 8, 8, 256, 128, 32])
    elif part in UNALIGNED:
        units = np.array([1, 1, 1, 2, 4])
    else:
        units = np.array([64, 64, 16, 16, 8, 8, 1, 256])
    step = units[rng.integers(0, len(units), (CHUNK, 3))]
    one = rng.random(CHUNK) < 2 / 3
    step[one] = step[one][:, :1]
    if part in UNALIGNED:  # an aligned size or two beside the odd one
        some = rng.random((CHUNK, 3)) < np.where(one, 0, 0.5)[:, None]
        step = np.where(some, 8, step)
    if part in ALIGNED:  # m may be anything: it is no leading dimension while A and C are row-major
        step[:, 0] = np.where(rng.random(CHUNK) < 0.3, 1, step[:, 0])
    sizes = np.maximum(x.astype(np.int64) // step * step, step)
    if part.endswith("vector"):
        place = (rng.random(CHUNK) < 0.3).astype(int)
        sizes[np.arange(CHUNK), place] = 1
    batch = np.ones(CHUNK, np.int64)
    if part.startswith("batch"):
        batch = (2 ** rng.uniform(1, 9, CHUNK)).astype(np.int64)
        sizes = np.minimum(sizes, 4096)
    # what no operand may exceed: 2^31 elements in a matrix
    big = (
        (sizes[:, 0] * sizes[:, 1] >= 2**31)
        | (sizes[:, 0] * sizes[:, 2] >= 2**31)
        | (sizes[:, 1] * sizes[:, 2] >= 2**31)
    )
    sizes[big] = np.minimum(sizes[big], 16384)
    return np.concatenate([sizes, batch[:, None]], 1)


def drawn_layers(rng: np.random.Generator) -> np.ndarray:
    """(CHUNK, 4) sizes as of layers: n and k multiples of 64 to 512 in 256 .. 32768 (n: a tenth to 163840), any m, half
    of them up to 256.
    """
    step = rng.choice([64, 128, 256, 512], (CHUNK, 2))
    wide = np.where(rng.random(CHUNK) < 0.1, 163840, 32768)
    n = 256 * (wide / 256) ** rng.random(CHUNK)
    k = 256 * 128 ** rng.random(CHUNK)
    n, k = (np.maximum(np.round(x / step[:, i]), 1).astype(np.int64) * step[:, i] for i, x in enumerate((n, k)))
    m = np.where(rng.random(CHUNK) < 0.5, 256 ** rng.random(CHUNK), 16384 ** rng.random(CHUNK)).astype(np.int64)
    return np.stack([m, n, k, np.ones(CHUNK, np.int64)], 1)


def drawn_weights(rng: np.random.Generator) -> np.ndarray:
    """(CHUNK, 4) sizes as of batch classes: n and k multiples of 64 in 256 .. 32768, m to 8192, half of them of 8."""
    n, k = (np.round(256 * 128 ** rng.random(CHUNK) / 64).astype(np.int64) * 64 for _ in range(2))
    m = (8193 ** rng.random(CHUNK)).astype(np.int64)
    m = np.where(rng.random(CHUNK) < 0.5, m, -(-m // 8) * 8)
    return np.stack([m, n, k, np.ones(CHUNK, np.int64)], 1)


def drawn_ragged(rng: np.random.Generator) -> np.ndarray:
    """(CHUNK, 4) sizes of layers whose rows are not whole 16 bytes: m 1 .. 2048, n 16 .. 8192, k 64 .. 16384, half of
    them uniform in 1 .. 640, 128 .. 3072, 512 .. 13312; each of m, n, k odd, or a multiple of 2 or 4.
    """
    log = np.stack([2048 ** rng.random(CHUNK), 16 * 512 ** rng.random(CHUNK), 64 * 256 ** rng.random(CHUNK)], 1)
    uniform = np.stack([rng.uniform(*span, CHUNK) for span in ((1, 641), (128, 3073), (512, 13313))], 1)
    x = np.where(rng.random(CHUNK)[:, None] < 0.5, log, uniform).astype(np.int64)
    step = np.array([1, 1, 1, 2, 2, 4])[rng.integers(0, 6, (CHUNK, 3))]
    sizes = np.maximum(x // step * step, step)
    return np.concatenate([sizes, np.ones((CHUNK, 1), np.int64)], 1)


def work(task: tuple[str, int, int]) -> tuple[str, int, list[LtAnswer], np.ndarray]:
    """Answers of a chunk: a table of the distinct ones, and (kinds, CHUNK) indices."""
    part, seed, chunk = task
    global lt
    if "lt" not in globals():
        lt = CublasLt()
    table: dict[LtAnswer, int] = {}
    wanted, shapes = asked(part), draw(part, seed, chunk).tolist()
    codes = np.zeros((len(wanted), CHUNK), np.int32)
    for i, (kind, (a_columns, b_columns), (workspace, reductions, *pointers)) in enumerate(wanted):
        alignment = pointers[0] if pointers else ALIGNMENT_BYTES
        for j, (m, n, k, batch) in enumerate(shapes):
            answer = lt.ask(
                kind, m, n, k, a_columns=a_columns, b_columns=b_columns, batch=batch, workspace=workspace,
                reductions=reductions, alignment=alignment,
            )  # fmt: skip
            codes[i, j] = table.setdefault(answer, len(table))
    return part, chunk, list(table), codes


def check(path: str, rows: int) -> tuple[int, int]:
    """Answers equal to those of a recorded file with a column per attribute, and how many were asked."""
    lt, equal, count = CublasLt(), 0, 0
    with gzip.open(path, "rt") as file:
        for number, row in enumerate(csv.DictReader(file)):
            if number % 997:
                continue
            operand, _, output = row["kind"].partition(">")
            bias = output.endswith("+bias")
            output = output.removesuffix("+bias")
            fast = True if output.endswith("fast") else False if output.endswith("slow") else None
            output = output.removesuffix("fast").removesuffix("slow")
            kind = Kind(operand, output, fast, bias)
            answer = lt.ask(kind, int(row["m"]), int(row["n"]), int(row["k"]), b_columns=row["layout"] == "columns")
            names = ("id", "tile", "stages", "splitk", "reduction", "swizzle", "custom", "inner", "cluster")
            given = LtAnswer(*(int(row[x]) for x in names)) if row["status"] == "0" else None
            equal += (answer.id == -1) if given is None else answer == given
            count += 1
            if count >= rows:
                break
    return equal, count


def packed(item: tuple[Path, np.ndarray]) -> int:
    """Write one column, low bytes before high ones."""
    path, column = item
    data = column.astype("<u2").view(np.uint8).reshape(-1, 2).T.tobytes()
    path.write_bytes(lzma.compress(data, preset=4))
    return path.stat().st_size


def main() -> None:
    """Ask until the time is up, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--parts", default="aligned:0.4,any:0.3,unaligned:0.1,turned:0.1,variants:0.05,vector:0.05")
    parser.add_argument("--check")
    arguments = parser.parse_args()
    context = mp.get_context("spawn")
    if arguments.check:
        with context.Pool(1) as pool:
            equal, count = pool.apply(check, (arguments.check, 300))
        print(f"{equal} of {count} answers as in {Path(arguments.check).name}", flush=True)
        if equal < 0.9 * count:
            raise SystemExit("the interface does not agree")
    shares = {name: float(share) for name, _, share in (x.partition(":") for x in arguments.parts.split(","))}
    weights = {part: share / len(asked(part)) for part, share in shares.items()}
    total = sum(weights.values())
    order, owed, chunks = [], dict.fromkeys(weights, 0.0), dict.fromkeys(weights, 0)
    for _ in range(200_000 // 8):
        for part in weights:
            owed[part] += weights[part] / total
        part = max(owed, key=lambda x: owed[x])
        owed[part] -= 1
        order.append((part, arguments.seed, chunks[part]))
        chunks[part] += 1
    start, results, rows = time.time(), {}, 0
    table: dict[LtAnswer, int] = {}
    pool = context.Pool(arguments.processes)
    try:
        for part, chunk, answers, codes in pool.imap(work, order, chunksize=1):
            mine = np.array([table.setdefault(tuple(x), len(table)) for x in answers], np.int64)
            results.setdefault(part, []).append((chunk, mine[codes].astype(np.uint16)))
            rows += codes.size
            if time.time() - start > arguments.seconds:
                break
    finally:
        pool.terminate()
    print(f"{rows} rows, {len(table)} distinct answers, {time.time() - start:.0f} s", flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    counts = np.bincount(np.concatenate([c.ravel() for x in results.values() for _, c in x]), minlength=len(table))
    rank = np.argsort(-counts, kind="stable")
    place = np.empty(len(table), np.int64)
    place[rank] = np.arange(len(table))
    jobs, said = [], []
    for part, found in results.items():
        found.sort(key=lambda x: x[0])
        wanted = asked(part)
        for i, (kind, (a_columns, b_columns), (workspace, reductions, *pointers)) in enumerate(wanted):
            file = f"{part}.{len(jobs)}.xz"
            said.append({
                "part": part, "kind": kind.name, "a_layout": "columns" if a_columns else "rows",
                "b_layout": "columns" if b_columns else "rows", "workspace_bytes": workspace,
                "reductions": reductions, "pointers": pointers, "file": file, "chunks": [x[0] for x in found],
            })  # fmt: skip
            jobs.append((arguments.out / file, place[np.concatenate([c[i] for _, c in found])]))
    with mp.get_context("fork").Pool(arguments.processes) as packers:
        sizes = packers.map(packed, jobs, chunksize=1)
    lt = context.Pool(1)
    version = lt.apply(_version)
    lt.terminate()
    listed = [list(map(int, x)) for x in table]
    meta = {
        "version": version, "seed": arguments.seed, "chunk": CHUNK, "fields": list(LtAnswer._fields),
        "answers": [listed[i] for i in rank], "columns": said,
    }  # fmt: skip
    (arguments.out / "choices.json").write_text(json.dumps(meta))
    print(f"{sum(sizes) / 1e6:.1f} MB, {time.time() - start:.0f} s")


def _version() -> int:
    return CublasLt().version


if __name__ == "__main__":
    main()
