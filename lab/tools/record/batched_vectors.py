"""Run strided batches of matrix-vector products as PyTorch's bmm does: bits of some results, kernels, their launches.

    python lab/tools/record/batched_vectors.py --out vectors.npz --seed 1 [--count 40000] [--seconds 120]

Shapes are drawn from the seed (`draw`): m or n is 1. Operands are slices of one pool of values (`pool`), which begin
where `places` says, so that whoever reads the file has them again; of each batch only the last product counts. Needs a
GPU, PyTorch with CUDA and cuBLASLt, which is asked for its choice as well; nothing of hwsim.

Arrays of the file: `words` (batches, 8) are results as unsigned integers; `kernels` (batches, 3, 8) are, of each kernel
that ran, its place in the list of names (-1: none), grid (3), block (3), and bytes of shared memory; `answers`
(batches, 9) are cuBLASLt's, fields as of cublaslt.LtAnswer; `meta` says the rest.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(
    str(Path(__file__).resolve().parents[3] / "hwsim" / "libraries" / "recording")
)  # none of these needs hwsim

KINDS = ("fp32>fp32", "tf32>fp32", "fp64>fp64", "fp16>fp16", "bf16>bf16", "fp16>fp32", "bf16>fp32")
SHARES = (0.25, 0.25, 0.3, 0.06, 0.06, 0.04, 0.04)
FIELDS = ("kind", "a_columns", "b_columns", "m", "n", "k", "batch")
STEPS = (64, 64, 8, 1)
MOST_LENGTH, MOST_K, MOST_BATCH, MOST_ELEMENTS = 10000, 32768, 512, 2**27
POOL, RESULTS, CHUNK, KERNELS = 2**20, 8, 500, 3
MARKER = "spin_kernel"


def draw(seed: int, count: int) -> np.ndarray:
    """(count, 7) integers, FIELDS. Number of results log-uniform in 1 .. 10,000, K in 1 .. 32,768, 2 to 512 products,
    at most 2^27 elements in all; half in multiples of 64, a quarter of 8. A fifth has sizes a power of two, one less or
    one more.
    """
    rng = np.random.default_rng([seed, 0])
    found = np.zeros((count, len(FIELDS)), np.int64)
    kinds = rng.choice(len(KINDS), count, p=SHARES)
    for index in range(count):
        while True:
            if rng.random() < 0.2:
                exponents = rng.integers(0, (14, 16, 10))
                length, k, batch = (2**exponents + rng.integers(-1, 2, 3) * (rng.random(3) < 0.5)).tolist()
                batch = int(np.clip(batch, 2, MOST_BATCH))
            else:
                step = np.repeat(STEPS[rng.integers(4)], 2)
                if rng.random() < 1 / 3:
                    step = np.array(STEPS)[rng.integers(0, 4, 2)]
                sizes = np.array([MOST_LENGTH ** rng.random(), MOST_K ** rng.random()]).astype(int)
                length, k = np.maximum(sizes // step * step, step).tolist()
                batch = int(2 * (MOST_BATCH / 2) ** rng.random())
            if length >= 1 and k >= 1 and length * k * batch <= MOST_ELEMENTS and k <= MOST_K:
                break
        is_row = rng.random() < 0.5
        m, n = (1, length) if is_row else (length, 1)
        found[index] = kinds[index], *rng.integers(0, 2, 2), m, n, k, batch
    return found


def pool(seed: int) -> np.ndarray:
    """Values of all operands before rounding to a format: full significands, seven binades."""
    rng = np.random.default_rng([seed, 1])
    values: np.ndarray = rng.standard_normal(POOL) * 2.0 ** rng.integers(-6, 1, POOL)
    return values


def places(seed: int, index: int, length: int, k: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Which results of the last product are kept (8, perhaps some twice); where in the pool the K values of their row
    or column begin, and those of the vector.
    """
    rng = np.random.default_rng([seed, 2, index])
    some = np.unique(np.concatenate([[0, 1, 2, length - 1], rng.integers(0, length, RESULTS - 4)]).clip(0, length - 1))
    start = rng.integers(0, POOL - k, len(some))
    again = np.resize(np.arange(len(some)), RESULTS)
    return some[again], start[again], int(rng.integers(0, POOL - k))


class Recorder:
    """PyTorch with memory for the largest batch. seed: of shapes and operands."""

    def __init__(self, seed: int, device: str = "cuda") -> None:
        import torch
        from cublaslt import CublasLt, Kind
        from gemm_list import parse
        from pytorch_gemms import DTYPES

        self.torch, self.seed, self.device = torch, seed, device
        self.parsed = [parse(kind) for kind in KINDS]
        self.dtypes = {x: getattr(torch, DTYPES[x][0]) for kind in self.parsed for x in kind[:2]}
        self.word = {x: getattr(torch, DTYPES[x][1]) for x in self.dtypes}
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        values = torch.from_numpy(pool(seed)).to(device)
        self.pools = {x: (values if x == "fp64" else values.float()).to(self.dtypes[x]) for x in self.dtypes}
        distinct = dict.fromkeys(self.dtypes.values())
        self.memory = {x: [torch.zeros(MOST_ELEMENTS, dtype=x, device=device) for _ in range(2)] for x in distinct}
        self.along = torch.arange(MOST_K, device=device)
        self.names: dict[str, int] = {}
        self.lt = CublasLt() if device == "cuda" else None
        self.kinds = [Kind(operand, output) for operand, output, *_ in self.parsed]

    def operands(self, row: np.ndarray) -> tuple[Any, Any]:
        """A (batch, m, k) and B (batch, k, n) in memory as their layouts say."""
        kind, a_columns, b_columns, m, n, k, batch = row.tolist()
        first, second = self.memory[self.dtypes[self.parsed[kind][0]]]
        a = first.as_strided((batch, m, k), (m * k, 1, m) if a_columns else (m * k, k, 1))
        b = second.as_strided((batch, k, n), (k * n, 1, k) if b_columns else (k * n, n, 1))
        return a, b

    def multiply(self, kind: int, a: Any, b: Any) -> Any:
        """PyTorch's call."""
        operand, output, *_ = self.parsed[kind]
        self.torch.backends.cuda.matmul.allow_tf32 = operand == "tf32"
        wider = {} if operand in (output, "tf32") else {"out_dtype": self.dtypes[output]}
        return self.torch.bmm(a, b, **wider)

    def bits(self, rows: np.ndarray, first: int) -> np.ndarray:
        """(rows, 8) results of a chunk. first: index of its first batch."""
        torch = self.torch
        where = [places(self.seed, first + i, int(max(row[3:5])), int(row[5])) for i, row in enumerate(rows)]
        kept = torch.from_numpy(np.stack([x[0] for x in where])).to(self.device)
        start = torch.from_numpy(np.stack([x[1] for x in where])).to(self.device)
        found = []
        for i, row in enumerate(rows):
            kind, *_, m, _, k, _ = row.tolist()
            operand, output, *_ = self.parsed[kind]
            a, b = self.operands(row)
            values = self.pools[operand]
            vector, matrix = values[where[i][2] : where[i][2] + k], values[self.along[:k, None] + start[i][None, :]]
            if m == 1:
                a[-1, 0], b[-1][:, kept[i]] = vector, matrix
            else:
                b[-1, :, 0], a[-1][kept[i]] = vector, matrix.t()
            d = self.multiply(kind, a, b)[-1].reshape(-1)[kept[i]]
            found.append(d.contiguous().view(self.word[output]).to(torch.int64))
        words: np.ndarray = torch.stack(found).cpu().numpy()
        return words

    def kernels(self, rows: np.ndarray) -> np.ndarray:
        """(rows, 3, 8) what ran, by the profiler's trace; -1 where it does not say."""
        torch = self.torch
        found = np.full((len(rows), KERNELS, 8), -1, np.int32)
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for row in rows:
                torch.cuda._sleep(1)
                self.multiply(int(row[0]), *self.operands(row))
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profile.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        ran = sorted((x for x in events if x.get("cat") in ("kernel", "gpu_memset")), key=lambda x: x["ts"])
        if sum(MARKER in x["name"] for x in ran) != len(rows):
            return found
        place, count = -1, 0
        for event in ran:
            if MARKER in event["name"]:
                place, count = place + 1, 0
            elif count < KERNELS:
                said = event["args"]
                launch = (*said.get("grid", (0, 0, 0)), *said.get("block", (0, 0, 0)), said.get("shared memory", 0))
                found[place, count] = self.names.setdefault(event["name"], len(self.names)), *launch
                count += 1
        return found

    def asked(self, rows: np.ndarray) -> np.ndarray:
        """(rows, 9) cuBLASLt's answers, with PyTorch's workspace and reductions of this call."""
        found = np.zeros((len(rows), 9), np.int64)
        for i, (kind, a_columns, b_columns, m, n, k, batch) in enumerate(rows.tolist()):
            reductions = 2 if self.parsed[kind][1] in ("fp16", "bf16") else 7
            found[i] = self.lt.ask(  # type: ignore[union-attr]
                self.kinds[kind], m, n, k, a_columns=bool(a_columns), b_columns=bool(b_columns), batch=batch,
                reductions=reductions,
            )  # fmt: skip
        return found


def write(out: Path, recorder: Recorder, arrays: list[tuple[np.ndarray, ...]]) -> None:
    """The file as far as it is."""
    torch = recorder.torch
    meta = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
        "cublaslt": recorder.lt.version if recorder.lt else 0, "seed": recorder.seed, "names": list(recorder.names),
    }  # fmt: skip
    words, kernels, answers = (np.concatenate(x) for x in zip(*arrays, strict=True))
    part = out.with_suffix(".part.npz")
    np.savez_compressed(part, meta=np.array(json.dumps(meta)), words=words, kernels=kernels, answers=answers)
    part.replace(out)


def main() -> None:
    """Run, and write what came out so far every 20 seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=40000)
    parser.add_argument("--seconds", type=float, default=120)
    arguments = parser.parse_args()
    start, last = time.time(), 0.0
    rows, recorder = draw(arguments.seed, arguments.count), Recorder(arguments.seed)
    arrays: list[tuple[np.ndarray, ...]] = []
    for first in range(0, arguments.count, CHUNK):
        chunk = rows[first : first + CHUNK]
        arrays.append((recorder.bits(chunk, first), recorder.kernels(chunk), recorder.asked(chunk)))
        spent = time.time() - start
        if spent > last + 20 or spent > arguments.seconds:
            write(arguments.out, recorder, arrays)
            last = spent
            print(f"{first + len(chunk)} batches, {spent:.0f} s, {len(recorder.names)} kernels", flush=True)
        if spent > arguments.seconds:
            break
    write(arguments.out, recorder, arrays)
    print(f"{sum(len(x[0]) for x in arrays)} batches, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
