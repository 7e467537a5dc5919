"""What was measured on the Ascend 910B family, beside the timing machine: Huawei's kernels, PyTorch, a paper's figure.

It holds the published figures and the configurations they were measured with; the device files hold the numbers that
the simulation uses. A point says whether a number of the device file was taken from it (calibration) or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hwsim.devices import load
from hwsim.devices.model import Device
from hwsim.devices.variants import changed
from hwsim.formats import format_of
from hwsim.gemm.plan import Plan
from hwsim.gemm.problem import Problem
from hwsim.machines import timing
from hwsim.machines.load import under_load
from hwsim.resolve.cost import plan_record
from hwsim.resolve.mapping import facts_of, program_of
from hwsim.schemes import scheme_of

Role = Literal["calibration", "validation"]
BASE = {"m": 128, "n": 256, "k": 64}  # baseM, baseN, baseK of Huawei's samples
_SAMPLE: dict[str, Any] = {"tile": BASE, "distribution": "block", "grid": (4, 6), "b_layout": "columns"}
HUAWEI: dict[str, Any] = {**_SAMPLE, "step_ka": 8, "step_kb": 4, "output": "fp16"}
PTO: dict[str, Any] = {**_SAMPLE, "step_ka": 4, "step_kb": 4}
#: PTO's README: microseconds, and the shares of it that TMATMUL, TEXTRACT, TLOAD and TSTORE are busy, by m = n = k.
PTO_US = {1536: 38.8, 3072: 206.7, 6144: 1506.0, 7680: 3168.0}
PTO_BUSY = {
    1536: {"M": 0.545, "MTE1": 0.422, "MTE2": 0.722, "FIX": 0.077},
    3072: {"M": 0.790, "MTE1": 0.620, "MTE2": 0.909, "FIX": 0.058},
    6144: {"M": 0.867, "MTE1": 0.681, "MTE2": 0.952, "FIX": 0.031},
    7680: {"M": 0.806, "MTE1": 0.630, "MTE2": 0.984, "FIX": 0.024},
}
PIPES = {"M": "cube", "MTE1": "MTE1", "MTE2": "MTE2", "FIX": "FixPipe"}
#: Cases of Huawei's tuning guide, FP16: chip, m, n, k, grid of cores, blocks of K in a packet, and microseconds: of the
#: slowest core, and MTE2's busy time (a mean). The first two are one GEMM, on other cores and with other software.
GUIDE: dict[str, tuple[str, tuple[int, int, int], tuple[int, int], int, float | None, float | None]] = {
    "128 x 30720 x 64, 24 cores, constant tiling": ("ascend910b1", (128, 30720, 64), (1, 24), 4, 7.87, None),
    "128 x 30720 x 64, 20 cores, no UnitFlag": ("ascend910b3", (128, 30720, 64), (1, 20), 4, 37.39, None),
    "128 x 30720 x 1024, packets of one block": ("ascend910b1", (128, 30720, 1024), (1, 24), 1, 83.68, 75.64),
    "128 x 30720 x 1024, packets of four": ("ascend910b1", (128, 30720, 1024), (1, 24), 4, 53.4, 46.24),
    "4096 x 5120 x 4096, packets of one block": ("ascend910b3", (4096, 5120, 4096), (4, 5), 1, None, 808.0),
    "4096 x 5120 x 4096, packets of four": ("ascend910b3", (4096, 5120, 4096), (4, 5), 4, None, 591.0),
}
#: What the guide says beside: a case has UnitFlag on in its sample, and its first transfer 2.185 us after the start.
GUIDE_ALSO: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "128 x 30720 x 64, 24 cores, constant tiling": ({"core_start_us": 2.185}, {"unit_flag": True}),
}
UNIT_FLAG_US = 37.39, 34.66  # the second of them without and with UnitFlag
#: 910B2, TFLOP/s at these sizes (m = n = k). fp32 was measured twice: as "TF32", which NVIDIA's chips alone have, too.
TORCH: dict[str, dict[int, tuple[float, float]]] = {
    "fp32": {1024: (46.3, 53.2), 2048: (76.9, 77.1), 4096: (84.5, 84.6), 8192: (79.5, 80.4), 10240: (79.7, 79.8)},
    "fp16": {n: (x, x) for n, x in ((1024, 98.1), (2048, 251.0), (4096, 314.5), (8192, 305.5), (10240, 274.8))},
    "bf16": {n: (x, x) for n, x in ((1024, 99.9), (2048, 248.3), (4096, 315.4), (8192, 301.2), (10240, 300.9))},
}
CLOCK_FROM = "fp32", 8192  # of these, the one that set what a power limit leaves of the clock
ROW_BY_ROW = 1 << 20  # columns in a band: more than any C has
#: Fig. 11: the sizes that grow, the others at EDGE. The paper gives its figures as images; these sizes are ours.
EDGE = 4096
SIZES = (2048, 4096, 8192, 12288, 16384)
FIG11: dict[str, Sequence[tuple[int, int, int]]] = {
    "m = n": [(n, n, EDGE) for n in SIZES],
    "k": [(EDGE, EDGE, k) for k in SIZES],
    "m = n = k": [(n, n, n) for n in SIZES],
}
FIG11_SHORT: dict[str, Sequence[tuple[int, int, int]]] = {
    "k": [(EDGE, EDGE, k) for k in (2048, 8192)],
    "m = n = k": [(n, n, n) for n in (4096, 8192, 12288)],
}
#: Why points are missed, by what and quantity.
WHY = {
    (
        "128 x 30720 x 64, 24 cores, constant tiling",
        "slowest core",
    ): "its FixPipe writes fp32 tiles, which take 7 to 12 % too long in PTO's GEMMs, too",
    ("128 x 30720 x 64, 20 cores, no UnitFlag", "slowest core"): "the same guide has 7.87 us for it: its API's set-up",
    ("128 x 30720 x 64, 20 cores, no UnitFlag", "saved by UnitFlag"): "of a run three times as long as simulated",
    (
        "128 x 30720 x 1024, packets of one block",
        "slowest core",
    ): "all 24 cores read one A: a line costs more, the more of them read it",
    ("128 x 30720 x 1024, packets of four", "slowest core"): "cores in step: while all read A from L2, HBM idles",
}
#: Other readings of the tables for transfers from global memory to L1.
READINGS: dict[str, Mapping[str, Any]] = {
    "as in the device file": {},
    "start-up 187 cycles instead of 320": {"links.GM_L1.startup_cycles": 187},
    "4.7 cycles a row instead of 3.6": {"links.GM_L1.row_cycles": 4.7},
    "no conflicts of cores that read the same lines": {"links.GM_L1.conflict_factor": None},
    "from HBM as fast as from L2": {"links.GM_L1.miss_factor": None},
    "L2: the least recently used leave it": {"l2.replacement": "lru"},
    "142 bytes per cycle, L2 5.04e12 bytes per second": {
        "links.GM_L1.bytes_per_cycle": 142.0,
        "l2.bytes_per_second": 5.04e12,
    },
    "L1 to L0A, L0B without overhead": {"links.L1_L0A.overhead_cycles": 0, "links.L1_L0B.overhead_cycles": 0},
    "issue in 1 cycle": {f"engines.{name}.issue_cycles": 1.0 for name in ("M", "MTE1", "MTE2", "FIX")},
}


@dataclass(frozen=True, slots=True)
class Point:
    """One measured quantity (a range where runs differ) and what the simulation gives."""

    what: str
    quantity: str
    unit: str
    measured: tuple[float, float]
    simulated: float
    role: Role = "validation"

    @property
    def error(self) -> float:
        """Relative distance from the nearest end of the measured range; 0 inside it."""
        low, high = self.measured
        if low <= self.simulated <= high:
            return 0.0
        return self.simulated / (low if self.simulated < low else high) - 1


@dataclass(frozen=True, slots=True)
class Run:
    """Times of a GEMM in microseconds. core: from the start to a core's end; it and `busy` are means over the cores."""

    total: float
    core: float
    busy: Mapping[str, float]


def gemm(
    device: Device, m: int, n: int, k: int, format: str, warm: int = 0, is_series: bool = False, **options: Any
) -> Run:
    """Time of C[m, n] = A[m, k] B[k, n] in a native format. options: of the family's mapping.

    warm: runs before it, whose data L2 still has. is_series: at the clock that a series of such runs leaves.
    """
    scheme = scheme_of("native")
    wide = "fp32" if format in ("fp32", "hf32") else format
    plan = scheme.plan(scheme.complete({"format": format}), Problem(wide, m, n, k))
    assert isinstance(plan, Plan)
    gemm = plan_record(plan, device, (m, n, k), options)
    program = program_of(gemm, device)
    if is_series:
        device, timed = under_load(program, device, str(facts_of(gemm, device)["unit"]), warm=warm)
    else:
        timed = timing.run(program, device, warm=warm)

    def us(cycles: float) -> float:
        return cycles / device.clock_mhz

    idle = timed.engines["FIX"].stall_cycles.get("done", 0.0) / device.cores
    busy = {name: us(engine.busy_cycles / device.cores) for name, engine in timed.engines.items()}
    return Run(us(timed.cycles), us(timed.cycles - idle), busy)


def huawei(chip: Device | None = None) -> list[Point]:
    """Huawei's 8192^3 FP16 (runs with constant tiling), and PTO's GEMMs."""
    chip = chip or load("ascend910b1")
    launch = chip.launch_overhead_us or 0.0
    run = gemm(chip, 8192, 8192, 8192, "fp16", **HUAWEI)
    flagged = gemm(chip, 8192, 8192, 8192, "fp16", **HUAWEI, unit_flag=True)
    what = "FP16 8192^3"
    points = [
        Point(what, "core time, mean", "us", (3559, 3671), run.core),
        Point(what, "task", "us", (4012, 4121), run.total + launch),
        Point(what, "cube busy", "us", (3076, 3082), run.busy["M"]),
        Point(what, "MTE1 busy", "us", (2534, 2553), run.busy["MTE1"], "calibration"),
        Point(what, "MTE2 busy", "us", (3436, 3552), run.busy["MTE2"]),
        Point(what, "FixPipe busy, no UnitFlag", "us", (45, 48), run.busy["FIX"], "calibration"),
        Point(what, "FixPipe busy, UnitFlag", "us", (160, 273), flagged.busy["FIX"]),
    ]
    for n, time in PTO_US.items():
        run = gemm(chip, n, n, n, "fp16", **PTO)
        points.append(Point(f"PTO {n}^3", "core time", "us", (time, time), run.total))
        for pipe, share in PTO_BUSY[n].items():
            busy = share * time
            points.append(Point(f"PTO {n}^3", f"{PIPES[pipe]} busy", "us", (busy, busy), run.busy[pipe]))
    return points


def guide() -> list[Point]:
    """Cases of Huawei's tuning guide: the slowest core's time, and MTE2's busy time."""
    points = []
    for what, (name, (m, n, k), grid, step, core, mte2) in GUIDE.items():
        changes, options = GUIDE_ALSO.get(what, ({}, {}))
        chip = changed(load(name), changes)
        given: dict[str, Any] = {"tile": BASE, "step_ka": step, "step_kb": step, "distribution": "block", "grid": grid}
        run = gemm(chip, m, n, k, "fp16", **given | options)
        if core is not None:
            points.append(Point(what, "slowest core", "us", (core, core), run.total))
        if mte2 is not None:
            points.append(Point(what, "MTE2 busy", "us", (mte2, mte2), run.busy["MTE2"]))
        if core == UNIT_FLAG_US[0]:
            flagged = gemm(chip, m, n, k, "fp16", **given, unit_flag=True)
            saved = core - UNIT_FLAG_US[1]
            points.append(Point(what, "saved by UnitFlag", "us", (saved, saved), run.total - flagged.total))
    return points


def paper() -> list[Point]:
    """Native fp32 on the 910B3 in SGEMM-cube's Fig. 11b, whose sizes the paper does not give."""
    m, n, k = EDGE, EDGE, 2 * EDGE
    run = gemm(load("ascend910b3"), m, n, k, "fp32", is_series=True, **library_tile("fp32"))
    return [Point(f"fp32 on a 910B3, {m} x {n} x {k}", "rate", "TFLOP/s", (63, 63), 2 * m * n * k / run.total / 1e6)]


def library_tile(format: str) -> dict[str, Any]:
    """Options for the block that CANN's library starts from (ops-nn, mat_mul_v3), and half of L1 for each operand.

    128 x 256, and 128 bytes of K. Newer ones then make the block of a GEMM of few rounds less tall; whether the one
    that was measured did is not known, and this does not.
    """
    return {"tile": {"m": 128, "n": 256, "k": 1024 // format_of(format).bits}, "step_ka": 8, "step_kb": 4}


def torch() -> list[Point]:
    """PyTorch on a 910B2: 24 cores at 1800 MHz, blocks of CANN's library, their order ours, the launch in the time.

    It was 30 runs after 6 others, on the same operands.
    """
    chip = changed(load("ascend910b3"), {"cores": 24})
    points = []
    for fmt, row in TORCH.items():
        for n, tflops in row.items():
            run = gemm(chip, n, n, n, fmt, warm=1, is_series=True, output=fmt, **library_tile(fmt))
            found = 2 * n**3 / (run.total + (chip.launch_overhead_us or 0.0)) / 1e6
            role: Role = "calibration" if (fmt, n) == CLOCK_FROM else "validation"
            points.append(Point(f"torch {fmt} {n}^3", "rate", "TFLOP/s", tflops, found, role))
    return points


@dataclass(frozen=True, slots=True)
class Scaling:
    """One size, TFLOP/s: sgemm-cube on the 910A (its GEMM kernel), native fp32 on the 910B3 in two orders of tiles."""

    sweep: str
    m: int
    n: int
    k: int
    cube_910a: float
    bands_910b3: float
    rows_910b3: float


def fig11(sweeps: Mapping[str, Sequence[tuple[int, int, int]]] = FIG11) -> Iterator[Scaling]:
    """SGEMM-cube's Fig. 11: m = n, k, and all three growing."""
    old, new = load("ascend910a"), load("ascend910b3")
    scheme = scheme_of("sgemm-cube")
    for sweep, sizes in sweeps.items():
        for m, n, k in sizes:
            work = 2 * m * n * k / 1e6
            plan = scheme.plan(scheme.complete({}), Problem("fp32", m, n, k))
            assert isinstance(plan, Plan)
            timed = timing.run(program_of(plan_record(plan, old, (m, n, k), {}), old), old)
            cycles = next(kernel.cycles for kernel in timed.kernels if kernel.name == "gemm")
            rates = [
                gemm(new, m, n, k, "fp32", is_series=True, **order).total for order in ({}, {"swizzle": ROW_BY_ROW})
            ]
            yield Scaling(sweep, m, n, k, work / (cycles / old.clock_mhz), work / rates[0], work / rates[1])


def readings() -> Iterator[tuple[str, Run, dict[int, float]]]:
    """Each reading of the tables: its name, Huawei's GEMM, and PTO's times in microseconds by size."""
    base = load("ascend910b1")
    for name, changes in READINGS.items():
        chip = changed(base, changes)
        huge = gemm(chip, 8192, 8192, 8192, "fp16", **HUAWEI)
        yield name, huge, {n: gemm(chip, n, n, n, "fp16", **PTO).total for n in PTO_US}


def points_text(points: Sequence[Point]) -> str:
    """Points as a Markdown table."""
    lines = [
        "| run | quantity | measured | simulated | difference | role |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for p in points:
        low, high = (f"{x:,.1f}" if x < 100 else f"{x:,.0f}" for x in p.measured)
        span = low if low == high else f"{low} to {high}"
        got = f"{p.simulated:,.1f}" if p.simulated < 100 else f"{p.simulated:,.0f}"
        lines.append(f"| {p.what} | {p.quantity}, {p.unit} | {span} | {got} | {p.error:+.1%} | {p.role} |")
    return "\n".join(lines) + "\n"


def fig11_text(points: Sequence[Scaling]) -> str:
    """Fig. 11 as a Markdown table."""
    lines = [
        "| grows | m, n, k | 910A sgemm-cube | 910B3 fp32, tiles in bands | 910B3 fp32, row by row |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {p.sweep} | {p.m}, {p.n}, {p.k} | {p.cube_910a:.1f} | {p.bands_910b3:.1f} | {p.rows_910b3:.1f} |"
        for p in points
    ]
    return "\n".join(lines) + "\n"


def readings_text(found: Sequence[tuple[str, Run, Mapping[int, float]]]) -> str:
    """The readings as a Markdown table."""
    sizes = list(PTO_US)
    lines = [
        f"| changed | 8192^3: core, us | MTE2 busy, us | {' | '.join(f'PTO {n}^3' for n in sizes)} |",
        f"| --- | ---: | ---: | {' | '.join('---:' for _ in sizes)} |",
    ]
    for name, huge, times in found:
        own = " | ".join(f"{times[n]:,.1f}" for n in sizes)
        lines.append(f"| {name} | {huge.core:,.0f} | {huge.busy['MTE2']:,.0f} | {own} |")
    measured = " | ".join(f"{PTO_US[n]:,.1f}" for n in sizes)
    lines.append(f"| measured | 3,559 to 3,671 | 3,436 to 3,552 | {measured} |")
    return "\n".join(lines) + "\n"
