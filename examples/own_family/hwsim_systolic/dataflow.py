"""The dataflow of a weight-stationary systolic array: a tile of B lies in the PEs, rows of A pass, sums go down.

C is made tile by tile, `tile.m` rows and the array's width of columns. For each tile K is gone through in folds of the
array's height: the weights of a fold shift in, then the rows of A stream. The sums of the fold before enter at the top
of the columns, so that K is one chain. Columns of tiles are dealt out over the arrays of the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hwsim.dataflows.options import TILE_OPTION
from hwsim.dataflows.protocol import Features, SplitK
from hwsim.dataflows.records import check_carried, decision, mapping_of, tile_text, whole
from hwsim.dataflows.term_kernels import PieceStages, check_plan, kernel_names, program_of_terms
from hwsim.devices.device import Device
from hwsim.errors import InputError
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Tile, settings_of
from hwsim.gemm.option_types import Option, keyed_tile
from hwsim.gemm.record import Gemm
from hwsim.program.ir import GlobalArray, Kernel, Program
from hwsim_systolic.kernel import Array, FoldKernel

NAME = "systolic_ws"
LEAST_ROWS = 16  # of the tiles that a search begins with
WEIGHT_TILES = Option(
    "weight_tiles",
    int,
    None,
    "tiles of B that the PEs hold: with 2 the next one shifts in while rows stream",
    least=1,
    most=2,
    axis=(1, 2),
    default_text="1",
)


class SystolicDataflow:
    """See hwsim.dataflows.protocol.Dataflow. No bit depends on its options."""

    name = NAME
    options: tuple[Option, ...] = (TILE_OPTION, WEIGHT_TILES)
    tile_order = ("m", "n", "k")
    features = Features()

    def map(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
        """The record with tile and weight_tiles; n and k of the tile are the array's.

        Raises InputError for a tile that does not fit, UnsupportedError for what the array cannot carry.
        """
        plan = check_carried(gemm, NAME, epilogue=False, layouts=False, runs=False)
        check_plan(plan, NAME)
        array, order = Array.of(device, gemm.unit), self.tile_order
        weight_tiles = options.get("weight_tiles") or 1
        most = array.most_rows(device, weight_tiles)
        tile = keyed_tile(options.get("tile"), order) or Tile(min(gemm.problem.m, most), array.cols, array.rows)
        if (tile.n, tile.k) != (array.cols, array.rows) or tile.m > most:
            allowed = f"m from 1 to {most}, n={array.cols}, k={array.rows}"
            raise InputError(f"tile {tile_text(tile, order)}; allowed: {allowed}")
        settings = settings_of({"weight_tiles": weight_tiles})
        names = kernel_names(plan)
        kernels = tuple(KernelMapping(n, (t,), gemm.unit, tile, settings=settings) for t, n in enumerate(names))
        made = (
            decision(options, "tile", tile_text(tile, order), "default", "all rows, or as many as memories hold"),
            decision(options, "weight_tiles", weight_tiles, "default", "weights shift in, then rows stream"),
        )
        return replace(gemm, mapping=GemmMapping(NAME, kernels), decisions=(*gemm.decisions, *made))

    def lower(self, gemm: Gemm, device: Device) -> Program:
        """Operands split where the plan asks for pieces, one kernel of folds per term, the terms joined."""

        def kernel(mapped: KernelMapping, stages: PieceStages, target: GlobalArray) -> Kernel:
            array, weight_tiles = Array.of(device, mapped.instruction), whole(mapped, "weight_tiles")
            return FoldKernel(mapped.name, device, array, mapped.tile.m, weight_tiles, stages, target=target).kernel()

        return program_of_terms(gemm, device, NAME, kernel)

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
        """None: K is not cut into slices."""
        return None

    def facts(self, gemm: Gemm) -> dict[str, Any]:
        """tile, weight_tiles, k_group (K accumulated from zero: all of it) and unit."""
        kernel = mapping_of(gemm, NAME).kernels[0]
        found = {"tile": kernel.tile.to_dict(), "weight_tiles": whole(kernel, "weight_tiles")}
        return found | {"k_group": gemm.problem.k, "unit": kernel.instruction}

    def tiles(self, gemm: Gemm, device: Device) -> Iterable[Tile]:
        """All rows that fit, and powers of two below."""
        array = Array.of(device, gemm.unit)
        most = min(gemm.problem.m, array.most_rows(device, 1))
        powers = [1 << i for i in range(most.bit_length()) if LEAST_ROWS <= 1 << i < most]
        return [Tile(m, array.cols, array.rows) for m in (*powers, most)]


SYSTOLIC = SystolicDataflow()
