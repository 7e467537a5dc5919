"""The functional machine: computes the bits of a program. It knows no time and no scheme.

What a kernel computes is known before its codes are: values (hwsim.machines.kernel_values), and the order in which they
are computed (hwsim.machines.kernel_plan). A backend computes each value over many tiles of all cores at once, panel by
panel. The bits do not depend on the panels, nor on the number of threads that they are divided over. A product whose K
is not a multiple of the instruction's is padded with zeros, as in the direct evaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.vector import VectorUnit, gives_all_ones
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, instruction
from hwsim.devices.special_functions import special_functions
from hwsim.formats import Format, code_dtype, format_of
from hwsim.host.threads import for_elements, worth_starting
from hwsim.machines.chained_products import ChainedProduct, ChainedProducts
from hwsim.machines.kernel_plan import PANEL_ELEMENTS, Group, KernelPlan, PanelSource, ValueStep, plan_of
from hwsim.machines.kernel_values import ARRAY, COLS_FIXED, ROWS_FIXED, ZERO
from hwsim.machines.matrix_regions import MatrixRegion
from hwsim.machines.mma_product import check_products
from hwsim.machines.views import fill_views
from hwsim.machines.words import as_read
from hwsim.program.ir import REDUCING, Program

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device

Codes = NDArray[Any]
LANE_ELEMENTS = 1 << 16  # of a panel of elementwise work alone
PANEL_COLS = 1 << 10
LEAST_ROWS = 8  # of a panel, where threads share a region


def run(
    program: Program,
    device: Device,
    inputs: Mapping[str, Codes],
    *,
    threads: int = 1,
    progress: Callable[[float], None] | None = None,
    backend: Backend = CPU,
    before_kernel: Callable[[int, Mapping[str, Codes]], None] | None = None,
) -> Codes:
    """Execute a program and return the codes of its output array.

    inputs: for each name in `program.inputs`, codes of the array's shape and format. threads: host threads.
    progress: called with the share of the work done, 0 to 1. backend: computes the bits. before_kernel: called with
    the number of each kernel and global memory at its begin. Raises ProgramError when the program deadlocks.
    """
    check_products(program)
    inputs = as_read(program, device, inputs, backend)
    arrays: dict[str, Codes] = {}
    for array in program.arrays:
        codes = inputs.get(array.name)
        if codes is None:
            codes = backend.zeros((array.rows, array.cols), code_dtype(format_of(array.format)))
        arrays[array.name] = codes
    all_ones = any(gives_all_ones(dot_spec(device, unit)) for unit in program.units)
    vector = VectorUnit(device.vector, backend, all_ones, partial(special_functions, device))
    for number, kernel in enumerate(program.kernels):
        fill_views(program, kernel, arrays, backend)
        if before_kernel is not None:
            before_kernel(number, arrays)
        plan = plan_of(kernel, program.arrays, device)
        untouched = frozenset([name for name, codes in inputs.items() if arrays.get(name) is codes])
        _KernelRun(plan, program, device, arrays, vector, backend, untouched=untouched).run(threads)
        if progress is not None:
            progress((number + 1) / len(program.kernels))
    return arrays[program.output]


class _KernelRun:
    """The execution of one kernel. arrays: global memory by name; what the kernel writes is put there. untouched: the
    arrays that are still the caller's inputs, which stay as they are.
    """

    def __init__(
        self,
        plan: KernelPlan,
        program: Program,
        device: Device,
        arrays: dict[str, Codes],
        vector: VectorUnit,
        backend: Backend,
        *,
        untouched: frozenset[str],
    ) -> None:
        self.untouched = untouched
        self.plan, self.device, self.backend, self.vector, self.memory = plan, device, backend, vector, arrays
        self.names = [array.name for array in program.arrays]
        self.formats = {array.name: array.format for array in program.arrays}
        values = plan.values
        self.kinds, self.forms = (values.values[:, column].tolist() for column in range(2))
        self.instrs, self.tiles = values.forms, [[format_of(name) for name in names] for names in values.formats]
        self.read_arrays = [arrays[name] for name in self.names]
        self.written: dict[int, Codes] = {}
        self.materialized: dict[int, list[tuple[MatrixRegion, Codes]]] = {}
        self.constants: dict[int, Codes] = {}

    def run(self, threads: int) -> None:
        """Execute the kernel with `threads` host threads."""
        with np.errstate(all="ignore"):
            for value, step in self.plan.constants.items():
                self.constants[value] = self._computed(step, MatrixRegion(0, 0, 1, 1), {}, None, 1)
            for value, target in self.plan.copies:
                region = target.region.moved(target.rows, target.cols)
                to = self._target(target.array)
                to[_slices(target.region)] = self._codes_of(value, region, to.dtype)
            for group in self.plan.groups:
                self._group(group, threads)
        for array, codes in self.written.items():
            self.memory[self.names[array]] = codes

    def _target(self, array: int) -> Codes:
        """A global array to write; a copy where the kernel reads it as at its begin, and of the caller's array."""
        if array not in self.written:
            codes = self.read_arrays[array]
            is_copied = array in self.plan.read or self.names[array] in self.untouched
            self.written[array] = codes.copy() if is_copied else codes
        return self.written[array]

    def _group(self, group: Group, threads: int) -> None:
        for targets in group.stored.values():
            for target in targets:
                self._target(target.array)  # before threads ask for it
        if group.overlay is not None:
            (region,) = group.regions
            codes = self._overlay(group.overlay)
            self._deliver(group, group.overlay, region, codes)
            self.materialized[group.overlay] = [(region, codes)]
        else:
            for value in group.results:
                dtype = code_dtype(self.tiles[self.forms[value]][0])
                if value in group.materialized:
                    self.materialized[value] = [
                        (region, self.backend.empty((region.rows, region.cols), dtype)) for region in group.regions
                    ]
            self._panels(group, threads)
        for value in group.unused:
            del self.materialized[value]

    def _panels(self, group: Group, threads: int) -> None:
        """Compute a group, with threads over panels, or over the rows of products where there are few panels. No more
        than `threads`, and no more than pay for its work.
        """
        chains = {
            number: self._chain(step)
            for number, step in enumerate(group.steps)
            if self.instrs[step.forms[0]].opcode == "mma"
        }
        size = sum(region.size for region in group.regions)
        macs = size * sum(product.k for chain in chains.values() for product in chain.products)
        of_lanes = for_elements(threads, size * (len(group.steps) - len(chains)))
        threads = max(worth_starting(threads, macs), of_lanes)
        elements = PANEL_ELEMENTS if chains else LANE_ELEMENTS
        panels: list[MatrixRegion] = []
        for region in group.regions:
            cols = min(region.cols, PANEL_COLS)
            rows = max(LEAST_ROWS, elements // cols)
            if threads > 1:
                rows = max(LEAST_ROWS, min(rows, -(-region.rows // threads)))
            panels += region.panels(rows, cols)
        if threads == 1 or len(panels) == 1:
            for panel in panels:
                self._panel(group, panel, chains, threads)
            return
        with ThreadPoolExecutor(threads) as pool:
            started = [pool.submit(self._panel, group, panel, chains, 1) for panel in panels]
            try:
                for done in started:
                    done.result()
            except BaseException:  # an interrupt among them: begin no further panel
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _panel(self, group: Group, panel: MatrixRegion, chains: Mapping[int, ChainedProducts], threads: int) -> None:
        values: dict[int, Codes] = {}
        with np.errstate(all="ignore"):  # of this thread
            for number, step in enumerate(group.steps):
                values[number] = self._computed(step, panel, values, chains.get(number), threads)
                for other in step.finished:
                    del values[other]
        for value, number in group.results.items():
            self._deliver(group, value, panel, values[number])
            if value in group.materialized:
                for region, codes in self.materialized[value]:
                    if region.covers(panel):
                        codes[_slices(panel.moved(-region.row, -region.col))] = values[number]

    def _deliver(self, group: Group, value: int, panel: MatrixRegion, codes: Codes) -> None:
        """Write a panel's part of a value to the arrays that hold it."""
        for target in group.stored.get(value, ()):
            part = target.region.moved(target.rows, target.cols).meet(panel)
            if part is not None:
                place = part.moved(-target.rows, -target.cols)
                self.written[target.array][_slices(place)] = codes[_slices(part.moved(-panel.row, -panel.col))]

    def _computed(
        self,
        step: ValueStep,
        panel: MatrixRegion,
        values: Mapping[int, Codes],
        chain: ChainedProducts | None,
        threads: int,
    ) -> Codes:
        """The codes of a step's value over a panel."""
        form = step.forms[0]
        formats = self.tiles[form]

        def read(source: PanelSource, fmt: Format) -> Codes:
            if source.step is not None:
                return values[source.step]
            return self._codes_of(source.value, source.of(panel), code_dtype(fmt))

        if self.instrs[form].opcode == "mma":
            start = None if step.start is None else read(step.start, formats[0])
            of_role = dict(zip(self.instrs[form].roles, formats[1:], strict=True))
            chain = chain or self._chain(step)
            return chain.run(
                lambda chained: {role: read(source, of_role[role]) for role, source in chained.operands.items()},
                start,
                self.backend,
                threads,
            )
        sources = [(read(x, fmt), fmt) for x, fmt in zip(step.operands[0], formats[1:], strict=True)]
        out = self.backend.empty((panel.rows, panel.cols), code_dtype(formats[0]))
        reduced = _fixed_axes(step.operands[0][0]) if self.instrs[form].opcode in REDUCING else None
        self.vector.execute(self.instrs[form], (out, formats[0]), sources, reduced)
        return out

    def _chain(self, step: ValueStep) -> ChainedProducts:
        unit = self.instrs[step.forms[0]].unit
        assert unit is not None
        products = [
            ChainedProduct(dict(zip(self.instrs[form].roles, sources, strict=True)), self.instrs[form].scale_exponent)
            for form, sources in zip(step.forms, step.operands, strict=True)
        ]
        return ChainedProducts(dot_spec(self.device, unit), instruction(self.device, unit), products)

    def _codes_of(self, value: int, region: MatrixRegion, dtype: np.dtype[Any]) -> Codes:
        """The codes of a region of a value that is there. dtype: of memory that nobody wrote."""
        if self.kinds[value] == ARRAY:
            stored: Codes = self.read_arrays[self.forms[value]][_slices(region)]
            return stored
        if self.kinds[value] == ZERO or value in self.constants:
            cell = self.constants[value] if value in self.constants else self.backend.zeros((1, 1), dtype)
            same: Codes = np.broadcast_to(cell, (region.rows, region.cols))
            return same
        for held, codes in self.materialized[value]:
            if held.covers(region):
                inner: Codes = codes[_slices(region.moved(-held.row, -held.col))]
                return inner
        out = np.empty_like(self.materialized[value][0][1], shape=(region.rows, region.cols))
        for held, codes in self.materialized[value]:
            part = held.meet(region)
            if part is not None:
                out[_slices(part.moved(-region.row, -region.col))] = codes[_slices(part.moved(-held.row, -held.col))]
        return out

    def _overlay(self, value: int) -> Codes:
        """The codes of an overlay: layers laid over one another, in the bytes of a slot where they are of one."""
        first, count = self.plan.values.values[value, [1, 3]].tolist()
        layers = self.plan.values.layers[first : first + count].tolist()
        layout, *place = layers[0][:5]
        wanted = MatrixRegion(*place)
        name, width = self.plan.values.layouts[layout]
        if not width:  # a global array
            out = self.backend.empty((wanted.rows, wanted.cols), code_dtype(format_of(name)))
            for _, *place, source, row, col in layers:
                part = MatrixRegion(*place).meet(wanted)
                if part is not None:
                    codes = self._codes_of(source, part.moved(row, col), out.dtype)
                    out[_slices(part.moved(-wanted.row, -wanted.col))] = codes
            return out
        layouts = [self.plan.values.layouts[layer[0]] for layer in layers]
        size = max(
            (layer[1] + layer[3]) * row_width * code_dtype(format_of(fmt)).itemsize
            for layer, (fmt, row_width) in zip(layers, layouts, strict=True)
        )
        memory = self.backend.zeros((size,), np.uint8)
        for (_, *place, source, row, col), (fmt, row_width) in zip(layers, layouts, strict=True):
            part, dtype = MatrixRegion(*place), code_dtype(format_of(fmt))
            _in_slot(memory, part, row_width, dtype)[...] = self._codes_of(source, part.moved(row, col), dtype)
        return _in_slot(memory, wanted, width, code_dtype(format_of(name))).copy()


def _in_slot(memory: Codes, part: MatrixRegion, width: int, dtype: np.dtype[Any]) -> Codes:
    """A tile of a slot's bytes, whose rows have `width` elements."""
    rows = part.row + part.rows
    flat = memory[: rows * width * dtype.itemsize].view(dtype).reshape(rows, width)
    return flat[part.row :, part.col : part.col + part.cols]


def _fixed_axes(source: PanelSource) -> tuple[int, ...]:
    """The axes along which all elements of a panel take the same of a source."""
    return tuple([axis for axis, bit in enumerate((ROWS_FIXED, COLS_FIXED)) if source.axes & bit])


def _slices(region: MatrixRegion) -> tuple[slice, slice]:
    return slice(region.row, region.row + region.rows), slice(region.col, region.col + region.cols)
