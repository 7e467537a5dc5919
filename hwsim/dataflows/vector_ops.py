"""Emission of elementwise instructions, and the engines that they and transfers run on.

It knows streams and a device's vector unit and links; it knows no kernel, no plan and no family.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import AnyTile, LocalTile, Sync
from hwsim.program.roles import ROLES, Opcode

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import LinkModel, VectorModel


def bytes_of(format: str) -> int:
    """Storage bytes of one element."""
    return -(-format_of(format).bits // 8)


def vector_of(device: Device) -> VectorModel:
    """The device's vector unit. Raises UnsupportedError when the device file has none."""
    if device.vector is None:
        raise UnsupportedError(
            f"device {device.name} has no vector unit in its file, and no program runs without one; a file of your own "
            f"can add one (extends: {device.name})"
        )
    return device.vector


def link_engine(device: Device, source: str, target: str) -> str:
    """The engine of the link from `source` to `target`. Raises UnsupportedError when there is none."""
    link = link_between(device, source, target)
    if link is None:
        raise UnsupportedError(f"device {device.name} has no link from {source} to {target}")
    return link.engine


def link_between(device: Device, source: str, target: str) -> LinkModel | None:
    """The first link from memory `source` to memory `target`; None where the device file has none."""
    links = device.links.values()
    return next((link for link in links if (link.source, link.target) == (source, target)), None)


class VectorOps:
    """Emits elementwise instructions of the vector engine into a stream.

    attach: `signal` goes to the last instruction where it can, without an instruction of its own.
    """

    def __init__(self, stream: StreamBuilder, engine: str, *, attach: bool = False) -> None:
        self.stream, self.engine, self.attach = stream, engine, attach
        self._waits: list[Sync] = []
        self._waits_at = stream.depth

    def wait(self, *syncs: Sync) -> None:
        """Make the next instruction wait for these too: one of the same loop, which runs as often."""
        self._waits_at = self.stream.depth
        self._waits.extend(syncs)

    def op(
        self,
        opcode: Opcode,
        target: LocalTile,
        *sources: AnyTile,
        signals: Sequence[Sync] = (),
        multiplier: AnyTile | None = None,
        **attributes: Any,
    ) -> None:
        """Emit one instruction. multiplier: of an fma, in place of its scalar."""
        reads: Sequence[AnyTile] | dict[str, AnyTile] = sources
        if multiplier is not None:
            reads = {**dict(zip(ROLES[opcode].required, sources, strict=True)), "multiplier": multiplier}
        self.stream.emit(self.engine, opcode, target, reads, self._taken_waits(), signals, **attributes)

    def signal(self, *syncs: Sync) -> None:
        """Signal once everything emitted so far is done."""
        if self.attach and not self._waits and self.stream.signal_last(self.engine, syncs):
            return
        self.stream.emit(self.engine, "sync", None, (), self._taken_waits(), syncs)

    def _taken_waits(self) -> list[Sync]:
        """The waits of the next instruction, which it takes."""
        if self._waits and self._waits_at != self.stream.depth:
            raise RuntimeError(f"{self._waits[0].semaphore}: its wait is in another loop than the instruction after it")
        waits, self._waits = self._waits, []
        return waits
