"""The kernel that adds up slices of K: as a pass over C, and its time by estimate.

It knows what a tile's end does to a sum (Finish), not how K was cut.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import Pass, depth, evaluate
from hwsim.formats import format_of
from hwsim.gemm.plan import TermValue

if TYPE_CHECKING:
    from hwsim.dataflows.elementwise import VectorOps
    from hwsim.dataflows.tiled.model import Finish, Work
    from hwsim.devices.model import Device
    from hwsim.gemm.plan import Expression
    from hwsim.program.ir import LocalTile


def merge_pass(work: Work, whole: Finish, slices: int, stand_ins: bool, words: int) -> Pass:
    """Slices of `work` added in ascending order, then what the same kernel does at a tile's end where K is not cut.

    Each array of `work.finish.partial` holds `slices` blocks as high as C, one under the other. whole: that end; its
    target is C. stand_ins: the arithmetic is not that of the fp32 lanes: additions of elements of `words` words
    stand for it.
    """
    partial, rows = work.finish.partial, whole.target.rows
    addends = () if whole.c is None else (whole.c,)
    reads = (*(array for array in partial for _ in range(slices)), *addends)
    offsets = (*(i * rows for _ in partial for i in range(slices)), *(0 for _ in addends))
    expression: Expression = TermValue(0) if work.joined or whole.value is None else whole.value

    def stand_in(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        wide = replace(temps[0], cols=temps[0].cols * words, format="fp32")
        for _ in range(whole.stand_ins + len(partial) * (slices - 1) + len(addends) + whole.bias):
            ops.op("add", wide, wide, wide)

    def body(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
        values: dict[int, LocalTile] = {}
        for t in range(len(partial)):
            total = ins[t * slices]
            for i in range(1, slices):
                ops.op("add", temps[t], total, ins[t * slices + i])
                total = temps[t]
            values[t] = total
        scratch = temps[len(partial) :]
        evaluate(ops, expression, values, scratch[0], scratch[2:])
        value = scratch[0]
        if whole.alpha != 1:
            ops.op("scale", value, value, scalar=whole.alpha)
        if whole.c is not None:
            other = ins[-1]
            if whole.c.format != "fp32":
                ops.op("cast", scratch[1], other)
                other = scratch[1]
            if whole.beta != 1:
                ops.op("scale", scratch[1], other, scalar=whole.beta)
                other = scratch[1]
            ops.op("add", value, *((value, other) if whole.order == "value" else (other, value)))
        if whole.bias:
            ops.op("add", value, value, value)
        ops.op("copy" if outs[0].format == "fp32" else "cast", outs[0], value)

    temporaries = ("fp64",) if stand_ins else ("fp32",) * (len(partial) + 2 + depth(expression))
    does = stand_in if stand_ins else body
    return Pass(f"merge_{work.name}", reads, (whole.target,), temporaries, does, None, offsets)


def merge_seconds(device: Device, elements: int, count: int, partial: str, target: str, terms: int) -> float:
    """Seconds of the pass that adds `count` slices of `terms` partial results of `elements` each, by L2 alone.

    partial, target: formats of a slice's sum and of the result.
    """
    if count == 1:
        return 0.0
    read = elements * count * terms * format_of(partial).bits / 8
    written = elements * format_of(target).bits / 8
    memory = device.l2 if device.l2 is not None and device.l2.bytes_per_second else device.hbm
    moved = 0.0
    if memory is not None and memory.bytes_per_second:
        moved = (read + written) / memory.bytes_per_second
    latency = sum(x.latency_ns or 0.0 for x in (device.l2, device.hbm) if x is not None) * 1e-9
    return moved + latency + (device.launch_overhead_us or 0.0) * 1e-6
