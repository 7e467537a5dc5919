r"""Measure what PyTorch's GEMMs take on a GPU: microseconds and kernels of drawn calls.

    python lab/tools/measure_cublas_times.py --draw calibration --seed 1 --count 3000 --out $OUT/times.json
    python lab/tools/measure_cublas_times.py --draw blind --seed 2 --count 400 --out $OUT/blind.json
    python lab/tools/measure_cublas_times.py --draw models --seed 3 --count 4000 --groups batch:3,ragged:2 \
        --places 3 --series-alone --out $OUT/more.json
    python lab/tools/measure_cublas_times.py --calls calls.json --reductions default --out $OUT/listed.json

It needs PyTorch with CUDA and nothing of hwsim. Calls are drawn from SHARES in a random order, so that a part of them
is a sample too. A file that exists is continued; --seconds ends a run. A call has:

* `us`: in a series. Copies of the call on the same operands in one CUDA graph, between CUDA events; the median replay
  over the number of copies. L2 holds what the copy before left. A launch is part of it.
* `us_of_places`: with --places, `us` first, then the same with operands at other addresses and of other values.
* `cold_us`: the same with other operands for each copy, at least COLD_BYTES in all, so that L2 holds none of them.
  Calls with fewer than LEAST_COLD_BYTES have none, nor has any with --series-alone.
* `kernels`: names in order, by PyTorch's profiler. `clock_mhz`, `watts`: by NVML after the series, where it is there.
* `clock_before_mhz`: by NVML before it. The GPU spins on one thread until its clock is the highest again, for at most
  SETTLING_S, so that the calls before leave no lower clock to this one.

--reductions default leaves PyTorch's reduced-precision reductions on. --groups draws from these of SHARES alone, with
other shares where it names them; `narrow` is in no draw unless it is named. --draw models takes the layers of
record/layers.csv that are none of a blind set. --calls takes a list of library/doubtful_calls.py in place of a draw.

`launches`: microseconds of a GEMM of 16 x 16 x 16 (int8: 32 x 16 x 16) of each kind in a series.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

REPLAYS = 7
FEW_COPIES, MANY_COPIES, LARGE_PRODUCTS = 4, 20, 2**36
SPIN_CYCLES, SETTLING_S = 1_000_000, 0.25  # of a low clock that the calls before have left
MOST_REPLAY_US = 40_000.0  # of the copies of a slow call
TOGETHER, TOGETHER_BYTES = 120, 20e9  # calls whose kernels are recorded in one go
MARK = "spin_kernel"  # between the kernels of two calls
COLD_BYTES, LEAST_COLD_BYTES, MOST_SETS = 160e6, 2e6, 80
MOST_BYTES, MOST_PRODUCTS = 8e9, 2**40
MOST_PLACED_BYTES = 30e9  # of the operands of a call at all places
MOST_PRODUCTS_OF = {"fp32": 2**36, "fp64": 2**36, "tf32": 2**38}
DTYPES = {
    "fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp32": "float32", "fp64": "float64",
    "e4m3": "float8_e4m3fn", "int8": "int8", "int32": "int32",
}  # fmt: skip
BYTES = {"fp16": 2, "bf16": 2, "tf32": 4, "fp32": 4, "fp64": 8, "e4m3": 1, "int8": 1, "int32": 4}
#: Layers as (n, k); calibration and blind sets have models of their own.
LAYERS = {
    "calibration": (
        (4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (128256, 4096),  # Llama 3 8B
        (10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672),  # Llama 3 70B
        (2560, 2048), (2048, 2048), (16384, 2048), (2048, 8192),  # Llama 3.2 1B
        (5120, 2880), (2880, 4096), (201088, 2880), (5760, 2880), (2880, 2880),  # GPT-OSS
        (2304, 768), (768, 768), (3072, 768), (768, 3072), (50257, 768),  # GPT-2
        (3584, 3584), (4608, 3584), (37888, 3584), (3584, 18944), (152064, 3584),  # Qwen 2.5 7B
    ),
    "blind": (
        (3072, 3072), (9216, 3072), (16384, 3072), (3072, 8192), (32064, 3072),  # Phi 3 mini
        (6144, 5120), (5120, 4096), (28672, 5120), (5120, 14336), (131072, 5120),  # Mistral Nemo
        (4096, 2560), (2560, 4096), (19456, 2560), (2560, 9728), (151936, 2560),  # Qwen 3 4B
        (2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048), (129280, 7168),  # DeepSeek V3
        (1024, 1024), (4096, 1024), (1024, 4096), (30522, 1024), (51865, 1280), (1280, 5120),  # BERT, Whisper
    ),
}  # fmt: skip
MODELS = "models"  # a draw with the layers of the table
SHARES = {
    "prefill": 15,
    "decode": 15,
    "batch": 20,
    "ragged": 18,
    "columns": 8,
    "bias": 8,
    "random": 10,
    "extreme": 6,
}
Call = dict[str, Any]
Tensor = Any
Work = Callable[[], Tensor]


def log_uniform(rng: random.Random, least: float, most: float, step: int = 1) -> int:
    """A whole multiple of `step`."""
    return max(step, round(least * (most / least) ** rng.random()) // step * step)


def layers_of(draw: str) -> tuple[tuple[int, int], ...]:
    """(n, k) of the layers of a draw."""
    if draw != MODELS:
        return LAYERS[draw]
    found = set()
    with (Path(__file__).parent / "record" / "layers.csv").open() as file:
        for row in csv.DictReader(file):
            hidden, q, kv, inner, vocabulary = (int(row[x]) for x in ("hidden", "q", "kv", "intermediate", "vocab"))
            for shards in map(int, row["shards"].split()):
                outputs = (q + 2 * kv, inner, 2 * inner, vocabulary)
                found.update((n // shards, hidden) for n in outputs if n % shards == 0)
                found.update((hidden, k // shards) for k in (q, inner) if k % shards == 0)
    return tuple(sorted(found - set(LAYERS["blind"])))


def shares_of(text: str) -> dict[str, float]:
    """Groups and their shares, as in `batch:3,ragged`; those of SHARES where none is given."""
    named = (part.partition(":") for part in text.split(","))
    return {name: float(share) if share else SHARES[name] for name, _, share in named}


def drawn(rng: random.Random, layers: tuple[tuple[int, int], ...], shares: Mapping[str, float] = SHARES) -> Call:
    """One call. shares: of groups."""
    group = rng.choices(list(shares), weights=list(shares.values()))[0]
    call = {"group": group, "batch": 1, "a_layout": "rows", "b_layout": "columns", **OF_GROUP[group](rng, layers)}
    operand = call["kind"].split(">")[0]
    if operand == "e4m3":
        call |= {
            "n": -(-call["n"] // 16) * 16,
            "k": -(-call["k"] // 16) * 16,
            "b_layout": "columns",
            "a_layout": "rows",
        }
    if operand == "int8":
        call |= {"m": max(call["m"], 17), "n": -(-call["n"] // 8) * 8, "k": -(-call["k"] // 8) * 8}
        call |= {"b_layout": "columns", "a_layout": "rows"}
    return call


def half(rng: random.Random) -> str:
    return rng.choice(["bf16>bf16", "bf16>bf16", "fp16>fp16"])


def of_layer(rng: random.Random) -> str:
    kinds = ["bf16>bf16"] * 8 + ["fp16>fp16"] * 3 + ["bf16>bf16+bias"] * 4 + ["fp16>fp16+bias"] * 2
    kinds += ["e4m3>bf16fast"] * 3 + ["e4m3>bf16slow"] * 2 + ["tf32>fp32", "fp32>fp32", "int8>int32"]
    return rng.choice(kinds)


def prefill(rng: random.Random, layers: tuple[tuple[int, int], ...]) -> Call:
    n, k = rng.choice(layers)
    m = rng.choice([2**i for i in range(7, 14)]) if rng.random() < 0.5 else log_uniform(rng, 65, 8192)
    return {"kind": of_layer(rng), "m": m, "n": n, "k": k, "b_layout": rng.choice(["columns"] * 3 + ["rows"])}


def decode(rng: random.Random, layers: tuple[tuple[int, int], ...]) -> Call:
    n, k = rng.choice(layers)
    m = rng.choice([1, 1, 2, 4, 8, 16, 32, 64]) if rng.random() < 0.6 else rng.randint(1, 64)
    return {"kind": of_layer(rng), "m": m, "n": n, "k": k, "b_layout": rng.choice(["columns"] * 5 + ["rows"])}


def batch(rng: random.Random, _: tuple[tuple[int, int], ...]) -> Call:
    kind = rng.choice([half(rng), half(rng), half(rng), half(rng), "fp32>fp32", "tf32>fp32"])
    heads, length = rng.choice([8, 12, 16, 32, 64, 96, 128, 256, 512]), log_uniform(rng, 16, 4096)
    length = length if rng.random() < 0.3 else rng.choice([64, 128, 197, 256, 512, 577, 1024, 2048])
    width = rng.choice([32, 64, 64, 80, 96, 128, 128, 192, 256])
    rows = rng.choice([1, 1, length, length, length, length])
    form = rng.choice(["scores", "values", "experts", "random"])
    if form == "scores":
        return {"kind": kind, "batch": heads, "m": rows, "n": length, "k": width, "b_layout": "columns"}
    if form == "values":
        return {"kind": kind, "batch": heads, "m": rows, "n": width, "k": length, "b_layout": "rows"}
    layouts = {"a_layout": rng.choice(["rows", "rows", "columns"]), "b_layout": rng.choice(["rows", "columns"])}
    if form == "experts":
        m, n, k = log_uniform(rng, 1, 1024), log_uniform(rng, 512, 8192, 64), log_uniform(rng, 512, 8192, 64)
        return {"kind": kind, "batch": rng.choice([4, 8, 16, 32, 64]), "m": m, "n": n, "k": k, **layouts}
    step = rng.choice([1, 8, 64])
    m, n, k = log_uniform(rng, 1, 2048, step), log_uniform(rng, 1, 2048, step), log_uniform(rng, 8, 4096, step)
    return {"kind": kind, "batch": log_uniform(rng, 2, 512), "m": m, "n": n, "k": k, **layouts}


def ragged(rng: random.Random, layers: tuple[tuple[int, int], ...]) -> Call:
    m, n, k = log_uniform(rng, 1, 8192), log_uniform(rng, 8, 16384), log_uniform(rng, 16, 16384)
    if rng.random() < 0.3:
        n, k = rng.choice(layers)
        n = n + rng.choice([1, 2, 3, 4, -1])
    elif rng.random() < 0.4:
        m, n, k = (size // rng.choice([1, 2, 4, 8]) * 8 + rng.choice([0, 2, 4, 1]) for size in (m, n, k))
    kind = half(rng) + rng.choice(["", "+bias", "+bias"])
    return {"kind": kind, "m": max(m, 1), "n": max(n, 8), "k": max(k, 8), "b_layout": rng.choice(["rows", "columns"])}


def columns(rng: random.Random, layers: tuple[tuple[int, int], ...]) -> Call:
    kind = rng.choice([half(rng), half(rng), "tf32>fp32", "fp32>fp32"])
    n, k = rng.choice(layers)
    n, k = min(n, 32768), k
    if rng.random() < 0.5:
        n, k, tokens = n, log_uniform(rng, 64, 8192), k  # a weight's gradient: k is the number of tokens
    else:
        tokens = log_uniform(rng, 16, 8192, rng.choice([1, 8, 64]))
    return {
        "kind": kind,
        "m": tokens,
        "n": n,
        "k": k,
        "a_layout": "columns",
        "b_layout": rng.choice(["rows", "columns"]),
    }


def bias(rng: random.Random, _: tuple[tuple[int, int], ...]) -> Call:
    kind = rng.choice([half(rng), half(rng), half(rng), "tf32>fp32", "fp32>fp32"]) + "+bias"
    step = rng.choice([8, 64, 128])
    m, n, k = log_uniform(rng, 1, 8192), log_uniform(rng, 8, 16384, step), log_uniform(rng, 16, 16384, step)
    return {"kind": kind, "m": m, "n": n, "k": k, "b_layout": rng.choice(["columns", "columns", "rows"])}


def any_shape(rng: random.Random, _: tuple[tuple[int, int], ...]) -> Call:
    kinds = ["fp32>fp32", "tf32>fp32", "fp64>fp64", "int8>int32", "e4m3>bf16fast", "e4m3>bf16slow", "e4m3>fp32slow"]
    step = rng.choice([1, 8, 64])
    m, n, k = log_uniform(rng, 1, 8192), log_uniform(rng, 1, 16384, step), log_uniform(rng, 8, 32768, step)
    return {
        "kind": rng.choice([*kinds, half(rng)]),
        "m": m,
        "n": n,
        "k": k,
        "b_layout": rng.choice(["rows", "columns"]),
    }


def narrow(rng: random.Random, _: tuple[tuple[int, int], ...]) -> Call:
    few, many, k = log_uniform(rng, 1, 8), log_uniform(rng, 1, 32768), log_uniform(rng, 1, 16384)
    m, n = rng.choice([(few, many), (many, few)])
    kind = rng.choice([half(rng), half(rng), "tf32>fp32", "fp32>fp32", "fp64>fp64"]) + rng.choice(["", "", "+bias"])
    layouts = {"a_layout": rng.choice(["rows", "rows", "columns"]), "b_layout": rng.choice(["rows", "columns"])}
    return {"kind": kind, "m": m, "n": n, "k": k, **layouts}


def extreme(rng: random.Random, _: tuple[tuple[int, int], ...]) -> Call:
    kind, form = (
        rng.choice([half(rng), half(rng), "fp32>fp32", "tf32>fp32"]),
        rng.choice(["n", "k", "huge", "tiny", "m"]),
    )
    if form == "huge":
        m, n, k = (log_uniform(rng, 4096, 20000, 64) for _ in range(3))
    elif form == "tiny":
        m, n, k = (log_uniform(rng, 1, 256) for _ in range(3))
    elif form == "n":
        m, n, k = log_uniform(rng, 512, 100000), log_uniform(rng, 1, 32), log_uniform(rng, 64, 16384)
    elif form == "m":
        m, n, k = log_uniform(rng, 1, 32), log_uniform(rng, 4096, 260000), log_uniform(rng, 64, 8192)
    else:
        m, n, k = log_uniform(rng, 1, 128), log_uniform(rng, 1, 128), log_uniform(rng, 16384, 400000)
    step = rng.choice([1, 8, 64])
    n, k = (max(size // step * step, 1) if size > step else size for size in (n, k))
    return {"kind": kind, "m": m, "n": n, "k": k, "b_layout": rng.choice(["rows", "columns"])}


OF_GROUP = {
    "prefill": prefill, "decode": decode, "batch": batch, "ragged": ragged, "columns": columns, "bias": bias,
    "random": any_shape, "extreme": extreme, "narrow": narrow,
}  # fmt: skip


def parse(kind: str) -> tuple[str, str, bool | None, bool]:
    """Formats of operands and output, fast accumulation of 8-bit floats, and whether there is a bias."""
    operand, rest = kind.split(">")
    has_bias, rest = rest.endswith("+bias"), rest.removesuffix("+bias")
    fast = True if rest.endswith("fast") else False if rest.endswith("slow") else None
    return operand, rest.removesuffix("fast").removesuffix("slow"), fast, has_bias


def operand_bytes(call: Call) -> float:
    operand, output, *_ = parse(call["kind"])
    m, n, k = call["m"], call["n"], call["k"]
    return call["batch"] * ((m * k + k * n) * BYTES[operand] + m * n * BYTES[output])


def is_feasible(call: Call) -> bool:
    products = call["batch"] * call["m"] * call["n"] * call["k"]
    most = MOST_PRODUCTS_OF.get(call["kind"].split(">")[0], MOST_PRODUCTS)
    return products <= most and operand_bytes(call) <= MOST_BYTES


def draw(name: str, seed: int, count: int, shares: Mapping[str, float] = SHARES) -> list[Call]:
    """So many calls that fit into a GPU."""
    rng, layers, calls = random.Random(f"{name}{seed}"), layers_of(name), []
    while len(calls) < count:
        call = drawn(rng, layers, shares)
        if is_feasible(call):
            calls.append(call)
    return calls


def kernel_names(torch: Any, works: list[Work]) -> list[list[str]]:
    """Names of what the device runs for each call, in order; all empty where calls and marks do not fit."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for work in works:
            torch.cuda._sleep(1)
            work()
        torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    named: list[list[str]] = []
    for event in sorted(events, key=lambda event: event.time_range.start):
        if MARK in event.name:
            named.append([])
        elif named:
            named[-1].append(event.name)
    return named if len(named) == len(works) else [[] for _ in works]


class Gpu:
    """PyTorch on its current CUDA device. has_reductions: reduced-precision ones, as by default."""

    def __init__(self, has_reductions: bool = False) -> None:
        import torch

        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = has_reductions
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = has_reductions
        self.torch, self.unit = torch, torch.ones((), device="cuda")
        try:
            import pynvml

            pynvml.nvmlInit()
            uuid = f"GPU-{torch.cuda.get_device_properties().uuid}"  # NVML counts GPUs that are hidden from CUDA, too
            self.nvml, self.handle = pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception:
            self.nvml = None

    def fill(self, count: int, rows: int, cols: int, operand: str, layout: str) -> Tensor:
        """(rows, cols), or a stack of `count`, normally distributed; int8 uniform."""
        torch, dtype = self.torch, getattr(self.torch, DTYPES[operand])
        shape = (count, rows, cols) if layout == "rows" else (count, cols, rows)
        if operand == "int8":
            values = torch.randint(-128, 128, shape, device="cuda", dtype=dtype)
        elif operand == "e4m3":
            values = torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(dtype)
        else:
            values = torch.randn(shape, device="cuda", dtype=dtype)
        values = values if layout == "rows" else values.transpose(1, 2)
        return values if count > 1 else values[0]

    def operands(self, call: Call) -> tuple[Tensor, Tensor, Tensor]:
        operand, output, _, has_bias = parse(call["kind"])
        m, n, k = call["m"], call["n"], call["k"]
        a = self.fill(call["batch"], m, k, operand, call["a_layout"])
        b = self.fill(call["batch"], k, n, operand, call["b_layout"])
        vector = self.torch.randn(n, device="cuda").to(getattr(self.torch, DTYPES[output])) if has_bias else None
        return a, b, vector

    def work(self, call: Call, a: Tensor, b: Tensor, vector: Tensor) -> Work:
        """PyTorch's call."""
        torch = self.torch
        operand, output, fast, _ = parse(call["kind"])
        out = getattr(torch, DTYPES[output])
        if fast is not None:
            one = self.unit
            return lambda: torch._scaled_mm(
                a, b, scale_a=one, scale_b=one, bias=vector, out_dtype=out, use_fast_accum=fast
            )
        if operand == "int8":
            return lambda: torch._int_mm(a, b)
        weight, multiply = b.t() if b.ndim == 2 else None, torch.mm if a.ndim == 2 else torch.bmm

        def multiplied() -> Tensor:
            torch.backends.cuda.matmul.allow_tf32 = operand == "tf32"  # names are taken after other calls
            if vector is not None:
                return torch.nn.functional.linear(a, weight, vector)
            return multiply(a, b) if out == a.dtype else multiply(a, b, out_dtype=out)

        return multiplied

    def kernels(self, works: list[Work]) -> list[list[str]]:
        """Names of what the device runs for each call, in order."""
        return kernel_names(self.torch, works)

    def alone_us(self, work: Work) -> float:
        """About how long a call takes, a launch from the host with it."""
        start, stop = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        self.torch.cuda.synchronize()
        return float(start.elapsed_time(stop)) * 1e3

    def microseconds(self, works: list[Work], copies: int) -> float:
        """Of one call, in `copies` calls in one graph that take the works in turn."""
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for index in range(copies):
                works[index % len(works)]()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
        graph.replay()
        events[0].record()
        for event in events[1:]:
            graph.replay()
            event.record()
        torch.cuda.synchronize()
        return statistics.median(x.elapsed_time(y) for x, y in itertools.pairwise(events)) * 1e3 / copies

    def load(self) -> Call:
        """Clock and power now."""
        if self.nvml is None:
            return {}
        clock = self.nvml.nvmlDeviceGetClockInfo(self.handle, self.nvml.NVML_CLOCK_SM)
        return {"clock_mhz": clock, "watts": self.nvml.nvmlDeviceGetPowerUsage(self.handle) / 1e3}

    def settled(self) -> Call:
        """The clock, once it is the highest again or SETTLING_S have passed."""
        if self.nvml is None:
            return {}
        most, end = self.nvml.nvmlDeviceGetMaxClockInfo(self.handle, self.nvml.NVML_CLOCK_SM), time.time() + SETTLING_S
        while (clock := self.load()["clock_mhz"]) < most and time.time() < end:
            self.torch.cuda._sleep(SPIN_CYCLES)
            self.torch.cuda.synchronize()
        return {"clock_before_mhz": clock}

    def measured(self, call: Call, places: int = 1, is_series_alone: bool = False) -> tuple[Call, Work]:
        """Times of a call, and the call. places: at which the operands lie in turn."""
        first = self.operands(call)
        work = self.work(call, *first)
        work()
        self.torch.cuda.synchronize()
        products, size = call["batch"] * call["m"] * call["n"] * call["k"], operand_bytes(call)
        copies = MANY_COPIES if products < LARGE_PRODUCTS else FEW_COPIES
        copies = max(FEW_COPIES, min(copies, int(MOST_REPLAY_US / self.alone_us(work))))
        entry = {**self.settled(), "us": round(self.microseconds([work], copies), 4), **self.load()}
        if places > 1:
            entry["us_of_places"], kept = [entry["us"]], [first]
            for _ in range(min(places, int(MOST_PLACED_BYTES / size)) - 1):
                kept.append(self.operands(call))
                entry["us_of_places"].append(round(self.microseconds([self.work(call, *kept[-1])], copies), 4))
        if size >= LEAST_COLD_BYTES and not is_series_alone:
            count = min(MOST_SETS, max(2, int(COLD_BYTES / size) + 1))
            works = [work] + [self.work(call, *(clone(x) for x in first)) for _ in range(count - 1)]
            entry["cold_us"] = round(self.microseconds(works, max(copies, count)), 4)
        return entry, work


def clone(values: Tensor) -> Tensor:
    """A copy as it is stored."""
    if values is None or values.is_contiguous():
        return None if values is None else values.clone()
    return values.transpose(-1, -2).clone().transpose(-1, -2)


def main() -> int:
    """Measure, and write what came out so far when the time is up. The exit code: 2 where calls are left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--draw", choices=[*LAYERS, MODELS])
    source.add_argument("--calls", type=Path, help="a JSON list of calls, in place of a draw")
    parser.add_argument("--seed", type=int, help="of --draw")
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--reductions", choices=["compute", "default"], default="compute")
    parser.add_argument("--groups", type=shares_of, default=SHARES, help=f"with commas: {', '.join(SHARES)}")
    parser.add_argument("--places", type=int, default=1, help="of operands at which each call is timed")
    parser.add_argument("--series-alone", action="store_true", help="time no call with cold operands")
    arguments = parser.parse_args()
    if arguments.draw and arguments.seed is None:
        parser.error("--draw needs --seed")
    start = time.time()
    if arguments.calls:
        calls = json.loads(arguments.calls.read_text())
    else:
        calls = draw(arguments.draw, arguments.seed, arguments.count, arguments.groups)
    gpu = Gpu(arguments.reductions == "default")
    torch = gpu.torch
    done: Call = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"launches": {}, "entries": []}
    for kind in sorted({call["kind"] for call in calls} - set(done["launches"])):
        small = {"kind": kind, "m": 32 if kind.startswith("int8") else 16, "n": 16, "k": 16, "batch": 1}
        small |= {"a_layout": "rows", "b_layout": "columns"}
        work = gpu.work(small, *gpu.operands(small))
        work()
        torch.cuda.synchronize()
        done["launches"][kind] = round(gpu.microseconds([work], MANY_COPIES), 4)
    done |= {
        "draw": arguments.draw or arguments.calls.name, "seed": arguments.seed, "device": torch.cuda.get_device_name(),
        "torch": torch.__version__, "cuda": torch.version.cuda,
        "reduced_precision_reductions": arguments.reductions == "default",
    }  # fmt: skip
    works: list[tuple[Call, Work]] = []

    def name_kernels() -> None:
        for (entry, _), names in zip(works, gpu.kernels([work for _, work in works]), strict=True):
            entry["kernels"] = names
        works.clear()
        arguments.out.write_text(json.dumps(done))

    held = 0.0
    for call in calls[len(done["entries"]) :]:
        if time.time() - start > arguments.seconds:
            break
        entry = dict(call)
        done["entries"].append(entry)
        try:
            times, work = gpu.measured(call, arguments.places, arguments.series_alone)
        except Exception as error:
            entry["error"] = str(error).splitlines()[0][:200]
            continue
        entry |= times
        works.append((entry, work))
        held += operand_bytes(call)
        if len(works) == TOGETHER or held > TOGETHER_BYTES:
            name_kernels()
            held = 0.0
    if works:
        name_kernels()
    refused = sum("error" in entry for entry in done["entries"])
    left = len(calls) - len(done["entries"])
    print(f"{len(done['entries'])} of {len(calls)} calls, {refused} refused, {left} left, {time.time() - start:.0f} s")
    return 2 if left else 0


if __name__ == "__main__":
    sys.exit(main())
