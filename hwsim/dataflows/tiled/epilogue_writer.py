"""The interface of an epilogue: what follows the main loop of a tile. It knows no way of storing a result."""

from __future__ import annotations

from typing import Protocol

from hwsim.dataflows.elementwise import VectorOps
from hwsim.dataflows.tiles import WorkTile
from hwsim.program.builder import StreamBuilder


class EpilogueWriter(Protocol):
    """Interface: writes what follows the main loop of a tile."""

    def load(self, s: StreamBuilder, place: WorkTile) -> None:
        """Emit the loads of C."""

    def write(self, s: StreamBuilder, ops: VectorOps, place: WorkTile) -> None:
        """Emit everything except the loads of C."""
