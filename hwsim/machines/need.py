"""The memory that the functional machine takes for a program besides its inputs, in bytes, before it takes any.

It knows programs, formats and what the machine keeps of a kernel; it knows no codes and not what memory there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.formats import code_dtype, format_of
from hwsim.machines.chained_products import CONCATENATED_BYTES
from hwsim.machines.kernel_plan import PANEL_ELEMENTS, Group, KernelPlan, plan_of
from hwsim.machines.kernel_values import OVERLAY
from hwsim.machines.words import roundings
from hwsim.program.ir import Instr, Loop

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.program.ir import GlobalArray, Kernel, Program, StreamItem

VALUE_BYTES = 4000  # of a value in tables and in a plan
STORE_BYTES = 600  # of a tile that is stored
TEMPORARIES = 4  # arrays of a panel besides the results of its steps, with elements of 8 bytes


def bytes_of_arrays(program: Program, device: Device) -> int:
    """Bytes of the arrays that are no inputs, of copies of inputs whose words are rounded, and of the largest kernel's
    plan, where each core's tiles are the same values. Nothing is planned for it.
    """
    rounded = {fmt for fmt, modes in roundings(program, device).items() if modes != {None}}
    arrays = sum(_bytes_of(x) for x in program.arrays if x.name not in program.inputs or x.format in rounded)
    return arrays + max((_bytes_of_text(kernel) for kernel in program.kernels), default=0)


def bytes_needed(program: Program, device: Device, threads: int) -> int:
    """Bytes for one execution with so many host threads: the arrays, and of one kernel its plan and what it keeps and
    computes at a time.
    """
    plans = [plan_of(kernel, program.arrays, device) for kernel in program.kernels]
    most = max((_bytes_of_kernel(plan, program.arrays, threads) for plan in plans), default=0)
    return bytes_of_arrays(program, device) + most


def _bytes_of_text(kernel: Kernel) -> int:
    """Of the plan of a kernel: the values of the core that has the most."""
    most = 0
    for group in kernel.groups:
        most = max(most, sum(_results(stream.body) for stream in group.streams))
    return VALUE_BYTES * most


def _results(body: tuple[StreamItem, ...]) -> int:
    """Executed instructions that compute something."""
    count = 0
    for node in body:
        if isinstance(node, Instr):
            count += node.opcode not in ("copy", "sync")
        elif isinstance(node, Loop):
            count += node.count * _results(node.body)
    return count


def _bytes_of(array: GlobalArray) -> int:
    return array.rows * array.cols * code_dtype(format_of(array.format)).itemsize


def _bytes_of_kernel(plan: KernelPlan, arrays: tuple[GlobalArray, ...], threads: int) -> int:
    written = {target.array for group in plan.groups for targets in group.stored.values() for target in targets}
    written |= {target.array for _, target in plan.copies}
    copies = sum(_bytes_of(arrays[array]) for array in written & plan.read)
    most = materialized = 0
    homes = {value: group for group in plan.groups for value in _values(group)}  # the group that computes a value
    for group in plan.groups:
        materialized += sum(_materialized_bytes(plan, group, value) for value in _values(group))
        most = max(most, materialized + _panel_bytes(group) * threads)
        materialized -= sum(_materialized_bytes(plan, homes[value], value) for value in group.unused)
    return copies + most + STORE_BYTES * len(plan.values.stores)


def _values(group: Group) -> frozenset[int]:
    """The values that a group leaves to later ones: the results of its steps, or its overlay."""
    return group.materialized if group.overlay is None else frozenset([group.overlay])


def _materialized_bytes(plan: KernelPlan, group: Group, value: int) -> int:
    """Of all regions of a materialized value; of an overlay also the slot's bytes."""
    kind, form = plan.values.values[value, :2].tolist()
    size = 16 if kind == OVERLAY else code_dtype(format_of(plan.values.formats[form][0])).itemsize
    return size * sum(region.size for region in group.regions)


def _panel_bytes(group: Group) -> int:
    """What a panel takes: the results of steps that are read later, and their operands."""
    live = most = 0
    for step in group.steps:
        live += 1
        most = max(most, live)
        live -= len(step.finished)
    elements = min(PANEL_ELEMENTS, max((region.size for region in group.regions), default=0))
    return 8 * elements * (most + TEMPORARIES) + (CONCATENATED_BYTES if group.steps else 0)
