"""Time whole GEMMs of cuBLAS through PyTorch, with the kernels that it chose, SM clock and power.

    python gemms.py --out gemm.json [--library libmeasure.so] [--seconds 100]
    python gemms.py --out gemm_nt.json --library libmeasure.so --columns   # validation shapes, B stored by columns
    python gemms.py --out blind.json --library libmeasure.so --blind 20261121   # fresh shapes by that seed

Needs a GPU and PyTorch with CUDA. Times: 20 GEMMs (4 of the largest) in one CUDA graph, the median of a few replays
from a rested chip, divided by their number; operands are normal random values and stay in L2 where they fit.
`launch_us` is a 16 x 16 x 16 GEMM in that setting. `calibration_held` and `long_run` keep the chip busy for a second or
two first: what is left of the clock when power is limited.
CALIBRATION may be used to set parameters of a device file; VALIDATION must not.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

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
        "sm_mhz_after": mhz,
    }


def long_run(gemm: Gemm, clock: ClockKernel, seconds: float) -> dict[str, Any]:
    """The same GEMM for a while: time, clock and power over it."""
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
    us = statistics.median(late) * 1e3
    m, n, k = gemm.shape
    return {
        "us": round(us, 2),
        "us_first": round(times[0] * 1e3, 2),
        "us_least": round(min(times) * 1e3, 2),
        "tflops": round(2 * m * n * k / us / 1e6, 1),
        "sm_mhz": round(statistics.mean(kept), 1) if kept else None,
        "sm_mhz_first": clocks[0],
        "nvml": sampler.summary(0.5),
    }


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


def kernel_names(format: str, shapes: list[Shape]) -> dict[str, Any]:
    """`kernels` by shape, 16 shapes at a time (they all hold their operands)."""
    out = {}
    for start in range(0, len(shapes), 16):
        part = shapes[start : start + 16]
        for shape, seen in zip(part, kernels([Gemm(format, s) for s in part]), strict=False):
            out["x".join(map(str, shape))] = seen
    return out


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


def measure_set(out: Path, clock: ClockKernel, shapes: list[Shape], layouts: tuple[str, ...]) -> None:
    """Times and kernels of `shapes` in every format, by "format shape layout"; launches by "format layout"."""
    data: dict[str, Any] = {
        "what": "times and kernels of GEMMs by cuBLAS; layout nn: B row-major, nt: B stored by columns",
        "date": time.strftime("%Y-%m-%d"),
        "device": {"name": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda},
        "shape": "MxNxK",
        "output": OUTPUT,
        "launch_us": {},
        "times": {},
        "kernels": {},
    }
    for format in OUTPUT:
        for layout in layouts if format != "e4m3" else ("nt",):
            data["launch_us"][f"{format} {layout}"] = timed(Gemm(format, (16, 16, 16), layout), clock, 15)["us"]
            for shape in shapes:
                name = f"{format} {'x'.join(map(str, shape))} {layout}"
                gemm = Gemm(format, shape, layout)
                data["times"][name] = timed(gemm, clock, 7)
                data["kernels"][name] = kernels([gemm])[0]
                del gemm
        torch.cuda.empty_cache()
        out.write_text(json.dumps(data, indent=1))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--once", action="store_true", help="run each profiled GEMM twice and time nothing")
    parser.add_argument("--columns", action="store_true", help="the validation shapes alone, with B stored by columns")
    parser.add_argument("--blind", type=int, metavar="SEED", help="fresh shapes alone, B by rows and by columns")
    args = parser.parse_args()
    if args.columns or args.blind is not None:
        shapes = blind_shapes(args.blind) if args.blind is not None else [(s, s, s) for s in SQUARES] + SKEWED
        layouts = ("nn", "nt") if args.blind is not None else ("nt",)
        measure_set(args.out, ClockKernel(args.library), shapes, layouts)
        return
    if args.once:
        once(args.out)
        return
    deadline = time.time() + args.seconds
    clock = ClockKernel(args.library)
    data: dict[str, Any] = {
        "what": __doc__,
        "date": time.strftime("%Y-%m-%d"),
        "device": {"name": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
                   **Sampler().limits()},
        "shape": "MxNxK",
        "output": OUTPUT,
        "launch_us": {},
        "calibration": {},
        "calibration_held": {},
        "long_run": {},
        "validation": {},
        "kernels": {},
    }  # fmt: skip

    def attempt(section: str, key: str, work: Any) -> None:
        if time.time() > deadline:
            return
        try:
            data[section][key] = work()
        except RuntimeError as error:
            data[section][key] = {"error": str(error)[:300]}
        args.out.write_text(json.dumps(data, indent=1))

    attempt("launch_us", "cublas", lambda: str(torch.backends.cuda.preferred_blas_library()))
    for format in OUTPUT:
        attempt("launch_us", format, lambda f=format: timed(Gemm(f, (16, 16, 16)), clock, 15)["us"])
    for format, shape in CALIBRATION:
        name = f"{format} {'x'.join(map(str, shape))}"
        for layout in ("nn", "nt") if format != "e4m3" else ("nt",):
            key = f"{name} {layout}"
            attempt("calibration", key, lambda f=format, s=shape, y=layout: timed(Gemm(f, s, y), clock, 15, 0.3))
            if layout == "nn" or format == "e4m3":
                held = lambda f=format, s=shape, y=layout: long_run(Gemm(f, s, y), clock, 0.8)  # noqa: E731
                attempt("calibration_held", key, held)
    for format in OUTPUT:
        for fill, seconds in (("random", 1.3), ("zeros", 0.5)):
            key = f"{format} {'x'.join(map(str, LONG))} {fill}"
            attempt("long_run", key, lambda f=format, z=fill, s=seconds: long_run(Gemm(f, LONG, "nn", z), clock, s))
    known = set(CALIBRATION)
    shapes = [(s, s, s) for s in SQUARES] + SKEWED
    for format in OUTPUT:
        mine = [s for s in shapes if (format, s) not in known]
        for shape in mine:
            name = f"{format} {'x'.join(map(str, shape))}"
            attempt("validation", name, lambda f=format, s=shape: timed(Gemm(f, s), clock, 7))
        torch.cuda.empty_cache()

        everything = [s for f, s in CALIBRATION if f == format] + mine + [LONG]
        attempt("kernels", format, lambda f=format, s=everything: kernel_names(f, s))
    print(f"{time.time() - deadline + args.seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
