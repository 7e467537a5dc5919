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
from hwsim.program.ir import Buffer, GlobalArray, Instr, LocalTile, Tile

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
    """Computes forms of the instructions of one kernel. arrays: of the program; buffers: of the kernel.

    A form is everything in an instruction except names, tile positions, waits, signals and scalars, as a hashable key;
    in place of the names of arrays and buffers stand their properties: of an array its format, its order, and whether
    the tile covers whole lines of it.
    """

    def __init__(self, arrays: Iterable[GlobalArray], buffers: Iterable[Buffer]) -> None:
        self.arrays = {one.name: (one.format, one.order, one.stored[1]) for one in arrays}
        self.buffers = {one.name: _BUFFER_KEY(one) for one in buffers}
        self.tiles: dict[int, Hashable] = {}  # forms of tiles by identity: many instructions share a tile

    def form_of(self, instr: Instr) -> Hashable:
        """The form of an instruction that lives as long as the reader. Raises KeyError where an array or a buffer is
        missing.
        """
        tiles = self.tiles
        form: list[Hashable] = [_INSTR_KEY(instr), len(instr.writes)]
        for tile in instr.writes + instr.reads:
            form.append(tiles.get(id(tile)) or self._tile(tile))
        return tuple(form)

    def _tile(self, tile: Tile) -> Hashable:
        if isinstance(tile, LocalTile):
            made: Hashable = (self.buffers[tile.buffer], *_LOCAL_KEY(tile))
        else:
            format, order, line = self.arrays[tile.array]
            is_whole = (tile.cols if order == "rows" else tile.rows) == line
            made = (format, order, is_whole, tile.rows, tile.cols)
        self.tiles[id(tile)] = made
        return made


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
        found = self.devices.get(*parts)
        if found is None:
            found = {}
            self.devices.put(found, 1, *parts)
        elif len(found) > FORMS:
            found.clear()
        return found
