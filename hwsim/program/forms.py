"""Forms of instructions: hashable keys of everything that cost and shape rules depend on, beside the device.

Results per form are cached per device, because kernels and programs of other sizes consist of mostly the same
instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hwsim.program.identity_cache import IdentityCache
from hwsim.program.ir import AnyTile, Buffer, GlobalArray, Instr, LocalTile

if TYPE_CHECKING:
    from hwsim.devices.device import Device

_Value = TypeVar("_Value")
DEVICES = 16  # with cached forms, at most
FORMS = 1 << 12  # of one device, at most


def _all_but(of: type, *names: str) -> Callable[[object], Any]:
    return attrgetter(*(field.name for field in fields(of) if field.name not in names))


_INSTR_KEY = _all_but(Instr, "writes", "reads", "waits", "signals", "zero_at", "scalar", "label")
_LOCAL_KEY = _all_but(LocalTile, "buffer", "slot")
_BUFFER_KEY = _all_but(Buffer, "name")


class FormReader:
    """Reads what makes up the forms of one kernel's instructions. arrays: of the program; buffers: of the kernel.

    A form is a tuple of an instruction's `key`, the number of tiles that it writes, and the forms of its tiles: of
    everything in it except names, tile positions, waits, signals and scalars. In place of the names of arrays and
    buffers stand their properties: of an array its format, its order, and whether the tile covers whole lines of it.
    """

    key = staticmethod(_INSTR_KEY)

    def __init__(self, arrays: Iterable[GlobalArray], buffers: Iterable[Buffer]) -> None:
        self.arrays = {array.name: (array.format, array.order, array.stored[1]) for array in arrays}
        self.buffers = {buffer.name: _BUFFER_KEY(buffer) for buffer in buffers}

    def tile_form(self, tile: AnyTile) -> Hashable:
        """The form of a tile. Raises KeyError where its array or buffer is missing."""
        if isinstance(tile, LocalTile):
            return self.buffers[tile.buffer], _LOCAL_KEY(tile)
        format, order, line = self.arrays[tile.array]
        is_whole = (tile.cols if order == "rows" else tile.rows) == line
        return format, order, is_whole, tile.rows, tile.cols


def parts_of(device: Device) -> tuple[object, ...]:
    """Everything in a device except its clock."""
    return device.unclocked


class FormCache(Generic[_Value]):
    """A bounded cache of values by form, per device without its clock."""

    def __init__(self) -> None:
        self.devices: IdentityCache[dict[Hashable, _Value]] = IdentityCache(DEVICES, DEVICES)

    def of(self, device: Device) -> dict[Hashable, _Value]:
        """The cached values of a device by form, to which the caller adds."""
        parts = parts_of(device)
        values = self.devices.get(*parts)
        if values is None:
            values = {}
            self.devices.put(values, 1, *parts)
        elif len(values) > FORMS:
            values.clear()
        return values
