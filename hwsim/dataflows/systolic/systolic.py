"""The dataflow of systolic arrays: which operand stays in the PEs, how long a tile streams. It knows no cycles.

With weights (or inputs) in the PEs a tile of C goes through K in folds of the array's height, and the sums of the fold
before enter at the top of the columns. With outputs there, all of K streams past one tile of C. Either way K is one
chain in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hwsim.dataflows.elementwise import WORD_BITS, Pass, combine_pass, lower_pass
from hwsim.dataflows.options import SYSTOLIC as OPTIONS
from hwsim.dataflows.pieces import OperandArrays
from hwsim.dataflows.protocol import Features, SplitK
from hwsim.dataflows.records import check_carried, decision, mapping_of, plan_of, tile_text, whole
from hwsim.dataflows.systolic.array_kernel import ArrayKernel
from hwsim.dataflows.systolic.pe_array import OPERANDS, PeArray, instructions_by_operand
from hwsim.devices.device import Device
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.expressions import has_integer_parts
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Tile, settings_of
from hwsim.gemm.option_types import Option, keyed_tile
from hwsim.gemm.plan import Plan, TermValue
from hwsim.gemm.record import Gemm
from hwsim.program.ir import GlobalArray, Program

NAME = "systolic"
LEAST_LENGTH = 16  # of the streamed side in tiles that a search begins with
WORDS = {operand: word for word, operand in OPERANDS.items()}


class SystolicDataflow:
    """See hwsim.dataflows.protocol.Dataflow.

    `stationary` selects the instruction. Between two of them the sign of a zero may differ, because folds of K are
    filled up with zeros.
    """

    name = NAME
    options: tuple[Option, ...] = OPTIONS
    tile_order = ("m", "n", "k")
    features = Features()

    def map(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
        """The record with instruction, tile and pe_tiles; two sides of the tile are the array's.

        Raises InputError for options that do not fit, UnsupportedError for what the array cannot carry.
        """
        plan = check_carried(gemm, NAME, epilogue=False, layouts=False, runs=False)
        _check_plan(plan)
        pe_tiles, order = options.get("pe_tiles") or 1, self.tile_order
        requested = keyed_tile(options.get("tile"), order)
        array, why = _array(gemm, device, options.get("stationary"), requested)
        if array.unit != gemm.unit:
            gemm = replace(gemm, unit=array.unit, schedule=replace(gemm.schedule, instruction=array.unit))
        most, side = array.most_length(device, pe_tiles), array.streamed
        tile = requested or array.tile(min(getattr(gemm.problem, side), most))
        if not array.is_fold(tile) or getattr(tile, side) > most:
            sides = [f"{x} from 1 to {most}" if x == side else f"{x}={array.sides[x]}" for x in order]
            raise InputError(f"tile {tile_text(tile, order)}; allowed: {', '.join(sides)}")
        settings = settings_of({"pe_tiles": pe_tiles})
        names = ["gemm"] if len(plan.terms) == 1 else [f"gemm_{t + 1}" for t in range(len(plan.terms))]
        kernels = tuple(KernelMapping(n, (t,), gemm.unit, tile, settings=settings) for t, n in enumerate(names))
        choices = (
            decision(options, "stationary", WORDS[array.stays], "device", why),
            decision(options, "tile", tile_text(tile, order), "default", f"all of {side}, or what memories hold"),
            decision(options, "pe_tiles", pe_tiles, "default", "fill, stream and drain one after another"),
        )
        return replace(gemm, mapping=GemmMapping(NAME, kernels), decisions=(*gemm.decisions, *choices))

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
            (term,), array = mapped.terms, PeArray.of(device, mapped.instruction)
            stages = [[(a.pieces[i], b.pieces[j]) for i, j in stage.products] for stage in plan.terms[term].stages]
            pe_tiles = whole(mapped, "pe_tiles")
            folds = ArrayKernel(mapped.name, device, array, mapped.tile, pe_tiles, stages, target=sums[term])
            kernels.append(folds.kernel())
        kernels += [lower_pass(work, device) for work in joins]
        arrays = (*a.arrays, *b.arrays, *(sums if joins else ()), output)
        return Program(arrays, tuple(kernels), (a.source.name, b.source.name), output.name)

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
        """None: K is not cut into slices."""
        return None

    def facts(self, gemm: Gemm) -> dict[str, Any]:
        """tile, stationary (unless the record alone does not say it), pe_tiles, k_group (all of K) and unit."""
        kernel = mapping_of(gemm, NAME).kernels[0]
        decided = gemm.decided("stationary")
        facts: dict[str, Any] = {} if decided is None else {"stationary": decided.value}
        facts |= {"tile": kernel.tile.to_dict(), "pe_tiles": whole(kernel, "pe_tiles")}
        return facts | {"k_group": gemm.problem.k, "unit": kernel.instruction}

    def tiles(self, gemm: Gemm, device: Device) -> Iterable[Tile]:
        """Of each operand that may stay: all of the streamed side that fits, and powers of two below."""
        tiles = dict[Tile, None]()
        for unit in instructions_by_operand(device, gemm.unit).values():
            array = PeArray.of(device, unit)
            most = min(getattr(gemm.problem, array.streamed), array.most_length(device, 1))
            powers = [1 << i for i in range(most.bit_length()) if LEAST_LENGTH <= 1 << i < most]
            tiles.update(dict.fromkeys(array.tile(length) for length in (*powers, most)))
        return list(tiles)


def _array(gemm: Gemm, device: Device, word: str | None, tile: Tile | None) -> tuple[PeArray, str]:
    """The array that holds what the user says, or else what a tile fits, or else the native instruction's; and why.

    Raises InputError for an operand that no instruction of these formats holds.
    """
    units = instructions_by_operand(device, gemm.unit)
    if word is not None:
        if OPERANDS[word] not in units:
            raise InputError(
                f"stationary = {word!r}; allowed on {device.name}: {', '.join(WORDS[operand] for operand in units)}"
            )
        return PeArray.of(device, units[OPERANDS[word]]), ""
    arrays = [PeArray.of(device, unit) for unit in units.values()]
    fitting = [array for array in arrays if tile is not None and array.is_fold(tile)]
    if fitting and fitting[0] is not arrays[0]:
        return fitting[0], "the tile is this instruction's"
    return arrays[0], "the native instruction's"


def _is_single(plan: Plan) -> bool:
    return isinstance(plan.combine, TermValue) and len(plan.terms) == 1


def _check_plan(plan: Plan) -> None:
    """Raise UnsupportedError for a plan that array and vector unit do not carry."""
    pieces = (*plan.a_pieces, *plan.b_pieces)
    is_split = any(piece.format != plan.input_format for piece in pieces) or len(pieces) > 2
    refusals = {
        "pieces of several formats": len({piece.format for piece in pieces}) > 1,
        "scaled sums": any(stage.scale_exponent for term in plan.terms for stage in term.stages),
        "pieces not rounded from fp32": is_split
        and (plan.split != "round" or format_of(plan.input_format).bits > WORD_BITS),
        "sums not joined in fp32 after all of K": not _is_single(plan)
        and (plan.join != "end" or plan.arithmetic != "fp32" or has_integer_parts(plan.combine)),
    }
    refused = ", ".join(name for name, is_refused in refusals.items() if is_refused)
    if refused:
        raise UnsupportedError(f"scheme {plan.scheme}: programs of family {NAME} carry no {refused}")


SYSTOLIC = SystolicDataflow()
