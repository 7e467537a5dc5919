"""Times of PyTorch's attention on a GPU, and beside hwsim's: the tables of lab/docs/attention.md.

    python lab/tools/measure/attention.py record        # with PyTorch on a GPU: rows of attention_times.csv
    python lab/tools/measure/attention.py record-other  # the same of other shapes: attention_other_times.csv
    python lab/tools/measure/attention.py record-math   # of the math form: rows, then its kernels by PyTorch's profiler
    python lab/tools/measure/attention.py compare       # the tables, from the files
    python lab/tools/measure/attention.py errors        # of attention_other_times.csv and attention_math_times.csv

attention_times.csv, attention_other_times.csv and attention_math_times.csv (the math form): own times, each of a series
of calls between two CUDA events, with the SM clock that nvidia-smi reads after it. attention_rates.csv: rates that
others published. A call is simulated at the clock that was read, where one was.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import hwsim

FOLDER = Path(__file__).parents[2] / "hwsim_lab" / "configs" / "measured"
TOKENS, MODEL_WIDTH = 16384, 2048  # of all sequences; heads times their width
WIDTHS, LENGTHS = (64, 128, 256), (512, 2048, 4096, 16384)
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
SERIES_MS = 60  # of the calls that are timed together
OF_RATES = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
Sizes = tuple[int, int, int, int, int, int]  # batch, heads, heads of the key, queries, keys, width
LEAST_US = 50  # shorter calls are bounded by the host
WIDE = 128  # elements of a head


def cases() -> Iterator[tuple[Sizes, bool, tuple[str, ...]]]:
    """Sizes, causal, backends: the papers' sizes, then decoding and a short call."""
    for width in WIDTHS:
        for causal in (False, True):
            for length in LENGTHS:
                heads = MODEL_WIDTH // width
                sizes = TOKENS // length, heads, heads, length, length, width
                yield sizes, causal, BACKENDS if width < WIDTHS[-1] else BACKENDS[:1]
    for key_heads, keys in ((8, 1024), (8, 8192), (32, 8192)):
        yield (1, 32, key_heads, 1, keys, 128), False, BACKENDS[:1]
    yield (1, 4, 4, 100, 1000, 64), False, BACKENDS


def other_cases() -> Iterator[tuple[Sizes, bool, tuple[str, ...]]]:
    """Drawn sizes, which the model was not looked at with."""
    draw = np.random.default_rng(4411)
    for number in range(26):
        width = (64, 128, 96, 256, 64, 128)[number % 6]
        length = round(300 * 40 ** draw.random())
        heads = int(draw.choice([4, 8, 16, 32]))
        batch = max(1, int(2 ** draw.integers(14, 16)) * 16 // (heads * length))
        groups = int(draw.choice([1, 1, 4]))
        causal = bool(draw.integers(2)) if number % 5 else False
        keys = length if number % 5 else 2 * length
        cudnn = width <= WIDTHS[1]
        backends = [name for name, takes in zip(BACKENDS, (True, cudnn, groups == 1), strict=True) if takes]
        yield (batch, heads, heads // groups, length, keys, width), causal, tuple(backends)


def math_cases() -> Iterator[tuple[Sizes, bool, tuple[str, ...]]]:
    """Calls of PyTorch's math form: whole heads, causal, shared heads, one query, long rows."""
    for sizes, causal in (
        *(((1, 64, 64, length, length, 64), False) for length in (512, 1024, 2048, 4096)),
        *(((1, 32, 32, length, length, 128), True) for length in (512, 1024, 2048, 4096)),
        ((4, 32, 8, 1024, 1024, 128), True),
        ((1, 16, 16, 700, 1300, 96), False),
        ((2, 32, 32, 1, 8192, 128), False),
        ((1, 4, 4, 2048, 16384, 64), False),
    ):
        yield sizes, causal, ("MATH",)


def print_kernels(cases: Iterator[tuple[Sizes, bool, tuple[str, ...]]]) -> None:
    """Print the kernels of each case, as PyTorch's profiler names and times them."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for (batch, heads, key_heads, queries, keys, width), causal, (backend,) in cases:
        shapes = (heads, queries), (key_heads, keys), (key_heads, keys)
        operands = [torch.randn(batch, *shape, width, device="cuda", dtype=torch.float16) for shape in shapes]
        with sdpa_kernel(getattr(SDPBackend, backend)):
            for _ in range(2):
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                    torch.nn.functional.scaled_dot_product_attention(
                        *operands, is_causal=causal, enable_gqa=heads != key_heads
                    )
                    torch.cuda.synchronize()
        print("kernels", batch, heads, key_heads, queries, keys, width, int(causal), flush=True)
        for event in sorted(profile.events(), key=lambda event: event.time_range.start):
            print("  ", round(event.time_range.elapsed_us(), 2), event.name[:200], flush=True)


def record_math() -> None:
    """Print the times of the math form's calls, and the kernels of four of them."""
    record(math_cases())
    print_kernels(case for number, case in enumerate(math_cases()) if number in (0, 8, 10, 11))


def record(cases: Iterator[tuple[Sizes, bool, tuple[str, ...]]]) -> None:
    """Print a row for each case."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def timed(call: Callable[[], Any], count: int) -> float:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(count):
            call()
        last.record()
        torch.cuda.synchronize()
        return first.elapsed_time(last) / count

    generator = torch.Generator("cuda").manual_seed(0)
    for (batch, heads, key_heads, queries, keys, width), causal, backends in cases:
        shapes = ((heads, queries), (key_heads, keys), (key_heads, keys))
        operands = [
            torch.randn(batch, *shape, width, device="cuda", dtype=torch.float16, generator=generator)
            for shape in shapes
        ]
        for backend in backends:

            def call(operands: Any = operands, causal: bool = causal, shared: bool = heads != key_heads) -> Any:
                return torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=causal, enable_gqa=shared)

            with sdpa_kernel(getattr(SDPBackend, backend)):
                timed(call, 3)
                count = max(5, min(200, int(SERIES_MS / timed(call, 10))))
                us = 1000 * timed(call, count)
            query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
            clock = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
            sizes = (batch, heads, key_heads, queries, keys, width)
            print("h200", backend, "fp16", *sizes, int(causal), round(us, 2), count, clock, sep=",", flush=True)


def simulated(device: str, backend: str, sizes: Sizes, *, causal: bool, clock_mhz: float | None = None) -> Any:
    """The result of a call, cycles alone."""
    batch, heads, key_heads, queries, keys, width = sizes
    shapes = (batch, heads, queries, width), (batch, key_heads, keys, width), (batch, key_heads, keys, width)
    operands = [np.broadcast_to(np.float16(0), shape) for shape in shapes]
    return hwsim.attention(
        *operands, device=device, backend=backend, is_causal=causal, exact=False, clock_mhz=clock_mhz
    )


def compare() -> None:
    """Print the tables."""
    print(
        "| backend | heads, queries, keys, width | causal | measured us | simulated us | simulated / measured | MHz |"
    )
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for row in csv.DictReader((FOLDER / "attention_times.csv").open()):
        sizes = tuple(int(row[name]) for name in ("batch", "heads", "key_heads", "queries", "keys", "width"))
        result = simulated(
            row["device"], row["backend"], sizes, causal=row["causal"] == "1", clock_mhz=float(row["sm_mhz"])
        )
        us, measured = result.seconds * 1e6, float(row["us"])
        batch, heads, key_heads, queries, keys, width = sizes
        shared = "" if heads == key_heads else f" ({batch * key_heads})"
        what = f"{batch * heads}{shared}, {queries}, {keys}, {width}"
        mask = "yes" if row["causal"] == "1" else "no"
        print(
            f"| {row['backend']} | {what} | {mask} | {measured:.1f} | {us:.1f} | {us / measured:.2f} "
            f"| {row['sm_mhz']} |"
        )
    print("\n| kernel | width | causal | queries | published TFLOP/s | simulated, under load | at the file's clock |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    for row in csv.DictReader((FOLDER / "attention_rates.csv").open()):
        width, length = int(row["width"]), int(row["queries"])
        if row["kernel"] not in OF_RATES or (row["kernel"] == "cudnn" and width > 128) or length in (1024, 8192):
            continue
        heads = MODEL_WIDTH // width
        causal, work = row["causal"] == "1", 4 * length * TOKENS * MODEL_WIDTH / (2 if row["causal"] == "1" else 1)
        sizes = TOKENS // length, heads, heads, length, length, width
        results = [
            simulated(row["device"], OF_RATES[row["kernel"]], sizes, causal=causal, clock_mhz=clock)
            for clock in (None, hwsim.device(row["device"]).clock_mhz)
        ]
        rates = " | ".join(f"{work / result.seconds / 1e12:.0f}" for result in results)
        mask = "yes" if causal else "no"
        print(f"| {row['kernel']} | {width} | {mask} | {length} | {row['tflops']} | {rates} |")


def errors() -> None:
    """Print how far simulated times are from measured ones, by backend and width."""
    shares: dict[tuple[str, str], list[float]] = {}
    files = ("attention_other_times.csv", "attention_math_times.csv")
    for row in (row for name in files for row in csv.DictReader((FOLDER / name).open())):
        sizes: Any = tuple(int(row[name]) for name in ("batch", "heads", "key_heads", "queries", "keys", "width"))
        causal, clock = row["causal"] == "1", float(row["sm_mhz"])
        result = simulated(row["device"], row["backend"], sizes, causal=causal, clock_mhz=clock)
        share = result.seconds * 1e6 / float(row["us"])
        shares.setdefault((row["backend"], row["width"]), []).append(share)
    for (backend, width), found in sorted(shares.items()):
        error = np.mean(np.abs(np.array(found) - 1))
        print(f"{backend} {width}: {len(found)} calls, {min(found):.2f} to {max(found):.2f}, mean error {error:.1%}")


def ranges() -> None:
    """Print the least, the median and the most of measured over simulated times, at the clock read and at hwsim's under
    load.
    """
    found: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for name in ("attention_times.csv", "attention_other_times.csv", "attention_math_times.csv"):
        for row in csv.DictReader((FOLDER / name).open()):
            if (us := float(row["us"])) < LEAST_US:
                continue
            sizes: Any = tuple(int(row[size]) for size in ("batch", "heads", "key_heads", "queries", "keys", "width"))
            causal = row["causal"] == "1"
            same, loaded = (
                us / 1e6 / simulated(row["device"], row["backend"], sizes, causal=causal, clock_mhz=clock).seconds
                for clock in (float(row["sm_mhz"]), None)
            )
            found.setdefault((row["backend"], int(row["width"]) > WIDE), []).append((same, loaded))
    for (backend, is_wide), pairs in found.items():
        same, loaded = (
            f"{min(times):.3f}, {statistics.median(times):.3f}, {max(times):.3f}" for times in zip(*pairs, strict=True)
        )
        width = f"{'wider' if is_wide else 'up to'} {WIDE}"
        print(f"{backend}, {width}: {len(pairs)} calls, {same}; under load {loaded}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = {
        "record": lambda: record(cases()),
        "record-other": lambda: record(other_cases()),
        "record-math": record_math,
        "compare": compare,
        "errors": errors,
        "ranges": ranges,
    }
    parser.add_argument("what", choices=what)
    what[parser.parse_args().what]()
