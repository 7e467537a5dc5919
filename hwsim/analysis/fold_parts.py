"""The parts of a systolic array's folds in a timed run: fill, stream, skew and drain. It knows times and the array's
instruction and links; it knows no plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.analysis.indexed import Indexed
from hwsim.analysis.program_times import Times
from hwsim.devices import find
from hwsim.devices.model.memories import PE


@dataclass(frozen=True, eq=False, repr=False)
class FoldParts(Indexed):
    """Cycles of the folds of systolic arrays, summed over folds and arrays. total: of the arrays, idle ones included.

    fill: what stays shifts in. stream: what streams enters. skew: from the first element's first PE to the last one's
    last. drain: results shift out. Parts of two tiles in the PEs overlap: their sum is then above the total.
    """

    fill: float
    stream: float
    skew: float
    drain: float
    total: float

    def shares(self) -> dict[str, tuple[float, float]]:
        """{part: (cycles, share of the total)}."""
        parts = {name: cycles for name, cycles in self.items() if name != "total"}
        return {name: (cycles, cycles / self.total) for name, cycles in parts.items()}


def fold_parts(times: Times) -> FoldParts | None:
    """The parts of a run's folds; None where no systolic array multiplies, or nothing was timed.

    The skew is what an instruction adds to its stream (overhead_cycles), and where sums stay in the PEs what a tile of
    C waits for after its last one (drain_cycles).
    """
    chip, timed = times.chip, times.timed
    model = None if chip is None else find(chip, times.unit)
    if chip is None or timed is None or not timed.cycles or not times.cycles or model is None or model.timing is None:
        return None
    stays = [model.places(index) == (PE,) for index in range(3)]
    array = times.engines.get(model.engine)
    if not any(stays) or array is None or not times.macs.padded:
        return None
    stream = float(times.macs.padded / model.macs_per_cycle)
    tiles = sum(row.tiles for row in times.occupancy) * times.cycles // timed.cycles
    return FoldParts(
        fill=_busy(times, {link.engine for link in chip.links.values() if link.target == PE}),
        stream=stream,
        skew=array.busy_cycles - stream + float(model.timing.drain_cycles) * tiles,
        drain=_busy(times, {link.engine for link in chip.links.values() if link.source == PE}),
        total=array.busy_cycles + sum(array.stall_cycles.values()),
    )


def _busy(times: Times, engines: set[str]) -> float:
    return sum(times.engines[name].busy_cycles for name in engines if name in times.engines)
