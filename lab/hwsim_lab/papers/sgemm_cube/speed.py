"""SGEMM-cube's claims on speed: Fig. 10 and 11, and the schemes of Table 2 on the A100.

Times are of whole runs: splits, the product and the final addition, without launches. Blocks and sizes are as the
claims assume them. A is split in the matrix kernel, as Algorithm 1 lists it, B by a kernel before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
APART: dict[str, Any] = {"device": OLD, "scheme": SCHEME, "grid": GRID}  # A is split by a kernel before
EDGE = 11264  # m = n = k of Fig. 10
SIDES = (32, 48, 64, 96, 128, 144, 160, 176, 192, 208, 224)
DEPTHS = (16, 32, 48, 64, 80, 96, 128, 256)
SMALL = 2048  # elements of a small block
#: Blocks at quick scale: those that claims name, their neighbours, the fastest of heights 96 and 128, and small ones.
SOME: tuple[Block, ...] = (
    *((176, 64, 176), (176, 64, 192), (176, 80, 176), (192, 64, 176), (192, 80, 192), (128, 128, 128)),
    *((160, 96, 160), (176, 64, 160), (208, 64, 192), (96, 160, 96)),
    *((96, 128, 96), (96, 80, 192), (144, 96, 144), (64, 32, 64), (128, 16, 128)),
)
SQUARES = (1024, 2048, 4096, 8192, 16384)
GROWING = (1408, 2816, 5632, 11264, 22528)
LARGEST = 33792
T4_MEMORY_BYTES_PER_SECOND = 320e9  # nominal
Sizes = tuple[int, int, int]


def rate(m: int, n: int, k: int, **options: Any) -> float:
    """TFLOP/s of a whole run, 2 m n k / time."""
    found = run(m=m, n=n, k=k, exact=False, **options)
    assert found.tflops is not None
    return found.tflops


def gemm_rate(m: int, n: int, k: int, **options: Any) -> float:
    """TFLOP/s of the matrix kernel alone."""
    found = run(m=m, n=n, k=k, exact=False, **options)
    seconds = next(phase["seconds"] for phase in found.phases if phase["name"] == "gemm")
    return 2e-12 * m * n * k / float(seconds)


def each(work: Callable[..., float], given: Sequence[Any]) -> list[float]:
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
def block_rate(tile: Block, buffering: str) -> float:
    """TFLOP/s with blocks of this size, N_fused by Eq. 8."""
    options = {"tile": tile, "n_fused": fused(tile), "buffering": buffering}
    return rate(EDGE, EDGE, EDGE, **LISTED, **options)


def is_small(tile: Block) -> bool:
    """Whether a block of A or of B is small."""
    return min(tile[0] * tile[1], tile[1] * tile[2]) <= SMALL


def _alone(scale: Scale) -> list[Block]:
    """The blocks that are timed single-buffered too."""
    return [tile for tile in swept(scale) if not (scale == "quick" and is_small(tile))]


def _block_cells(scale: Scale) -> list[CellCall]:
    by_name = (("single", _alone(scale)), ("double", swept(scale)))
    return [call(block_rate, tile, name) for name, tiles in by_name for tile in tiles]


def measure_block_sizes(scale: Scale) -> Found:
    """Fig. 10: throughput over block sizes, single- and double-buffered."""
    tiles = swept(scale)
    double = dict(zip(tiles, each(lambda tile: block_rate(tile, "double"), tiles), strict=True))
    alone = _alone(scale)
    single = dict(zip(alone, each(lambda tile: block_rate(tile, "single"), alone), strict=True))
    best = max(tiles, key=double.__getitem__)
    peaks = {"single": max(single.values()), "double": double[best]}
    third = peak_tflops(load(OLD), "fp16") / 3
    own: dict[str, dict[str, Any]] = {name: {"tile": TILE, "buffering": name} for name in peaks}
    kernel = {name: gemm_rate(EDGE, EDGE, EDGE, **LISTED, **options) for name, options in own.items()}
    apart = {name: rate(EDGE, EDGE, EDGE, **APART, **options) for name, options in own.items()}
    listed = {"single": single[TILE], "double": double[TILE]}
    said = f"{len(tiles)} blocks at quick scale. " if scale == "quick" else f"{len(tiles)} blocks. "
    alone_note = said + (
        f"The matrix kernel alone, without the splits, zeroing and final addition, at {TILE}: "
        f"{kernel['double']:.1f} TFLOP/s double-buffered, {kernel['single']:.1f} single-buffered. With A split by a "
        f"kernel before instead of in the matrix kernel, the whole run is at {apart['double']:.1f} instead of "
        f"{listed['double']:.1f} double-buffered, {apart['single']:.1f} instead of {listed['single']:.1f}. "
    )
    series = []
    for name, panel, rates in (("single", "fig10a", single), ("double", "fig10b", double)):
        order = sorted(rates, key=lambda tile: (tile[0], tile[2], tile[1]))
        columns: dict[str, list[Any]] = {
            "bm": [tile[0] for tile in order],
            "bk": [tile[1] for tile in order],
            "bn": [tile[2] for tile in order],
            "Nfused": [fused(tile) for tile in order],
            "bm bn": [tile[0] * tile[2] for tile in order],
            "TFLOP/s": [rates[tile] for tile in order],
            "pipeline": [name for _ in order],
        }
        series.append(Series(panel, columns, "bm bn", "TFLOP/s", "bk"))
    return Found(
        {
            "fig10-single-peak": {"peak": peaks["single"]},
            "fig10-double-peak": {"peak": peaks["double"]},
            "fig10-gain": {"ratio": peaks["double"] / peaks["single"]},
            "fig10-77-percent": {"share": 100 * peaks["double"] / third},
            "fig10-best-block": {"best": [*best, fused(best)], "share": double[TILE] / double[best]},
            "fig10-best-over-96": {
                "at_176": double[TILE],
                "at_96": max(value for tile, value in double.items() if tile[0] == 96),
            },
            "fig10-small-blocks": {
                "small": [value for tile, value in double.items() if is_small(tile)],
                "others": [value for tile, value in double.items() if not is_small(tile)],
            },
        },
        {
            "fig10-single-peak": alone_note,
            "fig10-double-peak": alone_note,
            "fig10-77-percent": alone_note + f"That is {100 * kernel['double'] / third:.1f} % of {third:.1f} TFLOP/s.",
            "fig10-gain": said,
            "fig10-best-block": said + f"{best} is {double[best] / double[TILE] - 1:.2%} faster than {TILE}.",
            "fig10-best-over-96": said,
            "fig10-small-blocks": said,
        },
        tuple(series),
    )


def cube_rate(sizes: Sizes) -> float:
    """TFLOP/s of SGEMM-cube on the 910A at the paper's blocks."""
    return rate(*sizes, **LISTED, tile=TILE, n_fused=FUSED)


def apart_rate(sizes: Sizes) -> float:
    """The same with A split by a kernel before."""
    return rate(*sizes, **APART, tile=TILE, n_fused=FUSED)


def cann_rate(sizes: Sizes) -> float:
    """TFLOP/s of native FP32 on the 910B3, blocks by hwsim."""
    return rate(*sizes, device=NEW, scheme="native", format="fp32")


@cache
def scaling(scale: Scale) -> dict[str, dict[Sizes, tuple[float, float, float]]]:
    """Fig. 11: by panel and sizes, SGEMM-cube on the 910A, native FP32 on the 910B3, SGEMM-cube with A split before."""
    panels = {
        "fig11a": [(n, n, 2816) for n in GROWING],
        "fig11b": [(5632, 5632, k) for k in GROWING],
        "fig11c": [(n, n, n) for n in (*GROWING, LARGEST)],
    }
    sizes = list(dict.fromkeys(one for own in panels.values() for one in own))
    by_work = sorted(sizes, key=lambda one: -one[0] * one[1] * one[2])
    cube = dict(zip(by_work, each(cube_rate, by_work), strict=True))
    cann = dict(zip(by_work, each(cann_rate, by_work), strict=True))
    apart = dict(zip(by_work, each(apart_rate, by_work), strict=True))
    return {panel: {one: (cube[one], cann[one], apart[one]) for one in own} for panel, own in panels.items()}


def measure_scaling(scale: Scale) -> Found:
    """Fig. 11's claims."""
    found = scaling(scale)
    a, b, c = (list(found[panel].values()) for panel in ("fig11a", "fig11b", "fig11c"))
    cube, cann, apart = ({panel: [one[i] for one in own.values()] for panel, own in found.items()} for i in range(3))
    large = [pair for sizes, pair in found["fig11c"].items() if sizes[0] >= 5632]
    names = ("SGEMM-cube@910A", "CANN FP32@910B3", "SGEMM-cube@910A, A split before")
    series = []
    for panel, own in found.items():
        axis = "k" if panel == "fig11b" else "m"
        x = [sizes[2] if panel == "fig11b" else sizes[0] for sizes in own]
        columns: dict[str, list[Any]] = {
            axis: [*x, *x, *x],
            "TFLOP/s": [*cube[panel], *cann[panel], *apart[panel]],
            "method": [name for name in names for _ in own],
        }
        series.append(Series(panel, columns, axis, "TFLOP/s", "method"))
    peak = peak_tflops(load(NEW), "fp32")
    alone = gemm_rate(22528, 22528, 2816, **LISTED, tile=TILE, n_fused=FUSED)
    parts = (
        f"At m = n = 22528, k = 2816 the 910A's matrix kernel alone runs at {alone:.1f} TFLOP/s: the splits, zeroing "
        "and the final addition are the rest. With A split by a kernel before, the whole run is at "
        f"{apart['fig11a'][-1]:.1f} TFLOP/s instead of {cube['fig11a'][-1]:.1f}. "
    )
    new = (
        f"CANN's kernel is hwsim's own double-buffered one; it keeps {max(cann['fig11b']):.1f} of the 910B3's "
        f"{peak:.1f} TFLOP/s. "
    )
    return Found(
        {
            "fig11a-grows": {"cube": cube["fig11a"]},
            "fig11a-60": {"cube": cube["fig11a"]},
            "fig11a-surpasses-910b3": {"ratio": [old / other for old, other, _ in a[-2:]]},
            "fig11b-stable": {"cube": cube["fig11b"], "cann": cann["fig11b"]},
            "fig11b-60": {"cube": cube["fig11b"]},
            "fig11b-63-910b3": {"cann": cann["fig11b"], "cube": cube["fig11b"]},
            "fig11c-910b3-degrades": {"cann": cann["fig11c"]},
            "fig11c-stable": {"cube": [old for old, _, _ in large]},
            "fig11c-surpasses": {"ratio": [old / other for old, other, _ in c]},
        },
        {
            "fig11a-grows": parts,
            "fig11a-60": parts,
            "fig11a-surpasses-910b3": new + parts,
            "fig11b-stable": f"The zeroing and final addition of C, and the splits, are a share "
            f"that falls with k on the 910A ({b[0][0]:.1f} to {b[-1][0]:.1f} TFLOP/s).",
            "fig11b-60": parts,
            "fig11b-63-910b3": new,
            "fig11c-910b3-degrades": new,
            "fig11c-stable": f"It grows from {c[2][0]:.1f} to {c[-1][0]:.1f} TFLOP/s, since the passes before and "
            "after the product are of n^2; stable would be within 10 %.",
            "fig11c-surpasses": new,
        },
        tuple(series),
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
        {"quick": 12, "full": 1500},
        _block_cells,
    ),
    Experiment(
        "matrix-sizes",
        (
            *("fig11a-grows", "fig11a-60", "fig11a-surpasses-910b3", "fig11b-stable", "fig11b-60", "fig11b-63-910b3"),
            *("fig11c-910b3-degrades", "fig11c-stable", "fig11c-surpasses"),
        ),
        measure_scaling,
        {"quick": 15, "full": 90},
    ),
    Experiment(
        "table2-speed",
        ("table2-ootomo-51", "table2-ootomo-fp32-peak", "sec2-ootomo-tf32-33", "table2-ma-64", "table2-ma-share"),
        measure_tensor_cores,
        {"quick": 5, "full": 30},
    ),
    Experiment("turing", ("table2-feng-speedup",), measure_turing, {"quick": 4, "full": 4}),
)
