"""The memory that the functional machine takes for a program besides its inputs, in bytes, before it takes any.

It knows programs, formats and what the machine keeps of a core's work; it knows no values and not what there is.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hwsim.formats import code_dtype, format_of
from hwsim.machines.storage import bytes_per_slot_byte
from hwsim.machines.words import roundings
from hwsim.program.ir import Instr, Loop

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.program.ir import GlobalArray, Kernel, Program, StreamItem

# Of an operation on arrays, and of its operands or those of a part of a chain's K, with four operands: rows of 11 and
# of 24 int64, twice and as lists of Python's integers; of a part of a chain also its places and its entry of a list.
JOB_BYTES = 700
SEGMENT_BYTES = 1700


def bytes_needed(program: Program, device: Device, threads: int) -> int:
    """Bytes for one execution with so many host threads: the arrays that are no inputs, copies of inputs whose words
    are rounded, and of the cores that are at work at once, their buffers and their lists of operations.
    """
    rounded = {fmt for fmt, own in roundings(program, device).items() if own != {None}}
    arrays = sum(_bytes_of(x) for x in program.arrays if x.name not in program.inputs or x.format in rounded)
    return arrays + max((_bytes_of_cores(kernel, threads) for kernel in program.kernels), default=0)


def _bytes_of(array: GlobalArray) -> int:
    return array.rows * array.cols * code_dtype(format_of(array.format)).itemsize


def _bytes_of_cores(kernel: Kernel, threads: int) -> int:
    """Of the cores of a kernel that are executed at the same time."""
    room = bytes_per_slot_byte(kernel.instrs())
    buffers = sum(buffer.slots * buffer.slot_bytes * room for buffer in kernel.buffers)
    most = 0
    for group in kernel.groups:
        counts: Counter[str] = Counter()
        for stream in group.streams:
            _count(stream.body, 1, counts)
        products = counts.pop("mma", 0)
        most = max(most, (products + counts.total()) * SEGMENT_BYTES + counts.total() * JOB_BYTES)
    return (buffers + most) * min(threads, sum(group.count for group in kernel.groups))


def _count(body: tuple[StreamItem, ...], times: int, counts: Counter[str]) -> None:
    """Add how often instructions of each kind are executed, `times` times over."""
    for node in body:
        if isinstance(node, Instr):
            counts[node.opcode] += times
        elif isinstance(node, Loop):
            _count(node.body, times * node.count, counts)
