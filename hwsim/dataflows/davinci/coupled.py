"""The dataflow of coupled DaVinci cores (Ascend 910A): cube, vector unit and all buffers are in one core.

Algorithm 1 of SGEMM-cube (arXiv 2507.23387) on each core of a grid: block rows of A are dealt over its rows, block
columns of B over its columns (the paper's grid has one column), slices of K over layers. Groups of N_fused blocks of A
stay in L1 while B is streamed through L1, L0A and L0B, single- or double-buffered; a finished block of C goes
through UB to global memory by read, add, write. Each group is accumulated in L0C from zero and added to C by the vector
unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows import exact_sums
from hwsim.dataflows import options as declared
from hwsim.dataflows.davinci import core_grid, cube_kernel, join_ops
from hwsim.dataflows.davinci.core_grid import CoreGrid
from hwsim.dataflows.davinci.coupled_kernel import CoupledKernel
from hwsim.dataflows.davinci.coupled_mapping import alternatives, best_split_k, mapped
from hwsim.dataflows.davinci.coupled_plan import CoupledPlan, OperandSweep
from hwsim.dataflows.davinci.coupled_tiling import Tiling, best_of_each_side
from hwsim.dataflows.davinci.join_ops import OutputEpilogue, SumArrays, TermJoin, exact_passes
from hwsim.dataflows.davinci.open_slices import open_slices
from hwsim.dataflows.davinci.panels import Panels, pack_kernel
from hwsim.dataflows.elementwise import Pass, lower_pass, zero_pass
from hwsim.dataflows.options import BEFORE, IN_KERNEL, buffering_of
from hwsim.dataflows.pieces import OperandArrays
from hwsim.dataflows.protocol import Features, SplitK
from hwsim.dataflows.records import carried, mapping_of, plan_of, whole
from hwsim.dataflows.reductions import LineReduction
from hwsim.errors import InputError
from hwsim.gemm import refusals
from hwsim.gemm.expressions import parts_of
from hwsim.gemm.mapping import KernelMapping, Tile
from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import SLICED, Depth, Expression, OperandSum, TermValue
from hwsim.gemm.schedule import epilogue_format
from hwsim.program.ir import GlobalArray, Kernel, Program

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm

NAME = "davinci"
MOST_TILES = 64  # that a search begins with
PARTS = exact_sums.refuses, join_ops.refuses, cube_kernel.refuses, core_grid.refuses
C_INPUT, BIAS = "C.in", "bias"  # arrays that the epilogue reads
PACKS = declared.PACK_A, declared.PACK_B


class CoupledDataflow:
    """The dataflow of the family davinci (see hwsim.dataflows.protocol).

    Where the plan leaves it open, it chooses how much of K the cube accumulates from zero, so the bits depend on the
    blocking.
    """

    name = NAME
    options: tuple[Option, ...] = declared.COUPLED
    tile_order = ("m", "k", "n")  # the paper's order: (b_m, b_k, b_n)
    features = join_ops.FEATURES | Features(k_group=True, choosers=("eq11",))

    def refuses(self, gemm: Gemm) -> str:
        """What of a record no program carries, by name; empty where there is one."""
        return refusals.of_parts(PARTS, gemm)

    def map(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
        """The record with tile, n_fused and buffering, and with `schedule.promotion_k` where it was open and K is
        longer.

        Raises InputError for a blocking that exceeds the core's memories, UnsupportedError for what its programs do not
        support.
        """
        carried(gemm, NAME, PARTS)
        core = CoupledPlan.of(gemm, gemm.unit, device)
        return mapped(gemm, core, device, options, NAME, self.tile_order)

    def alternatives(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Iterator[Gemm]:
        """Tiles, grids and packed operands with the same K per accumulation; see SearchedDataflow.alternatives."""
        for settings in alternatives(CoupledPlan.of(gemm, gemm.unit, device), gemm, device, options):
            try:
                mapped_gemm = self.map(gemm, device, {**options, **settings})
            except InputError:  # no room for it in UB or L1
                continue
            yield mapped_gemm

    def lower(self, gemm: Gemm, device: Device) -> Program:
        """The program's kernels: split the operands, zero C (or the terms), the GEMM, combine the terms."""
        carried(gemm, NAME, PARTS)
        kernel = _kernel_of(gemm)
        core = CoupledPlan.of(gemm, kernel.instruction, device)
        return _program(gemm, core, kernel, device)

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
        """The best number of slices of K by estimate; None for a mapped record, whose K is not cut again."""
        if gemm.mapping is not None:
            return None
        return best_split_k(gemm, CoupledPlan.of(gemm, gemm.unit, device), device, options, self.tile_order)

    def open_slices(self, gemm: Gemm, device: Device) -> int:
        """The slices of K where a request leaves their number open; see CuttingDataflow.open_slices."""
        return open_slices(gemm, device)

    def facts(self, gemm: Gemm) -> dict[str, Any]:
        """The mapping as results show it: tile, n_fused, buffering, k_group (K accumulated from zero), unit, grid."""
        kernel = _kernel_of(gemm)
        tiling, is_joined = _tiling(kernel), plan_of(gemm).join == "group"
        return {
            "tile": {side: getattr(kernel.tile, side) for side in self.tile_order},
            "n_fused": tiling.n_fused,
            "buffering": buffering_of(kernel.stages),
            "k_group": tiling.promotion_interval(gemm.schedule.promotion_k, is_joined),
            "unit": kernel.instruction,
            **_grid_facts(kernel),
            **({"convert_a": IN_KERNEL} if _convert_a(kernel) == IN_KERNEL else {}),
            **{option.name: True for option in PACKS if _is_set(kernel, option)},
        }

    def tiles(self, gemm: Gemm, device: Device) -> Iterable[Tile]:
        """Initial tiles of a search: for each (b_m, b_n) the b_k with the least estimate, and of those the best few."""
        core = CoupledPlan.of(gemm, gemm.unit, device)
        blocks = best_of_each_side(device, core.unit, core.limits, gemm.problem.sizes)[:MOST_TILES]
        return [Tile(b_m, b_n, b_k) for b_m, b_k, b_n in blocks]


COUPLED = CoupledDataflow()


def _kernel_of(gemm: Gemm) -> KernelMapping:
    possible = declared.CONVERT_A, declared.GRID_ROWS, declared.GRID_COLS, declared.PACK_A, declared.PACK_B
    return mapping_of(gemm, NAME, (declared.N_FUSED,), possible).kernels[0]


def _tiling(kernel: KernelMapping) -> Tiling:
    tile = kernel.tile
    return Tiling(tile.m, tile.k, tile.n, whole(kernel, "n_fused"), kernel.stages)


def _convert_a(kernel: KernelMapping) -> str:
    """Who splits A."""
    return str(next((setting.value for setting in kernel.settings if setting.name == declared.CONVERT_A.name), BEFORE))


def _is_set(kernel: KernelMapping, option: Option) -> bool:
    return any(setting.name == option.name and setting.value for setting in kernel.settings)


def _grid_facts(kernel: KernelMapping) -> dict[str, Any]:
    """The grid of cores as results show it; nothing for records without one."""
    settings = {setting.name: setting.value for setting in kernel.settings}
    names = declared.GRID_ROWS.name, declared.GRID_COLS.name
    return {"grid": [settings[name] for name in names]} if names[0] in settings else {}


def _grid(kernel: KernelMapping, slices: int, cores: int) -> CoreGrid:
    """The grid of cores; block rows of A over all cores where the record names none. slices: of K."""
    if not _grid_facts(kernel):
        return CoreGrid.algorithm_1(cores)
    return CoreGrid.of_request(
        (whole(kernel, declared.GRID_ROWS.name), whole(kernel, declared.GRID_COLS.name)), slices, cores
    )


def _program(gemm: Gemm, core: CoupledPlan, kernel: KernelMapping, device: Device) -> Program:
    """The kernels in order. Where the GEMM kernel splits A, A's pieces are in no array."""
    plan, (m, n, k) = core.plan, gemm.problem.sizes
    tiling, converts_a = _tiling(kernel), _convert_a(kernel) == IN_KERNEL
    lengths = gemm.schedule.slice_lengths(k)
    operands = (
        OperandArrays.of(plan, "a", m, k, gemm.problem.a_layout),
        OperandArrays.of(plan, "b", k, n, gemm.problem.b_layout),
    )
    output, addends = GlobalArray("C", m, n, gemm.output), _addends(gemm)
    join = _term_join(
        gemm, core, operands, OutputEpilogue.of(gemm, addends.get(C_INPUT), addends.get(BIAS), len(lengths))
    )
    is_one_sum = len(lengths) == 1 and (core.is_single or core.is_joined)
    is_direct = is_one_sum and join.is_stored(core.total_format, output.format)
    targets = [output]
    if not is_direct:
        count = 1 if core.is_joined else len(plan.terms)
        targets = [GlobalArray(f"T{i + 1}", m * len(lengths), n, core.total_format) for i in range(count)]
    sums = SumArrays(tuple(targets[:-1] if plan.bounds_product else targets), len(lengths))
    joins = [] if is_direct else _joins(core, join, sums, output, k)
    promotion_interval = tiling.promotion_interval(gemm.schedule.promotion_k, core.is_joined)
    if converts_a:
        core.check_conversion()
    tile_sides = tiling.b_m, tiling.b_n
    panels: list[dict[int, Panels]] = [
        {number: Panels(array, width) for number, array in operand.pieces.items()} if _is_set(kernel, option) else {}
        for operand, width, option in zip(operands, tile_sides, PACKS, strict=True)
    ]
    a = operands[0].source if converts_a else panels[0] or operands[0].pieces
    splits = [work for operand in operands[converts_a:] for work in operand.passes]
    kernels = [lower_pass(work, device, loads_vectors=True) for work in splits]

    def gemm_kernels(sweeps: Sequence[OperandSweep], prefix: str = "") -> list[Kernel]:
        """The kernels that pack what these sweeps read and write +0 where they add, and the product."""
        products = [product for sweep in sweeps for stage in sweep.stages for product in stage]
        written: list[Kernel] = []
        for side, packed in enumerate(panels):
            used = {product[1 + side] for product in products}
            if packed:
                read = [each for piece, each in packed.items() if piece in used]
                written.append(pack_kernel(f"{prefix}pack_{'ab'[side]}", read, device))
        zeroed = targets if core.is_joined else [targets[term] for sweep in sweeps for term in sweep.terms]
        written.append(lower_pass(zero_pass(f"{prefix}zero", zeroed), device))
        product = CoupledKernel(
            core=replace(core, k_sweeps=tuple(sweeps)),
            tiling=tiling,
            promotion_interval=promotion_interval,
            device=device,
            a=a,
            b=panels[1] or operands[1].pieces,
            targets=targets,
            sizes=(m, n, k),
            grid=_grid(kernel, len(lengths), device.cores),
            slice_lengths=lengths,
            name=f"{prefix}gemm",
        )
        return [*written, product.kernel()]

    sweeps, bound = core.k_sweeps, targets[-1]
    if plan.bounds_product:  # the last product comes first
        kernels += gemm_kernels(sweeps[-1:], "bound_")
        sweeps = sweeps[:-1]
        between: list[Pass | LineReduction] = []
        if len(lengths) > 1:
            bound = replace(output, name="T.bound", format=core.total_format)
            total = TermJoin(TermValue(0), bound.format, bound.format, OutputEpilogue())
            between += total.passes("bound_sum", SumArrays(tuple(targets[-1:]), len(lengths)), bound)
        for operand in operands:
            between += operand.bounded_passes(plan, bound)
        kernels += [lower_pass(work, device, loads_vectors=True) for work in between]
    kernels += gemm_kernels(sweeps)
    kernels += [lower_pass(work, device, loads_vectors=True) for work in joins]
    return Program(
        (
            *([operands[0].source] if converts_a else operands[0].arrays),
            *operands[1].arrays,
            *(array for packed in panels for each in packed.values() for array in each.arrays),
            *([bound] if bound is not targets[-1] else ()),
            *(targets if joins else ()),
            *_between(joins, output),
            *addends.values(),
            output,
        ),
        tuple(kernels),
        (*(operand.source.name for operand in operands), *addends),
        output.name,
    )


def _addends(gemm: Gemm) -> dict[str, GlobalArray]:
    """The arrays of C and of the bias that the caller fills, by name."""
    (m, n, _), arrays = gemm.problem.sizes, []
    if gemm.problem.has_c:
        arrays.append(GlobalArray(C_INPUT, m, n, gemm.output))
    if gemm.problem.bias is not None:
        plan = plan_of(gemm)
        end = plan.output_format if plan.arithmetic == "exact" else epilogue_format(plan.arithmetic, gemm.output)
        arrays.append(GlobalArray(BIAS, 1, n, end))
    return {array.name: array for array in arrays}


def _term_join(
    gemm: Gemm, core: CoupledPlan, operands: tuple[OperandArrays, OperandArrays], epilogue: OutputEpilogue
) -> TermJoin:
    """What the sums in memory become: the terms join there, unless they did after every `k_group`."""
    expression: Expression = TermValue(0) if core.is_joined else core.plan.combine
    extra: dict[Expression, GlobalArray | float] = {}
    for part in parts_of(expression):
        if isinstance(part, OperandSum):
            extra[part] = operands[part.side == "b"].vectors["sum"]
        elif isinstance(part, Depth):
            extra[part] = float(part.factor * gemm.problem.k)
    a, b = (operand.vectors for operand in operands)
    powers = (a["exponent"], b["exponent"]) if core.plan.split in SLICED else None
    end = core.plan.output_format if core.is_exact else epilogue_format(core.join_format, gemm.output)
    return TermJoin(expression, core.join_format, end, epilogue, powers, extra)


def _joins(core: CoupledPlan, join: TermJoin, sums: SumArrays, output: GlobalArray, k: int) -> list[Pass]:
    """The passes from the terms' sums to C."""
    if not core.is_exact or join.powers is None:
        return join.passes("combine", sums, output)
    rows = range(0, sums.slices * output.rows, output.rows)
    return exact_passes(core.plan, k, sums.terms, rows, output, join.powers, join.epilogue)


def _between(passes: Sequence[Pass], output: GlobalArray) -> list[GlobalArray]:
    """The arrays that passes hand on to later ones."""
    arrays = {array.name: array for work in passes for array in work.outputs if array.name != output.name}
    return list(arrays.values())
