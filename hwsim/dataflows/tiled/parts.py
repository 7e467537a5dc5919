"""The parts of a tiled kernel, joined: what they do not carry, which designs they refuse, the buffers that they need.

It knows which parts there are and in which order they are asked; it knows no feature, no format and no number of bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.dataflows import exact_sums
from hwsim.dataflows.tiled import (
    accumulators,
    factor_feed,
    fragments,
    loads,
    mainloop,
    operand_feed,
    products,
    promotion,
    scale_feed,
    shared_epilogue,
    spill,
    split,
    split_k_reduction,
    stream_k,
    tile_epilogue,
)
from hwsim.dataflows.tiled.buffers import Allocation, Barrier, Footprint, KernelBuffers, OperandBuffers, footprint_of
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.gemm import refusals

if TYPE_CHECKING:
    from hwsim.dataflows.tiled.family import Family
    from hwsim.dataflows.tiled.model import Blocking, GemmKernel
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm

REFUSALS = exact_sums.refuses, mainloop.refuses, split_k_reduction.refuses, stream_k.refuses, tile_epilogue.refuses
FEATURES = loads.FEATURES | stream_k.FEATURES | tile_epilogue.FEATURES
CHECKS = (
    factor_feed.check,
    fragments.check,
    promotion.check,
    products.check,
    scale_feed.check,
    spill.check,
    shared_epilogue.check,
)
STREAM_CHECKS = promotion.check_streams, split.check_streams, products.check_streams, accumulators.check_streams


def refuses(gemm: Gemm) -> str:
    """What of a record some part of a kernel does not carry, by name; empty where all carry it."""
    return refusals.of_parts(REFUSALS, gemm)


def designed(device: Device, family: Family, kernel: GemmKernel, blocking: Blocking) -> KernelDesign:
    """The design of a kernel with a blocking.

    Raises InputError and UnsupportedError where a part says that they do not fit together.
    """
    design = KernelDesign(device, family, kernel, blocking)
    for check in CHECKS:
        check(design)
    return design


def check_streams(design: KernelDesign, longest_k: int) -> None:
    """Raise UnsupportedError where no order of instructions works; for the final blocking.

    longest_k: K of the longest slice.
    """
    for check in STREAM_CHECKS:
        check(design, longest_k)


def kernel_buffers(design: KernelDesign) -> KernelBuffers:
    """The buffers of a kernel."""
    space, family, stages = Allocation(design), design.family, design.blocking.stages
    cta = space.barrier("cta", 1, is_gate=True) if design.waits_for_tile else None
    stage = space.barrier("stage", stages) if family.staged else Barrier("stage", 1)
    of_operand = _staged_operand if family.staged else fragments.allocate
    operands = of_operand(space, 0), of_operand(space, 1)
    split_scratch = split.allocate_scratch(space)
    of_terms = accumulators.allocate(space)
    promoted = promotion.allocate(space)
    factors = factor_feed.allocate(space)
    scales = scale_feed.allocate(space)
    ending = tile_epilogue.allocate(space)
    spilled = spill.allocate(space)
    shared = shared_epilogue.allocate(space)
    return KernelBuffers(
        every=tuple(space.every),
        barriers=tuple(space.barriers),
        stage=stage,
        cta=cta,
        operands=operands,
        split_scratch=split_scratch,
        accumulators=of_terms,
        sums=promoted.sums,
        joins=promoted.joins,
        join_barrier=promoted.join_barrier,
        out=ending.out,
        scratch=ending.scratch,
        addends=ending.addends,
        powers=ending.powers,
        converted=promoted.converted,
        factor=promoted.factor,
        factors=factors,
        scales=scales,
        staging=ending.staging,
        spill=spilled,
        shared=shared,
    )


def _staged_operand(space: Allocation, side: int) -> OperandBuffers:
    """The buffers of A (0) or B (1) on its way through the parts: loads, split, feed."""
    loaded, pieces, fed = loads.allocate(space, side), split.allocate(space, side), operand_feed.allocate(space, side)
    return OperandBuffers(
        stages=loaded.stages,
        raw_stage=loaded.raw_stage,
        landing=loaded.landing,
        raw_landing=loaded.raw_landing,
        raw=pieces.raw,
        pieces=pieces.pieces,
        taken=fed.taken,
        ready=fed.ready,
        scale=loaded.scale,
    )


def footprint(design: KernelDesign) -> Footprint:
    """The bytes of a kernel's buffers in each memory."""
    return footprint_of(kernel_buffers(design))
