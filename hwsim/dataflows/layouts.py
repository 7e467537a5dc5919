"""What follows one another in memory of A and B, as the options a_layout and b_layout say.

It knows the options' names and values; nothing of devices or kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsim.errors import InputError
from hwsim.gemm.layouts import Order

OPTIONS = ("a_layout", "b_layout")
LAYOUTS: tuple[Order, ...] = ("rows", "columns")


def layout_of(options: Mapping[str, Any], side: str) -> Order:
    """What follows one another in memory of operand `side` ("A", "B"), by its option; absent: its rows."""
    value = options.get(name := f"{side.lower()}_layout") or "rows"
    for order in LAYOUTS:
        if value == order:
            return order
    raise InputError(f"{name} = {value!r}; allowed: {', '.join(LAYOUTS)}")


def facts(orders: Mapping[str, Order]) -> dict[str, Order]:
    """Facts of a program about operands by columns."""
    return {f"{side.lower()}_layout": order for side, order in orders.items() if order != "rows"}
