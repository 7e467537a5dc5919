"""The options of mappings, each declared once, and which of them each of hwsim's own dataflows has.

It knows declarations alone, so that all options are known without the dataflows (hwsim.dataflows.registry).
"""

from __future__ import annotations

from hwsim.gemm.layouts import ORDERS
from hwsim.gemm.options import PAIR, TILE, TRUTH, Option

AUTO = "auto"  # split_k: as many slices as take the least estimated time

TILE_OPTION = Option(
    "tile",
    TILE,
    None,
    "elements of C that a core works on at a time, and of K per stage: m=128,n=256,k=64, or three numbers in the "
    "family's order (davinci: m,k,n; elsewhere m,n,k)",
    default_text="the fastest by estimate",
)
STAGES = Option(
    "stages",
    int,
    None,
    "blocks of K that shared memory holds at a time (the depth of the software pipeline)",
    least=1,
    axis=(2, 3, 4, 5, 6),
    default_text="as many as fit",
)
SPLIT_K = Option(
    "split_k",
    int,
    None,
    "slices of K, merged by a kernel of their own (the bits depend on it); auto: as many as take the least estimated "
    "time",
    least=1,
    words=(AUTO,),
    axis=(1, 2, 4, 8),
    default_text="1",
)
SWIZZLE = Option(
    "swizzle",
    int,
    None,
    "tiles in a band of columns that is gone through together, for locality in L2",
    least=1,
    axis=(1, 2, 4, 8, 16),
    default_text="chosen",
)
INSTRUCTION = Option(
    "instruction",
    str,
    None,
    "matrix instruction of the program, one with the bits of the device's own (mma.sync's for wgmma's)",
    default_text="the device's own, or what the library has where K is cut",
)
CTA_GROUP = Option(
    "cta_group",
    int,
    None,
    "2: pairs of SMs multiply together and share B; `tile` is that of one",
    least=1,
    axis=(1, 2),
    default_text="1",
)
A_LAYOUT = Option("a_layout", str, None, "storage of A: row-major or column-major", choices=ORDERS, default_text="rows")
B_LAYOUT = Option("b_layout", str, None, "storage of B: row-major or column-major", choices=ORDERS, default_text="rows")
BUFFERING = Option(
    "buffering",
    str,
    None,
    "buffers per stage of the pipeline",
    choices=("single", "double"),
    axis=("double", "single"),
    default_text="double",
)
N_FUSED = Option(
    "n_fused",
    int,
    None,
    "blocks of A that stay in L1 while B streams past",
    least=1,
    axis=(None, 1, 2, 4, 8, 16, 32),
    default_text="as many as fit",
)
STEP_KA = Option("step_ka", int, None, "blocks of K of A that L1 takes at a time", least=1, default_text="chosen")
STEP_KB = Option("step_kb", int, None, "blocks of K of B that L1 takes at a time", least=1, default_text="chosen")
DISTRIBUTION = Option(
    "distribution",
    str,
    None,
    "of tiles over cores: cyclic (tile t goes to core t mod cores), or block (each core has one block of tiles)",
    choices=("cyclic", "block"),
    default_text="cyclic",
)
GRID = Option("grid", PAIR, None, "rows and columns of blocks, with distribution=block", default_text="chosen")
UNIT_FLAG = Option(
    "unit_flag",
    TRUTH,
    None,
    "the FixPipe takes the result piece by piece while the cube is at work (UnitFlag)",
    default_text="false",
)

#: Options of dataflows: a coupled DaVinci core, separated cores, GPUs, GPUs whose SMs multiply in pairs.
COUPLED = (TILE_OPTION, N_FUSED, BUFFERING)
SEPARATED = (
    *(TILE_OPTION, BUFFERING, SWIZZLE, STEP_KA, STEP_KB, DISTRIBUTION, GRID, UNIT_FLAG),
    *(A_LAYOUT, B_LAYOUT),
)
TILED = (TILE_OPTION, STAGES, SPLIT_K, SWIZZLE, INSTRUCTION, A_LAYOUT, B_LAYOUT)
PAIRED = (*TILED, CTA_GROUP)
