"""FlashAttention as its authors build it: the orders of its kernels by version, head and mask. It knows sizes and
families; no tensor.

The authors compile with --use_fast_math, unlike PyTorch: a score times the factor less the largest is one fused
multiply-add, powers are ex2.approx.ftz, and rows are divided by rcp.approx.ftz. What else fast math flushes below the
normal range is kept here: it can show in results below 2^-100 of bf16 alone. Nobody compared these orders with a chip.

Sources (github Dao-AILab/flash-attention 0251105a): version 2, csrc/flash_attn/src/softmax.h and setup.py; version 3,
hopper/softmax.h, tile_size.h, mainloop_fwd_sm90_tma_gmma_ws.hpp and setup.py.
"""

from __future__ import annotations

from typing import NamedTuple

from hwsim.gemm.attention_order import AttentionOrder

VERSION_2, VERSION_3 = "flash-attention-2", "flash-attention-3"
WIDTH = 256  # of the widest head
WGMMA = "wgmma.m64n64k16.f32.{0}.{0}"


class HopperTile(NamedTuple):
    """Heads of up to so many elements; queries of a tile, 64 for each consumer warpgroup; keys of a block, and those
    under a causal mask.
    """

    width: int
    rows: int
    keys: int
    causal_keys: int


HOPPER_TILES = (
    HopperTile(64, 192, 192, 128),
    HopperTile(96, 192, 144, 144),
    HopperTile(128, 128, 176, 128),
    HopperTile(192, 128, 112, 112),
    HopperTile(256, 128, 80, 80),
)
NARROW_VALUE, NARROW_VALUE_KEYS = 128, 128  # heads of 192 with a value no wider: keys of a block
WARPGROUP_ROWS = 64


def version_3(width: int, value_width: int, *, is_causal: bool) -> AttentionOrder:
    """The order of FlashAttention-3 for fp16 and bf16 on Hopper, without parts of the keys."""
    tile = next(tile for tile in HOPPER_TILES if max(width, value_width) <= tile.width)
    keys = tile.causal_keys if is_causal else tile.keys
    if tile.width == 192 and value_width <= NARROW_VALUE:
        keys = NARROW_VALUE_KEYS
    groups = tile.rows // WARPGROUP_ROWS
    return AttentionOrder(
        kernel="FlashAttnFwdSm90",
        instruction=WGMMA,
        keys=keys,
        descending=True,
        scaling="fused",
        warp_keys=None,
        first_partner=2,
        is_division_fast=True,
        is_guarded=False,
        rows=tile.rows,
        row_groups=groups,
        row_warps=4 * groups,
        stages=2,
        evidence="assumption",
        source="FlashAttention-3, as its authors build it",
    )
