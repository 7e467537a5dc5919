"""A program as text: arrays, buffers with their sizes, and every stream with its loops.

The module knows the form of a program and a device's memories; it does not know what a scheme computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hwsim.devices.device import Device
from hwsim.program.ir import (
    Advance,
    Affine,
    AnyTile,
    CoreGroup,
    GlobalTile,
    Instr,
    Kernel,
    Loop,
    Program,
    StreamItem,
    Sync,
)
from hwsim.report.text.words import count, plural, table, value
from hwsim.resolve.mapping_choice import facts_of

STEP = "  "
SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "add_row": "+"}


def program_text(program: Program, device: Device) -> str:
    """The whole program, one instruction per line."""
    shown = {} if program.gemm is None else facts_of(program.gemm, device)
    lines = [f"program on {device.name}: {', '.join(f'{name} {value(setting)}' for name, setting in shown.items())}"]
    roles = dict.fromkeys(program.inputs, "input") | {program.output: "output"}
    rows = [(a.name, f"{count(a.rows)} x {count(a.cols)}", a.format, roles.get(a.name, "")) for a in program.arrays]
    lines += ["arrays in global memory", *table(rows, right=(1,))]
    for kernel in program.kernels:
        lines += ["", *_kernel(kernel, device)]
    return "\n".join(lines)


def affine_text(affine: Affine) -> str:
    """An affine expression as text: `8*row#0 + core + 3`, a sum over loops, counters and the core's number."""
    terms = [name if factor == 1 else f"{count(factor)}*{name}" for name, factor in affine.terms]
    if affine.constant or not terms:
        terms.append(count(affine.constant))
    return " + ".join(terms)


def _kernel(kernel: Kernel, device: Device) -> Iterator[str]:
    yield f"kernel {kernel.name}"
    if kernel.buffers:
        yield STEP + "buffers of each core"
        rows = []
        for b in kernel.buffers:
            over = f" over {b.spread} cores" if b.spread > 1 else ""
            rows.append((b.name, f"in {b.memory}", plural(b.slots, "slot"), f"of {count(b.slot_bytes)} bytes{over}"))
        yield from table(rows, right=(2, 3), indent=2 * STEP)
        yield STEP + "room taken"
        room = {name: memory.capacity_bytes for name, memory in device.memories.items()}
        yield from table(
            [(name, f"{count(size)} of {count(room[name])} bytes") for name, size in kernel.memory_bytes.items()],
            indent=2 * STEP,
        )
    if kernel.semaphores:
        local, peers = ([s for s in kernel.semaphores if s.peers is which] for which in (False, True))
        for of, some in (("", local), (" of peers", peers)):
            if some:
                yield STEP + f"semaphores{of} (at the start): " + ", ".join(f"{s.name} {s.initial}" for s in some)
    for group in kernel.groups:
        yield from _group(group)


def _group(group: CoreGroup) -> Iterator[str]:
    last = group.first + group.count - 1
    yield STEP + (f"core {group.first}" if group.count == 1 else f"cores {group.first} to {last} ({group.count})")
    for stream in group.streams:
        yield f"{2 * STEP}stream {stream.name}"
        for index in stream.derived:
            sign = "//" if index.part == "quotient" else "%"
            yield f"{3 * STEP}{index.name} = ({affine_text(index.of)}) {sign} {count(index.divisor)}"
        yield from _nodes(stream.body, 3)


def _nodes(body: Iterable[StreamItem], depth: int) -> Iterator[str]:
    for node in body:
        if isinstance(node, Loop):
            yield f"{STEP * depth}for {node.name} in 0..{count(node.count - 1)}:"
            yield from _nodes(node.body, depth + 1)
        elif isinstance(node, Advance):
            yield f"{STEP * depth}{node.counter} += {node.by}"
        else:
            yield STEP * depth + instr_text(node)


def instr_text(instr: Instr) -> str:
    """One instruction as text: engine, operation, waits and signals."""
    parts = [f"{instr.engine:5}", _action(instr)]
    if instr.repeat != 1:
        parts.append(f"x {instr.repeat}")
    if instr.swapped:
        parts.append("as B^T A^T")
    if instr.multicast != 1:
        parts.append(f"to {instr.multicast} cores at once")
    parts += [f"wait {_syncs(instr.waits)}"] * bool(instr.waits) + [f"signal {_syncs(instr.signals)}"] * bool(
        instr.signals
    )
    if instr.label:
        parts.append(f"# {instr.label}")
    return "  ".join(parts)


def _action(instr: Instr) -> str:
    reads = [_tile(tile) for tile in instr.reads]
    if instr.opcode == "sync":
        return "sync"
    if instr.opcode == "mma":
        what = " x ".join(reads[:2]) + "".join(
            f", {role} {text}" for role, text in zip(instr.optional, reads[2:], strict=True)
        )
        what += f" by {instr.unit}{_start(instr)}"
        if instr.scale_exponent:
            what += f", accumulator * 2^-{instr.scale_exponent}"
    elif instr.opcode == "fill":
        what = f"{instr.scalar:g}"
    elif instr.opcode == "scale":
        power = f"2^{-instr.scale_exponent}" if instr.scale_exponent else f"{instr.scalar:g}"
        what = f"{reads[0]} * {power}"
    elif instr.opcode == "fma":
        what = f"{reads[0]} * {instr.scalar:g} + {reads[1]}"
    elif instr.opcode == "ldexp":
        sign = "-" if instr.scalar < 0 else ""
        what = f"{reads[0]} * 2^({sign}{reads[1]}{_plus(-instr.scale_exponent)})"
    elif instr.opcode == "extract":
        what = f"bits of {reads[0]} from bit {instr.scale_exponent}"
    elif instr.opcode == "remainder":
        what = f"{reads[0]} modulo {instr.scale_exponent}"
    elif instr.opcode == "select":
        what = f"{reads[1]} where {reads[0]} is not 0, else {reads[2]}"
    elif instr.opcode == "cast":
        what = f"{reads[0]} rounded {instr.rounding}"
    else:
        if instr.scale_exponent:
            reads[0] += f" * 2^-{instr.scale_exponent}"
        what = f" {SYMBOLS.get(instr.opcode, ',')} ".join(reads)
    return f"{instr.opcode:5} {', '.join(map(_tile, instr.writes))} <- {what}"


def _plus(number: int) -> str:
    """A number that is added: its sign, its magnitude; nothing for 0."""
    return f" {'-' if number < 0 else '+'} {abs(number)}" if number else ""


def _start(instr: Instr) -> str:
    if instr.zero_at is None:
        return ", accumulating"
    if not instr.zero_at:
        return ", from zero"
    return f", from zero where {' = '.join(instr.zero_at)} = 0, else accumulating"


def _tile(tile: AnyTile) -> str:
    size = f"{tile.rows}x{tile.cols}"
    if isinstance(tile, GlobalTile):
        return f"{tile.array}[{affine_text(tile.row)}, {affine_text(tile.col)}] {size}"
    part = f" from ({tile.row}, {tile.col})" if tile.row or tile.col else ""
    return f"{tile.buffer}({affine_text(tile.slot)}){part} {size} {tile.format}"


def _syncs(syncs: Iterable[Sync]) -> str:
    return ", ".join(s.semaphore if s.count == 1 else f"{s.count} {s.semaphore}" for s in syncs)
