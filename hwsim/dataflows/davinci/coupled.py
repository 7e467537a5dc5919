"""The dataflow of coupled DaVinci cores (Ascend 910A): cube, vector unit and all buffers are in one core.

Algorithm 1 of SGEMM-cube (arXiv 2507.23387) on each core of a grid: block rows of A are dealt over its rows, block
columns of B over its columns (the paper's grid has one column), slices of K over layers. Groups of N_fused blocks of A
stay in L1 while B is streamed through L1, L0A and L0B, single- or double-buffered; a finished block of C goes
through UB to global memory by read, add, write. Each group is accumulated in L0C from zero and added to C by the vector
unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hwsim.dataflows import options as declared
from hwsim.dataflows.davinci.core_grid import CoreGrid
from hwsim.dataflows.davinci.coupled_kernel import CoupledKernel
from hwsim.dataflows.davinci.coupled_mapping import best_split_k, mapped
from hwsim.dataflows.davinci.coupled_plan import CoupledPlan
from hwsim.dataflows.davinci.coupled_tiling import Tiling, best_of_each_side
from hwsim.dataflows.davinci.join_ops import OutputEpilogue, SumArrays, join_pass
from hwsim.dataflows.elementwise import (
    WORD_BITS,
    Pass,
    lower_pass,
    placeholder_pass,
    zero_pass,
)
from hwsim.dataflows.options import BEFORE, IN_KERNEL, buffering_of
from hwsim.dataflows.pieces import OperandArrays
from hwsim.dataflows.protocol import Features, SplitK
from hwsim.dataflows.records import check_carried, mapping_of, plan_of, whole
from hwsim.formats import format_of
from hwsim.gemm.mapping import KernelMapping, Tile
from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import TermValue
from hwsim.program.ir import GlobalArray, Program

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm

NAME = "davinci"
MOST_TILES = 64  # that a search begins with
C_INPUT, BIAS = "C.in", "bias"  # arrays that the epilogue reads


class CoupledDataflow:
    """The dataflow of the family davinci (see hwsim.dataflows.protocol).

    Where the plan leaves it open, it chooses how much of K the cube accumulates from zero, so the bits depend on the
    blocking.
    """

    name = NAME
    options: tuple[Option, ...] = declared.COUPLED
    tile_order = ("m", "k", "n")  # the paper's order: (b_m, b_k, b_n)
    features = Features(epilogue=True, k_group=True, choosers=("eq11",))

    def map(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
        """The record with tile, n_fused and buffering, and with `schedule.promotion_k` where it was open and K is
        longer.

        Raises InputError for a blocking that exceeds the core's memories, UnsupportedError for what its programs do not
        support.
        """
        plan = check_carried(gemm, NAME, epilogue=True, layouts=False, slices=True)
        core = CoupledPlan.of(plan, gemm.unit, device)
        if not core.has_float_sums:
            check_carried(gemm, NAME, epilogue=False, layouts=False, slices=True)
        return mapped(gemm, core, device, options, NAME, self.tile_order)

    def lower(self, gemm: Gemm, device: Device) -> Program:
        """The program's kernels: split the operands, zero C (or the terms), the GEMM, combine the terms."""
        kernel, plan = _kernel_of(gemm), plan_of(gemm)
        core = CoupledPlan.of(plan, kernel.instruction, device)
        return _program(gemm, core, kernel, device)

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
        """The best number of slices of K by estimate; None for a mapped record, whose K is not cut again."""
        if gemm.mapping is not None:
            return None
        return best_split_k(gemm, CoupledPlan.of(plan_of(gemm), gemm.unit, device), device, options, self.tile_order)

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
        } | ({"convert_a": IN_KERNEL} if _convert_a(kernel) == IN_KERNEL else {})

    def tiles(self, gemm: Gemm, device: Device) -> Iterable[Tile]:
        """Initial tiles of a search: for each (b_m, b_n) the b_k with the least estimate, and of those the best few."""
        core = CoupledPlan.of(plan_of(gemm), gemm.unit, device)
        found = best_of_each_side(device, core.unit, core.limits, gemm.problem.sizes)[:MOST_TILES]
        return [Tile(b_m, b_n, b_k) for b_m, b_k, b_n in found]


COUPLED = CoupledDataflow()


def _kernel_of(gemm: Gemm) -> KernelMapping:
    possible = declared.CONVERT_A, declared.GRID_ROWS, declared.GRID_COLS
    return mapping_of(gemm, NAME, (declared.N_FUSED,), possible).kernels[0]


def _tiling(kernel: KernelMapping) -> Tiling:
    tile = kernel.tile
    return Tiling(tile.m, tile.k, tile.n, whole(kernel, "n_fused"), kernel.stages)


def _convert_a(kernel: KernelMapping) -> str:
    """Who splits A."""
    return str(next((one.value for one in kernel.settings if one.name == declared.CONVERT_A.name), BEFORE))


def _grid_facts(kernel: KernelMapping) -> dict[str, Any]:
    """The grid of cores as results show it; nothing for records without one."""
    found = {one.name: one.value for one in kernel.settings}
    names = declared.GRID_ROWS.name, declared.GRID_COLS.name
    return {"grid": [found[name] for name in names]} if names[0] in found else {}


def _grid(kernel: KernelMapping, slices: int, cores: int) -> CoreGrid:
    """The grid of cores; block rows of A over all cores where the record names none. slices: of K."""
    if not _grid_facts(kernel):
        return CoreGrid.algorithm_1(cores)
    return CoreGrid.given(
        (whole(kernel, declared.GRID_ROWS.name), whole(kernel, declared.GRID_COLS.name)), slices, cores
    )


def _program(gemm: Gemm, core: CoupledPlan, kernel: KernelMapping, device: Device) -> Program:
    """The kernels in order. Where the GEMM kernel splits A, A's pieces are in no array."""
    plan, (m, n, k) = core.plan, gemm.problem.sizes
    tiling, converts_a = _tiling(kernel), _convert_a(kernel) == IN_KERNEL
    lengths = gemm.schedule.slice_lengths(k)
    operands = [OperandArrays.of(plan, "a", m, k), OperandArrays.of(plan, "b", k, n)]
    output = GlobalArray("C", m, n, gemm.output)
    epilogue = OutputEpilogue.of(gemm, len(lengths))
    is_one_sum = len(lengths) == 1 and (core.is_single or core.is_joined)
    is_direct = is_one_sum and epilogue.is_plain and output.format == core.sum_format
    targets, addends = [output], _addends(gemm, core)
    if not is_direct:
        count = 1 if core.is_joined else len(plan.terms)
        targets = [GlobalArray(f"T{i + 1}", m * len(lengths), n, core.sum_format) for i in range(count)]
    joins = [] if is_direct else [_join(core, targets, output, epilogue, addends, len(lengths))]
    promotion_interval = tiling.promotion_interval(gemm.schedule.promotion_k, core.is_joined)
    if converts_a:
        core.check_conversion()
    a = operands[0].source if converts_a else operands[0].pieces
    kernels = [lower_pass(work, device) for operand in operands[converts_a:] for work in operand.passes]
    kernels.append(lower_pass(zero_pass("zero", targets), device))
    kernels.append(
        CoupledKernel(
            core=core,
            tiling=tiling,
            promotion_interval=promotion_interval,
            device=device,
            a=a,
            b=operands[1].pieces,
            targets=targets,
            sizes=(m, n, k),
            grid=_grid(kernel, len(lengths), device.cores),
            slice_lengths=lengths,
        ).kernel()
    )
    kernels += [lower_pass(work, device) for work in joins]
    return Program(
        (
            *([operands[0].source] if converts_a else operands[0].arrays),
            *operands[1].arrays,
            *(targets if joins else ()),
            *addends.values(),
            output,
        ),
        tuple(kernels),
        (*(operand.source.name for operand in operands), *addends),
        output.name,
        computes=_computes(core, any(operand.passes for operand in operands)),
    )


def _addends(gemm: Gemm, core: CoupledPlan) -> dict[str, GlobalArray]:
    """The arrays of C and of the bias that the caller fills, by name."""
    (m, n, _), arrays = gemm.problem.sizes, []
    if gemm.problem.has_c:
        arrays.append(GlobalArray(C_INPUT, m, n, gemm.output))
    if gemm.problem.bias is not None:
        arrays.append(GlobalArray(BIAS, 1, n, core.sum_format))
    return {array.name: array for array in arrays}


def _join(
    core: CoupledPlan,
    terms: list[GlobalArray],
    output: GlobalArray,
    epilogue: OutputEpilogue,
    addends: Mapping[str, GlobalArray],
    slices: int,
) -> Pass:
    """The pass that adds the slices of each term, joins the terms and applies the epilogue, or a placeholder with the
    same work.
    """
    if not core.placeholder_ops:
        combine = TermValue(0) if core.is_joined else core.plan.combine
        sums, bias = SumArrays(tuple(terms), slices), BIAS if BIAS in addends else ""
        return join_pass("combine", combine, sums, output, epilogue, addends.get(C_INPUT), bias)
    words = 2 if format_of(output.format).bits > WORD_BITS or core.plan.arithmetic == "exact" else 1
    count = core.placeholder_ops + len(terms) * (slices - 1)
    return placeholder_pass("combine", terms, [output], count, words)


def _computes(core: CoupledPlan, is_split: bool) -> bool:
    """Whether the program gives the plan's bits: its splits and combinations are fp32 on the vector unit."""
    plan = core.plan
    is_formed = not core.placeholder_ops and plan.split == "round" and plan.specials == "unit" and not plan.clamp
    return is_formed and (not is_split or format_of(plan.input_format).bits <= WORD_BITS)
