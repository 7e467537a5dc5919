"""Storage order of A and B in a kernel: as requested, or as the matrix instruction requires.

Where an instruction takes K-major operands only, and no rate is known for another layout, an operand whose storage
order was left open is stored K-major; a requested order that does not fit is refused. Pieces that a pass makes are
always written K-major.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.options import LAYOUT_OPTIONS
from hwsim.dataflows.tiled.model import SIDES
from hwsim.dataflows.tiled.partition import Partition, takes_k_major
from hwsim.errors import UnsupportedError
from hwsim.gemm.layouts import K_MAJOR, StorageOrder
from hwsim.gemm.mapping import Scalar
from hwsim.gemm.record import Decision

if TYPE_CHECKING:
    from hwsim.gemm.record import Gemm


@dataclass(frozen=True, slots=True)
class OperandStorage:
    """The storage orders of A and B. changed: those that differ from the record's, by option. unit: the instruction."""

    orders: tuple[StorageOrder, StorageOrder]
    changed: tuple[tuple[str, StorageOrder], ...]
    unit: str

    @property
    def settings(self) -> dict[str, Scalar]:
        """The differences from the record's problem, as settings of the mapping."""
        return dict(self.changed)

    @property
    def decisions(self) -> list[Decision]:
        """The decisions behind the differences."""
        why = f"{self.unit} needs K-major operands, and their storage was left open"
        return [Decision(name, order, "device", why=why) for name, order in self.changed]


def storage_for(partition: Partition, options: Mapping[str, Any]) -> OperandStorage:
    """The storage orders of the operands of a partition.

    It is the user's where options name it, or a decision of the record does. Raises UnsupportedError where the
    instruction cannot read an operand as asked for.
    """
    gemm, orders = partition.gemm, list(partition.orders)
    changed = []
    if takes_k_major(partition.model):
        for side, (name, needed) in enumerate(zip(LAYOUT_OPTIONS, K_MAJOR, strict=True)):
            if orders[side] == needed or partition.is_made(side):
                continue
            decision = gemm.decided(name)
            if options.get(name) is not None or (decision is not None and decision.by == "user"):
                raise UnsupportedError(
                    f"{name} = {orders[side]!r}: {partition.unit} needs K-major operands; allowed: {needed!r} "
                    f"(transpose {SIDES[side]} beforehand, as the vendor's library asks for), or another instruction"
                )
            orders[side] = needed
            changed.append((name, needed))
    return OperandStorage((orders[0], orders[1]), tuple(changed), partition.unit)


def recorded_orders(gemm: Gemm) -> tuple[StorageOrder, StorageOrder]:
    """The storage orders of A and B in a mapped record."""
    assert gemm.mapping is not None
    settings = {setting.name: setting.value for setting in gemm.mapping.kernels[0].settings}
    a, b = (settings.get(name, getattr(gemm.problem, name)) for name in LAYOUT_OPTIONS)
    return ("columns" if a == "columns" else "rows"), ("columns" if b == "columns" else "rows")
