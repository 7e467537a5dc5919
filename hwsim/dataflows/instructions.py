"""Which of a device's matrix instructions a tile is made of: the same arithmetic in another shape, or by another name.

Instructions of one dot unit and K have the same bits, so the choice changes cycles alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwsim.devices import example, find, instruction, instruction_for
from hwsim.devices.patterns import ARITHMETIC
from hwsim.devices.query import entry
from hwsim.errors import InputError, nearest

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel

_SHAPE = re.compile(r"m\d+n(?:\d+|N)k")


class Instructions:
    """The matrix instructions of one device, by formats and size of a tile."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def fitted(self, name: str, m: int, n: int, cores: int = 1) -> str:
        """The variant of `name` for a tile of m x n on each of `cores` cores: the least padding, then the largest.

        Those with times come first. `name` itself where no variant is of so many cores.
        """
        key, known = (name, m, n, cores), self.device._fitted
        if key not in known:
            known[key] = self._fit(name, m, n, cores)
        return known[key]

    def of(self, name: str, a: str, b: str) -> str:
        """The instruction like `name` for operands of formats a and b. Raises UnsupportedError where there is none."""
        key = entry(self.device, name)
        model = self.device.matrix_instructions[key] if key is not None else None
        if key is not None and model is not None and a in model.formats and b in model.formats:
            return example(self.device, key, n=instruction(self.device, name).n, a=a, b=b)
        return instruction_for(self.device, a, b)

    def like(self, name: str, wanted: str) -> str:
        """`wanted`, spelt out, if it computes what `name` does. Raises InputError, which lists those that do."""
        own, allowed = instruction(self.device, name), self.kin(name)
        if wanted in allowed:
            return example(self.device, wanted, a=own.a, b=own.b)
        found = find(self.device, wanted) if isinstance(wanted, str) else None
        if found is None or entry(self.device, wanted) not in allowed or (found.a, found.b) != (own.a, own.b):
            raise InputError(
                f"instruction = {wanted!r}; allowed, with the bits of {name}: {', '.join(allowed)}"
                f"{nearest(str(wanted), allowed)}"
            )
        return wanted

    def kin(self, name: str) -> list[str]:
        """The device's entries of the arithmetic and formats of `name`, itself among them, in the file's order."""
        own = instruction(self.device, name)
        return [key for key, model in self.device.matrix_instructions.items() if _computes(own, model)]

    def kinds(self, name: str) -> list[str]:
        """Entries with times and the bits of `name`, the first of each kind; `fitted` chooses within a kind."""
        found: dict[str, str] = {}
        for key in self.kin(name):
            if self.device.matrix_instructions[key].timing is not None:
                found.setdefault(_SHAPE.sub("k", key, count=1), key)
        return list(found.values())

    def _fit(self, name: str, m: int, n: int, cores: int) -> str:
        own = instruction(self.device, name)
        kin = [
            (key, model) for key, model in self.device.matrix_instructions.items() if self._akin(name, own, key, model)
        ]
        kin = [entry for entry in kin if entry[1].together == cores]
        timed = [entry for entry in kin if entry[1].timing is not None] or kin
        best: tuple[tuple[int, int], str] | None = None
        for key, model in timed:
            for size in self._widths(model, n):
                padded = -(-m // model.rows) * model.rows * (-(-n // size) * size)
                rank = (padded, -model.rows * size)
                if best is None or rank < best[0]:
                    best = rank, example(self.device, key, n=size, a=own.a, b=own.b)
        return name if best is None else best[1]

    @staticmethod
    def _akin(name: str, own: InstructionModel, key: str, model: InstructionModel) -> bool:
        if not _SHAPE.search(name):
            return key == name
        spelt = _SHAPE.sub("k", key, count=1)
        if model.formats:
            spelt = spelt.replace(".A.B", "", 1)
        own_name = _SHAPE.sub("k", name, count=1)
        return _computes(own, model) and own_name.startswith(spelt.split(".")[0])

    @staticmethod
    def _widths(model: InstructionModel, n: int) -> list[int]:
        """Values of N worth a look for n columns: the one instruction that covers them, or the widest."""
        if model.n_last is None:
            return [model.n]
        cover = -(-n // model.n) * model.n
        return [min(cover, model.n_last // model.n * model.n)]


def _computes(own: InstructionModel, model: InstructionModel) -> bool:
    """Whether the entry `model` has the arithmetic of the instruction `own`, for its formats."""
    formats = (own.a, own.b) == (model.a, model.b) or (own.a in model.formats and own.b in model.formats)
    return formats and all(getattr(own, name) == getattr(model, name) for name in ARITHMETIC)
