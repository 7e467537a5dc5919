"""In which order, and over which regions, the values of a kernel are computed.

Values that are stored, or that other values read whole (the operands of products), are materialized: computed over all
regions that are needed, and stored. Values over the same regions are computed together, panel by panel, with everything
between them in temporary arrays. The module knows values and matrix instructions; it knows no codes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hwsim.machines.kernel_values import (
    ARRAY,
    COLS_FIXED,
    HEAD,
    OPERAND,
    OVERLAY,
    RESULT,
    ROWS_FIXED,
    ZERO,
    KernelValues,
    kernel_values,
)
from hwsim.machines.matrix_regions import MatrixRegion, union, visible
from hwsim.program.forms import parts_of
from hwsim.program.identity_cache import IdentityCache

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.program.ir import GlobalArray, Kernel

PANEL_ELEMENTS = 1 << 18  # of a panel of products, at most where its columns are fewer
KERNELS, VALUES = 256, 1 << 16  # of which plans are cached, at most


@dataclass(frozen=True, slots=True)
class PanelSource:
    """What a step reads for a panel. value: its number; step: the earlier step of the group that computes it (None: a
    value that is materialized, a global array, or memory that nobody wrote).

    The region begins at (row, col), which count from the panel's first element but along fixed axes (bits of
    hwsim.machines.kernel_values), where there are `length` rows or columns.
    """

    value: int
    row: int
    col: int
    axes: int
    length: int
    step: int | None = None

    def of(self, panel: MatrixRegion) -> MatrixRegion:
        """The region for a panel."""
        row, rows = (self.row, self.length) if self.axes & ROWS_FIXED else (panel.row + self.row, panel.rows)
        col, cols = (self.col, self.length) if self.axes & COLS_FIXED else (panel.col + self.col, panel.cols)
        return MatrixRegion(row, col, rows, cols)


@dataclass(slots=True)
class ValueStep:
    """One value over a panel, or a chain of products in one accumulator.

    form: of its instruction; of a chain, the first's. operands: of each instruction, in order, without the
    accumulator. forms: of each instruction. start: the accumulator (None: +0). finished: steps whose results nobody
    reads later.
    """

    value: int
    forms: list[int]
    operands: list[tuple[PanelSource, ...]]
    start: PanelSource | None = None
    finished: list[int] = field(default_factory=list)

    @property
    def sources(self) -> list[PanelSource]:
        """Everything that it reads."""
        operands = [source for sources in self.operands for source in sources]
        return operands if self.start is None else [self.start, *operands]


@dataclass(frozen=True, slots=True)
class Target:
    """A region of a global array that holds a value's region, which begins `rows`, `cols` on in the value."""

    array: int
    region: MatrixRegion
    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class Group:
    """Values that are computed together over the same regions.

    results: number of the step of each. materialized: those that later groups read; stored: the targets of each.
    overlay: the one value, where it is an overlay. unused: materialized values that nobody reads after this group.
    """

    regions: tuple[MatrixRegion, ...]
    steps: tuple[ValueStep, ...]
    results: Mapping[int, int]
    materialized: frozenset[int]
    stored: Mapping[int, tuple[Target, ...]]
    overlay: int | None = None
    unused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """The groups of a kernel in order. constants: values whose elements are all equal, in order. copies: targets that
    hold such a value, or a region of a global array. read: the arrays that are read as they are at the begin.
    """

    values: KernelValues
    groups: tuple[Group, ...]
    constants: Mapping[int, ValueStep]
    copies: tuple[tuple[int, Target], ...]
    read: frozenset[int]


def plan_of(kernel: Kernel, arrays: tuple[GlobalArray, ...], device: Device) -> KernelPlan:
    """The plan of a kernel on a device, which is cached for its next execution.

    Raises ProgramError when the streams of a core deadlock.
    """
    of = kernel, arrays, *parts_of(device)
    plan = _PLANS.get(*of)
    if plan is None:
        plan = kernel_plan(kernel_values(kernel, arrays, tuple(device.engines)))
        _PLANS.put(plan, len(plan.values.values) + len(plan.values.stores), *of)
    return plan


_PLANS: IdentityCache[KernelPlan] = IdentityCache(KERNELS, VALUES)


def kernel_plan(values: KernelValues) -> KernelPlan:
    """The plan of a kernel's values."""
    graph = _Graph(values)
    needs = _Needs(graph, values)
    homes = _homes(graph, needs)
    return _plan(graph, needs, homes)


class _Graph:
    """The values as a graph: kinds, forms and operands of each. free: whether all elements of a value are equal."""

    def __init__(self, values: KernelValues) -> None:
        rows = values.values.tolist()
        self.values = values
        self.kinds = [row[0] for row in rows]
        self.forms = [row[1] for row in rows]
        self.operands = [_operands(row) if row[0] == RESULT else () for row in rows]
        self.free: list[bool] = []
        for kind, operands in zip(self.kinds, self.operands, strict=True):
            is_free = kind == ZERO or (kind == RESULT and all(self.free[operand.value] for operand in operands))
            self.free.append(is_free)

    def is_computed(self, value: int) -> bool:
        """Whether it is computed panel by panel."""
        return self.kinds[value] in (RESULT, OVERLAY) and not self.free[value]

    def layers(self, value: int) -> list[list[int]]:
        """The layers of an overlay; the first is the region that it covers."""
        first, count = self.forms[value], int(self.values.values[value, HEAD.index("count")])
        layers: list[list[int]] = self.values.layers[first : first + count].tolist()
        return layers


def _operands(row: Sequence[int]) -> tuple[PanelSource, ...]:
    axes, count, width = row[HEAD.index("axes")], row[HEAD.index("count")], len(OPERAND)
    operands = []
    for i in range(count):
        value, first_row, first_col, length = row[len(HEAD) + width * i : len(HEAD) + width * (i + 1)]
        operands.append(PanelSource(value, first_row, first_col, axes >> 2 * i & 3, length))
    return tuple(operands)


class _Needs:
    """Which regions of each value are needed, and which values are materialized. targets: where values are stored."""

    def __init__(self, graph: _Graph, values: KernelValues) -> None:
        self.graph = graph
        self.targets = _targets(values)
        self.materialized: set[int] = set()
        wanted: list[list[MatrixRegion]] = [[] for _ in graph.kinds]
        self.regions: list[tuple[MatrixRegion, ...]] = [()] * len(graph.kinds)
        for value, targets in self.targets.items():
            if graph.is_computed(value):
                self.materialized.add(value)
                wanted[value] += [target.region.moved(target.rows, target.cols) for target in targets]
        for value in range(len(graph.kinds) - 1, -1, -1):
            if not wanted[value]:
                continue
            self.regions[value] = regions = union(wanted[value])
            wanted[value] = []
            if graph.kinds[value] == OVERLAY:
                self._of_layers(value, wanted)
                continue
            for source in graph.operands[value]:
                if graph.is_computed(source.value):
                    wanted[source.value] += [source.of(region) for region in regions]
                    if source.axes:
                        self.materialized.add(source.value)

    def _of_layers(self, value: int, wanted: list[list[MatrixRegion]]) -> None:
        """Take note of what an overlay needs: all that it covers."""
        (_, *place, _, _, _), *_ = layers = self.graph.layers(value)
        self.regions[value] = (MatrixRegion(0, 0, *place[2:]),)
        self.materialized.add(value)
        for _, row, col, rows, cols, source, value_row, value_col in layers:
            if self.graph.is_computed(source):
                wanted[source].append(MatrixRegion(row, col, rows, cols).moved(value_row, value_col))
                self.materialized.add(source)


def _targets(values: KernelValues) -> dict[int, list[Target]]:
    """By value, where it is stored in the end."""
    by_array: dict[int, list[list[int]]] = defaultdict(list)
    for row in values.stores.tolist():
        by_array[row[0]].append(row)
    targets: dict[int, list[Target]] = defaultdict(list)
    for array, rows in by_array.items():
        different = {key: i for i, key in enumerate(dict.fromkeys(tuple(row[5:8]) for row in rows))}
        parts = visible([MatrixRegion(*row[1:5]) for row in rows], [different[tuple(row[5:8])] for row in rows])
        keys = list(different)
        for owner, regions in parts.items():
            value, value_row, value_col = keys[owner]
            targets[value] += [Target(array, region, value_row, value_col) for region in regions]
    return targets


@dataclass(frozen=True, slots=True)
class _Home:
    """Where a value is computed. group: a key, in order of the groups; row, col: of its first element for a panel, from
    the panel's.
    """

    group: tuple[Any, ...]
    row: int = 0
    col: int = 0


def _homes(graph: _Graph, needs: _Needs) -> dict[int, _Home]:
    """The home of each value that is needed. Values that would be computed for several groups, or at several places of
    a panel, are materialized too.
    """
    levels = [0] * len(graph.kinds)
    for value, regions in enumerate(needs.regions):
        if regions:
            below = [source.value for source in graph.operands[value]]
            if graph.kinds[value] == OVERLAY:
                below = [layer[5] for layer in graph.layers(value)]
            levels[value] = max((levels[source] + (source in needs.materialized) for source in below), default=0)
    homes: dict[int, _Home] = {}
    users: dict[int, set[_Home]] = defaultdict(set)
    for value in range(len(graph.kinds) - 1, -1, -1):
        if not needs.regions[value]:
            continue
        if value in needs.materialized:
            alone = value if graph.kinds[value] == OVERLAY else -1
            home = _Home((levels[value], True, alone, needs.regions[value]))
        elif len(users[value]) == 1:
            (home,) = users[value]
        else:
            needs.materialized.add(value)
            home = _Home((levels[value], False, value))
        homes[value] = home
        for source in graph.operands[value]:
            if graph.is_computed(source.value) and source.value not in needs.materialized:
                users[source.value].add(_Home(home.group, home.row + source.row, home.col + source.col))
    return homes


def _plan(graph: _Graph, needs: _Needs, homes: Mapping[int, _Home]) -> KernelPlan:
    """The plan, from the home of each value."""
    members: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for value in sorted(homes):
        members[homes[value].group].append(value)
    order = sorted(members)
    read: dict[int, int] = {}  # by value: the last group that reads it
    groups: list[Group] = []
    for number, key in enumerate(order):
        group = _group(graph, needs, homes, members[key])
        for value in _read_by(graph, group):
            read[value] = number
        groups.append(group)
    last_reads: dict[int, list[int]] = defaultdict(list)
    for value, number in read.items():
        if graph.is_computed(value):
            last_reads[number].append(value)
    done = tuple(
        replace(group, materialized=frozenset(set(group.results) & read.keys()), unused=tuple(last_reads[i]))
        for i, group in enumerate(groups)
    )
    copies = tuple(
        (value, target)
        for value, targets in needs.targets.items()
        if not graph.is_computed(value)
        for target in targets
    )
    used = read.keys() | {value for value, _ in copies}
    constants = _constants(graph, used)
    return KernelPlan(
        values=graph.values,
        groups=done,
        constants=constants,
        copies=copies,
        read=frozenset([value for value in used if graph.kinds[value] == ARRAY]),
    )


def _read_by(graph: _Graph, group: Group) -> set[int]:
    """The values that a group reads and does not compute."""
    if group.overlay is not None:
        return {layer[5] for layer in graph.layers(group.overlay)}
    return {source.value for step in group.steps for source in step.sources if source.step is None}


def _group(graph: _Graph, needs: _Needs, homes: Mapping[int, _Home], members: Sequence[int]) -> Group:
    """A group of values, in their order."""
    materialized = [value for value in members if value in needs.materialized]
    stored = {value: tuple(needs.targets[value]) for value in materialized if value in needs.targets}
    regions = needs.regions[materialized[0]]
    if graph.kinds[members[0]] == OVERLAY:
        return Group(regions, (), {}, frozenset(), stored, overlay=members[0])
    uses: Counter[int] = Counter(source.value for value in members for source in graph.operands[value])
    steps: list[ValueStep] = []
    step_of: dict[int, int] = {}
    for value in members:
        home, form = homes[value], graph.forms[value]
        sources = [_placed(source, home, step_of, needs.materialized) for source in graph.operands[value]]
        reads = len(graph.values.formats[form]) - 1
        start = sources.pop() if len(sources) > reads else None
        if start is not None and start.step is not None and uses[start.value] == 1:
            before = steps[start.step]
            if _continues(graph, before, form):
                before.value = value
                before.forms.append(form)
                before.operands.append(tuple(sources))
                step_of[value] = start.step
                continue
        step_of[value] = len(steps)
        steps.append(ValueStep(value, [form], [tuple(sources)], start))
    return _finished(
        Group(regions, tuple(steps), {value: step_of[value] for value in materialized}, frozenset(), stored)
    )


def _continues(graph: _Graph, before: ValueStep, form: int) -> bool:
    """Whether an instruction of this form goes on with the chain of a step."""
    last, instr = (graph.values.forms[number] for number in (before.forms[-1], form))
    of = [(example.opcode, example.unit, example.roles) for example in (last, instr)]
    return instr.opcode == "mma" and of[0] == of[1]


def _placed(source: PanelSource, home: _Home, step_of: Mapping[int, int], materialized: Collection[int]) -> PanelSource:
    """A source of a value with this home, from the panel's first element."""
    row = source.row if source.axes & ROWS_FIXED else source.row + home.row
    col = source.col if source.axes & COLS_FIXED else source.col + home.col
    step = None if source.value in materialized else step_of.get(source.value)
    return replace(source, row=row, col=col, step=step)


def _finished(group: Group) -> Group:
    """The group, in which each step says which results are not read after it."""
    last: dict[int, int] = {}
    for number, step in enumerate(group.steps):
        for source in step.sources:
            if source.step is not None:
                last[source.step] = number
    results = set(group.results.values())
    for step_number, reader in last.items():
        if step_number not in results:
            group.steps[reader].finished.append(step_number)
    return group


def _constants(graph: _Graph, used: Collection[int]) -> dict[int, ValueStep]:
    """The constants that are read, and those that they are made of, in order."""
    needed = {value for value in used if graph.free[value]}
    for value in range(len(graph.kinds) - 1, -1, -1):
        if value in needed:
            needed |= {source.value for source in graph.operands[value]}
    steps: dict[int, ValueStep] = {}
    for value in sorted(needed):
        if graph.kinds[value] != RESULT:
            continue
        form, sources = graph.forms[value], list(graph.operands[value])
        start = sources.pop() if len(sources) > len(graph.values.formats[form]) - 1 else None
        steps[value] = ValueStep(value, [form], [tuple(sources)], start)
    return steps
