"""Time whole GEMMs of cuBLAS through PyTorch, with the kernels that it chose, SM clock and power.

    python gemms.py --out FOLDER --set gemm --device h200 [--library libmeasure.so] [--seconds 100]
    python gemms.py --out FOLDER --set gemm_nt --device h200 --columns   # validation shapes, B stored by columns
    python gemms.py --out FOLDER --set blind --device h200 --blind 20261121   # fresh shapes by that seed

Needs a GPU and PyTorch with CUDA. Appends to FOLDER (lab/hwsim_lab/configs/measured, or one of one's own) rows of
gemm_times.csv, gemm_held.csv and kernels.csv, and the set's entry of sets.yaml. Times: 20 GEMMs (4 of the largest) in
one CUDA graph, the median of a few replays from a rested chip, divided by their number; operands are normal random
values and stay in L2 where they fit. Rows of role launch: a 16 x 16 x 16 GEMM in that setting. Rows of state held keep
the chip busy for a second or two first: what is left of the clock when power is limited. CALIBRATION may be used to set
parameters of a device file; VALIDATION must not.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tidy
import torch
from library import Args, Launch, Tensor
from nvml import Sampler

Shape = tuple[int, int, int]
OUTPUT = {"fp16": "fp16", "bf16": "bf16", "tf32": "fp32", "e4m3": "bf16", "fp32": "fp32", "fp64": "fp64"}
DTYPES = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32, "fp32": torch.float32,
    "fp64": torch.float64, "e4m3": torch.float8_e4m3fn,
}  # fmt: skip
CALIBRATION: list[tuple[str, Shape]] = [
    ("fp16", (3072, 3072, 3072)),
    ("bf16", (6144, 5120, 2560)),
    ("tf32", (3072, 3072, 3072)),
    ("e4m3", (5120, 5120, 5120)),
    ("fp64", (3072, 3072, 3072)),
]
LONG: Shape = (7680, 8192, 8192)
PROFILED: list[Shape] = [
    (768, 768, 768), (1536, 1536, 1536), (2304, 2304, 2304), (4608, 4608, 4608), (4096, 4096, 512), (2048, 2048, 8192),
    (8192, 512, 2048),
]  # fmt: skip
SQUARES = (384, 640, 768, 1008, 1280, 1536, 1792, 2304, 2560, 3008, 3328, 3584, 4608, 5120, 6144, 7168)
SKEWED: list[Shape] = [
    (256, 256, 8192), (512, 512, 4096), (1024, 1024, 8192), (2048, 2048, 512), (2048, 2048, 8192), (8192, 8192, 512),
    (8192, 8192, 1024), (8192, 8192, 2048), (4096, 4096, 2048), (4096, 4096, 8192), (4096, 4096, 512),
    (256, 4096, 4096), (4096, 256, 4096), (512, 8192, 2048), (8192, 512, 2048), (1024, 4096, 1024), (4096, 1024, 1024),
    (1536, 6144, 1536), (6144, 1536, 6144), (2000, 4000, 1008), (4224, 4096, 4096), (2112, 2048, 4096),
    (8192, 64, 8192), (64, 8192, 8192), (128, 128, 4096), (8192, 1024, 4096), (5632, 5632, 1408), (3072, 3072, 3072),
]  # fmt: skip
VALIDATION = [(s, s, s) for s in SQUARES] + SKEWED


def operand(rows: int, columns: int, format: str, fill: str = "random") -> torch.Tensor:
    """Normal random values or zeros."""
    if fill == "zeros":
        return torch.zeros(rows, columns, device="cuda", dtype=torch.float32).to(DTYPES[format])
    if format == "fp64":
        return torch.randn(rows, columns, device="cuda", dtype=torch.float64)
    return torch.randn(rows, columns, device="cuda", dtype=torch.float32).to(DTYPES[format])


class Gemm:
    """D = A B of one format and shape. layout "nn": B row-major; "nt": B stored by columns (always so for e4m3)."""

    def __init__(self, format: str, shape: Shape, layout: str = "nn", fill: str = "random") -> None:
        m, n, k = shape
        self.format, self.shape, self.layout = format, shape, "nt" if format == "e4m3" else layout
        self.a = operand(m, k, format, fill)
        self.b = operand(n, k, format, fill).t() if self.layout == "nt" else operand(k, n, format, fill)
        self.d = torch.empty(m, n, device="cuda", dtype=DTYPES[OUTPUT[format]])
        self.one = torch.ones((), device="cuda")

    def run(self) -> None:
        """One call."""
        torch.backends.cuda.matmul.allow_tf32 = self.format == "tf32"
        if self.format == "e4m3":
            torch._scaled_mm(
                self.a, self.b, scale_a=self.one, scale_b=self.one, out_dtype=self.d.dtype, use_fast_accum=True,
                out=self.d,
            )  # fmt: skip
        else:
            torch.mm(self.a, self.b, out=self.d)

    def graph(self, count: int) -> torch.cuda.CUDAGraph:
        """`count` of them in a graph."""
        self.run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                self.run()
        return graph


class ClockKernel:
    """The SM clock right after what was queued, by the microbenchmarks' library; None without it."""

    def __init__(self, library: Path | None) -> None:
        self.c = ctypes.CDLL(str(library)) if library else None
        if self.c:
            self.c.measure_name.restype = ctypes.c_char_p
            index = 0
            while self.c.measure_name(index) != b"clock_rate":
                index += 1
            self.index, self.out = index, torch.zeros(8, device="cuda", dtype=torch.int64)

    def mhz(self) -> float | None:
        """Waits for the device."""
        if not self.c:
            return None
        args = Args(self.out.data_ptr(), None, None, 1, 0, (ctypes.c_int64 * 8)(20_000))
        ms = ctypes.c_float()
        self.c.measure_run(
            self.index, ctypes.byref(args), ctypes.byref(Tensor()), ctypes.byref(Launch(1, 32, 0, 1)), ctypes.byref(ms)
        )
        c0, c1, t0, t1 = self.out[:4].tolist()
        return round((c1 - c0) / (t1 - t0) * 1e3, 1)


def replay_times(graph: torch.cuda.CUDAGraph, replays: int) -> list[float]:
    """Milliseconds of each replay, queued one after another."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in itertools.pairwise(events)]


def timed(gemm: Gemm, clock: ClockKernel, replays: int, pause: float = 0.05) -> dict[str, Any]:
    """Microseconds per GEMM over a few replays from a rested chip: two to warm up, then `replays`."""
    work = gemm.shape[0] * gemm.shape[1] * gemm.shape[2]
    count = 20 if work <= 2**35 else 4
    graph = gemm.graph(count)
    torch.cuda.synchronize()
    time.sleep(pause)
    times = [x * 1e3 / count for x in replay_times(graph, replays + 2)]
    graph.replay()
    mhz, kept = clock.mhz(), times[2:]
    return {
        "us": round(statistics.median(kept), 3),
        "least_us": round(min(kept), 3),
        "first_us": round(times[0], 3),
        "last_us": round(times[-1], 3),
        "replays": replays,
        "in_graph": count,
        "sm_mhz": mhz,
    }


def long_run(gemm: Gemm, clock: ClockKernel, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same GEMM for a while: columns of gemm_times.csv, and of gemm_held.csv: clock and power over it."""
    graph = gemm.graph(1)
    once = replay_times(graph, 2)[1]
    burst = max(1, int(30 / once))
    time.sleep(0.3)
    times, clocks, began = [], [], time.monotonic()
    with Sampler() as sampler:
        while time.monotonic() - began < seconds:
            times += replay_times(graph, burst)
            graph.replay()
            clocks.append(clock.mhz())
    late, kept = times[len(times) // 2 :], [x for x in clocks[len(clocks) // 2 :] if x]
    nvml: dict[str, Any] = {"reasons": [], **sampler.summary(0.5)}
    clock_and_power = {
        f"nvml_{key}" if key.startswith("sm_mhz") else key: tidy.BETWEEN.join(x) if key == "reasons" else x
        for key, x in nvml.items()
    }
    return {
        "us": round(statistics.median(late) * 1e3, 2),
        "first_us": round(times[0] * 1e3, 2),
        "least_us": round(min(times) * 1e3, 2),
        "sm_mhz": round(statistics.mean(kept), 1) if kept else None,
    }, {"sm_mhz_first": clocks[0]} | clock_and_power


def kernels(gemms: list[Gemm]) -> list[list[dict[str, Any]]]:
    """Device kernels that each GEMM starts, as the profiler saw them. A fill marks where one begins."""
    mark = torch.empty(1, device="cuda")
    for gemm in gemms:
        gemm.run()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for gemm in gemms:
            mark.fill_(1.0)
            gemm.run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") in ("kernel", "gpu_memset")]
    found: list[list[dict[str, Any]]] = []
    for event in sorted(events, key=lambda e: e["ts"]):
        if "FillFunctor" in event["name"]:
            found.append([])
        elif found:
            a = event.get("args", {})
            found[-1].append(
                {
                    "name": event["name"][:200],
                    "grid": a.get("grid"),
                    "block": a.get("block"),
                    "shared_bytes": a.get("shared memory"),
                    "registers": a.get("registers per thread"),
                    "us": round(event["dur"], 2),
                }
            )
    return found


def once(out: Path) -> None:
    """What a profiler watches: two runs each of PROFILED, the list of them in `out`."""
    rows = []
    for format in ("fp16", "bf16", "tf32", "e4m3", "fp64", "fp32"):
        mine = [s for f, s in CALIBRATION if f == format] + [LONG, *PROFILED]
        for shape in mine if format != "bf16" else mine[:2]:
            if format in ("fp32", "fp64") and shape == LONG:
                continue
            gemm = Gemm(format, shape)
            torch.cuda.synchronize()
            gemm.run()
            gemm.run()
            torch.cuda.synchronize()
            rows.append(f"{format} {'x'.join(map(str, shape))}")
            out.write_text(json.dumps(rows))


def blind_shapes(seed: int, count: int = 45) -> list[Shape]:
    """Shapes like SQUARES and SKEWED, by chance, none that is known; a third are cubes (no powers of two)."""
    chance, found = random.Random(seed), list[Shape]()
    known = {(s, s, s) for s in SQUARES} | set(SKEWED) | {s for _, s in CALIBRATION} | {LONG}
    while len(found) < count:
        if len(found) % 3 == 0:
            side = round(2 ** chance.uniform(8, 13) / 16) * 16
            shape = (side, side, side)
        else:
            m, n = (round(2 ** chance.uniform(7, 13.2) / 64) * 64 for _ in range(2))
            shape = (m, n, round(2 ** chance.uniform(7, 13.2) / 64) * 64)
        products = shape[0] * shape[1] * shape[2]
        power_of_two = products & (products - 1) == 0
        if shape not in known and shape not in found and not power_of_two and 2**24 <= products <= 2**38:
            found.append(shape)
    return found


class Table:
    """One set's rows in a folder, on disk after every GEMM."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.folder, self.clock = args.out, ClockKernel(args.library)
        self.head = {"set": args.set, "date": tidy.today(), "device": args.device}
        tidy.describe(
            self.folder,
            args.set,
            what="times and kernels of GEMMs by cuBLAS",
            library=str(torch.backends.cuda.preferred_blas_library()),
            hardware={"name": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
            | Sampler().limits(),
            command=f"python {' '.join(sys.argv)}",
        )

    def row(self, gemm: Gemm, role: str, found: dict[str, Any], started: list[dict[str, Any]], **more: str) -> None:
        """Append one GEMM's row, and its kernels that are new."""
        tidy.append(self.folder, "kernels", list(tidy.new_kernels(self.folder, started)))
        row = {
            **self.head, **tidy.gemm(gemm.format, gemm.layout == "nt", gemm.shape),
            "output": OUTPUT[gemm.format], "accumulate": "fast" if gemm.format == "e4m3" else "", "a_layout": "rows",
            "batch": 1, "role": role, "state": "rested", "operands": "random", **found, **tidy.launched(started),
            **more,
        }  # fmt: skip
        tidy.append(self.folder, "gemm_times", [row])

    def launch(self, format: str, layout: str) -> None:
        """What a GEMM of next to nothing takes."""
        gemm = Gemm(format, (16, 16, 16), layout)
        self.row(gemm, "launch", {"us": timed(gemm, self.clock, 15)["us"]}, [])

    def rested(self, gemm: Gemm, role: str, replays: int = 7, pause: float = 0.05) -> None:
        """A GEMM from a rested chip, and its kernels."""
        found = timed(gemm, self.clock, replays, pause)
        self.row(gemm, role, found, kernels([gemm])[0])

    def held(self, gemm: Gemm, role: str, seconds: float, operands: str = "random") -> None:
        """A GEMM that keeps the chip busy: its time, its kernels, clock and power."""
        found, clock_and_power = long_run(gemm, self.clock, seconds)
        self.row(gemm, role, found, kernels([gemm])[0], state="held", operands=operands)
        key = tidy.gemm(gemm.format, gemm.layout == "nt", gemm.shape)
        tidy.append(self.folder, "gemm_held", [self.head | key | {"operands": operands} | clock_and_power])


def measure_set(table: Table, shapes: list[Shape], layouts: tuple[str, ...], role: str) -> None:
    """Times and kernels of `shapes` in every format and layout, and launches."""
    for format in OUTPUT:
        for layout in layouts if format != "e4m3" else ("nt",):
            table.launch(format, layout)
            for shape in shapes:
                table.rested(Gemm(format, shape, layout), role)
        torch.cuda.empty_cache()


def measure_all(table: Table, seconds: float) -> None:
    """Launches, CALIBRATION rested and held, LONG, and the validation shapes, as far as time allows."""
    deadline = time.time() + seconds

    def attempt(work: Callable[[], None]) -> None:
        if time.time() > deadline:
            return
        try:
            work()
        except RuntimeError as error:
            print(f"left out: {str(error)[:300]}", flush=True)

    for format in OUTPUT:
        attempt(partial(table.launch, format, "nn"))
    for format, shape in CALIBRATION:
        for layout in ("nn", "nt") if format != "e4m3" else ("nt",):
            attempt(lambda f=format, s=shape, y=layout: table.rested(Gemm(f, s, y), "calibration", 15, 0.3))
            if layout == "nn" or format == "e4m3":
                attempt(lambda f=format, s=shape, y=layout: table.held(Gemm(f, s, y), "calibration", 0.8))
    for format in OUTPUT:
        attempt(lambda f=format: table.held(Gemm(f, LONG), "calibration", 1.3))
        attempt(lambda f=format: table.held(Gemm(f, LONG, "nn", "zeros"), "seen", 0.5, "zeros"))
    for format in OUTPUT:
        for shape in (s for s in VALIDATION if (format, s) not in CALIBRATION):
            attempt(lambda f=format, s=shape: table.rested(Gemm(f, s), "validation"))
        torch.cuda.empty_cache()
    print(f"{time.time() - deadline + seconds:.1f} s", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="with --once: the list's file")
    parser.add_argument("--set", help="a name that sets.yaml there does not have yet")
    parser.add_argument("--device", help="name of its file in configs/devices")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--once", action="store_true", help="run each profiled GEMM twice and time nothing")
    parser.add_argument("--columns", action="store_true", help="the validation shapes alone, with B stored by columns")
    parser.add_argument("--blind", type=int, metavar="SEED", help="fresh shapes alone, B by rows and by columns")
    args = parser.parse_args()
    if args.once:
        once(args.out)
        return
    if not (args.set and args.device):
        parser.error("--set and --device are needed")
    if tidy.is_described(args.out, args.set):
        parser.error(f"{args.out / 'sets.yaml'} has a set {args.set!r}; a set is measured once: take another name")
    table = Table(args)
    if args.blind is not None:
        measure_set(table, blind_shapes(args.blind), ("nn", "nt"), "blind")
    elif args.columns:
        measure_set(table, VALIDATION, ("nt",), "validation")
    else:
        measure_all(table, args.seconds)


if __name__ == "__main__":
    main()
