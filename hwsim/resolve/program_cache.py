"""The programs that were made last, by device and record: a search, its choice and a run ask for the same one.

The module knows records and the size of programs; it makes none.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.program.ir import Program


class ProgramCache:
    """At most `most` programs with at most `instructions` in their texts; the newest is kept whatever its length."""

    def __init__(self, most: int, instructions: int) -> None:
        self.most, self.limit, self.lock = most, instructions, Lock()
        self.entries: OrderedDict[tuple[int, str], tuple[Device, Program, int]] = OrderedDict()
        self.checked: set[tuple[int, str]] = set()

    def is_checked(self, device: Device, digest: str) -> bool:
        """Whether the program that is there obeys the rules of its device, as far as anybody asked."""
        with self.lock:
            return (id(device), digest) in self.checked

    def note_checked(self, device: Device, digest: str) -> None:
        """The program obeys them."""
        with self.lock:
            if (id(device), digest) in self.entries:
                self.checked.add((id(device), digest))

    def get(self, device: Device, digest: str) -> Program | None:
        """The program of the record with this digest, or None. Devices are identified by object identity."""
        with self.lock:
            entry = self.entries.get((id(device), digest))
            if entry is None:
                return None
            self.entries.move_to_end((id(device), digest))
        return entry[1]

    def put(self, device: Device, digest: str, program: Program) -> None:
        """Add a program, which also keeps the device alive, and drop the oldest ones beyond the limits."""
        length = sum(len(list(kernel.instrs())) for kernel in program.kernels if kernel.original is None)
        with self.lock:
            self.checked.discard((id(device), digest))
            self.entries[id(device), digest] = device, program, length
            held = sum(entry[2] for entry in self.entries.values())
            while len(self.entries) > 1 and (len(self.entries) > self.most or held > self.limit):
                key, dropped = self.entries.popitem(last=False)
                self.checked.discard(key)
                held -= dropped[2]
