"""Declarations of mapping options, and which of them each of hwsim's own dataflows has.

The module imports no dataflow, so that all options are known without importing one (hwsim.dataflows.registry).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsim.gemm.layouts import STORAGE_ORDERS
from hwsim.gemm.option_types import PAIR, TILE, TRUTH, Option

BUFFERS = {"single": 1, "double": 2}  # slots of L1, L0A and L0B per stage of the pipeline, by `buffering`
DEFAULT_BUFFERING = "double"
BEFORE, IN_KERNEL = "before", "kernel"  # values of `convert_a`: who splits A
AUTO = "auto"  # split_k: as many slices as take the least simulated time

TILE_OPTION = Option(
    "tile",
    TILE,
    None,
    "CTA tile: elements of C per core, and of K per stage: m=128,n=256,k=64, or three numbers in the "
    "family's order (davinci: m,k,n; elsewhere m,n,k)",
    default_text="the fastest by estimate",
)
STAGES = Option(
    "stages",
    int,
    None,
    "depth of the software pipeline: blocks of K in shared memory; with staging=none: CTAs that share a core, each "
    "with a block of K on its way",
    least=1,
    axis=(2, 3, 4, 5, 6),
    default_text="as many as fit, up to the family's or the library kernel's most",
)
SPLIT_K = Option(
    "split_k",
    int,
    None,
    "split-K: slices of K, reduced by a separate kernel (changes the bits); auto: the number with the least simulated "
    "time of those with the least estimated",
    least=1,
    words=(AUTO,),
    axis=(1, 2, 3, 4, 5, 6, 7, 8),
    default_text="1; more for narrow operands on the 910A",
)
DATA_PARALLEL, STREAM_K = "data-parallel", "stream-k"
DECOMPOSITION = Option(
    "decomposition",
    str,
    None,
    "stream-k: where the last wave of tiles is not full, CTAs take equal ranges of K over consecutive tiles, and add "
    "their sums through a workspace (changes the bits); data-parallel: a tile to a CTA",
    choices=(DATA_PARALLEL, STREAM_K),
    default_text=DATA_PARALLEL,
)
SWIZZLE = Option(
    "swizzle",
    int,
    None,
    "tile rasterisation: width of a band of columns, in tiles, for locality in L2",
    least=1,
    axis=(1, 2, 4, 8, 16),
    default_text="chosen",
)
INSTRUCTION = Option(
    "instruction",
    str,
    None,
    "matrix instruction of the program; one with the bits of the device's own (for example mma.sync instead of wgmma)",
    default_text="the device's own, or the library's for split-K",
)
STAGING = Option(
    "staging",
    str,
    None,
    "shared: blocks of K wait in shared memory; none: each warp loads its fragments straight from global memory, as "
    "NVIDIA's simple_wmma_gemm and rocWMMA's simple_hgemm do",
    choices=("shared", "none"),
    default_text="shared",
)
WARP = Option(
    "warp",
    PAIR,
    None,
    "warp tile: rows and columns of C per warp or wavefront (with a tile; with staging=none also alone)",
    default_text="the library's for such a tile; with staging=none one fragment",
)
SPILL = Option(
    "spill",
    TRUTH,
    None,
    "takes a tile whose accumulators need more registers than there are; they are stored to local memory after "
    "every block of K and read back",
    default_text="false: such a tile is refused",
)
CTA_GROUP = Option(
    "cta_group",
    int,
    None,
    "2: pairs of SMs multiply together and share B (tcgen05's cta_group::2); `tile` is per SM",
    least=1,
    axis=(1, 2),
    default_text="1",
)
A_LAYOUT = Option(
    "a_layout", str, None, "storage order of A: row-major or column-major", choices=STORAGE_ORDERS, default_text="rows"
)
B_LAYOUT = Option(
    "b_layout", str, None, "storage order of B: row-major or column-major", choices=STORAGE_ORDERS, default_text="rows"
)
LAYOUT_OPTIONS = A_LAYOUT.name, B_LAYOUT.name
BUFFERING = Option(
    "buffering",
    str,
    None,
    "buffers per stage of the pipeline",
    choices=tuple(BUFFERS),
    axis=(DEFAULT_BUFFERING, "single"),
    default_text=DEFAULT_BUFFERING,
)
N_FUSED = Option(
    "n_fused",
    int,
    None,
    "blocks of A that stay in L1 while B is streamed",
    least=1,
    axis=(None, 1, 2, 4, 8, 16, 32),
    default_text="as many as fit",
)
CONVERT_A = Option(
    "convert_a",
    str,
    None,
    "where A is split into the unit's format: before (by a kernel of its own), or kernel (in the GEMM kernel, block by "
    "block on the way into L1)",
    choices=(BEFORE, IN_KERNEL),
    default_text=BEFORE,
)
PACK_A = Option(
    "pack_a",
    TRUTH,
    None,
    "a column-major A is copied first, so that the rows of a block lie in one piece of memory (no bit depends on it)",
    default_text="chosen by estimate",
)
PACK_B = Option(
    "pack_b",
    TRUTH,
    None,
    "a row-major B is copied first, so that the columns of a block lie in one piece of memory (no bit depends on it)",
    default_text="chosen by estimate",
)
STEP_KA = Option("step_ka", int, None, "blocks of K per packet of A in L1 (stepKa)", least=1, default_text="chosen")
STEP_KB = Option("step_kb", int, None, "blocks of K per packet of B in L1 (stepKb)", least=1, default_text="chosen")
DISTRIBUTION = Option(
    "distribution",
    str,
    None,
    "distribution of tiles over cores: cyclic (tile t to core t mod cores), or block (one block of tiles per core)",
    choices=("cyclic", "block"),
    default_text="cyclic",
)
GRID = Option(
    "grid",
    PAIR,
    None,
    "rows and columns of the grid of cores that C is dealt to (davinci; 32,1 on 32 cores: block rows of A alone), or "
    "of blocks (davinci_separated, with distribution=block)",
    default_text="chosen by estimate",
)
UNIT_FLAG = Option(
    "unit_flag",
    TRUTH,
    None,
    "the FixPipe reads parts of the result while the cube still works (UnitFlag)",
    default_text="false",
)
STATIONARY = Option(
    "stationary",
    str,
    None,
    "the operand that stays in the PEs of a systolic array: weights (B), outputs (C) or inputs (A). The sign of a zero "
    "may depend on it",
    choices=("weights", "outputs", "inputs"),
    axis=("weights", "outputs", "inputs"),
    default_text="the native instruction's",
)
PE_TILES = Option(
    "pe_tiles",
    int,
    None,
    "tiles that the PEs of a systolic array hold: with 2 the next one is filled, or the last one drained, while rows "
    "stream",
    least=1,
    most=2,
    axis=(1, 2),
    default_text="1",
)
REUSE = Option(
    "reuse",
    TRUTH,
    None,
    "of a systolic array: load the operand that streams past several tiles of what stays once, and keep all of its K "
    "in its memory; load the other one once too, where its memory holds all of an array's share",
    default_text="where it fits",
)

#: Settings of a mapping that follow from its options.
K_GROUP = Option("k_group", int, None, "length of K that the unit accumulates from zero", least=1)
LAUNCHES = Option("launches", int, None, "device kernels of the program", least=1)
KERNELS = Option("kernels", int, None, "device kernels of the program", least=1)
SPILLED_ROWS = Option(
    "spilled_rows", int, None, "rows of each accumulator in local memory between blocks of K", least=1
)
SWAPPED = Option("swapped", TRUTH, None, "the matrix instruction's rows are columns of C")
GRID_ROWS = Option("grid_rows", int, None, "rows of the grid of blocks", least=1)
GRID_COLS = Option("grid_cols", int, None, "columns of the grid of blocks", least=1)

#: Options of dataflows: DaVinci coupled cores, separated cores, GPUs, GPUs with MMAs of CTA pairs, systolic arrays.
COUPLED = (TILE_OPTION, N_FUSED, BUFFERING, CONVERT_A, GRID, PACK_A, PACK_B, SPLIT_K, A_LAYOUT, B_LAYOUT)
SEPARATED = (
    *(TILE_OPTION, BUFFERING, SWIZZLE, STEP_KA, STEP_KB, DISTRIBUTION, GRID, UNIT_FLAG),
    *(A_LAYOUT, B_LAYOUT),
)
TILED = (
    *(TILE_OPTION, STAGES, SPLIT_K, DECOMPOSITION, SWIZZLE, INSTRUCTION, A_LAYOUT, B_LAYOUT, STAGING, WARP),
    SPILL,
)
PAIRED = (*TILED, CTA_GROUP)
SYSTOLIC = (TILE_OPTION, STATIONARY, PE_TILES, REUSE)


def asks_for_stream_k(options: Mapping[str, Any]) -> bool:
    """Whether options of a mapping ask for stream-K, whose cuts of K follow the tile."""
    return options.get(DECOMPOSITION.name) == STREAM_K


def buffering_of(buffers: int) -> str:
    """The word ("single" or "double") of `buffering` for this number of buffers per stage."""
    return next(name for name, count in BUFFERS.items() if count == buffers)
