"""SGEMM-cube's claims on speed: Fig. 10 and 11, and the schemes of Table 2 on the A100.

A rate has two readings. Of the kernel: the matrix kernel, which splits A as Algorithm 1 lists it and multiplies. Of the
whole run: with the split of B, the zeroing and the final addition, which are kernels of their own. Neither has
launches. Sizes are as the claims assume them: the paper gives none, and none is a multiple of its best block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from hwsim.api import run
from hwsim.dataflows.davinci.coupled_tiling import legal
from hwsim.devices import changed, load
from hwsim.devices.device import Device
from hwsim.host.threads import worker_count
from hwsim_lab.papers.cells import Cell, CellCall, call
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.sgemm_cube.blocking import FUSED, TILE, Block, fused
from hwsim_lab.papers.sgemm_cube.chips import GRID, NEW, OLD, limits, peak_tflops

ORIGINAL, SCHEME = "a100", "sgemm-cube"
LISTED: dict[str, Any] = {
    "device": OLD,
    "scheme": SCHEME,
    "grid": GRID,
    "convert_a": "kernel",
}  # as Algorithm 1 is listed
#: m = n = k of Fig. 10: multiples of 1024 that no block height of the sweep is made for.
EDGES = (8192, 9216, 10240, 12288, 14336, 16384)
SIDES = (32, 48, 64, 96, 128, 144, 160, 176, 192, 208, 224)
DEPTHS = (16, 32, 48, 64, 80, 96, 128, 256)
SMALL = 2048  # elements of a small block
#: Blocks at quick scale: those that claims name, their neighbours, the fastest of heights 96 and 128, and small ones.
SOME: tuple[Block, ...] = (
    *((176, 64, 176), (176, 64, 192), (176, 80, 176), (192, 64, 176), (192, 80, 192), (128, 128, 128)),
    *((160, 96, 160), (176, 64, 160), (208, 64, 192), (96, 160, 96)),
    *((96, 128, 96), (96, 80, 192), (144, 96, 144), (64, 32, 64), (128, 16, 128)),
)
SQUARES = (1024, 2048, 4096, 8192, 12288, 16384)
GROWING = (1024, 2048, 4096, 8192, 16384, 32768)
DEEP = 2816  # k of Fig. 11a, as in Fig. 9a
BROAD = (3072, 4096, 5120, 6144, 8192, 12288)  # m = n of Fig. 11b
T4_MEMORY_BYTES_PER_SECOND = 320e9  # nominal
Sizes = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Rates:
    """TFLOP/s, 2 m n k / time, of the matrix kernel alone and of the whole run."""

    kernel: float
    whole: float


def rate(m: int, n: int, k: int, **options: Any) -> float:
    """TFLOP/s of a whole run, 2 m n k / time."""
    found = run(m=m, n=n, k=k, exact=False, **options)
    assert found.tflops is not None
    return found.tflops


def rates_of(m: int, n: int, k: int, **options: Any) -> Rates:
    """The rates of one run of SGEMM-cube."""
    found = run(m=m, n=n, k=k, exact=False, **options)
    seconds = next(phase["seconds"] for phase in found.phases if phase["name"] == "gemm")
    assert found.tflops is not None
    return Rates(2e-12 * m * n * k / float(seconds), found.tflops)


def each(work: Callable[..., Any], given: Sequence[Any]) -> list[Any]:
    """The results in order, by several threads."""
    with ThreadPoolExecutor(worker_count(None)) as pool:
        return list(pool.map(work, given))


def swept(scale: Scale) -> tuple[Block, ...]:
    """The blocks of Fig. 10."""
    if scale == "quick":
        return SOME
    fits = {tile for tile in legal(limits()) if tile[0] <= 2 * tile[2] <= 4 * tile[0]}
    return tuple((b_m, b_k, b_n) for b_m in SIDES for b_k in DEPTHS for b_n in SIDES if (b_m, b_k, b_n) in fits)


@Cell
def block_rates(tile: Block, buffering: str, edge: int) -> list[float]:
    """[kernel, whole run] in TFLOP/s with blocks of this size, N_fused by Eq. 8."""
    options = {"tile": tile, "n_fused": fused(tile), "buffering": buffering}
    found = rates_of(edge, edge, edge, **LISTED, **options)
    return [found.kernel, found.whole]


def is_small(tile: Block) -> bool:
    """Whether a block of A or of B is small."""
    return min(tile[0] * tile[1], tile[1] * tile[2]) <= SMALL


def _alone(scale: Scale) -> list[Block]:
    """The blocks that are timed single-buffered too."""
    return [tile for tile in swept(scale) if not (scale == "quick" and is_small(tile))]


def _block_cells(scale: Scale) -> list[CellCall]:
    by_name = (("single", _alone(scale)), ("double", swept(scale)))
    return [call(block_rates, tile, name, edge) for edge in EDGES for name, tiles in by_name for tile in tiles]


#: Readings of Fig. 10 and 11: name -> place in a pair of rates.
READINGS = {"kernel": 0, "whole run": 1}


def measure_block_sizes(scale: Scale) -> Found:
    """Fig. 10: throughput over block sizes, single- and double-buffered, at each of EDGES."""
    tiles, alone = swept(scale), _alone(scale)
    asked = [
        (edge, name, tile) for edge in EDGES for name, own in (("double", tiles), ("single", alone)) for tile in own
    ]
    found = dict(zip(asked, each(lambda one: block_rates(one[2], one[1], one[0]), asked), strict=True))
    rates: dict[tuple[int, str], dict[Block, list[float]]] = {}
    for (edge, name, tile), pair in found.items():
        rates.setdefault((edge, name), {})[tile] = pair
    third = peak_tflops(load(OLD), "fp16") / 3
    by_reading = {reading: _block_claims(rates, place, third) for reading, place in READINGS.items()}
    measured = by_reading["kernel"]
    readings = {claim: {"whole run": by_reading["whole run"][claim]} for claim in measured}
    best = {edge: max((rates[edge, "double"][tile][0], tile) for tile in tiles)[1] for edge in EDGES}
    said = f"{len(tiles)} blocks at quick scale. " if scale == "quick" else f"{len(tiles)} blocks. "
    said += (
        f"m = n = k of {', '.join(map(str, EDGES))}, none a multiple of {TILE[0]}, so that the last blocks are partial "
        "and cores wait at the end. "
    )
    of_each = "; ".join(
        f"{edge}: {best[edge]} at {rates[edge, 'double'][best[edge]][0]:.1f}, {TILE} at "
        f"{rates[edge, 'double'][TILE][0]:.1f}"
        for edge in EDGES
    )
    whole = rates_of(32 * TILE[0], 32 * TILE[0], 32 * TILE[0], **LISTED, tile=TILE, n_fused=FUSED)
    fit = (
        f"At m = n = k = {32 * TILE[0]}, where every core has a whole number of the paper's blocks, its block runs at "
        f"{whole.kernel:.1f} TFLOP/s in the kernel and {whole.whole:.1f} in the whole run. "
    )
    notes = dict.fromkeys(measured, said) | dict.fromkeys(
        ("fig10-single-peak", "fig10-double-peak", "fig10-77-percent", "fig10-gain"), said + fit
    )
    notes["fig10-best-block"] = f"{said}Fastest in the kernel, in TFLOP/s: {of_each}. {fit}"
    notes["fig10-best-over-96"] = notes["fig10-best-block"]
    series = []
    for name, panel in (("single", "fig10a"), ("double", "fig10b")):
        columns: dict[str, list[Any]] = {x: [] for x in ("bm", "bk", "bn", "Nfused", "m = n = k", "bm bn", "TFLOP/s")}
        for edge in EDGES:
            for tile, pair in sorted(rates[edge, name].items(), key=lambda one: (one[0][0], one[0][2], one[0][1])):
                row = (*tile, fused(tile), edge, tile[0] * tile[2], pair[0])
                for column, cell in zip(columns.values(), row, strict=True):
                    column.append(cell)
        series.append(Series(panel, columns, "bm bn", "TFLOP/s", "m = n = k"))
    return Found(measured, notes, tuple(series), readings)


def _block_claims(
    rates: Mapping[tuple[int, str], Mapping[Block, Sequence[float]]], place: int, third: float
) -> dict[str, dict[str, list[Any]]]:
    """Quantities of Fig. 10's claims, an element for each of EDGES. place: in a pair of rates."""
    by_claim: dict[str, dict[str, list[Any]]] = {}

    def put(claim: str, **quantities: Any) -> None:
        for name, quantity in quantities.items():
            by_claim.setdefault(claim, {}).setdefault(name, []).append(quantity)

    for edge in EDGES:
        double, single = (
            {tile: pair[place] for tile, pair in rates[edge, name].items()} for name in ("double", "single")
        )
        best = max(double, key=double.__getitem__)
        put("fig10-single-peak", peak=max(single.values()))
        put("fig10-double-peak", peak=double[best])
        put("fig10-gain", ratio=double[best] / max(single.values()))
        put("fig10-77-percent", share=100 * double[best] / third)
        put("fig10-best-block", best=[*best, fused(best)], share=double[TILE] / double[best])
        put("fig10-best-over-96", at_176=double[TILE], at_96=max(x for tile, x in double.items() if tile[0] == 96))
        put(
            "fig10-small-blocks",
            small=[x for tile, x in double.items() if is_small(tile)],
            others=[x for tile, x in double.items() if not is_small(tile)],
        )
    return by_claim


def cube_rates(sizes: Sizes) -> Rates:
    """Rates of SGEMM-cube on the 910A at the paper's blocks."""
    return rates_of(*sizes, **LISTED, tile=TILE, n_fused=FUSED)


def cann_rate(sizes: Sizes) -> float:
    """TFLOP/s of native FP32 on the 910B3, blocks by hwsim; the run is one kernel."""
    return rate(*sizes, device=NEW, scheme="native", format="fp32")


@cache
def scaling() -> dict[Sizes, tuple[Rates, float]]:
    """Fig. 11: by sizes, SGEMM-cube on the 910A and native FP32 on the 910B3."""
    sizes = list(dict.fromkeys([*FIG11A, *(one for own in FIG11B.values() for one in own), *FIG11C]))
    by_work = sorted(sizes, key=lambda one: -one[0] * one[1] * one[2])
    cube = each(cube_rates, by_work)
    cann = each(cann_rate, by_work)
    return {one: (old, new) for one, old, new in zip(by_work, cube, cann, strict=True)}


FIG11A = [(n, n, DEEP) for n in GROWING]
FIG11B = {n: [(n, n, k) for k in GROWING] for n in BROAD}
FIG11C = [(n, n, n) for n in GROWING]


def _scaling_claims(found: Mapping[Sizes, tuple[Rates, float]], reading: str) -> dict[str, dict[str, Any]]:
    """Quantities of Fig. 11's claims under a reading of READINGS."""

    def old(sizes: Sequence[Sizes]) -> list[float]:
        return [found[one][0].kernel if reading == "kernel" else found[one][0].whole for one in sizes]

    def new(sizes: Sequence[Sizes]) -> list[float]:
        return [found[one][1] for one in sizes]

    def ratio(sizes: Sequence[Sizes]) -> list[float]:
        return [x / y for x, y in zip(old(sizes), new(sizes), strict=True)]

    cube, cann = [old(own) for own in FIG11B.values()], [new(own) for own in FIG11B.values()]
    return {
        "fig11a-grows": {"cube": old(FIG11A)},
        "fig11a-60": {"cube": old(FIG11A)},
        "fig11a-surpasses-910b3": {"ratio": ratio(FIG11A[-2:])},
        "fig11b-stable": {"cube": cube, "cann": cann},
        "fig11b-60": {"cube": cube},
        "fig11b-63-910b3": {"cann": cann, "cube": cube},
        "fig11c-stable": {"cube": old([one for one in FIG11C if one[0] >= 4096])},
        "fig11c-surpasses": {"ratio": ratio(FIG11C)},
    }


def measure_scaling(scale: Scale) -> Found:
    """Fig. 11's claims."""
    found = scaling()
    series = []
    panels = {"fig11a": ("m", FIG11A), "fig11b": ("k", FIG11B[8192]), "fig11c": ("m", FIG11C)}
    for panel, (axis, own) in panels.items():
        lines = {
            "SGEMM-cube@910A, kernel": [found[one][0].kernel for one in own],
            "SGEMM-cube@910A, whole run": [found[one][0].whole for one in own],
            "CANN FP32@910B3": [found[one][1] for one in own],
        }
        columns: dict[str, list[Any]] = {
            axis: [one[2] if axis == "k" else one[0] for _ in lines for one in own],
            "TFLOP/s": [value for line in lines.values() for value in line],
            "method": [name for name in lines for _ in own],
        }
        series.append(Series(panel, columns, axis, "TFLOP/s", "method"))
    measured = _scaling_claims(found, "kernel")
    whole = _scaling_claims(found, "whole run")
    readings = {claim: {"whole run": whole[claim]} for claim in measured}
    measured["fig11c-910b3-degrades"] = {"cann": [found[one][1] for one in FIG11C]}
    last = found[FIG11A[-1]][0]
    fitted = rates_of(128 * TILE[0], 128 * TILE[0], DEEP, **LISTED, tile=TILE, n_fused=FUSED)
    parts = (
        f"At m = n = {GROWING[-1]}, k = {DEEP} the matrix kernel runs at {last.kernel:.1f} TFLOP/s and the whole run "
        f"at {last.whole:.1f}: the split of B, the zeroing and the final addition are the rest. At m = n = "
        f"{128 * TILE[0]}, a multiple of the block, the kernel runs at {fitted.kernel:.1f}. "
    )
    peak = peak_tflops(load(NEW), "fp32")
    most = max(found[one][1] for own in FIG11B.values() for one in own)
    new = f"CANN's kernel is hwsim's double-buffered kernel; it keeps {most:.1f} of the 910B3's {peak:.1f} TFLOP/s. "
    broad = f"m = n of {', '.join(map(str, BROAD))}, each with all k. "
    return Found(
        measured,
        {
            "fig11a-grows": parts,
            "fig11a-60": parts,
            "fig11a-surpasses-910b3": new + parts,
            "fig11b-stable": f"{broad}At small k a core writes its blocks of C more often than it multiplies.",
            "fig11b-60": broad + parts,
            "fig11b-63-910b3": broad + new,
            "fig11c-910b3-degrades": new,
            "fig11c-stable": "Sizes from 4096 on; stable would be within 10 %. At sizes that are no multiple of 32 "
            "blocks some cores have one block row more than others.",
            "fig11c-surpasses": new + parts,
        },
        tuple(series),
        readings,
    )


def measure_tensor_cores(scale: Scale) -> Found:
    """Table 2's schemes on the A100."""
    squares = SQUARES

    def rates(scheme: str, device: str = ORIGINAL) -> list[float]:
        return each(lambda n: rate(n, n, n, device=device, scheme=scheme), squares)

    half, tf32, ape = rates("ootomo-fp16"), rates("ootomo-tf32"), rates("ape-fp32-f")
    chip = load(ORIGINAL)
    base = peak_tflops(chip, "fp32")
    third = peak_tflops(chip, "fp16") / 3
    other = max(rates("ape-fp32-f", "a100pcie"))
    names = {"Ootomo FP16": half, "Ootomo TF32": tf32, "Ma et al. FP16": ape}
    columns: dict[str, list[Any]] = {
        "m = n = k": [n for _ in names for n in squares],
        "TFLOP/s": [value for values in names.values() for value in values],
        "method": [name for name in names for _ in squares],
    }
    clock = (
        f"On the PCIe card, whose power limit lowers the clock, the largest is {other:.1f}; the rest is not explained."
    )
    outside = (
        "In hwsim the leading product leaves the Tensor Core after each instruction, for FP32 additions outside; "
        "they bound the rate. "
    )
    return Found(
        {
            "table2-ootomo-51": {"tflops": half},
            "table2-ootomo-fp32-peak": {"ratio": max(half) / base},
            "sec2-ootomo-tf32-33": {"tflops": tf32, "fp16": half},
            "table2-ma-64": {"tflops": ape},
            "table2-ma-share": {"share": 100 * max(ape) / third},
        },
        {
            "table2-ootomo-51": outside,
            "table2-ma-64": clock,
            "table2-ma-share": clock,
        },
        (Series("table2", columns, "m = n = k", "TFLOP/s", "method", "x"),),
    )


@cache
def rtx6000() -> Device:
    """A Quadro RTX 6000 as a T4 of its size: hwsim's own file of it has no rates.

    72 multiprocessors at 1770 MHz, 6 MB of L2 and 672 GB/s of memory by its data sheet; L2's rate in proportion to the
    multiprocessors, the usable share of the memory's as the T4's. No power limit.
    """
    base = load("t4")
    assert base.l2 is not None and base.hbm is not None
    return changed(
        base,
        {
            "cores": 72, "clock_mhz": 1770, "sustained_clock_mhz": {}, "l2.capacity_bytes": 6 << 20,
            "l2.bytes_per_second": base.l2.bytes_per_second * 72 / base.cores,
            "hbm.bytes_per_second": base.hbm.bytes_per_second * 672e9 / T4_MEMORY_BYTES_PER_SECOND,
        },
    )  # fmt: skip


def measure_turing(scale: Scale) -> Found:
    """Egemm-TC beside FP32 on Turing."""
    speedup = []
    for chip in (load("t4"), rtx6000()):
        slow = each(lambda n, chip=chip: rate(n, n, n, device=chip, format="fp32"), SQUARES)
        fast = each(lambda n, chip=chip: rate(n, n, n, device=chip, scheme="egemm-tc"), SQUARES)
        speedup += [x / y for x, y in zip(fast, slow, strict=True)]
    first, second = speedup[: len(SQUARES)], speedup[len(SQUARES) :]
    note = (
        f"{min(first):.2f} to {max(first):.2f} on the T4, {min(second):.2f} to {max(second):.2f} on the RTX6000, which "
        "is a T4 with 72 multiprocessors at 1770 MHz, 6 MB of L2 and 672 GB/s (its data sheet; no rate of its own is "
        "known). Four products at eight times the FP32 rate bound the gain to 2: 3.13 cannot be reached with four "
        "products beside a kernel that keeps the FP32 peak."
    )
    columns: dict[str, list[Any]] = {
        "m = n = k": [*SQUARES, *SQUARES],
        "gain": speedup,
        "device": ["T4"] * len(SQUARES) + ["RTX6000"] * len(SQUARES),
    }
    series = Series("table2-egemm", columns, "m = n = k", "gain", "device", "x")
    return Found({"table2-feng-speedup": {"speedup": speedup}}, {"table2-feng-speedup": note}, (series,))


EXPERIMENTS = (
    Experiment(
        "block-sizes",
        tuple(
            f"fig10-{name}"
            for name in (
                *("single-peak", "double-peak", "gain", "77-percent", "best-block", "best-over-96", "small-blocks"),
            )
        ),
        measure_block_sizes,
        {"quick": 45, "full": 6000},
        _block_cells,
    ),
    Experiment(
        "matrix-sizes",
        (
            *("fig11a-grows", "fig11a-60", "fig11a-surpasses-910b3", "fig11b-stable", "fig11b-60", "fig11b-63-910b3"),
            *("fig11c-910b3-degrades", "fig11c-stable", "fig11c-surpasses"),
        ),
        measure_scaling,
        {"quick": 15, "full": 15},
    ),
    Experiment(
        "table2-speed",
        ("table2-ootomo-51", "table2-ootomo-fp32-peak", "sec2-ootomo-tf32-33", "table2-ma-64", "table2-ma-share"),
        measure_tensor_cores,
        {"quick": 5, "full": 30},
    ),
    Experiment("turing", ("table2-feng-speedup",), measure_turing, {"quick": 4, "full": 4}),
)
