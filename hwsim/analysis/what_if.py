"""What-if analysis: the cycles of a program if one part of the device took no time, each from another timing run.

An engine, a link or an opcode that takes no time still moves its bytes through L2 and HBM. The module knows the timing
machine and the device; it does not know what the program computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.devices import changed
from hwsim.machines import timing
from hwsim.machines.cost import Free
from hwsim.machines.l2_state import COLD
from hwsim.program.ir import Program
from hwsim.program.resolve import Scope

if TYPE_CHECKING:
    from hwsim.devices.device import Device

UNBOUNDED = 4e6  # bytes per cycle: near the most that the timing machine takes
INSTANT = 1e-9  # cycles: less than a tick


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One part of the device, and the program's cycles if it took no time. `saved`: share of the present cycles.

    part: "engine NAME", "link NAME", "opcode NAME", "issue" (of instructions by the streams), "HBM", "L2" (rates and
    latencies), or "L2 capacity" (nothing is ever evicted).
    """

    part: str
    cycles: int
    saved: float


def what_if(program: Program, device: Device, *, l2: str = COLD) -> list[WhatIf]:
    """The analysis for every part that the program uses, the largest saving first.

    l2: the state in which L2 is before each run. Raises what hwsim.machines.timing.run raises.
    """
    now = timing.run_in(program, device, l2).cycles
    gains = [WhatIf(part, cycles, (now - cycles) / now if now else 0.0) for part, cycles in _runs(program, device, l2)]
    return sorted(gains, key=lambda gain: (gain.cycles, gain.part))


def _runs(program: Program, device: Device, l2: str) -> Iterator[tuple[str, int]]:
    for part, free in _instructions(program, device):
        yield part, timing.run_in(program, device, l2, free=free).cycles
    for part, other in _devices(program, device):
        yield part, timing.run_in(program, other, l2).cycles


def _instructions(program: Program, device: Device) -> Iterator[tuple[str, Free]]:
    """Parts that consist of some of the program's instructions."""
    engines: set[str] = set()
    links: set[str] = set()
    opcodes: set[str] = set()
    for kernel in program.kernels:
        scope = Scope(kernel, program.arrays, device)
        for instr in kernel.instrs():
            engines.add(instr.engine)
            link = scope.link(instr) if instr.opcode in ("copy", "cast") else None
            if link is not None:
                links.add(link[0])
            elif instr.opcode not in ("sync", "mma"):
                opcodes.add(instr.opcode)
    yield from ((f"engine {name}", _on_engine(name)) for name in sorted(engines))
    yield from ((f"link {name}", _over_link(name)) for name in sorted(links))
    yield from ((f"opcode {name}", _elementwise(name)) for name in sorted(opcodes))


def _on_engine(name: str) -> Free:
    return lambda instr, link: instr.engine == name


def _over_link(name: str) -> Free:
    return lambda instr, link: link == name


def _elementwise(opcode: str) -> Free:
    return lambda instr, link: instr.opcode == opcode and link is None


def _devices(program: Program, device: Device) -> Iterator[tuple[str, Device]]:
    """Parts that are numbers of the device."""
    used = {instr.engine for kernel in program.kernels for instr in kernel.instrs()}
    yield "issue", changed(device, {f"engines.{name}.issue_cycles": INSTANT for name in used})
    most = UNBOUNDED * device.clock_mhz * 1e6
    if device.hbm is not None:
        yield "HBM", changed(device, {"hbm.bytes_per_second": most, "hbm.latency_ns": None})
    if device.l2 is not None:
        yield "L2", changed(device, {"l2.bytes_per_second": most, "l2.latency_ns": None})
        everything = sum(array.rows * array.cols * 8 for array in program.arrays) + device.l2.capacity_bytes
        yield "L2 capacity", changed(device, {"l2.capacity_bytes": everything})
