"""One configuration of a search over mappings, and its result. It knows neither the search nor what is made least."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

#: A point's results, as columns of a table.
NUMBERS = ("seconds", "cycles", "tflops", "hbm_bytes", "joules", "energy_evidence", "has_same_bits", "refused")


@dataclass(frozen=True, slots=True)
class TunedPoint:
    """One configuration: `options` as the dataflow takes them (absent: it chooses), and its result, or the reason why
    there is none.

    facts: the dataflow's full choice. shown: names of the options that a table has. tflops: 2 m n k / time. hbm_bytes:
    read and written. joules, energy_evidence: of a search for the least energy. has_same_bits: C has the bits that it
    has with the default configuration; None for a refused point.
    """

    options: dict[str, Any]
    cycles: int | None = None
    seconds: float | None = None
    tflops: float | None = None
    hbm_bytes: int | None = None
    joules: float | None = None
    energy_evidence: str | None = None
    refused: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    has_same_bits: bool | None = None

    def value(self, objective: str) -> float:
        """What an objective makes least: seconds, cycles, bytes of HBM traffic or joules; infinite for a refused
        point.
        """
        values = {"time": self.seconds, "cycles": self.cycles, "traffic": self.hbm_bytes, "energy": self.joules}
        value = values[objective]
        return math.inf if value is None else float(value)

    def row(self) -> dict[str, Any]:
        """The point as a flat mapping, for a table: tile sizes by name, then the other facts, then the numbers."""
        values = {**self.options, **{name: self.facts[name] for name in self.shown if name in self.facts}}
        tile = values.pop("tile", None) or {}
        sides = {f"tile_{side}": tile.get(side) for side in ("m", "n", "k")}
        rest = {name: values[name] for name in (*self.shown, *self.options) if name in values}
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return sides | rest | numbers
