"""Assembles one tiled GEMM kernel from a tile scheduler, a main loop and an epilogue.

Each core runs a stream of loads, one of products and one of elementwise work, as in warp-specialised kernels; products
on the lanes themselves are in the stream of elementwise work.
"""

from __future__ import annotations

from hwsim.dataflows.elementwise import VectorOps
from hwsim.dataflows.tiled.accumulators import accumulators_of
from hwsim.dataflows.tiled.context import KernelContext
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiled.epilogue_writer import EpilogueWriter
from hwsim.dataflows.tiled.mainloop import MainLoop, main_loop
from hwsim.dataflows.tiled.parts import kernel_buffers
from hwsim.dataflows.tiled.tile_epilogue import epilogue_of
from hwsim.dataflows.tiles import CoreWaves, TileScheduler
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.ir import Kernel


def gemm_kernel(design: KernelDesign, scheduler: TileScheduler, sizes: tuple[int, int, int], matrices: int) -> Kernel:
    """The kernel over the scheduler's tiles. sizes: m, n, k of one matrix of the batch of `matrices`."""
    context = KernelContext(design, kernel_buffers(design), sizes, matrices)
    accumulators = accumulators_of(context)
    loop, epilogue = main_loop(context, accumulators), epilogue_of(context, accumulators)
    builder = KernelBuilder(design.kernel.name)
    context.buffers.declare(builder)
    for flag in scheduler.flags:
        builder.semaphore(flag, peers=True)
    for cores in scheduler.cores():
        streams = [_loads(context, scheduler, cores, loop, epilogue)]
        if not loop.shares_lanes:
            streams.append(_products(scheduler, cores, loop))
        streams.append(_elementwise(context, scheduler, cores, loop, epilogue))
        builder.group(cores.first, cores.count, *streams)
    return builder.finish()


def _loads(
    context: KernelContext, scheduler: TileScheduler, cores: CoreWaves, loop: MainLoop, epilogue: EpilogueWriter
) -> StreamBuilder:
    s, cta, family = StreamBuilder("load"), context.buffers.cta, context.design.family
    engine = context.engine("GM", family.registers if family.through_registers else family.shared)
    for place in scheduler.tiles(s, cores):
        if cta is not None:
            s.emit(engine, "sync", waits=[cta.free])
        loop.load(s, place)
        epilogue.load(s, place)
    return s


def _products(scheduler: TileScheduler, cores: CoreWaves, loop: MainLoop) -> StreamBuilder:
    s = StreamBuilder("math")
    for place in scheduler.tiles(s, cores):
        loop.multiply(s, place)
    return s


def _elementwise(
    context: KernelContext, scheduler: TileScheduler, cores: CoreWaves, loop: MainLoop, epilogue: EpilogueWriter
) -> StreamBuilder:
    s = StreamBuilder("vector")
    ops = VectorOps(s, context.design.vector, attach=True)
    for place in scheduler.tiles(s, cores):
        loop.elementwise(s, ops, place)
        epilogue.write(s, ops, place)
    return s
