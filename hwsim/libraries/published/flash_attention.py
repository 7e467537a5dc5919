"""FlashAttention as its authors build it: the orders of its kernels by version, head and mask. It knows sizes and
families; no tensor.

The authors compile with --use_fast_math, unlike PyTorch: a score times the factor less the largest is one fused
multiply-add, powers are ex2.approx.ftz, and rows are divided by rcp.approx.ftz. What else fast math flushes below the
normal range is kept here: it can show in results below 2^-100 of bf16 alone. Nobody compared these orders with a chip.

Sources (github Dao-AILab/flash-attention 0251105a): version 2, csrc/flash_attn/src/softmax.h and setup.py; version 3,
hopper/softmax.h, tile_size.h, mainloop_fwd_sm90_tma_gmma_ws.hpp and setup.py; version 4, flash_attn/cute: interface.py,
flash_fwd_sm100.py, softmax.py, utils.py.
"""

from __future__ import annotations

from typing import NamedTuple

from hwsim.gemm.attention_order import AttentionOrder, PolynomialShare
from hwsim.host.multiples import round_up
from hwsim.libraries.model import facts

VERSION_2, VERSION_3, VERSION_4 = "flash-attention-2", "flash-attention-3", "flash-attention-4"
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
HOPPER_TILES_OF_8_BITS = (
    HopperTile(64, 192, 160, 160),
    HopperTile(96, 192, 128, 128),
    HopperTile(128, 128, 224, 224),
    HopperTile(192, 128, 160, 160),
    HopperTile(256, 128, 128, 128),
)
WGMMA_OF_8_BITS, RESULT_OF_8_BITS, OFFSET_OF_8_BITS = "wgmma.m64n64k32.f32.{0}.{0}", "bf16", 8.0
FORMAT_OF_8_BITS = "e4m3"
STEPS = {FORMAT_OF_8_BITS: 16}  # of the widths that are taken
STEP = 8  # the same of other formats
NARROW_VALUE, NARROW_VALUE_KEYS = 128, 128  # heads of 192 with a value no wider: keys of a block
WIDE_VALUE_TILE = HopperTile(64, 128, 96, 96)  # heads of 64 with a wider value
WARPGROUP_ROWS = 64


def version_3(width: int, value_width: int, format: str, *, is_causal: bool) -> AttentionOrder:
    """The order of FlashAttention-3 on Hopper, without parts of the keys. format: of the operands.

    With e4m3 powers are times 2^8, and the result is bf16. The kernel permutes powers and rows of the value within 16
    keys, of which one instruction adds 32: that changes no bit.
    """
    is_short = format == FORMAT_OF_8_BITS
    tiles = HOPPER_TILES_OF_8_BITS if is_short else HOPPER_TILES
    tile = next(tile for tile in tiles if width <= tile.width)
    if width <= WIDE_VALUE_TILE.width < value_width:
        tile = WIDE_VALUE_TILE
    keys = tile.causal_keys if is_causal else tile.keys
    if not is_short and tile.width == 192 and value_width <= NARROW_VALUE:
        keys = NARROW_VALUE_KEYS
    groups = tile.rows // WARPGROUP_ROWS
    return AttentionOrder(
        kernel="FlashAttnFwdSm90",
        instruction=WGMMA_OF_8_BITS if is_short else WGMMA,
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
        offset=OFFSET_OF_8_BITS if is_short else 0.0,
        result=RESULT_OF_8_BITS if is_short else None,
        evidence="assumption",
        source="FlashAttention-3, as its authors build it",
    )


BLACKWELL_TILE = 128  # queries of a softmax warpgroup, and keys of a block
BLACKWELL_WIDTH = 128  # of the widest head of the common kernel
WIDE_HEADS = (192, 128)  # widths of key and value, which it takes too
PADDING = 16  # widths are padded to a multiple of it
LAG = 8.0
FRAGMENT, LAST_COLUMNS, DEFAULT_PERIOD, SHARED_PERIOD = 32, 4, 16, 10


class PowerPeriod(NamedTuple):
    """Heads so wide, padded, with these pairs of CTAs and this mask: the period of the powers that a polynomial gives,
    and the first fragment with some.
    """

    width: int
    in_pairs: bool
    is_causal: bool
    period: int
    first: int


POWER_PERIODS = (
    PowerPeriod(128, True, False, 10, 1),
    PowerPeriod(128, False, True, 16, 1),
    PowerPeriod(192, True, False, 16, 0),
    PowerPeriod(192, False, True, 32, 1),
)


def refused(version: str, width: int, value_width: int, format: str) -> str:
    """Why a version takes no heads with these widths of key and value, in words; empty where it does."""
    if version == VERSION_2 and width != value_width:
        return f"{version} takes a value as wide as the key"
    narrow = WIDE_VALUE_TILE.width
    widest_value = narrow if format == FORMAT_OF_8_BITS else WIDTH  # of narrow heads
    takes_other = (width <= narrow and value_width <= widest_value) or (128 < width <= 192 and 96 < value_width <= 128)
    if version == VERSION_3 and width != value_width and not takes_other:
        return (
            f"{version} with {format} takes a value as wide as the key, one of up to {widest_value} elements with a "
            f"key of up to {narrow}, and one above 96, up to 128, with a key above 128, up to 192"
        )
    is_common = max(width, value_width) <= BLACKWELL_WIDTH
    if version == VERSION_4 and not is_common and (width, value_width) != WIDE_HEADS:
        wide, value = WIDE_HEADS
        return f"{version} is known of heads of up to {BLACKWELL_WIDTH} elements, and of {wide} with a value of {value}"
    return ""


def version_4(
    width: int, value_width: int, queries: int, groups: int, *, is_causal: bool, capability: str | None = None
) -> AttentionOrder:
    """The order of FlashAttention-4 for fp16 and bf16 on a B200, without parts of the keys, which it does not cut
    unless it is asked to. groups: heads of the query that share a head of the key, whose rows lie in one tile.
    capability: the chip's compute capability; with some the special functions give all powers.
    """
    rows = queries * groups
    tiles = 2 if rows > BLACKWELL_TILE else 1
    padded, padded_value = (round_up(x, PADDING) for x in (width, value_width))
    in_pairs = (
        not is_causal
        and padded in (BLACKWELL_WIDTH, WIDE_HEADS[0])
        and padded_value == BLACKWELL_WIDTH
        and rows > 2 * BLACKWELL_TILE
        and BLACKWELL_TILE % groups == 0
    )
    return AttentionOrder(
        kernel="FlashAttentionForwardSm100",
        instruction="tcgen05.mma.m128n128k16.f16.f32.{0}.{0}",
        keys=BLACKWELL_TILE,
        descending=True,
        scaling="fused",
        warp_keys=None,
        first_partner=2,
        is_division_fast=True,
        is_guarded=False,
        is_log2e_single=True,
        rows=tiles * BLACKWELL_TILE,
        row_groups=tiles,
        row_warps=4 * tiles,
        stages=1 if padded > BLACKWELL_WIDTH else 2,
        polynomial=(
            None
            if capability in facts.attention_kernels().flash_attention_4.without_polynomial
            else _polynomial(padded, groups, in_pairs=in_pairs, is_causal=is_causal)
        ),
        lag=LAG,
        adds_rows=True,
        evidence="assumption",
        source="FlashAttention-4, as its authors build it",
    )


def _polynomial(padded: int, groups: int, *, in_pairs: bool, is_causal: bool) -> PolynomialShare | None:
    """Which powers a polynomial gives on a B200; None: none."""
    tuned = next((x for x in POWER_PERIODS if x[:3] == (padded, in_pairs, is_causal)), None)
    if tuned is None and padded > BLACKWELL_WIDTH:
        return None
    period, first = (DEFAULT_PERIOD, 1) if tuned is None else (tuned.period, tuned.first)
    if groups > 1 and padded > BLACKWELL_WIDTH // 2 and not is_causal:
        period = SHARED_PERIOD if tuned is None else tuned.period
    return PolynomialShare(FRAGMENT, first, BLACKWELL_TILE // FRAGMENT - 1, period, LAST_COLUMNS)
