"""Writes the program of a mapped record: passes that split operands, GEMM kernels, split-K reductions.

Nothing is chosen or estimated here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from hwsim.dataflows import records
from hwsim.dataflows.elementwise import Pass, combine_pass, link_engine, lower_pass
from hwsim.dataflows.exact_sums import RoundedSum, addends_of, largest_of
from hwsim.dataflows.operand_passes import bounded_passes, operand_passes
from hwsim.dataflows.options import A_LAYOUT, B_LAYOUT, K_GROUP, LAUNCHES, SPILLED_ROWS, STAGING, SWAPPED
from hwsim.dataflows.reductions import LineReduction
from hwsim.dataflows.tiled.alike import arrays_between, buffers_between, numbers_between
from hwsim.dataflows.tiled.area_tiles import AreaScheduler, area_tiles
from hwsim.dataflows.tiled.bound import least_cycles
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiled.family import Family
from hwsim.dataflows.tiled.kernel import gemm_kernel
from hwsim.dataflows.tiled.model import SIDES, Blocking, GemmKernel, MatrixRef
from hwsim.dataflows.tiled.partition import BIAS, KernelTerms, Partition, piece_name
from hwsim.dataflows.tiled.parts import designed, footprint, kernel_buffers
from hwsim.dataflows.tiled.spill import LOCAL
from hwsim.dataflows.tiled.split_k_reduction import reduction_pass
from hwsim.dataflows.tiled.storage import recorded_orders
from hwsim.dataflows.tiled.stream_k import StreamKScheduler, stream_k
from hwsim.dataflows.tiled.stream_k_ranges import RangeScheduler
from hwsim.dataflows.tiles import StaticTileScheduler, TileGrid, slices_of, tile_grids
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.layouts import order_named
from hwsim.gemm.plan import TermValue
from hwsim.libraries.model import observed
from hwsim.program.builder import KernelBuilder, StreamBuilder
from hwsim.program.ir import GlobalArray, Kernel, Program
from hwsim.program.rename import renamed

if TYPE_CHECKING:
    from hwsim.dataflows.plan_areas import PlanArea
    from hwsim.devices.device import Device
    from hwsim.gemm.mapping import GemmMapping, KernelMapping, Tile
    from hwsim.gemm.plan import Side
    from hwsim.gemm.problem import Image
    from hwsim.gemm.record import Gemm


SPILLED = SPILLED_ROWS.name  # the setting of a mapping that spills
Scheduler = StaticTileScheduler | StreamKScheduler | RangeScheduler | AreaScheduler
STRIPS = 8  # of columns, at most: each is a loop of its own


class ProgramWriter:
    """Writes the program of one record. areas: the parts of C and K that it computes; none: all."""

    def __init__(self, family: Family, gemm: Gemm, device: Device, areas: Sequence[PlanArea] = ()) -> None:
        self.family, self.gemm, self.device, self.areas = family, gemm, device, tuple(areas)
        self.mapping = mapping_of(gemm, family.name)
        self.m, self.n, self.k = gemm.problem.sizes
        self.matrices = gemm.problem.matrices
        self.lengths = gemm.schedule.slice_lengths(self.k)
        unit = self.mapping.kernels[0].instruction
        orders = recorded_orders(gemm)
        adds_earlier = any(area.adds for area in areas)
        self.partition = Partition(
            gemm=gemm,
            device=device,
            family=family,
            unit=unit,
            orders=orders,
            is_sliced=len(self.lengths) > 1,
            adds_earlier=adds_earlier,
        )
        self.arrays: dict[str, GlobalArray] = {}
        self.kernels: list[Kernel] = []
        #: A and B, as `bounded_passes` takes them
        self.unbounded: list[tuple[Side, GlobalArray, dict[int, GlobalArray], dict[str, GlobalArray]]] = []
        self.schedulers: dict[tuple[Tile, int, tuple[int, int]], Scheduler] = {}
        self.written: list[tuple[KernelMapping, GemmKernel, Kernel]] = []  # GEMM kernels and what they were made from

    def program(self) -> Program:
        """The complete program."""
        partition = self.partition
        self._declare(partition.output)
        inputs = [self._operand(side) for side in range(2)] + self._scale_inputs() + self._addend_inputs()
        terms = [kernel.terms for kernel in self.mapping.kernels]
        parts = partition.of(terms)
        if [part.terms for part in parts] != terms:
            allowed = [list(part.terms) for part in parts]
            raise InputError(f"gemm record: kernels of terms {[list(x) for x in terms]}; allowed here: {allowed}")
        self._local(parts)
        works = list(zip(parts, self.mapping.kernels, strict=True))
        if partition.plan.bounds_product:  # the last product comes first
            part, mapping = works.pop()
            self._gemm(part, partition.kernel(part), mapping)
            self._bounded(self.arrays[part.target])
        for part, mapping in works:
            self._gemm(part, partition.kernel(part), mapping)
        if parts[0].target != "C":
            self._combine()
        arrays, kernels = tuple(self.arrays.values()), tuple(self.kernels)
        return Program(arrays, kernels, tuple(inputs), "C")

    def epilogue(self) -> Program:
        """The program that applies the record's epilogue to a sum that is there, its first input."""
        partition = self.partition
        total = self._declare(MatrixRef("sum", partition.sums))
        inputs = [total.name, *self._addend_inputs()]
        epilogue = partition.epilogue(KernelTerms(partition.everything, TermValue(0)))
        addends = [self._declare(matrix) for matrix in epilogue.addends]
        target = self._declare(epilogue.target)
        self._pass(reduction_pass("epilogue", [total], addends, target, epilogue, 1, vectors=self.arrays))
        return Program(tuple(self.arrays.values()), tuple(self.kernels), tuple(inputs), "C")

    def _scale_inputs(self) -> list[str]:
        """Declare the scales of A and B, and the factors of whole operands; returns their names, A's first."""
        scales = [operand.scale for operand in self.gemm.problem.operands]
        inputs = []
        for side, scale in enumerate(scales):
            if scale is not None:
                blocks = 1 if scale.k is None else -(-self.k // scale.k)
                lines = 1 if scale.rows is None else (self.m, self.n)[side]
                # cuBLASLt's layout: scales of 128 rows of A, or columns of B, lie together.
                rows, cols, order = (lines, blocks, "columns") if side == 0 else (blocks, lines, "rows")
                name = f"{SIDES[side]}.scale"
                self.arrays[name] = GlobalArray(name, rows, cols, scale.format, order_named(order))
                inputs.append(name)
        if any(scale is not None and scale.is_two_level for scale in scales):
            for letter in SIDES:
                name = f"{letter}.factor"
                self.arrays[name] = GlobalArray(name, 1, 1, "fp32")
                inputs.append(name)
        return inputs

    def _addend_inputs(self) -> list[str]:
        """Declare C and the bias, where the record reads them; returns their names."""
        inputs = []
        if self.gemm.problem.has_c:
            inputs.append(self._declare(MatrixRef("C.in", self.partition.output.format)).name)
        if self.gemm.problem.bias is not None:
            self.arrays[BIAS] = GlobalArray(BIAS, 1, self.n, self.partition.end)
            inputs.append(BIAS)
        return inputs

    def _local(self, parts: Sequence[KernelTerms]) -> None:
        """Declare the local memory of kernels that spill."""
        first, terms = self.mapping.kernels[0], max(len(part.terms) for part in parts)
        rows = spilled_rows(first)
        if rows:
            height, accumulator = self.device.cores * terms * rows, self.partition.model.d
            self.arrays[LOCAL] = GlobalArray(LOCAL, height, first.tile.n, accumulator)

    def _declare(self, matrix: MatrixRef, blocks: int = 1) -> GlobalArray:
        """Declare an array for a matrix of the size of C, or for `blocks` of them one below another."""
        array = GlobalArray(matrix.name, blocks * self.matrices * self.m, self.n, matrix.format, matrix.order)
        return self.arrays.setdefault(matrix.name, array)

    # --- operands ----------------------------------------------------------------------------------------------

    def _operand(self, side: int) -> str:
        """Declare the arrays of A or B and the passes that make its pieces; returns the name of the input."""
        plan, name = self.partition.plan, SIDES[side]
        order, made_order = self.partition.orders[side], self.partition.loaded_order(side)
        rows, cols = (self.m, self.k) if side == 0 else (self.k, self.n)
        rows *= self.matrices
        rules = (plan.a_pieces, plan.b_pieces)[side]
        image = self.gemm.problem.image if side == 0 else None
        if image is not None:
            if (order, made_order) != ("rows", "rows"):
                raise UnsupportedError("a convolution's image is stored pixel by pixel: a_layout=rows")
            rows, cols = self.matrices * image.rows, image.cols
        if not self.partition.is_made(side):
            bits = self.partition.element_bits(side)
            array = GlobalArray(name, rows, cols, plan.input_format, order, element_bits=bits)
            return self._in_memory(array, image).name
        source = GlobalArray(f"{name}.in", rows, cols, plan.input_format, order)
        declared, vectors = source, self.partition.vectors[side]
        if image is not None and vectors:  # numbers of a row are of a window: the pieces are made of all windows
            declared = self._in_memory(source, image)
            source, image = self.arrays[source.name], None
            rows, cols = source.rows, source.cols
        self.arrays[source.name] = source
        used = self.partition.used(side, self.partition.everything)
        pieces = {
            p: self._in_memory(
                GlobalArray(
                    piece_name(side, p, rules),
                    rows,
                    cols,
                    rules[p].format,
                    made_order,
                    element_bits=self.partition.element_bits(side),
                ),
                image,
            )
            for p in used
        }
        letter: Side = "a" if side == 0 else "b"
        self.arrays.update({array.name: array for array in vectors.values()})
        for work in operand_passes(plan, letter, source, pieces, vectors, self.matrices):
            self._pass(work)
        self.unbounded.append((letter, source, pieces, vectors))
        return declared.name

    def _bounded(self, product: GlobalArray) -> None:
        """The passes that make the pieces of A and B, once there is the product that bounds the others."""
        for letter, source, pieces, vectors in self.unbounded:
            for work in bounded_passes(self.partition.plan, letter, source, pieces, vectors, product, self.matrices):
                self._pass(work)

    def _in_memory(self, array: GlobalArray, image: Image | None) -> GlobalArray:
        """Declare an operand as it lies in memory; returns it. Of a convolution that is the image, and its name is that
        of the A matrix, which only the GEMM kernels see.
        """
        if image is None:
            self.arrays[array.name] = array
            return array
        stored = replace(array, name=f"{array.name}.image")
        seen = replace(
            array,
            rows=self.matrices * self.m,
            cols=self.k,
            of=stored.name,
            reads=self.matrices * image.read,
            windows=image.windows,
        )
        self.arrays.update({stored.name: stored, seen.name: seen})
        return stored

    def _pass(self, work: Pass | LineReduction) -> None:
        self.kernels.append(lower_pass(work, self.device))

    # --- kernels -----------------------------------------------------------------------------------------------

    def _gemm(self, part: KernelTerms, kernel: GemmKernel, mapping: KernelMapping) -> None:
        """One GEMM kernel, and the merge of its slices."""
        design = designed(self.device, self.family, kernel, blocking_of(mapping))
        scheduler = self.scheduler(mapping)
        self._declare(kernel.epilogue.target, len(self.lengths) if kernel.epilogue.partial else 1)
        for matrix in kernel.epilogue.partial:
            self._declare(matrix, len(self.lengths))
        if kernel.workspace is not None:
            work = kernel.workspace
            self.arrays[work.name] = GlobalArray(work.name, scheduler.workspace_rows, mapping.tile.n, work.format)
        if counts_tiles(self.family, self.device, scheduler.tile_count):
            self.kernels.append(self._tile_counter)
        self.kernels.append(self._lowered(design, scheduler, mapping))
        if self.partition.is_sliced:
            self._merge(part, kernel)

    def most_stages(self, most: int) -> int:
        """The stages that fit for all GEMM kernels, at most `most`."""
        capacities = {name: memory.capacity_bytes for name, memory in self.device.memories.items()}
        parts = self.partition.of([kernel.terms for kernel in self.mapping.kernels])
        for part, mapping in zip(parts, self.mapping.kernels, strict=True):
            design = designed(self.device, self.family, self.partition.kernel(part), blocking_of(mapping))
            most = footprint(design).most_stages(most, capacities, self.device.name)
        return most

    def least_cycles(self) -> float:
        """The cycles that the GEMM kernels need at least, without their programs; 0 where tiles share their K."""
        parts = self.partition.of([kernel.terms for kernel in self.mapping.kernels])
        total = 0.0
        for part, mapping in zip(parts, self.mapping.kernels, strict=True):
            scheduler = self.scheduler(mapping)
            if not isinstance(scheduler, StaticTileScheduler):
                return 0.0
            kernel = self.partition.kernel(part)
            total += least_cycles(designed(self.device, self.family, kernel, blocking_of(mapping)), scheduler.grids)
        return total

    def _lowered(self, design: KernelDesign, scheduler: Scheduler, mapping: KernelMapping) -> Kernel:
        """The GEMM kernel; a renamed copy if one that differs only in its pieces has been written (see `alike`)."""
        nameless = replace(mapping, name="", terms=())
        for known, like, kernel in self.written:
            if known == nameless and numbers_between(like, design.kernel) is not None:
                buffers = buffers_between(kernel, kernel_buffers(design))
                if buffers is not None:
                    return renamed(kernel, design.kernel.name, arrays_between(like, design.kernel), buffers)
        kernel_written = gemm_kernel(design, scheduler, self.gemm.problem.sizes, self.matrices)
        self.written.append((nameless, design.kernel, kernel_written))
        return kernel_written

    def scheduler(self, mapping: KernelMapping) -> Scheduler:
        """The tile scheduler of a kernel; kernels with equal tiles share one."""
        key = mapping.tile, mapping.swizzle, mapping.cluster
        known = self.schedulers.get(key)
        if known is None:
            known = self.schedulers[key] = tile_scheduler(self.gemm, self.device, mapping, self.areas)
        return known

    @cached_property
    def _tile_counter(self) -> Kernel:
        """The memset of the counter that hands out tiles; it moves no data of the program."""
        seen = observed(self.device)
        assert seen is not None and seen.tile_counter_us is not None
        engine = link_engine(self.device, self.family.registers, "GM")
        cycles = seen.tile_counter_us * self.device.clock_mhz / self.device.engines[engine].sync_cycles
        stream = StreamBuilder("memset")
        stream.emit(engine, "sync", repeat=math.ceil(cycles))
        builder = KernelBuilder("tile_counter")
        builder.group(0, 1, stream)
        return builder.finish()

    def _merge(self, part: KernelTerms, kernel: GemmKernel) -> None:
        """The merge of slices in order, with the epilogue that a kernel without split-K has."""
        epilogue = self.partition.epilogue(part)
        addends = [self._declare(matrix) for matrix in epilogue.addends]
        target = self._declare(epilogue.target)
        self._pass(
            reduction_pass(
                f"merge_{kernel.name}",
                [self.arrays[matrix.name] for matrix in kernel.epilogue.partial],
                addends,
                target,
                epilogue,
                len(self.lengths),
                vectors=self.arrays,
                matrices=self.matrices,
                joined=kernel.joined,
            )
        )

    def _combine(self) -> None:
        """The pass that combines terms from arrays of their own to C."""
        partition, plan = self.partition, self.partition.plan
        joined = tuple(range(len(plan.joined_terms)))
        terms = [self.arrays[f"T{t + 1}"] for t in joined]
        if partition.is_exact:
            self._add_exactly(terms)
            return
        epilogue = partition.epilogue(KernelTerms(joined, plan.combine))
        is_plain = epilogue.alpha == 1 and not epilogue.addends and not epilogue.bias and not epilogue.extra
        is_plain = is_plain and epilogue.powers is None
        if is_plain and {array.format for array in terms} == {self.arrays["C"].format} == {epilogue.join_format}:
            self._pass(combine_pass("combine", plan.combine, terms, self.arrays["C"]))
            return
        addends = [self._declare(matrix) for matrix in epilogue.addends]
        matrices, arrays = self.matrices, self.arrays
        self._pass(
            reduction_pass("combine", terms, addends, arrays["C"], epilogue, 1, vectors=arrays, matrices=matrices)
        )

    def _add_exactly(self, terms: Sequence[GlobalArray]) -> None:
        """The passes that add up terms without a rounding, and the one that applies an epilogue to the rounded sum."""
        partition, plan = self.partition, self.partition.plan
        sum_of = KernelTerms(partition.everything, TermValue(0))
        rounded = replace(partition.epilogue(sum_of), powers=None, join_format=plan.output_format)
        target = self.arrays["C"] if partition.is_plain else self._declare(MatrixRef("C.sum", plan.output_format))
        powers = tuple(vectors["exponent"] for vectors in partition.vectors)
        sums = RoundedSum(
            addends_of(plan, terms), largest_of(plan, self.k), target, (powers[0], powers[1]), self.matrices
        )
        for work in sums.passes("combine"):
            self.arrays.update({array.name: array for array in work.outputs})
            self._pass(work)
        if not partition.is_plain:
            addends = [self._declare(matrix) for matrix in rounded.addends]
            self._pass(reduction_pass("epilogue", [target], addends, self.arrays["C"], rounded, 1, vectors=self.arrays))


def tile_scheduler(gemm: Gemm, device: Device, mapping: KernelMapping, areas: Sequence[PlanArea] = ()) -> Scheduler:
    """The tile scheduler of a kernel, over `areas` where there are any; mapping.swizzle 0: a band width that suits L2.

    Where L2 does not hold B, the columns are in strips (`tile_grids`), as bands of all rows are on the chip. Raises
    UnsupportedError for regions of the schedule that no program carries.
    """
    m, n, k = gemm.problem.sizes
    slices = slices_of(gemm.schedule.slice_lengths(k))
    tile, matrices = (mapping.tile.m, mapping.tile.n), gemm.problem.matrices
    l2_bytes = device.l2.capacity_bytes if device.l2 is not None else 0
    strips = STRIPS if l2_bytes and n * k * format_of(gemm.problem.input_format).bits // 8 > l2_bytes else 1
    cluster = mapping.cluster[0]

    def grids(rows: int, cols: int) -> list[TileGrid]:
        return tile_grids(rows, cols, slices, matrices, tile, mapping.swizzle, device.cores, cluster, strips)

    def grids_of_area(rows: int, cols: int, depth: int) -> list[TileGrid]:
        return tile_grids(rows, cols, slices_of([depth]), 1, tile, mapping.swizzle, device.cores, cluster, strips)

    if areas:
        return area_tiles(areas, grids_of_area, device.cores)
    if gemm.schedule.regions:
        return stream_k(gemm.schedule, (m, n, k), (*tile, mapping.tile.k), grids, device.cores)
    return StaticTileScheduler(tuple(grids(m, n)), device.cores, matrices)


def counts_tiles(family: Family, device: Device, tiles: int) -> bool:
    """Whether the library clears a tile counter before a kernel with this number of tiles."""
    seen = observed(device)
    if seen is None or not seen.tile_counter_us or seen.tile_counter_tiles is None:
        return False
    return family.persistent and tiles > seen.tile_counter_tiles * device.cores


def mapping_of(gemm: Gemm, dataflow: str) -> GemmMapping:
    """The record's mapping. Raises InputError where it has none, or not one that `dataflow` wrote."""
    return records.mapping_of(gemm, dataflow, (K_GROUP, LAUNCHES), (STAGING, SPILLED_ROWS, SWAPPED, A_LAYOUT, B_LAYOUT))


def is_staged(mapping: KernelMapping) -> bool:
    """Whether a kernel's operands wait in shared memory."""
    return not any(setting.name == STAGING.name and setting.value == "none" for setting in mapping.settings)


def spilled_rows(mapping: KernelMapping) -> int:
    """Rows of each accumulator that lie in local memory between blocks of K."""
    return next(
        (setting.value for setting in mapping.settings if setting.name == SPILLED and isinstance(setting.value, int)), 0
    )


def is_swapped(mapping: KernelMapping) -> bool:
    """Whether the instruction's rows are columns of C."""
    return any(setting.name == SWAPPED.name and setting.value is True for setting in mapping.settings)


def blocking_of(mapping: KernelMapping) -> Blocking:
    """The blocking of a kernel of the record. Raises InputError where it has no warp."""
    tile = mapping.tile
    if mapping.warp is None:
        raise InputError(f"gemm record: kernel {mapping.name} has no warp (m, n of C that one warp owns)")
    cores, spilled = mapping.cta_group, spilled_rows(mapping)
    return Blocking(
        m=tile.m,
        n=tile.n,
        k=tile.k,
        warp=mapping.warp,
        stages=mapping.stages,
        accumulators=mapping.accumulators,
        cores=cores,
        spilled=spilled,
        swapped=is_swapped(mapping),
    )


def launches(partition: Partition, parts: Sequence[KernelTerms], tiles: int) -> int:
    """The number of device kernels of the program, passes included. tiles: of each GEMM kernel."""
    plan = partition.plan
    count = 0
    sides: tuple[tuple[int, Side], ...] = ((0, "a"), (1, "b"))
    for side, letter in sides:
        rules = (plan.a_pieces, plan.b_pieces)[side]
        if partition.is_made(side):
            pieces = {p: GlobalArray("", 1, 1, rules[p].format) for p in partition.used(side, partition.everything)}
            source = GlobalArray("", 1, 1, plan.input_format)
            vectors = partition.vectors[side]
            count += len(operand_passes(plan, letter, source, pieces, vectors))
            if plan.bounds_product:
                count += len(bounded_passes(plan, letter, source, pieces, vectors, source))
    each = 1 + counts_tiles(partition.family, partition.device, tiles) + partition.is_sliced
    return count + each * len(parts) + _joins(partition, parts)


def _joins(partition: Partition, parts: Sequence[KernelTerms]) -> int:
    """The number of passes that join terms from matrices of their own, and apply the epilogue."""
    plan, array = partition.plan, GlobalArray("", 1, 1, partition.sums)
    if not partition.is_exact:
        return int(parts[0].target != "C")
    target = GlobalArray("", 1, 1, partition.output.format if partition.is_plain else plan.output_format)
    sums = RoundedSum(
        addends_of(plan, [array] * len(plan.terms)), largest_of(plan, partition.gemm.problem.k), target, (array, array)
    )
    return len(sums.passes("")) + (not partition.is_plain)
