"""The dataflow of separated DaVinci cores (Ascend 910B): cube cores and vector cores that exchange data through global
memory.

Each term of a plan is a GEMM kernel of the cube cores, whose FixPipe writes the sums to global memory. Elementwise work
(splits, promotion, combination of the terms, the epilogue) is done by kernels of the vector cores.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows import exact_sums
from hwsim.dataflows import options as declared
from hwsim.dataflows.davinci import block_grid, cube_kernel, vector_epilogue
from hwsim.dataflows.davinci.area_join import area_join
from hwsim.dataflows.davinci.cube_blocking import CubeMemory
from hwsim.dataflows.davinci.cube_kernel import CubeKernel
from hwsim.dataflows.davinci.separated_kernels import SeparatedKernels
from hwsim.dataflows.davinci.separated_mapping import (
    alternatives,
    areas_distributed,
    blocking_of,
    distributed,
    facts_of,
    mapped,
    recorded,
)
from hwsim.dataflows.elementwise import lower_pass
from hwsim.dataflows.protocol import SplitK
from hwsim.dataflows.records import carried
from hwsim.devices import instruction
from hwsim.errors import InputError
from hwsim.gemm import refusals
from hwsim.gemm.mapping import Tile
from hwsim.gemm.option_types import Option
from hwsim.program.ir import GlobalArray, Program

if TYPE_CHECKING:
    from hwsim.dataflows.plan_areas import PlanArea
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm

NAME = "davinci_separated"
SIDES = (32, 64, 96, 128, 192, 256)  # of a tile of C that a search begins with
DEPTHS = (1, 2, 4, 8)  # of a tile, in the K of an instruction
PARTS = block_grid.refuses, exact_sums.refuses, cube_kernel.refuses, vector_epilogue.refuses


class SeparatedDataflow:
    """The dataflow of the family davinci_separated (see hwsim.dataflows.protocol). The bits do not depend on its
    choices.
    """

    name = NAME
    options: tuple[Option, ...] = declared.SEPARATED
    tile_order = ("m", "n", "k")  # baseM, baseN, baseK
    features = vector_epilogue.FEATURES

    def refuses(self, gemm: Gemm) -> str:
        """What of a record no program carries, by name; empty where there is one."""
        return refusals.of_parts(PARTS, gemm)

    def map(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
        """The record with tile, packets, buffering, distribution of tiles and UnitFlag; one cube kernel per term.

        Raises InputError for a blocking that exceeds the cores' memories, UnsupportedError for what they do not
        support.
        """
        plan = carried(gemm, NAME, PARTS)
        return mapped(gemm, SeparatedKernels(gemm, plan, device), device, options, NAME, self.tile_order)

    def alternatives(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Iterator[Gemm]:
        """The tiles with the fewest estimated cycles; see SearchedDataflow.alternatives."""
        kernels = SeparatedKernels(gemm, carried(gemm, NAME, PARTS), device)
        for settings in alternatives(gemm, kernels, device, options):
            try:
                mapped_gemm = self.map(gemm, device, {**options, **settings})
            except InputError:  # no room for it in UB or L1
                continue
            yield mapped_gemm

    def lower(self, gemm: Gemm, device: Device) -> Program:
        """The program's kernels: split the operands, one GEMM per term, promotion and combination of terms."""
        mapping, kernels = recorded(gemm, NAME), SeparatedKernels(gemm, carried(gemm, NAME, PARTS), device)
        memory = CubeMemory(device, kernels.terms, mapping.kernels[0].instruction, gemm.problem.sizes)
        for kernel in mapping.kernels:
            memory.check(blocking_of(kernel))
        written = [lower_pass(work, device, loads_vectors=True) for work in kernels.splits]
        in_turn = mapping.kernels[-1:] + mapping.kernels[:-1] if kernels.bounded else mapping.kernels
        for number, kernel in enumerate(in_turn):
            tiles = distributed(gemm, kernel, device)
            term = kernels.terms[kernel.terms[0]]
            written.append(CubeKernel(memory, term, kernels.units, blocking_of(kernel), tiles).kernel())
            if not number:
                written += [lower_pass(work, device, loads_vectors=True) for work in kernels.bounded]
        written += [lower_pass(work, device, loads_vectors=True) for work in kernels.joins]
        return Program(tuple(kernels.arrays), tuple(written), kernels.inputs, kernels.output.name)

    def lower_areas(self, part: Gemm, device: Device, areas: Sequence[PlanArea]) -> Program:
        """The program of a mapped record over areas of C and K; see AreaDataflow.lower_areas.

        Tiles of the areas go to the cores cyclically.
        """
        adds = any(area.adds for area in areas)
        mapping, kernels = recorded(part, NAME), SeparatedKernels(part, carried(part, NAME, PARTS), device, adds=adds)
        memory = CubeMemory(device, kernels.terms, mapping.kernels[0].instruction, part.problem.sizes)
        written = [lower_pass(work, device, loads_vectors=True) for work in kernels.splits]
        for kernel in mapping.kernels:
            memory.check(blocking_of(kernel))
            term = kernels.terms[kernel.terms[0]]
            tiles = areas_distributed(areas, kernel, device)
            written.append(CubeKernel(memory, term, kernels.units, blocking_of(kernel), tiles).kernel())
        if not kernels.is_direct:
            targets = [term.target for term in kernels.terms]
            written.append(area_join("combine", kernels.plan.combine, targets, kernels.output, areas, device))
        return Program(tuple(kernels.arrays), tuple(written), kernels.inputs, kernels.output.name)

    def lower_epilogue(self, gemm: Gemm, device: Device) -> Program:
        """The program from a sum to the record's result; see AreaDataflow.lower_epilogue."""
        of_any_unit = replace(gemm, schedule=replace(gemm.schedule, instruction=None))  # the product is done
        kernels = SeparatedKernels(of_any_unit, carried(gemm, NAME, PARTS), device)
        total = GlobalArray("sum", *gemm.problem.sizes[:2], kernels.join_format)
        work = kernels.finish(total)
        addends = [array for array in (kernels.c, kernels.bias) if array is not None]
        inputs = (total.name, *(array.name for array in addends))
        kernel = lower_pass(work, device, loads_vectors=True)
        return Program((total, *addends, kernels.output), (kernel,), inputs, kernels.output.name)

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
        """Always None: split-K is not supported."""
        return None

    def facts(self, gemm: Gemm) -> dict[str, Any]:
        """The mapping as results show it.

        tile, step_ka, step_kb, buffering, k_group (K accumulated in the cube from zero), unit, kernels, layouts that
        are not row-major, distribution, unit_flag, and for the cyclic distribution swizzle.
        """
        return facts_of(gemm, NAME)

    def tiles(self, gemm: Gemm, device: Device) -> Iterable[Tile]:
        """Initial tiles of a search: sides of 32 to 256, and 1 to 8 instructions of K."""
        depth = max(instruction(device, gemm.unit).k, 1)
        return [Tile(m, n, depth * count) for m, n, count in itertools.product(SIDES, SIDES, DEPTHS)]


SEPARATED = SeparatedDataflow()
