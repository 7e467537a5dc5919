"""The dataflow of a weight-stationary systolic array: a tile of B lies in the PEs, rows of A pass, sums go down.

C is made tile by tile, `tile.m` rows and the array's width of columns. For each tile K is gone through in folds of the
array's height: the weights of a fold shift in, then the rows of A stream. The sums of the fold before enter at the top
of the columns, so that K is one chain. Columns of tiles are dealt out over the arrays of the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hwsim.dataflows.elementwise import WORD_BITS, Pass, combine_pass, lower_pass
from hwsim.dataflows.options import TILE_OPTION
from hwsim.dataflows.pieces import OperandArrays
from hwsim.dataflows.protocol import Features, SplitK
from hwsim.dataflows.records import check_carried, decision, mapping_of, plan_of, tile_text, whole
from hwsim.devices.device import Device
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.expressions import has_integer_parts
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Tile, settings_of
from hwsim.gemm.option_types import Option, keyed_tile
from hwsim.gemm.plan import Plan, TermValue
from hwsim.gemm.record import Gemm
from hwsim.program.ir import GlobalArray, Program
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
        _check_plan(plan)
        array, order = Array.of(device, gemm.unit), self.tile_order
        weight_tiles = options.get("weight_tiles") or 1
        most = array.most_rows(device, weight_tiles)
        tile = keyed_tile(options.get("tile"), order) or Tile(min(gemm.problem.m, most), array.cols, array.rows)
        if (tile.n, tile.k) != (array.cols, array.rows) or tile.m > most:
            allowed = f"m from 1 to {most}, n={array.cols}, k={array.rows}"
            raise InputError(f"tile {tile_text(tile, order)}; allowed: {allowed}")
        settings = settings_of({"weight_tiles": weight_tiles})
        names = ["gemm"] if len(plan.terms) == 1 else [f"gemm_{t + 1}" for t in range(len(plan.terms))]
        kernels = tuple(KernelMapping(n, (t,), gemm.unit, tile, settings=settings) for t, n in enumerate(names))
        made = (
            decision(options, "tile", tile_text(tile, order), "default", "all rows, or as many as memories hold"),
            decision(options, "weight_tiles", weight_tiles, "default", "weights shift in, then rows stream"),
        )
        return replace(gemm, mapping=GemmMapping(NAME, kernels), decisions=(*gemm.decisions, *made))

    def lower(self, gemm: Gemm, device: Device) -> Program:
        """Operands split where the plan asks for pieces, one kernel of folds per term, the terms joined."""
        plan, (m, n, k) = plan_of(gemm), gemm.problem.sizes
        a, b = OperandArrays.of(plan, "a", m, k), OperandArrays.of(plan, "b", k, n)
        output = GlobalArray("C", m, n, gemm.output)
        sums, joins = [output], list[Pass]()
        if not _is_single(plan):
            sums = [GlobalArray(f"T{i + 1}", m, n, gemm.output) for i in range(len(plan.terms))]
            joins = [combine_pass("combine", plan.combine, sums, output)]
        kernels = [lower_pass(work, device) for work in (*a.passes, *b.passes)]
        for mapped in mapping_of(gemm, NAME).kernels:
            (term,), array = mapped.terms, Array.of(device, mapped.instruction)
            stages = [[(a.pieces[i], b.pieces[j]) for i, j in stage.products] for stage in plan.terms[term].stages]
            rows, weight_tiles = mapped.tile.m, whole(mapped, "weight_tiles")
            kernels.append(FoldKernel(mapped.name, device, array, rows, weight_tiles, stages, sums[term]).kernel())
        kernels += [lower_pass(work, device) for work in joins]
        arrays = (*a.arrays, *b.arrays, *(sums if joins else ()), output)
        return Program(arrays, tuple(kernels), (a.source.name, b.source.name), output.name)

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


def _is_single(plan: Plan) -> bool:
    return isinstance(plan.combine, TermValue) and len(plan.terms) == 1


def _check_plan(plan: Plan) -> None:
    """Raise UnsupportedError for a plan that array and vector unit do not carry."""
    pieces = (*plan.a_pieces, *plan.b_pieces)
    is_split = any(piece.format != plan.input_format for piece in pieces) or len(pieces) > 2
    wrong = {
        "pieces of several formats": len({piece.format for piece in pieces}) > 1,
        "scaled sums": any(stage.scale_exponent for term in plan.terms for stage in term.stages),
        "pieces not rounded from fp32": is_split
        and (plan.split != "round" or format_of(plan.input_format).bits > WORD_BITS),
        "sums not joined in fp32 after all of K": not _is_single(plan)
        and (plan.join != "end" or plan.arithmetic != "fp32" or has_integer_parts(plan.combine)),
    }
    found = ", ".join(name for name, is_wrong in wrong.items() if is_wrong)
    if found:
        raise UnsupportedError(f"scheme {plan.scheme}: programs of family {NAME} carry no {found}")


SYSTOLIC = SystolicDataflow()
