"""SGEMM-cube's claims on blocking (Eq. 8 to 11, Fig. 5, Algorithm 1): blocks that fit, traffic, and the pipeline.

Traffic and structure are counted in the 910A's program of one FP16 product; only Fig. 6 is timed.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from hwsim.api import program, run
from hwsim.dataflows.davinci import coupled_tiling
from hwsim.dataflows.davinci.coupled_tiling import Tiling, legal
from hwsim.devices import changed
from hwsim.devices.device import Device
from hwsim.machines import timing
from hwsim.machines.cost import Free
from hwsim.program.ir import Kernel, Program
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.sgemm_cube.chips import GRID, OLD, limits
from hwsim_lab.papers.sgemm_cube.moves import Moves, cores_by_row, moves, working_cores

TILE, FUSED = (176, 64, 176), 44
LEAST_F, MOST_F = 0.92, 1.0  # the efficiencies that Eq. 11 is evaluated with
#: m = n = k, where the paper gives none: of Eq. 11, and of the text on blocks for L1.
MOVED_EDGES = (4096, 6144, 8192, 10240, 12288, 16384)
REUSE_EDGES = (4096, 5120, 6144, 7168, 8192, 10240)
UNBOUNDED = 4e6  # bytes per cycle and chip: near the most that the timing machine takes
Block = tuple[int, int, int]


def kernel(parts: Program, name: str = "gemm") -> Kernel:
    """A kernel by its name."""
    return next(one for one in parts.kernels if one.name == name)


def one_term(m: int, n: int, k: int, **options: Any) -> tuple[Device, Program]:
    """The program of one FP16 product by Algorithm 1; (b_m, b_k, b_n) is 176, 64, 176 unless given."""
    return program(device=OLD, scheme="native", format="fp16", m=m, n=n, k=k, **{"tile": TILE, "grid": GRID} | options)


@cache
def term_moves(m: int, n: int, k: int, tile: Block, n_fused: int) -> Moves:
    """What the kernel of one term moves."""
    return moves(kernel(one_term(m, n, k, tile=tile, n_fused=n_fused)[1]))


def blocks() -> list[Block]:
    """(b_m, b_k, b_n) that Eq. 10 allows, with b_n from half of b_m to twice of it."""
    return [tile for tile in legal(limits()) if tile[0] <= 2 * tile[2] <= 4 * tile[0]]


def fused(tile: Block) -> int:
    """Eq. 8."""
    return coupled_tiling.n_fused(limits(), *tile)


def efficiency(tile: Block) -> float:
    """The share f of L1 that blocks of A fill."""
    return fused(tile) * tile[0] * tile[1] / limits().l1


def measure_blocks(scale: Scale) -> Found:
    """Eq. 8, Fig. 5 and Eq. 11: blocks that fit, N_fused and f of each, and the height with the least traffic."""
    every = blocks()
    counts = {tile: fused(tile) for tile in every}
    shares = {tile: efficiency(tile) for tile in every}
    size = np.log2([tile[0] * tile[1] for tile in every])
    slope = float(np.polyfit(size, np.log2([counts[tile] for tile in every]), 1)[0])
    groups: dict[tuple[int, int], list[Block]] = defaultdict(list)
    for tile in every:
        groups[tile[:2]].append(tile)
    several = [sorted(own, key=lambda tile: tile[2]) for own in groups.values() if len(own) > 1]
    spread = [(max(own) - min(own)) / max(own) for own in ([counts[x] for x in group] for group in several)]
    falls = [all(shares[b] <= shares[a] for a, b in pairwise(own)) for own in several]
    by_size = sorted(every, key=lambda tile: tile[0] * tile[1])
    quarter = len(every) // 4
    core = limits()

    def moved(tile: Block) -> float:
        found = coupled_tiling.traffic(core, Tiling(*tile, counts[tile]), 1, 1, 1)
        return found.b_read + found.c_read_write

    best = min(every, key=moved)
    allowed = legal(core)
    square, wide = (len({t[:2] for t in allowed if t[2] == ratio * t[0]}) for ratio in (1, 2))
    least_and_most = [coupled_tiling.b_m_least_traffic(core, f) for f in (LEAST_F, MOST_F)]
    worst_f, worst_spread = min(every, key=shares.__getitem__), int(np.argmax(spread))
    columns: dict[str, list[Any]] = {
        "bm bk": [tile[0] * tile[1] for tile in by_size],
        "Nfused": [counts[tile] for tile in by_size],
        "f": [shares[tile] for tile in by_size],
        "bn / bm": [tile[2] / tile[0] for tile in by_size],
    }
    ratios = [i for i, ratio in enumerate(columns["bn / bm"]) if ratio in (0.5, 1.0, 2.0)]
    plotted = {name: [column[i] for i in ratios] for name, column in columns.items()}
    return Found(
        {
            "eq8-nfused": {"nfused": fused(TILE)},
            "fig5-f-range": {"least": min(shares.values()), "greatest": max(shares.values())},
            "fig5-nfused-inverse": {"slope": slope},
            "fig5-nfused-weak": {"spread": spread},
            "fig5-f-bmbk": {
                "f_small": float(np.mean([shares[tile] for tile in by_size[:quarter]])),
                "f_large": float(np.mean([shares[tile] for tile in by_size[-quarter:]])),
            },
            "fig5-f-ratio": {
                "share_monotonic": float(np.mean(falls)),
                "f_narrow": float(np.mean([shares[own[0]] for own in several])),
                "f_wide": float(np.mean([shares[own[-1]] for own in several])),
            },
            "fig5-feasible": {"blocks_1": square, "blocks_2": wide},
            "eq11-bm-range": {"least": least_and_most[0], "greatest": least_and_most[1]},
            "eq11-bm-96": {"bm": best[0]},
        },
        {
            "fig5-f-range": f"{len(every)} blocks; the least f is that of {worst_f} with N_fused {counts[worst_f]}.",
            "fig5-f-bmbk": "Quarters of the blocks by b_m b_k.",
            "fig5-f-ratio": "N_fused is a whole number, so that f stays where one block more does not fit or fall.",
            "fig5-nfused-weak": f"The greatest spread is that of (b_m, b_k) = {several[worst_spread][0][:2]}, where "
            "two blocks of B take a part of L1 that grows with b_n.",
            "eq11-bm-96": f"The best block is {best}, with N_fused {counts[best]}.",
        },
        (
            Series("fig5a", plotted, "bm bk", "Nfused", "bn / bm", "xy"),
            Series("fig5b", plotted, "bm bk", "f", "bn / bm"),
        ),
    )


def measure_traffic(scale: Scale) -> Found:
    """Eq. 8, 9 and 11 asked of the program: elements that one term moves."""
    sizes = 5632, 5632, 11264
    by_fused = [term_moves(*sizes, TILE, count) for count in (FUSED // 4, FUSED // 2, FUSED)]
    m, n, k = 5632, 5632, 28160
    own = term_moves(m, n, k, TILE, FUSED)
    device, parts = one_term(m, n, k, n_fused=FUSED)
    timed = next(one for one in timing.run(parts, device).kernels if one.name == "gemm")
    half = 2
    first = own.staged["A", "L1"] * half + own.read["C"] * 2 * half
    from_hbm = (timed.traffic_bytes["HBM read"] - first) / half
    formula = m * n * k / (limits().cores * TILE[0])
    heights = (32, 48, 64, 96, 128, 144, 160, 176)
    by_height = {}
    for height in heights:
        tile = max((t for t in legal(limits()) if t[0] == t[2] == height and t[1] <= TILE[1]), key=lambda t: t[1])
        by_height[height] = [term_moves(edge, edge, edge, tile, fused(tile)).all for edge in MOVED_EDGES]
    columns: dict[str, list[Any]] = {
        "bm": [height for height in heights for _ in MOVED_EDGES],
        "m = n = k": [*MOVED_EDGES] * len(heights),
        "elements": [count for height in heights for count in by_height[height]],
    }
    least = sorted({min((by_height[height][i], height) for height in heights)[1] for i in range(len(MOVED_EDGES))})
    buffers = {buffer.name: buffer for buffer in kernel(parts).buffers}
    return Found(
        {
            "eq8-fewer-b-reloads": {"b_reads": [one.staged["B", "L1"] for one in by_fused]},
            "eq8-more-a-reuse": {"traffic": [one.all for one in by_fused]},
            "eq9-a": {"reads": own.staged["A", "L1"] / (m * k)},
            "eq9-b": {"reads": from_hbm / formula},
            "eq9-c": {"rw": (own.read["C"] + own.written["C"]) / (2 * m * n * k / (TILE[1] * FUSED))},
            "alg1-a-staged-once": {
                "a_stagings": own.staged["A", "L1"] / (m * k),
                "b_buffers": buffers["B"].slots,
            },
            "eq11-bm-96-moved": {
                "at_96": by_height[96],
                "others": [
                    [by_height[height][i] for height in heights if height != 96] for i in range(len(MOVED_EDGES))
                ],
            },
        },
        {
            "eq8-fewer-b-reloads": "Blocks of B are read once per block row and block of k, whatever N_fused is: as "
            "Eq. 9 has it, and not the sentence before it. What falls with N_fused is the traffic of C.",
            "eq9-b": "Read from main memory (HBM): its reads less A once and C's, which do not fit in L2. Every core "
            f"reads B into its own L1; over the links to L1 the ratio is {own.staged['B', 'L1'] / formula:.3g}, and "
            "L2 makes one read of main memory of it.",
            "eq9-c": "The program writes zeros in a kernel before, and reads C in every group.",
            "eq11-bm-96-moved": "Moved over the links between the cores and L2 or main memory, where every core reads "
            f"B for itself: then the traffic of B falls with b_m, and bm of {least} moves the least. Eq. 11 counts a "
            "read of B for all 32 cores once.",
        },
        (Series("eq11", columns, "bm", "elements", "m = n = k"),),
    )


def measure_structure(scale: Scale) -> Found:
    """Algorithm 1 as the program has it: conversions, cores and block rows, and the number of products."""
    result = run(device=OLD, scheme="sgemm-cube", m=352, n=352, k=2816, exact=False)
    m, n, k = 11264, 5632, 2816
    _, parts = program(device=OLD, scheme="sgemm-cube", m=m, n=n, k=k, tile=TILE, n_fused=FUSED, grid=GRID)
    before = moves(kernel(parts))
    terms = len(result.gemm.single.terms)
    _, parts = program(
        device=OLD, scheme="sgemm-cube", m=m, n=n, k=k, tile=TILE, n_fused=FUSED, grid=GRID, convert_a="kernel"
    )
    found = moves(kernel(parts))
    of_a, others = (
        sum(count for name, count in found.made.items() if name.startswith("A.split") is is_a and "temp" not in name)
        for is_a in (True, False)
    )
    _, term = one_term(m, n, k, n_fused=FUSED)
    rows = cores_by_row(kernel(term), "A")
    return Found(
        {
            "eq7-three-products": {"products": result.macs["useful"] / (352 * 352 * 2816)},
            "alg1-conversion": {
                "a_per_element": of_a / (m * k * terms),
                "a_after_l1": found.cast.get("L1", 0) / (m * k * terms),
                "b_per_element": others / (k * n * terms),
            },
            "alg1-parallel-rows": {
                "cores": len(working_cores(kernel(term))),
                "cores_per_row": max(len(cores) for cores in rows.values()),
            },
        },
        {
            "alg1-conversion": "With convert_a = kernel, as the listing has it. Counted: elements of A that become the "
            f"FP16 part which goes to L1. A term with A's low part rounds the high one as well: {found.half / m / k:g} "
            f"casts to FP16 per element over the {terms} terms. By default hwsim's kernel reads FP16 parts that passes "
            f"before it have split, as Eq. 7 and the algorithm's own input say: {before.half / m / k:g} casts within "
            "it, and the verdict would be: order.",
        },
    )


def _column_cycles(buffering: str, free: Free | None, unbounded: bool) -> float:
    """Cycles from one column block of B to the next, one term and one group: from two widths of B."""
    cycles, widths = [], (16 * TILE[2], 48 * TILE[2])
    for n in widths:
        device, parts = one_term(32 * TILE[0], n, FUSED * TILE[1], n_fused=FUSED, buffering=buffering)
        if unbounded:
            most = UNBOUNDED * device.clock_mhz * 1e6
            device = changed(device, {"hbm.bytes_per_second": most, "l2.bytes_per_second": most})
        timed = timing.run(parts, device, free=free)
        cycles.append(next(one.cycles for one in timed.kernels if one.name == "gemm"))
    return (cycles[1] - cycles[0]) / ((widths[1] - widths[0]) // TILE[2])


def measure_pipeline(scale: Scale) -> Found:
    """Fig. 6: time per column block of B, single- and double-buffered, against its computation and its transfers."""
    names = ("single", "double")
    whole = {name: _column_cycles(name, None, False) for name in names}
    compute = {name: _column_cycles(name, lambda instr, link: link is not None, True) for name in names}
    move = {name: _column_cycles(name, lambda instr, link: instr.opcode == "mma", False) for name in names}
    single = whole["single"] / (compute["single"] + move["single"])
    longest = {name: max(compute[name], move[name]) for name in names}
    columns: dict[str, list[Any]] = {
        "pipeline": list(names),
        "cycles": [whole[name] for name in names],
        "computation": [compute[name] for name in names],
        "transfers": [move[name] for name in names],
    }
    said = "; ".join(
        f"{name}: {whole[name]:,.0f} cycles, {compute[name]:,.0f} computing, {move[name]:,.0f} moving" for name in names
    )
    return Found(
        {
            "fig6-single": {"ratio": single},
            "fig6-double": {
                "ratio": whole["double"] / longest["double"],
                "single": whole["single"] / longest["single"],
            },
        },
        {
            "fig6-single": f"Per column block: {said}. Single-buffered, the two transfers of a block of B (to L1, and "
            "on to L0B) wait for each other, so that they take longer on their own as well; while the cube works, the "
            "next block is on its way to L1. Against the sum of the double-buffered pipeline's two times the ratio is "
            f"{whole['single'] / (compute['double'] + move['double']):.2f}.",
            "fig6-double": f"Per column block: {said}. Each time is divided by its own pipeline's; both by the "
            "double-buffered one's, which the claim may be read as too, the single-buffered ratio is "
            f"{whole['single'] / longest['double']:.2f}, and the claim would hold.",
        },
        (Series("fig6", columns),),
    )


def kernel_rate(edge: int, n_fused: int) -> float:
    """TFLOP/s of SGEMM-cube's matrix kernel with so many blocks of A in L1."""
    found = run(
        device=OLD, scheme="sgemm-cube", m=edge, n=edge, k=edge, tile=TILE, n_fused=n_fused, grid=GRID, exact=False
    )
    return 2e-12 * edge**3 / float(next(phase["seconds"] for phase in found.phases if phase["name"] == "gemm"))


def measure_reuse(scale: Scale) -> Found:
    """Section 3.3.1: throughput with and without blocks of A that stay in L1."""
    rates = {count: [kernel_rate(edge, count) for edge in REUSE_EDGES] for count in (FUSED, 1)}
    return Found({"sec3-3-1-reuse": {"reuse": rates[FUSED], "no_reuse": rates[1]}})


EXPERIMENTS = (
    Experiment(
        "blocks",
        (
            *("eq8-nfused", "fig5-f-range", "fig5-nfused-inverse", "fig5-nfused-weak", "fig5-f-bmbk", "fig5-f-ratio"),
            *("fig5-feasible", "eq11-bm-range", "eq11-bm-96"),
        ),
        measure_blocks,
        {"quick": 1, "full": 1},
    ),
    Experiment(
        "traffic",
        (
            *("eq8-fewer-b-reloads", "eq8-more-a-reuse", "eq9-a", "eq9-b", "eq9-c", "alg1-a-staged-once"),
            "eq11-bm-96-moved",
        ),
        measure_traffic,
        {"quick": 1, "full": 1},
    ),
    Experiment(
        "structure",
        ("eq7-three-products", "alg1-conversion", "alg1-parallel-rows"),
        measure_structure,
        {"quick": 1, "full": 1},
    ),
    Experiment("pipeline", ("fig6-single", "fig6-double"), measure_pipeline, {"quick": 2, "full": 2}),
    Experiment("reuse", ("sec3-3-1-reuse",), measure_reuse, {"quick": 2, "full": 2}),
)
