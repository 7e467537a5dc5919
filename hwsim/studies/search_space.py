"""What a search for the best mapping goes through: the tiles and the options that a dataflow declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.options import INSTRUCTION, SPLIT_K, asks_for_stream_k
from hwsim.dataflows.registry import dataflow
from hwsim.resolve.mapping_choice import slices_that_run

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Initial tiles, and the values of each other option, by its name. None: as the dataflow chooses."""

    tiles: list[dict[str, int]]
    others: dict[str, tuple[Any, ...]]


def search_space(gemm: Gemm, chip: Device, *, keeps_order: bool, fixed: Mapping[str, Any]) -> SearchSpace:
    """The space of a record: the dataflow's tiles, the axes of its options, and instructions with the same bits.

    keeps_order: K is not cut, so that all mappings may have the same order of summation. fixed: options that have
    a value already. Cuts of stream-K follow the tile: where the order is kept, the record's is the only one.
    """
    flow = dataflow(chip)
    others = {option.name: option.axis for option in flow.options if option.axis}
    if keeps_order or asks_for_stream_k(fixed):
        others.pop(SPLIT_K.name, None)
    if SPLIT_K.name in others:
        others[SPLIT_K.name] = slices_that_run(gemm, others[SPLIT_K.name])
    for name in fixed:
        others.pop(name, None)
    if INSTRUCTION.name not in fixed and any(option.name == INSTRUCTION.name for option in flow.options):
        families = Instructions(chip).equivalent_families(gemm.unit)
        if len(families) > 1:
            others[INSTRUCTION.name] = (None, *families)
    tiles = flow.tiles(gemm, chip)
    if keeps_order and asks_for_stream_k(fixed) and gemm.mapping is not None:
        tiles = [gemm.mapping.kernels[0].tile]
    return SearchSpace([tile.to_dict() for tile in tiles], others)
