"""Batch invariance: for which numbers of rows does a library give a row of a product the same bits?

A row's bits depend on the kernel, and the kernel on how many rows there are. The order of summation of each choice is
brought to one form; equal forms give equal bits for all operands. It knows schedules and libraries, and no array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwsim.devices import dot_spec, instruction, load
from hwsim.devices.query import instruction_for
from hwsim.errors import InputError
from hwsim.gemm.summation import Chain, Reduction
from hwsim.numerics.units import IntegerUnit
from hwsim.resolve.library_call import LANES, library_for_call

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.library_calls.choose import LibraryChoice

Label = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class BatchClass:
    """Numbers of rows whose products have a row's bits in common.

    label: of the order of summation; choice: of the first of them; sizes_m: all of them, in the order asked for.
    """

    label: Label
    choice: LibraryChoice
    sizes_m: tuple[int, ...]


def invariance(
    *,
    n: int,
    k: int,
    m: Sequence[int],
    device: str | Path | Mapping[str, Any] | Device,
    library: str,
    format: str,
    output: str | None = None,
    accumulate: str | None = None,
    a_layout: str = "rows",
    b_layout: str = "rows",
) -> list[Label]:
    """One hashable label per m, in order: equal exactly where a row of C[m, n] has equal bits for all operands.

    n, k: of the weight; m: numbers of rows. format, output, accumulate, layouts: as of `hwsim.run`. A kernel whose
    order of summation is not known has a label of its own. Raises InputError and UnsupportedError as
    `Library.choose` does.
    """
    call: dict[str, Any] = {"output": output, "accumulate": accumulate}
    call |= {"a_layout": a_layout, "b_layout": b_layout}
    return [found.label for found in _each(n=n, k=k, m=m, device=device, library=library, format=format, **call)]


def batch_classes(*, m: Sequence[int], **call: Any) -> list[BatchClass]:
    """The classes of m, the most frequent first; arguments and errors as of `invariance`."""
    each = _each(m=m, **call)
    members: dict[Label, list[int]] = {}
    choices: dict[Label, LibraryChoice] = {}
    for size, found in zip(m, each, strict=True):
        members.setdefault(found.label, []).append(int(size))
        choices.setdefault(found.label, found.choice)
    classes = [BatchClass(label, choices[label], tuple(sizes)) for label, sizes in members.items()]
    return sorted(classes, key=lambda one: -len(one.sizes_m))


@dataclass(frozen=True, slots=True)
class _Found:
    label: Label
    choice: LibraryChoice


def _each(
    *,
    n: int,
    k: int,
    m: Sequence[int],
    device: str | Path | Mapping[str, Any] | Device,
    library: str,
    format: str,
    output: str | None = None,
    accumulate: str | None = None,
    a_layout: str = "rows",
    b_layout: str = "rows",
) -> list[_Found]:
    """Label and choice of each m."""
    if not len(m):
        raise InputError("m: no number of rows; give at least one")
    for size in m:
        if isinstance(size, bool) or int(size) != size or size < 1:
            raise InputError(f"m = {size!r}; allowed: integers of at least 1")
    chip = load(device)
    asked, reductions = library_for_call(library, chip, (n, k), format=format, output=output)
    wide = output or {"fp64": "fp64", "int8": "int32"}.get(format, "fp32")
    choices, index = asked.orders(
        [int(size) for size in m], n=n, k=k, format=format, output=wide, accumulate=accumulate, a_layout=a_layout,
        b_layout=b_layout, reductions=reductions,
    )  # fmt: skip
    labels = [_label(chip, choice, format, accumulate, k) for choice in choices]
    return [_Found(labels[place], choices[place]) for place in index]


def _label(chip: Device, choice: LibraryChoice, format: str, accumulate: str | None, k: int) -> Label:
    """The order of summation in one form: unit, format of the operands, sums."""
    used = LANES[format] if choice.computes == "lanes" else format
    wanted = None if choice.computes in ("lanes", "native") else choice.computes
    name = instruction_for(chip, used, used, wanted)
    unit = dot_spec(chip, name).unit
    if isinstance(unit, IntegerUnit):
        return ("integers",)
    step = instruction(chip, name).k
    if not choice.known:
        return ("unknown", choice.algorithm, choice.split_k)
    promoted = 128 if accumulate == "promoted" else None
    schedule = choice.schedule
    if schedule.sum is not None:
        tree = _tree(schedule.sum, step, promoted)
    else:
        slices = schedule.layout(k).slices
        parts = [_steps([span for run in runs for span in run], step, promoted) for runs in slices]
        tree = parts[0] if len(parts) == 1 else ("ascending", *parts)
    return (repr(unit), used, schedule.partial_format, tree)


def _tree(node: Chain | Reduction, step: int, promoted: int | None) -> Label:
    if isinstance(node, Chain):
        return _steps([span for part in node.ranges for span in part.spans()], step, promoted)
    parts = tuple(_tree(part, step, promoted) for part in node.parts)
    if len(parts) == 1:
        return parts[0]
    return (node.order, *parts)


def _steps(spans: Sequence[tuple[int, int]], step: int, promoted: int | None) -> Label:
    """Spans of K, joined where one ends with a whole instruction and the next goes on there."""
    joined: list[tuple[int, int]] = []
    for start, stop in spans:
        if joined and joined[-1][1] == start and (joined[-1][1] - joined[-1][0]) % step == 0:
            joined[-1] = (joined[-1][0], stop)
        elif start < stop:
            joined.append((start, stop))
    return ("chain", step, promoted, *joined)
