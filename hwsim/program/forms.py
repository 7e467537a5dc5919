"""Kinds and forms of instructions: hashable keys of everything that cost and shape rules depend on.

A kind identifies an instruction within one kernel; a form identifies it across kernels and programs on one device.
Results per form are cached per device, because programs of other sizes consist of mostly the same instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hwsim.program.identity_cache import IdentityCache
from hwsim.program.ir import Buffer, GlobalArray, GlobalTile, Instr, LocalTile

if TYPE_CHECKING:
    from hwsim.devices.device import Device

_Value = TypeVar("_Value")
_CLOCKS = {"clock_mhz", "sustained_clock_mhz", "power_limit"}
DEVICES = 16  # with cached forms, at most
FORMS = 1 << 12  # of one device, at most


def _all_but(of: type, *names: str) -> Callable[[object], Any]:
    return attrgetter(*(field.name for field in fields(of) if field.name not in names))


_INSTR_KEY = _all_but(Instr, "writes", "reads", "waits", "signals", "zero_at", "scalar", "label")
_GLOBAL_KEY, _LOCAL_KEY = _all_but(GlobalTile, "row", "col"), _all_but(LocalTile, "slot")
_BUFFER_KEY = _all_but(Buffer, "name")


class KindReader:
    """Computes kinds of the instructions of one kernel.

    A kind is everything in an instruction except tile positions, waits, signals and scalars, as a hashable key: within
    one kernel on one device, instructions of a kind have the same cost and the same shape rules.
    """

    def __init__(self) -> None:
        self.tiles: dict[int, Hashable] = {}  # keys of tiles by identity: many instructions share a tile

    def kind_of(self, instr: Instr) -> Hashable:
        """The kind of an instruction, which outlives the reader."""
        tiles, writes, reads = self.tiles, instr.writes, instr.reads
        key: list[Hashable] = [_INSTR_KEY(instr), len(writes)]
        for tile in writes + reads:
            found = tiles.get(id(tile))
            if found is None:
                found = tiles[id(tile)] = (_GLOBAL_KEY if type(tile) is GlobalTile else _LOCAL_KEY)(tile)
            key.append(found)
        return tuple(key)


class FormReader:
    """Computes forms of instructions. arrays: of the program; buffers: of the kernel."""

    def __init__(self, arrays: Iterable[GlobalArray], buffers: Iterable[Buffer]) -> None:
        self.arrays = {one.name: (one.format, one.order, *one.stored[1:]) for one in arrays}
        self.buffers = {one.name: _BUFFER_KEY(one) for one in buffers}

    def form_of(self, instr: Instr) -> Hashable:
        """The kind of an instruction (see `kind_of`) with the properties of its arrays and buffers in place of names.

        The properties of an array are its format, its order, and whether the tile covers whole lines of it. On one
        device, instructions of a form have the same cost and the same shape rules, in any program. None where an
        array or a buffer is missing.
        """
        form: list[Hashable] = [_INSTR_KEY(instr), len(instr.writes)]
        for tile in (*instr.writes, *instr.reads):
            if isinstance(tile, GlobalTile):
                array = self.arrays.get(tile.array)
                if array is None:
                    return None
                format, order, line = array
                is_whole = (tile.cols if order == "rows" else tile.rows) == line
                form += (True, format, order, is_whole, tile.rows, tile.cols)
            else:
                buffer = self.buffers.get(tile.buffer)
                if buffer is None:
                    return None
                form += (False, buffer, _LOCAL_KEY(tile)[1:])
        return tuple(form)


def parts_of(device: Device) -> list[object]:
    """Everything in a device except its clock."""
    return [getattr(device, name) for name in type(device).model_fields if name not in _CLOCKS]


class FormCache(Generic[_Value]):
    """A bounded cache of values by form, per device without its clock."""

    def __init__(self) -> None:
        self.devices: IdentityCache[dict[Hashable, _Value]] = IdentityCache(DEVICES, DEVICES)

    def of(self, device: Device) -> dict[Hashable, _Value]:
        """The cached values of a device by form, to which the caller adds; None is never a key."""
        parts = parts_of(device)
        found = self.devices.get(*parts)
        if found is None:
            found = {}
            self.devices.put(found, 1, *parts)
        elif len(found) > FORMS:
            found.clear()
        return found
