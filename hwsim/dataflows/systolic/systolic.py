"""The dataflow of systolic arrays: which operand stays in the PEs, how long a tile streams. It knows no cycles.

With weights (or inputs) in the PEs a tile of C goes through K in folds of the array's height, and the sums of the fold
before enter at the top of the columns. With outputs there, all of K streams past one tile of C. Either way K is one
chain in order. What streams past every column fold (with inputs there: row fold) is loaded once where its memory holds
all of K, and the other operand where its memory holds all of an array's share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hwsim.dataflows.options import REUSE
from hwsim.dataflows.options import SYSTOLIC as OPTIONS
from hwsim.dataflows.protocol import Features, SplitK
from hwsim.dataflows.records import check_carried, decision, mapping_of, tile_text, whole
from hwsim.dataflows.systolic.array_kernel import ArrayKernel
from hwsim.dataflows.systolic.pe_array import MEMORIES, OPERANDS, PeArray, instructions_by_operand
from hwsim.dataflows.term_kernels import PieceStages, check_plan, kernel_names, program_of_terms
from hwsim.devices.device import Device
from hwsim.errors import InputError
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Tile, settings_of
from hwsim.gemm.option_types import Option, keyed_tile
from hwsim.gemm.record import Gemm
from hwsim.program.ir import GlobalArray, Kernel, Program

NAME = "systolic"
LEAST_LENGTH = 16  # of the streamed side in tiles that a search begins with
REUSED = REUSE.name  # the setting of a mapping that loads an operand once for all tiles that it streams past
RESIDENT = "resident"  # the setting of one that loads the other operand once too
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
        check_plan(plan, NAME)
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
        reuse, why_reuse = _reuse(array, device, gemm, tile, options.get("reuse"))
        keep, why_keep = _keep(array, device, gemm, tile) if reuse else (False, "")
        held = {name: True for name, is_held in ((REUSED, reuse), (RESIDENT, keep)) if is_held}
        settings = settings_of({"pe_tiles": pe_tiles} | held)
        names = kernel_names(plan)
        kernels = tuple(KernelMapping(n, (t,), gemm.unit, tile, settings=settings) for t, n in enumerate(names))
        choices = (
            decision(options, "stationary", WORDS[array.stays], "device", why),
            decision(options, "tile", tile_text(tile, order), "default", f"all of {side}, or what memories hold"),
            decision(options, "pe_tiles", pe_tiles, "default", "fill, stream and drain one after another"),
            decision(options, REUSED, reuse, "default", why_reuse + why_keep),
        )
        return replace(gemm, mapping=GemmMapping(NAME, kernels), decisions=(*gemm.decisions, *choices))

    def lower(self, gemm: Gemm, device: Device) -> Program:
        """Operands split where the plan asks for pieces, one kernel of folds per term, the terms joined."""

        def kernel(mapped: KernelMapping, stages: PieceStages, target: GlobalArray) -> Kernel:
            return ArrayKernel(
                name=mapped.name,
                device=device,
                array=PeArray.of(device, mapped.instruction),
                tile=mapped.tile,
                pe_tiles=whole(mapped, "pe_tiles"),
                stages=stages,
                target=target,
                reuse=has(mapped, REUSED),
                has_resident=has(mapped, RESIDENT),
            ).kernel()

        return program_of_terms(gemm, device, NAME, kernel)

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
        """None: K is not cut into slices."""
        return None

    def facts(self, gemm: Gemm) -> dict[str, Any]:
        """tile, stationary (unless the record alone does not say it), pe_tiles, reuse, k_group (all of K) and unit."""
        kernel = mapping_of(gemm, NAME).kernels[0]
        decided = gemm.decided("stationary")
        facts: dict[str, Any] = {} if decided is None else {"stationary": decided.value}
        facts |= {"tile": kernel.tile.to_dict(), "pe_tiles": whole(kernel, "pe_tiles"), REUSED: has(kernel, REUSED)}
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


def has(mapping: KernelMapping, name: str) -> bool:
    """Whether the kernel has a setting of this name that is true."""
    return any(setting.name == name and setting.value is True for setting in mapping.settings)


def _reuse(array: PeArray, device: Device, gemm: Gemm, tile: Tile, wanted: bool | None) -> tuple[bool, str]:
    """Whether the operand that streams past several tiles is loaded once, and why. Raises InputError where that is
    wanted and does not go.
    """
    memory = MEMORIES[array.reused]
    if gemm.single.products > 1:
        can, why = False, "each product of pieces streams its own operand"
    elif not array.fits_panel(device, tile, gemm.problem.sizes):
        can, why = False, f"{memory} is too small for all of K of a tile"
    else:
        can, why = True, f"{memory} holds all of K of a tile"
    if wanted and not can:
        raise InputError(f"reuse = True: {why}; leave it out, or give a tile with fewer rows of what streams")
    return (can if wanted is None else wanted), why


def _keep(array: PeArray, device: Device, gemm: Gemm, tile: Tile) -> tuple[bool, str]:
    """Whether the operand that is not reused is loaded once too, and what to add to why."""
    m, n, _ = gemm.problem.sizes
    is_read_again = n > tile.n if array.rows_are_shared else m > tile.m
    if not is_read_again:
        return False, ""
    name, memory = array.resident.upper(), MEMORIES[array.resident]
    if array.fits_resident(device, tile, gemm.problem.sizes):
        return True, f"; {memory} all of an array's {name}"
    return False, f"; {memory} not all of an array's {name}, which is loaded again for each tile of the other"


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


SYSTOLIC = SystolicDataflow()
