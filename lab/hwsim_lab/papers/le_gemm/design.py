"""LE-GEMM's tiles, threads, buffers and devices: Section 4.2 and 4.3, Tables 1, 2 and 4, Eq. 12 to 18.

Kernels of Table 2's tiles are those of devices with twice the registers (runs.roomy_device), where the A800's own do
not hold them; bytes and operations are counted by the timing machine.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hwsim.dataflows.registry import dataflow
from hwsim.devices import instruction_for, load
from hwsim.errors import InputError, UnsupportedError
from hwsim.result import Result
from hwsim.studies.analytic_tiles import Parallelism, parallelism
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.le_gemm import runs
from hwsim_lab.papers.le_gemm.accuracy import four_products
from hwsim_lab.papers.le_gemm.runs import A800_TILE, DEVICES, TABLE_2, tile
from hwsim_lab.papers.le_gemm.splits import plan_of

Tile = tuple[int, int, int]
SIZE = 8192  # M = N of the evaluated formulas
DROPPED = (1024, 2048, 3072, 4096, 6144, 8192)  # n of Eq. 10
ROOFLINE = (4096, 5120, 6144, 7168, 8192, 10240)  # n of Fig. 14
SMALL = 1024  # of the runs whose bytes and operations are counted
INTO_SHARED = {"mi210": "RF_LDS", "a800": "GM_SMEM"}
SHARED = {"mi210": "LDS", "a800": "SMEM"}
ROOMY_NOTE = f"{A800_TILE} Counted in the kernel of a device with twice the registers."


def model(device: str, sizes: Tile) -> Parallelism:
    """LE-GEMM's thread model of a tile, for M = N = 8192."""
    return parallelism(load(device), tile(sizes), SIZE, SIZE)


def threads(device: str, sizes: Tile) -> int:
    """Threads of a workgroup."""
    return round(sizes[0] * sizes[1] / model(device, sizes).work)


def kernel(device: str, sizes: Tile, stages: int | None = 2) -> Result:
    """LE-GEMM's kernel of a tile, on a product of 1024 cubed."""
    return runs.timed("le", device, SMALL, SMALL, SMALL, tile=sizes, stages=stages, roomy=True)


def _steps(sizes: Tile) -> int:
    return math.ceil(SMALL / sizes[0]) * math.ceil(SMALL / sizes[1]) * math.ceil(SMALL / sizes[2])


def step_bytes(device: str, sizes: Tile, stages: int | None = 2) -> float:
    """Bytes that a workgroup puts into shared memory per step of T_K."""
    return kernel(device, sizes, stages).traffic_bytes[INTO_SHARED[device]] / _steps(sizes)


def step_operations(device: str, sizes: Tile, stages: int | None = 2) -> float:
    """Operations on the matrix units of a workgroup per step of T_K."""
    return float(2 * kernel(device, sizes, stages).macs["useful"] / _steps(sizes))


def step_ratio(device: str, sizes: Tile, stages: int | None = 2) -> float:
    """Operations per byte of a step."""
    return step_operations(device, sizes, stages) / step_bytes(device, sizes, stages)


def measure_model(scale: Scale) -> Found:
    """Section 4.2: Eq. 12 to 18, registers, and reuse of tiles."""
    le = plan_of("le")
    table = [(d, TABLE_2[d]) for d in DEVICES]
    square = [32, 64, 128, 256]
    group = threads("mi210", TABLE_2["mi210"])
    blocks = [SIZE * SIZE / (t * t) for t in square]
    tiles = [runs.timed("le", d, SIZE, SIZE, 32, tile=t, roomy=True).occupancy[0]["tiles"] for d, t in table]
    row, four = _sections((1, 3)), _sections((2, 2))
    counted = [runs.tflops("le", "mi210", n, n, n) * runs.seconds("le", "mi210", n, n, n) * 1e12 for n in (1024, 8192)]
    measured: dict[str, dict[str, Quantity]] = {
        "eq12-tlp": {"tiles": tiles, "tlp": [model(d, t).threads for d, t in table]},
        "eq13-bytes": {"bytes": [step_bytes(d, t) for d, t in table]},
        "eq14-flops": {"flops": [step_operations(d, t) for d, t in table]},
        "eq15-ratio": {
            "ratio": [step_ratio(d, t) for d, t in table],
            "other_tk": [step_ratio(d, (*t[:2], k), 1) for k in (16, 64) for d, t in table],
        },
        "eq16-load-per-thread": {"work_dl": [model(d, t).load for d, t in table]},
        "eq17-work-per-thread": {"work_cp": [model(d, t).work for d, t in table]},
        "eq18-tflops": {"operations": [round(x) for x in counted]},
        "section4-2-registers": {
            "accumulators": [len(le.terms) * model(d, t).work for d, t in table],
            "available": [load(d).memories["RF"].capacity_bytes / 4 / threads(d, t) for d, t in table],
        },
        "fig5-data-reuse": {
            "loads_row": row, "loads_square": four, "reads_per_tile": [row / 3, four / 4]
        },
        "section4-2-inverse": {
            "tlp": [x * group for x in blocks], "ratio": [model("mi210", (t, t, 32)).per_byte for t in square]
        },
    }  # fmt: skip
    notes = {
        "section4-2-registers": (
            "On the A800 both sums of 128 x 256 take all 64 K registers of an SM, none is left for operands and "
            "addresses: hwsim refuses the tile (270,336 of 262,144 bytes). With 512 threads the share per thread "
            "halves "
            "on both sides."
        ),
        **dict.fromkeys(("eq12-tlp", "eq13-bytes", "eq14-flops", "eq15-ratio"), ROOMY_NOTE),
        "fig5-data-reuse": "Bytes read from HBM by products of 1 x 3 and 2 x 2 tiles of 128 x 128, in sections.",
    }
    return Found(measured, notes)


def _sections(group: tuple[int, int]) -> int:
    """Sections of A and B that are read from HBM for a group of tiles of C."""
    edge, depth = 128, 1024
    found = runs.timed("le", "mi210", group[0] * edge, group[1] * edge, depth, l2="cold")
    return round(found.traffic_bytes["HBM read"] / (edge * depth * 4))


# --- Tables 1, 2 and 4, Fig. 6 ---------------------------------------------------------------------------------------


def measure_devices(scale: Scale) -> Found:
    """Tables 1 and 4, and Section 1's ratio: the device files."""
    chips = [load(d) for d in DEVICES]
    waves = [dataflow(chip).features.wave_threads for chip in chips]
    mi210, a800 = chips
    assert mi210.vector is not None and mi210.l2 is not None and a800.l2 is not None
    matrix = runs.unit_of(runs.timed("plain", "mi210", SMALL, SMALL, SMALL)).macs_per_cycle
    lanes = runs.unit_of(runs.timed("blas", "mi210", SMALL, SMALL, SMALL)).macs_per_cycle
    families = ("cdna", "sm80")
    engines = [
        int(chip.family == family and chip.matrix_instructions[instruction_for(chip, "fp16", "fp16")].d == "fp32")
        for chip, family in zip(chips, families, strict=True)
    ]
    hbm = [chip.hbm for chip in chips if chip.hbm is not None]
    measured: dict[str, dict[str, Quantity]] = {
        "section1-mi210-8x": {"ratio": float(matrix) / float(lanes)},
        "table1-wavefront": {"mi210": waves[0], "a800": waves[1]},
        "table4-caches": {
            "mi210": [mi210.links["GM_RF"].l1_bytes or 0, mi210.l2.capacity_bytes],
            "a800": [a800.links["GM_RF"].l1_bytes or 0, a800.l2.capacity_bytes],
        },
        "table4-memory": {
            "capacity": [x.capacity_bytes / 1e9 for x in hbm], "bandwidth": [x.bytes_per_second / 1e12 for x in hbm]
        },
        "table4-cores": {"matrix_engine": engines},
    }  # fmt: skip
    notes = {
        "table4-caches": (
            "hwsim's MI210 has the L2 of the one die that the card has, 8 MB; 16 MB is both dies' of an MI250."
        ),
        "table4-memory": (
            "The device files have the bandwidth that kernels reach; the peaks that they cite, 1.638 and 2.04 "
            "TB/s, are "
            "the paper's."
        ),
        "table4-cores": "hwsim names architectures by family: cdna (all of CDNA) and sm80 (Ampere).",
    }
    return Found(measured, notes)


ACROSS: dict[Scale, tuple[int, ...]] = {"quick": (64, 128, 256), "full": (32, 64, 128, 256)}
DEEP = (16, 32, 64)
CHOOSING = (2048, 3072, 4096, 5120, 6144, 8192)  # n of the choice of a tile


@cache
def candidates(device: str, n: int, scale: Scale, roomy: bool = False) -> dict[Tile, float]:
    """Seconds of LE-GEMM by tile, for those that the device holds with two buffers."""
    times = {}
    for m in ACROSS[scale]:
        for columns in ACROSS[scale]:
            for k in DEEP:
                try:
                    times[m, columns, k] = runs.seconds("le", device, n, n, n, tile=(m, columns, k), roomy=roomy)
                except (InputError, UnsupportedError):
                    continue
    return times


def measure_tiles(scale: Scale) -> Found:
    """Table 2, Fig. 6 and Section 4.3."""
    measured: dict[str, dict[str, Any]] = {}
    notes: dict[str, str] = {}
    columns: dict[str, list[object]] = {"line": [], "n": [], "T_K": [], "ms": []}
    for d in DEVICES:
        by_claim: dict[str, list[Any]] = {"tile": [], "slower_than_best": [], "time_over_median": []}
        fastest = []
        for n in CHOOSING:
            chosen = runs.timed("le", d, n, n, n, tile=None, stages=None).gemm
            assert chosen is not None and chosen.mapping is not None
            own = chosen.mapping.kernels[0].tile
            times = candidates(d, n, scale)
            table = times.get(TABLE_2[d], math.inf)
            best = min(times, key=times.__getitem__)
            fastest.append(f"{n}: {' x '.join(map(str, best))}")
            by_claim["tile"].append([own.m, own.n, own.k])
            by_claim["slower_than_best"].append(table / times[best])
            by_claim["time_over_median"].append(table / float(np.median(list(times.values()))))
            for t, value in times.items():
                for column, cell in zip(columns.values(), (f"{d}, {t[0]} x {t[1]}", n, t[2], value * 1e3), strict=True):
                    column.append(cell)
        measured[f"table2-tile-{d}"] = by_claim
        notes[f"table2-tile-{d}"] = (
            f"T_M and T_N of {', '.join(map(str, ACROSS[scale]))}. The fastest candidate by n: {'; '.join(fastest)}."
        )
    largest = CHOOSING[-1]
    roomy = candidates("a800", largest, scale, True)
    held = roomy[TABLE_2["a800"]]
    notes["table2-tile-a800"] += (
        f" {A800_TILE} Its time is infinite here; with twice the registers it is, at n = {largest}, "
        f"{held / min(roomy.values()):.3f} of the fastest and "
        f"{held / float(np.median(list(roomy.values()))):.3f} of the median."
    )
    mi210 = candidates("mi210", largest, scale)
    notes["table2-tile-mi210"] += (
        f" At n = {largest} 128 x 128 x 32 takes {mi210[128, 128, 32] / mi210[128, 128, 16]:.4f} of the time of "
        "128 x 128 x 16: the depth hardly matters to the simulated kernel."
    )
    mappings = [kernel(d, TABLE_2[d]).gemm for d in DEVICES]
    kernels = [x.mapping.kernels[0] for x in mappings if x is not None and x.mapping is not None]
    units = [runs.unit_of(kernel(d, TABLE_2[d])) for d in DEVICES]
    buffers = [step_bytes(d, TABLE_2[d]) * one.stages for d, one in zip(DEVICES, kernels, strict=True)]
    measured |= {
        "table2-wavefront": {"size": [dataflow(load(d)).features.wave_threads for d in DEVICES]},
        "fig6-double-buffer": {
            "buffers": max(one.stages for one in kernels),
            "bytes": buffers,
            "capacity": [load(d).memories[SHARED[d]].capacity_bytes for d in DEVICES],
        },
        "section4-3-tk-amd": {
            "bytes": [2 * step_bytes("mi210", (128, 256, k), 1) for k in (16, 32)],
            "capacity": load("mi210").memories["LDS"].capacity_bytes,
        },
        "section4-3-tk-multiple": {
            "remainder": [one.tile.k % unit.k for one, unit in zip(kernels, units, strict=True)]
        },
    }  # fmt: skip
    notes |= {
        "fig6-double-buffer": f"{ROOMY_NOTE} There the buffers hold the FP32 blocks, as large as both halves.",
        "section4-3-tk-amd": "Two buffers of 128 x 256 x 32 need 96 KB, and the LDS has 64 KB; 16 fits.",
        "section4-3-tk-multiple": "hwsim has no fragments of an API; the depth is that of the matrix instruction.",
    }
    return Found(measured, notes, (Series("table2", columns),))


def measure_fragments(scale: Scale) -> Found:
    """Section 2.1 and Table 2: fragments, as hwsim's kernels without staging load them."""
    fragments: dict[str, list[int]] = {}
    remainders: list[int] = []
    for d in DEVICES:
        found = runs.timed("le", d, SMALL, SMALL, SMALL, tile=None, stages=None, staging="none")
        unit = runs.unit_of(found)
        sizes = [*found.options["warp"], found.options["tile"]["k"]]
        fragments[d] = sizes
        remainders += [size % own for size, own in zip(sizes, (unit.m, unit.n, unit.k), strict=True)]
    blocks = [(x.m, x.n) for x in load("mi210").matrix_instructions.values() if x.a == x.b == "fp16"]
    measured: dict[str, dict[str, Quantity]] = {
        "section2-fragments": {
            "a800": [float(x) for x in fragments["a800"][:2]],
            "mi210": [float(x) for x in max(blocks, key=lambda block: block[0] * block[1])],
        },
        "table2-fragments": {
            **{d: [float(x) for x in fragments[d]] for d in DEVICES}, "remainders": [float(x) for x in remainders]
        },
    }  # fmt: skip
    note = (
        "Fragments are those of LE-GEMM's kernel with staging=none, by hwsim's default: WMMA's 16 x 16 or, where it is "
        "larger, the C of the device's FP16 instruction, and 32 bytes of K. The staged kernel has warp tiles. The "
        "A800's agrees by construction; the MI210's is that of its largest FP16 instruction."
    )
    return Found(measured, dict.fromkeys(measured, note))


# --- Eq. 10's time, the roofline, and cuBLAS's modes -----------------------------------------------------------------


def measure_dropped(scale: Scale) -> Found:
    """Eq. 10: the time of the kernel with all four products."""
    four, n = four_products(), SIZE
    ratios = [
        [
            runs.seconds("le", d, n, n, n, scheme=four, tile=t) / runs.seconds("le", d, n, n, n, tile=t)
            for d, t in (("mi210", runs.HELD["mi210"]), ("a800", (64, 128, 32)))
        ]
        for n in DROPPED
    ]
    engines = runs.timed("le", "a800", n, n, n, tile=(64, 128, 32)).engines
    split = engines["FMA"]["busy_cycles"] / engines["TC"]["busy_cycles"]
    note = (
        "A800: tile (64, 128, 32) for both, which holds three sums in registers. There the lanes that split "
        "the operands "
        f"in the kernel are busy {split:.2f} times as long as the tensor cores with three products, so that a fourth "
        f"hardly shows. {A800_TILE}"
    )
    return Found({"eq10-fewer-products-time": {"four_over_three": ratios}}, {"eq10-fewer-products-time": note})


def intensity(method: str, device: str, n: int) -> float:
    """The arithmetic intensity over HBM traffic, relative to the ridge of the roofline."""
    found = runs.timed(method, device, n, n, n).roofline
    hbm = load(device).hbm
    assert found is not None and hbm is not None
    return found.intensity / (found.peak * 1e12 / hbm.bytes_per_second)


def measure_roofline(scale: Scale) -> Found:
    """Fig. 14: SGEMM's intensity and LE-GEMM's gain."""
    measured = {
        f"fig14-{d}-blas": {
            "blas": [intensity("blas", d, n) for n in ROOFLINE],
            "speedup": [runs.faster(d, n, n, n, "blas") for n in ROOFLINE],
        }
        for d in DEVICES
    }
    return Found(measured, {"fig14-a800-blas": A800_TILE})


EXPERIMENTS = (
    Experiment(
        "model",
        (
            "eq12-tlp", "eq13-bytes", "eq14-flops", "eq15-ratio", "eq16-load-per-thread", "eq17-work-per-thread",
            "eq18-tflops", "section4-2-registers", "fig5-data-reuse", "section4-2-inverse",
        ),
        measure_model,
        {"quick": 2.0, "full": 2.0},
    ),
    Experiment(
        "devices",
        ("section1-mi210-8x", "table1-wavefront", "table4-caches", "table4-memory", "table4-cores"),
        measure_devices,
        {"quick": 0.5, "full": 0.5},
    ),
    Experiment(
        "tiles",
        (
            "table2-tile-mi210", "table2-tile-a800", "table2-wavefront", "fig6-double-buffer", "section4-3-tk-amd",
            "section4-3-tk-multiple",
        ),
        measure_tiles,
        {"quick": 22.0, "full": 80.0},
    ),
    Experiment(
        "fragments", ("section2-fragments", "table2-fragments"), measure_fragments, {"quick": 1.0, "full": 1.0}
    ),
    Experiment("dropped-time", ("eq10-fewer-products-time",), measure_dropped, {"quick": 2.0, "full": 2.0}),
    Experiment(
        "roofline",
        ("fig14-mi210-blas", "fig14-a800-blas"),
        measure_roofline,
        {"quick": 6.0, "full": 6.0},
    ),
)  # fmt: skip
