"""Measurements on the Ascend 910B family, compared with the timing machine: Huawei's kernels, PyTorch, a paper's
figure.

The published numbers are in hwsim_lab.papers.ascend910b_data; here are the configurations they were measured with. Each
point says whether a number of the device file was set by it (calibration) or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.devices.variants import changed
from hwsim.formats import format_of
from hwsim.gemm.plan import Plan
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.machines import timing
from hwsim.machines.l2_state import COLD, SERIES
from hwsim.machines.load import under_load
from hwsim.request.epilogue import with_epilogue
from hwsim.resolve.choice.cost import plan_record
from hwsim.resolve.mapping_choice import facts_of, program_of
from hwsim.schemes import scheme_of
from hwsim_lab.papers.ascend910b_data import Pipe, published

Role = Literal["calibration", "validation"]
#: Device files: of Huawei's and PTO's measurements; of PyTorch's and of Fig. 11; of the paper's own chip.
HUAWEIS, LATER, FORMER = "ascend910b1", "ascend910b3", "ascend910a"
NATIVE, CUBE = "native", "sgemm-cube"
BASE = {"m": 128, "n": 256, "k": 64}  # baseM, baseN, baseK of Huawei's samples
_SAMPLE: dict[str, Any] = {"tile": BASE, "distribution": "block", "grid": (4, 6), "b_layout": "columns"}
HUAWEI: dict[str, Any] = {**_SAMPLE, "step_ka": 8, "step_kb": 4, "output": "fp16"}
PTO: dict[str, Any] = {**_SAMPLE, "step_ka": 4, "step_kb": 4}
PIPES = {"M": "cube", "MTE1": "MTE1", "MTE2": "MTE2", "FIX": "FixPipe"}
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


def distance(simulated: float, measured: tuple[float, float]) -> float:
    """Relative distance from the nearest end of the measured range (low, high); 0 inside it."""
    low, high = measured
    if low <= simulated <= high:
        return 0.0
    return simulated / (low if simulated < low else high) - 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """One measured quantity (a range where runs differ) and the simulated value."""

    what: str
    quantity: str
    unit: str
    measured: tuple[float, float]
    simulated: float
    role: Role = "validation"

    @property
    def error(self) -> float:
        """Relative distance from the nearest end of the measured range; 0 inside it."""
        return distance(self.simulated, self.measured)


@dataclass(frozen=True, slots=True)
class GemmTimes:
    """Times of a GEMM in microseconds. core: from the start to a core's end; it and `busy` are means over the cores."""

    total: float
    core: float
    busy: Mapping[str, float]


def gemm(
    device: Device,
    m: int,
    n: int,
    k: int,
    format: str,
    warm: int = 0,
    is_series: bool = False,
    output: str | None = None,
    **options: Any,
) -> GemmTimes:
    """The simulated time of C[m, n] = A[m, k] B[k, n] in a native format. output: of C; options: of the family's
    mapping.

    warm: number of earlier runs, whose data L2 still holds. is_series: at the clock that a series of such runs
    sustains.
    """
    scheme = scheme_of(NATIVE)
    wide = "fp32" if format in ("fp32", "hf32") else format
    problem = Problem.of(wide, m, n, k)
    plan = scheme.plan(scheme.complete({"format": format}), problem)
    gemm = plan_record(plan, device, (m, n, k), options, with_epilogue(Schedule(), output=output))
    program = program_of(gemm, device)
    if is_series:
        device, timed = under_load(program, device, str(facts_of(gemm, device)["unit"]), l2=SERIES if warm else COLD)
    else:
        timed = timing.run(program, device, warm=warm)

    def us(cycles: float) -> float:
        return cycles / device.clock_mhz

    idle = timed.engines["FIX"].stall_cycles.get("done", 0.0) / device.cores
    busy = {name: us(engine.busy_cycles / device.cores) for name, engine in timed.engines.items()}
    return GemmTimes(us(timed.cycles), us(timed.cycles - idle), busy)


def huawei(chip: Device | None = None) -> list[Comparison]:
    """Huawei's 8192^3 FP16 (runs with constant tiling), and PTO's GEMMs."""
    given, what = published().huawei, "FP16 8192^3"
    chip = chip or load(HUAWEIS)
    launch = chip.launch_overhead_us or 0.0
    run = gemm(chip, 8192, 8192, 8192, "fp16", **HUAWEI)
    flagged = gemm(chip, 8192, 8192, 8192, "fp16", **HUAWEI, unit_flag=True)

    def busy(pipe: Pipe) -> Comparison:
        quantity = f"{PIPES[pipe]} busy{', no UnitFlag' if pipe == 'FIX' else ''}"
        role: Role = "calibration" if pipe in given.calibration else "validation"
        return Comparison(what, quantity, "us", given.busy[pipe], run.busy[pipe], role)

    points = [
        Comparison(what, "core time, mean", "us", given.core, run.core),
        Comparison(what, "task", "us", given.task, run.total + launch),
        *(busy(pipe) for pipe in given.busy),
        Comparison(what, "FixPipe busy, UnitFlag", "us", given.unit_flag_fix, flagged.busy["FIX"]),
    ]
    for n, case in published().pto.cases.items():
        run = gemm(chip, n, n, n, "fp16", **PTO)
        points.append(Comparison(f"PTO {n}^3", "core time", "us", (case.us, case.us), run.total))
        for pipe, share in case.busy.items():
            time = share * case.us
            points.append(Comparison(f"PTO {n}^3", f"{PIPES[pipe]} busy", "us", (time, time), run.busy[pipe]))
    return points


def guide() -> list[Comparison]:
    """Cases of Huawei's tuning guide: the slowest core's time, and MTE2's busy time."""
    points = []
    for case in published().guide.cases:
        chip = changed(load(case.device), case.changes)
        packets = {"step_ka": case.packet, "step_kb": case.packet}
        given: dict[str, Any] = {"tile": BASE, **packets, "distribution": "block", "grid": case.grid}
        run = gemm(chip, *case.mnk, "fp16", **given | case.options)
        if case.core is not None:
            points.append(Comparison(case.what, "slowest core", "us", (case.core, case.core), run.total))
        if case.mte2 is not None:
            points.append(Comparison(case.what, "MTE2 busy", "us", (case.mte2, case.mte2), run.busy["MTE2"]))
        if case.core is not None and case.unit_flag_core is not None:
            flagged = gemm(chip, *case.mnk, "fp16", **given, unit_flag=True)
            saved = case.core - case.unit_flag_core
            points.append(Comparison(case.what, "saved by UnitFlag", "us", (saved, saved), run.total - flagged.total))
    return points


def paper() -> list[Comparison]:
    """Native fp32 on the 910B3 in SGEMM-cube's Fig. 11b, whose sizes the paper does not give."""
    m, n, k = EDGE, EDGE, 2 * EDGE
    run = gemm(load("ascend910b3"), m, n, k, "fp32", is_series=True, **library_tile("fp32"))
    rate = 2 * m * n * k / run.total / 1e6
    return [Comparison(f"fp32 on a 910B3, {m} x {n} x {k}", "rate", "TFLOP/s", published().paper.tflops, rate)]


def why(point: Comparison) -> str:
    """The reason why the point is missed, where it is known."""
    return published().why.get(point.what, {}).get(point.quantity, "")


def library_tile(format: str) -> dict[str, Any]:
    """Options for the initial tile of CANN's library (ops-nn, mat_mul_v3), with half of L1 for each operand.

    The tile is 128 x 256, with 128 bytes of K. Newer versions then reduce the tile's height for a GEMM of few waves;
    whether the measured version did is not known, and this function does not.
    """
    return {"tile": {"m": 128, "n": 256, "k": 1024 // format_of(format).bits}, "step_ka": 8, "step_kb": 4}


def torch() -> list[Comparison]:
    """PyTorch on a 910B2: 24 cores at 1800 MHz, tiles of CANN's library, their order ours, the launch included.

    The measurement had 30 runs after 6 others, on the same operands.
    """
    chip = changed(load(LATER), {"cores": 24})
    points = []
    given = published().torch
    for fmt, row in given.tflops.items():
        for n, tflops in row.items():
            run = gemm(chip, n, n, n, fmt, warm=1, is_series=True, output=fmt, **library_tile(fmt))
            found = 2 * n**3 / (run.total + (chip.launch_overhead_us or 0.0)) / 1e6
            role: Role = "calibration" if f"{fmt} {n}" in given.calibration else "validation"
            points.append(Comparison(f"torch {fmt} {n}^3", "rate", "TFLOP/s", tflops, found, role))
    return points


@dataclass(frozen=True, slots=True)
class Scaling:
    """Throughput at one size, TFLOP/s: sgemm-cube on the 910A (its GEMM kernel), native fp32 on the 910B3 in two orders
    of tiles.
    """

    sweep: str
    m: int
    n: int
    k: int
    cube_910a: float
    bands_910b3: float
    rows_910b3: float


def fig11(sweeps: Mapping[str, Sequence[tuple[int, int, int]]] = FIG11) -> Iterator[Scaling]:
    """SGEMM-cube's Fig. 11: throughput with growing m = n, growing k, and all three growing."""
    old, new = load(FORMER), load(LATER)
    scheme = scheme_of(CUBE)
    orders: tuple[dict[str, Any], ...] = {}, {"swizzle": ROW_BY_ROW}
    for sweep, sizes in sweeps.items():
        for m, n, k in sizes:
            work = 2 * m * n * k / 1e6
            plan = scheme.plan(scheme.complete({}), Problem.of("fp32", m, n, k))
            assert isinstance(plan, Plan)
            timed = timing.run(program_of(plan_record(plan, old, (m, n, k), {}), old), old)
            cycles = next(kernel.cycles for kernel in timed.kernels if kernel.name == "gemm")
            rates = [gemm(new, m, n, k, "fp32", is_series=True, **order).total for order in orders]
            yield Scaling(sweep, m, n, k, work / (cycles / old.clock_mhz), work / rates[0], work / rates[1])


def readings() -> Iterator[tuple[str, GemmTimes, dict[int, float]]]:
    """Interpretations of the tables: for each its name, Huawei's GEMM, and PTO's times in microseconds by size."""
    base, cases = load(HUAWEIS), published().pto.cases
    for name, changes in READINGS.items():
        chip = changed(base, changes)
        huge = gemm(chip, 8192, 8192, 8192, "fp16", **HUAWEI)
        yield name, huge, {n: gemm(chip, n, n, n, "fp16", **PTO).total for n in cases}


def points_text(points: Sequence[Comparison]) -> str:
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


def readings_text(found: Sequence[tuple[str, GemmTimes, Mapping[int, float]]]) -> str:
    """The interpretations as a Markdown table."""
    sizes = list(published().pto.cases)
    lines = [
        f"| changed | 8192^3: core, us | MTE2 busy, us | {' | '.join(f'PTO {n}^3' for n in sizes)} |",
        f"| --- | ---: | ---: | {' | '.join('---:' for _ in sizes)} |",
    ]
    for name, huge, times in found:
        own = " | ".join(f"{times[n]:,.1f}" for n in sizes)
        lines.append(f"| {name} | {huge.core:,.0f} | {huge.busy['MTE2']:,.0f} | {own} |")
    given = published()
    own = " | ".join(f"{case.us:,.1f}" for case in given.pto.cases.values())
    core, mte2 = (f"{low:,.0f} to {high:,.0f}" for low, high in (given.huawei.core, given.huawei.busy["MTE2"]))
    lines.append(f"| measured | {core} | {mte2} | {own} |")
    return "\n".join(lines) + "\n"
