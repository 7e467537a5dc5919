"""Storage order of matrices: "rows" (row-major) or "columns" (column-major), and which of them are K-major."""

from __future__ import annotations

from typing import Literal

StorageOrder = Literal["rows", "columns"]
STORAGE_ORDERS: tuple[StorageOrder, ...] = ("rows", "columns")
K_MAJOR: tuple[StorageOrder, StorageOrder] = ("rows", "columns")  # orders of A and B in which K runs fastest


def order_named(name: str) -> StorageOrder:
    """The order of a name that is known to be one."""
    return "columns" if name == "columns" else "rows"
