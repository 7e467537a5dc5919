"""Kernels of attention on NVIDIA's chips, by the name of PyTorch's backend or of their library: their orders of
computation.

It knows sizes and families; no tensor. What a kernel computes in which order follows from its source. cuDNN's has none:
its order was found on captures of an H100 and an H200.

Sources: FlashAttention-2 (github Dao-AILab/flash-attention 01afd16d, csrc/flash_attn/src: flash_fwd_launch_template.h,
flash_fwd_kernel.h, softmax.h); PyTorch (github pytorch/pytorch 03b7c19d, aten/src/ATen/native/transformers/cuda:
flash_attn/flash_api.cpp, mem_eff_attention/kernel_forward.h, kernels/cutlassF.h, gemm_kernel_utils.h). PyTorch builds
FlashAttention-2 with UNFUSE_FMA: captures decide it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hwsim.gemm.attention_order import AttentionOrder
from hwsim.libraries.model import facts
from hwsim.libraries.model.attention_model import MeasuredCallsModel
from hwsim.libraries.published import flash_attention
from hwsim.libraries.published.flash_attention import VERSION_2, VERSION_3, VERSION_4

FLASH, EFFICIENT, CUDNN = "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"
MMA16, MMA8, WGMMA = "mma.m16n8k16.f32.{0}.{0}.f32", "mma.m16n8k8.f32.{0}.{0}.f32", "wgmma.m64n64k16.f32.{0}.{0}"
FAMILIES = ("sm80", "sm90")
AUTHORS = (VERSION_2, VERSION_3, VERSION_4)  # libraries of their own, without a choice of backends
SEEN = "microbenchmark"
READ, ASSUMED = "datasheet", "assumption"  # of kernels without captures: the published source; no chip was asked
PART_QUERIES, MOST_PARTS = 64, 128  # FlashAttention-2: rows of a tile, where the keys are cut
WARP_KEYS = 32  # of the memory-efficient kernel: a warp has 32 x 32 scores
FULL, GOOD_ENOUGH = 0.8, 0.85  # shares of num_splits_heuristic


def measured_calls(backend: str, width: int, parts: int) -> MeasuredCallsModel | None:
    """The measured calls that come nearest to one with heads of this width; None of a kernel whose keys are cut into
    parts: no such call was long enough.
    """
    if parts > 1:
        return None
    measured = facts.attention_kernels().times.calls.values()
    return next((calls for calls in measured if calls.backend == backend and width <= calls.widths[-1]), None)


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """Heads of all sequences, of the query and of the key; rows of the query and of the key; elements of a head of the
    key, and of the value.
    """

    heads: int
    key_heads: int
    queries: int
    keys: int
    width: int
    value_width: int

    @property
    def widest(self) -> int:
        """Elements of the wider one."""
        return max(self.width, self.value_width)


def order_of(
    backend: str,
    sizes: AttentionSizes,
    family: str,
    cores: int,
    *,
    is_causal: bool,
    is_minor: bool = False,
    format: str = "fp16",
    capability: str | None = None,
) -> AttentionOrder | None:
    """The order of the kernel of a backend or a library; None where it is not known.

    family, cores: of the chip. is_minor: of compute capability 8.6 or 8.9, whose tiles are smaller. format: of the
    operands. capability: the chip's compute capability, where it is known.
    """
    order = _order(backend, sizes, family, cores, format, is_causal=is_causal, is_minor=is_minor, capability=capability)
    if order is not None and backend == FLASH and sizes.widest in UNSEEN_FLASH:
        return replace(order, evidence=READ)
    return order


def _order(
    backend: str,
    sizes: AttentionSizes,
    family: str,
    cores: int,
    format: str,
    *,
    is_causal: bool,
    is_minor: bool,
    capability: str | None,
) -> AttentionOrder | None:
    if family not in FAMILIES_OF.get(backend, ()):
        return None
    if backend == FLASH:
        return _flash(sizes, family, cores, is_causal=is_causal, is_minor=is_minor)
    if backend == VERSION_2:
        order = _flash(sizes, family, cores, is_causal=is_causal, is_minor=is_minor)
        return replace(order, **_FAST_MATH)
    if backend == VERSION_4:
        return flash_attention.version_4(
            sizes.width,
            sizes.value_width,
            sizes.queries,
            sizes.heads // sizes.key_heads,
            is_causal=is_causal,
            capability=capability,
        )
    if backend == VERSION_3:
        return flash_attention.version_3(sizes.width, sizes.value_width, format, is_causal=is_causal)
    if backend == EFFICIENT:
        return _efficient(sizes.widest)
    return _CUDNN if sizes.queries > 1 else None


def most_width(backend: str, family: str) -> int:
    """The widest head of which the order of a backend or a library is known on a family; 0: of none."""
    if family not in FAMILIES_OF.get(backend, ()):
        return 0
    known = {FLASH: 256, EFFICIENT: EFFICIENT_MOST, CUDNN: 256}
    return flash_attention.WIDTH if backend in AUTHORS else known.get(backend, 0)


#: Families on which the order of a backend or a library is known.
FAMILIES_OF: Mapping[str, tuple[str, ...]] = {
    FLASH: FAMILIES,
    EFFICIENT: FAMILIES,
    CUDNN: ("sm90",),
    VERSION_2: FAMILIES,
    VERSION_3: ("sm90",),
    VERSION_4: ("sm100",),
}
OF_8_BITS = {VERSION_3: (flash_attention.FORMAT_OF_8_BITS,)}  # formats of 8 bits that a library takes, too
EFFICIENT_WIDTHS = (64, 128)  # of kernels that keep a tile's result in registers
EFFICIENT_MOST = 65536  # of the kernel that keeps it in memory, between blocks of keys
WITH_MASKS = (EFFICIENT, CUDNN)  # of which the order with a mask of one's own is known
OF_ONE_QUERY = (FLASH, EFFICIENT, *AUTHORS)  # the same of one query; cuDNN has another kernel for it
UNSEEN_FLASH = range(129, 193)  # widths whose tile of FlashAttention-2 no capture has
_FLASH = AttentionOrder(
    kernel="flash_fwd_kernel",
    instruction=MMA16,
    keys=128,
    descending=True,
    scaling="rounded",
    warp_keys=None,
    first_partner=2,
    is_division_fast=False,
    fuses_first=True,
    in_step=True,
    swaps_heads=True,
    evidence=SEEN,
    source="FlashAttention-2, as PyTorch builds it; captures of an H100 and an H200",
)
_EFFICIENT = AttentionOrder(
    kernel="fmha_cutlassF",
    instruction=MMA8,
    keys=64,
    descending=False,
    scaling="scaled",
    warp_keys=WARP_KEYS,
    first_partner=1,
    is_division_fast=False,
    rows=64,
    row_warps=2,
    in_step=True,
    evidence=SEEN,
    source="PyTorch's memory-efficient attention; captures of an H100 and an H200",
)
_CUDNN = AttentionOrder(
    kernel="cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16",
    instruction=WGMMA,
    keys=128,
    descending=False,
    scaling="rounded",
    warp_keys=None,
    first_partner=1,
    is_division_fast=True,
    scales_largest=True,
    adds_blocks=True,
    is_log2e_single=True,
    fuses_mask=True,
    row_groups=2,
    stages=2,
    evidence=SEEN,
    source="captures of an H100 and an H200",
)


def _efficient(width: int) -> AttentionOrder:
    """The memory-efficient kernel: the first of PyTorch's that takes a head."""
    if width > EFFICIENT_WIDTHS[-1]:
        name = "fmha_cutlassF_aligned_32x128_gmem_sm80"
        return replace(_EFFICIENT, kernel=name, keys=128, key_warps=4, rows=32, row_warps=1, joins_blocks=True)
    keys = 64 if width <= EFFICIENT_WIDTHS[0] else 128
    return replace(
        _EFFICIENT, kernel=f"fmha_cutlassF_aligned_64x{keys}_rf_sm80", keys=keys, key_warps=keys // WARP_KEYS
    )


#: What FlashAttention-2 is with its authors' flags: see hwsim.libraries.published.flash_attention.
_FAST_MATH: dict[str, Any] = {
    "scaling": "fused",
    "is_division_fast": True,
    "is_guarded": False,
    "evidence": ASSUMED,
    "source": "FlashAttention-2, as its authors build it",
}


def _flash(sizes: AttentionSizes, family: str, cores: int, *, is_causal: bool, is_minor: bool) -> AttentionOrder:
    """FlashAttention-2: run_mha_fwd of PyTorch, with its number of parts of the keys."""
    block = 256 if sizes.widest <= 64 else 128 if sizes.widest <= 128 else 64
    is_swapped = sizes.queries == 1 and sizes.heads > sizes.key_heads  # groups of heads are rows then
    heads, rows = (sizes.key_heads, sizes.heads // sizes.key_heads) if is_swapped else (sizes.heads, sizes.queries)
    parts = _parts(heads * -(-rows // PART_QUERIES), 2 * cores, -(-sizes.keys // block))
    if parts > 1:
        padded = next(width for width in (32, 64, 96, 128, 192, 256) if sizes.widest <= width)
        joined = 4 if padded % 128 == 0 else 8 if padded % 64 == 0 else 16
        return replace(_FLASH, kernel="flash_fwd_splitkv_kernel", keys=block, parts=parts, part_rows=joined, rows=64)
    tall = _flash_rows(sizes.widest, family, is_causal=is_causal, is_minor=is_minor)
    keys = _flash_keys(sizes.widest, is_causal=is_causal, is_minor=is_minor)
    groups = 2 if sizes.widest > 128 and tall == 128 else 1  # eight warps
    return replace(_FLASH, keys=keys, rows=tall, row_groups=groups, row_warps=4 * groups)


def _flash_rows(width: int, family: str, *, is_causal: bool, is_minor: bool) -> int:
    """Queries of a tile. Above 192 elements of a head two tiles of 64 share an SM that has shared memory for them."""
    if width > 192:
        return 128 if family == "sm80" and not is_minor else 64
    return 64 if is_minor and is_causal and 64 < width <= 128 else 128


def _flash_keys(width: int, *, is_causal: bool, is_minor: bool) -> int:
    """Keys of a block by the width of a head."""
    if width <= 64:
        return 128
    if is_minor and 96 < width <= 128 and not is_causal:
        return 32
    return 64


def _parts(tiles: int, cores: int, blocks: int) -> int:
    """num_splits_heuristic of FlashAttention-2: the fewest parts that keep nearly as many cores busy as the best."""
    if tiles >= FULL * cores:
        return 1
    shares = {
        parts: tiles * parts / cores / math.ceil(tiles * parts / cores)
        for parts in range(1, min(MOST_PARTS, cores, blocks) + 1)
        if parts == 1 or -(-blocks // parts) != -(-blocks // (parts - 1))
    }
    best = max(shares.values(), default=0.0)
    return next((parts for parts, share in shares.items() if share >= GOOD_ENOUGH * best), 1)
