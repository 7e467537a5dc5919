"""Batch invariance: for which numbers of rows does a library give a row of a product the same bits?

A row's bits depend on the kernel, and the kernel on how many rows there are. The order of summation of each choice is
brought to one form; equal forms give equal bits for all operands, others mostly not. It knows schedules and libraries,
and no array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, overload

import numpy as np

from hwsim.devices import dot_spec, instruction, load
from hwsim.devices.query import instruction_for
from hwsim.errors import InputError
from hwsim.gemm.plan import Mixed
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Reduction
from hwsim.libraries.gemm_call import PYTORCH, GemmCall, Reductions
from hwsim.numerics.units import IntegerUnit
from hwsim.report.text.words import plural, run_text, runs
from hwsim.resolve import library_on_device
from hwsim.schemes.native import PROMOTED_K

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm
    from hwsim.libraries.kernel_choice import LibraryChoice
    from hwsim.libraries.on_device import LibraryOnDevice

Label = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class BatchClass:
    """Numbers of rows whose products have a row's bits in common.

    label: of the order of summation of the first row. choices: the families of kernels and slices that give it, each
    once, that of the first m first; a choice's tile and kernel's name are those of its first m. sizes_m: all of them,
    in the order asked for. confidences: the probability for each that the choice is right. has_equal_rows: whether all
    rows of each of these products have that order.
    """

    label: Label
    choices: tuple[LibraryChoice, ...]
    sizes_m: tuple[int, ...]
    confidences: tuple[float, ...]
    has_equal_rows: bool = True


@dataclass(frozen=True)
class BatchLabels(Sequence[Label]):
    """A sequence of labels of orders of summation, one for each m. str() names the m whose labels are equal.

    labels: in the order of sizes_m. sizes_m: the numbers of rows as they were asked for.
    """

    labels: tuple[Label, ...]
    sizes_m: tuple[int, ...]

    @overload
    def __getitem__(self, index: int) -> Label: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Label, ...]: ...
    def __getitem__(self, index: int | slice) -> Label | tuple[Label, ...]:
        return self.labels[index]

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        members: dict[Label, list[int]] = {}
        for label, size in zip(self.labels, self.sizes_m, strict=True):
            members.setdefault(label, []).append(size)
        classes = sorted(members.values(), key=lambda sizes: -len(sizes))
        number = plural(len(classes), "class", "classes")
        lines = [f"{plural(len(self), 'value')} of m, {number}; a row has the same bits for every m of a class"]
        for place, sizes in enumerate(classes, 1):
            lines.append(f"  {place}. {', '.join(run_text(*run) for run in runs(sizes))}")
        return "\n".join(lines)


def invariance(
    *,
    n: int,
    k: int,
    m: Sequence[int],
    device: str | Path | Mapping[str, Any] | Device,
    library: str | Path | LibraryOnDevice,
    format: str,
    output: str | None = None,
    accumulate: str | None = None,
    a_layout: str = "rows",
    b_layout: str = "rows",
    bias: bool = False,
    reductions: Reductions | None = None,
    workspace_bytes: int | None = None,
    lt_workspace_bytes: int | None = None,
) -> BatchLabels:
    """One hashable label per m, in order: where labels are equal, a row of C[m, n] has equal bits for all operands.
    Printed, the sequence names the m of each label.

    Labels that differ are of orders of summation that differ; their bits may be equal all the same (as of parts that
    hold nothing, or of a K of 1). The label is of the first row: where several CTAs share the K of some tiles, later
    rows of a product may differ (`BatchClass.has_equal_rows`). An m whose kernel adds in an order that is not known has
    a label of its own.

    Args:
        n: columns of the weight.
        k: rows of the weight.
        m: numbers of rows.
        device: a name, the path of a YAML file, a mapping of that shape, or a Device.
        library: a name, a file, or what hwsim.library gives.
        format: as of `hwsim.run`.
        output: as of `hwsim.run`; what the unit gives where it is not said (PyTorch's layers: say "bf16" or "fp16").
        accumulate: as of `hwsim.run`.
        a_layout: as of `hwsim.run`.
        b_layout: as of `hwsim.run`.
        bias: one value per column is added, which is another call of the library's.
        reductions: as of `hwsim.run`.
        workspace_bytes: as of `hwsim.run`.
        lt_workspace_bytes: as of `hwsim.run`.

    Raises:
        InputError: numbers and names that are not allowed.
        UnsupportedError: the library's choice is not known.
    """
    weight = GemmCall(
        m=1,
        n=n,
        k=k,
        format=format,
        output=output,
        accumulate=accumulate,
        a_layout=a_layout,
        b_layout=b_layout,
        bias=bias,
        reductions=reductions,
        workspace_bytes=workspace_bytes,
        lt_workspace_bytes=lt_workspace_bytes,
        caller=PYTORCH,
    )
    each = _each(weight, m, device, library)
    return BatchLabels(tuple(label for label, *_ in each), tuple(map(int, m)))


def batch_classes(
    *,
    m: Sequence[int],
    device: str | Path | Mapping[str, Any] | Device,
    library: str | Path | LibraryOnDevice,
    progress: Callable[[float], None] | None = None,
    **weight: Any,
) -> list[BatchClass]:
    """The classes of m, the most frequent first; arguments and errors as of `invariance`. progress: is told the share
    done, where choices are estimated.
    """
    sizes = list(dict.fromkeys(m))
    each = _each(GemmCall(m=1, caller=PYTORCH, **weight), sizes, device, library, progress)
    members: dict[Label, list[tuple[int, LibraryChoice, float]]] = {}
    for size, (label, choice, sure) in zip(sizes, each, strict=True):
        members.setdefault(label, []).append((int(size), choice, sure))
    classes = []
    for label, choices in members.items():
        kernels: dict[tuple[str, int], LibraryChoice] = {}
        for _, choice, _ in choices:
            kernels.setdefault((choice.family, choice.slices), choice)
        sizes_of_class, confidences = tuple(size for size, *_ in choices), tuple(sure for *_, sure in choices)
        has_equal_rows = all(_has_equal_rows(choice.schedule) for _, choice, _ in choices)
        classes.append(BatchClass(label, tuple(kernels.values()), sizes_of_class, confidences, has_equal_rows))
    return sorted(classes, key=lambda batch_class: -len(batch_class.sizes_m))


def _has_equal_rows(schedule: Schedule) -> bool:
    """Whether regions with an order of their own cover the same columns of every row."""
    rows = {(region.rows.start, region.rows.stop) for region in schedule.regions}
    return not rows or (schedule.shape is not None and rows == {(0, schedule.shape[0])})


def _each(
    weight: GemmCall,
    m: Sequence[int],
    device: str | Path | Mapping[str, Any] | Device,
    library: str | Path | LibraryOnDevice,
    progress: Callable[[float], None] | None = None,
) -> list[tuple[Label, LibraryChoice, float]]:
    """Label, choice and its confidence of each m. weight: the call, whatever its m."""
    try:
        sizes = [operator.index(size) for size in m]
    except TypeError:
        raise InputError(f"m = {m!r}; allowed: a sequence of integers of at least 1") from None
    if not sizes:
        raise InputError("m: no number of rows; give at least one")
    for name, size in (("n", weight.n), ("k", weight.k)):
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise InputError(f"{name} = {size!r}; allowed: an integer of at least 1")
    if not isinstance(weight.format, str):
        raise InputError(f"format = {weight.format!r}; allowed: a name, as bf16")
    if weight.reductions not in (None, *get_args(Reductions)):
        allowed = ", ".join(map(repr, get_args(Reductions)))
        raise InputError(f"reductions = {weight.reductions!r}; allowed: {allowed}")
    for name in ("workspace_bytes", "lt_workspace_bytes"):
        size = getattr(weight, name)
        if size is not None and (isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0):
            raise InputError(f"{name} = {size!r}; allowed: an integer of at least 0")
    if not isinstance(weight.bias, bool):
        raise InputError(f"bias = {weight.bias!r}; allowed: True, False")
    chip, call = load(device), replace(weight, n=int(weight.n), k=int(weight.k))
    by_m = library_on_device.library(library, device=chip).orders(sizes, call, progress=progress)
    labels = [(_label(chip, choice, call), choice.order.product_format) for choice in by_m.choices]
    return [
        (labels[place] if by_m.choices[place].known else ("unknown", size), by_m.choices[place], confidence)
        for size, place, confidence in zip(sizes, by_m.which, by_m.confidence, strict=True)
    ]


def other_calls(
    *, device: str | Path | Mapping[str, Any] | Device, library: str | Path | LibraryOnDevice, **weight: Any
) -> list[GemmCall]:
    """For which other calls a user's file has a weight, where it has none for this one, so that none of its answers is
    taken; arguments and errors as of `invariance`, without m.
    """
    call = GemmCall(m=1, **weight)
    return library_on_device.library(library, device=device).other_calls(call)


def record_label(device: Device, gemm: Gemm, rows: Sequence[int]) -> Label:
    """The order in which a resolved product adds the elements of some of its rows; equal labels as of `invariance`.

    Of a scheme that chooses plans by the values of the operands it says the plans, not which block has which.
    """
    unit, promoted = gemm.unit, gemm.schedule.promotion_k
    by_regions: dict[tuple[int, ...], Label] = {}
    of_rows = []
    for row in rows if gemm.schedule.regions else rows[:1]:
        inside = tuple(
            i for i, region in enumerate(gemm.schedule.regions) if region.rows.start <= row < region.rows.stop
        )
        if inside not in by_regions:
            by_regions[inside] = _schedule_label(device, gemm.schedule, gemm.problem.k, unit, promoted, row)
        of_rows.append(by_regions[inside])
    plans = gemm.plan.plans if isinstance(gemm.plan, Mixed) else (gemm.plan,)
    return (gemm.scheme, repr(plans), gemm.epilogue.product_format, *of_rows)


def _label(chip: Device, choice: LibraryChoice, call: GemmCall) -> Label:
    """The order of summation of the first row."""
    promoted = PROMOTED_K if (choice.accumulate or call.accumulate) == "promoted" else None
    name = choice.schedule.instruction or instruction_for(chip, call.format, call.format)
    return _schedule_label(chip, choice.schedule, call.k, name, promoted, 0)


def _schedule_label(chip: Device, schedule: Schedule, k: int, unit: str, promoted: int | None, row: int) -> Label:
    """A row's order in one form: unit, format of the operands, sums, and where tiles have another order."""
    spec = dot_spec(chip, unit)
    if isinstance(spec.unit, IntegerUnit):
        return ("integers",)
    step = instruction(chip, unit).k
    if schedule.sum is not None:
        tree = _tree(schedule.sum, step, promoted)
    else:
        slices = schedule.k_partition(k).slices
        parts = [_steps([span for run in runs for span in run], step, promoted) for runs in slices]
        tree = parts[0] if len(parts) == 1 else _added(parts, "ascending")
    return (repr(spec.unit), spec.a, schedule.partial_format, _by_columns(schedule, tree, step, promoted, row))


def _by_columns(schedule: Schedule, tree: Label, step: int, promoted: int | None, row: int) -> Label:
    """The orders of a row's columns, in runs of equal ones; `tree` where every column has it."""
    cuts = [
        (region.cols.start, region.cols.stop, _tree(region.sum, step, promoted))
        for region in schedule.regions
        if region.rows.start <= row < region.rows.stop
    ]
    if not cuts or schedule.shape is None:
        return tree
    runs: list[tuple[int, Label]] = []  # where each begins
    at = 0
    for start, stop, order_of_cut in [
        *sorted(cuts, key=lambda cut: cut[:2]),
        (schedule.shape[1], schedule.shape[1], tree),
    ]:
        for begin, end, order in ((at, start, tree), (start, stop, order_of_cut)):
            if begin < end and (not runs or runs[-1][1] != order):
                runs.append((begin, order))
        at = stop
    return runs[0][1] if len(runs) == 1 else tuple(runs)


def _tree(node: Chain | Reduction, step: int, promoted: int | None) -> Label:
    if isinstance(node, Chain):
        return _steps([span for part in node.ranges for span in part.spans()], step, promoted)
    parts = [_tree(part, step, promoted) for part in node.parts]
    rounded = (node.start, node.format, node.stored)
    if isinstance(node.order, tuple):
        return _added([parts[index] for index in node.order], "ascending", rounded)
    return _added(parts, node.order, rounded)


PLAIN = ("first", None, None)  # start, format and stored format of a reduction


def _added(parts: Sequence[Label], order: str, rounded: tuple[Any, ...] = PLAIN) -> Label:
    """A reduction of parts, without empty ones. Its first addition has no order, as a + b = b + a."""
    if order == "descending":
        parts, order = parts[::-1], "ascending"
    if len(parts) == 2 or (order == "pairwise" and len(parts) == 3):
        order = "ascending"
    if order == "ascending":
        if rounded == PLAIN:
            parts = [part for part in parts if part[0] != "chain" or len(part) > 3] or parts[:1]
        if len(parts) == 1 and rounded == PLAIN:
            return parts[0]
        parts = (*sorted(parts[:2], key=repr), *parts[2:])
    return (order, rounded, *parts)


def _steps(spans: Sequence[tuple[int, int]], step: int, promoted: int | None) -> Label:
    """Spans of K, joined where one ends with a whole instruction and the next goes on there."""
    joined: list[tuple[int, int]] = []
    for start, stop in spans:
        if joined and joined[-1][1] == start and (joined[-1][1] - joined[-1][0]) % step == 0:
            joined[-1] = (joined[-1][0], stop)
        elif start < stop:
            joined.append((start, stop))
    return ("chain", step, promoted, *joined)
