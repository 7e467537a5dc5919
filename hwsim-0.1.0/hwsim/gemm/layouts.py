"""Storage order of matrices: "rows" (row-major) or "columns" (column-major), and which of them are K-major."""

from __future__ import annotations

from typing import Literal

Order = Literal["rows", "columns"]
ORDERS: tuple[Order, ...] = ("rows", "columns")
K_MAJOR: tuple[Order, Order] = ("rows", "columns")  # orders of A and B in which K runs fastest


def order_named(name: str) -> Order:
    """The order of a name that is known to be one."""
    return "columns" if name == "columns" else "rows"
