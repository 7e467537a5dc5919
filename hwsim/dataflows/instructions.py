"""Selects matrix instructions for a tile: variants of one instruction with the same arithmetic, in another shape or by
another name.

Instructions with the same dot unit and K give the same bits, so the choice changes only cycles.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hwsim.devices import example, find, instruction, instruction_for
from hwsim.devices.patterns import ARITHMETIC
from hwsim.devices.query import entry
from hwsim.errors import InputError, nearest
from hwsim.host.multiples import round_up

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel

_SHAPE = re.compile(r"m\d+n(?:\d+|N)k")


class Instructions:
    """The matrix instructions of one device, by formats and size of a tile."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def fitted(self, name: str, m: int, n: int, cores: int = 1) -> str:
        """The variant of `name` for a tile of m x n on each of `cores` cores: with the least padding, then the largest.

        Variants with timing data are preferred. `name` itself where no variant runs on that number of cores.
        """
        key, known = (name, m, n, cores), self.device._fitted
        if key not in known:
            known[key] = self._fit(name, m, n, cores)
        return known[key]

    def of(self, name: str, a: str, b: str) -> str:
        """The variant of `name` for operands of formats a and b. Raises UnsupportedError where there is none."""
        key = entry(self.device, name)
        model = self.device.matrix_instructions[key] if key is not None else None
        if key is not None and model is not None and a in model.formats and b in model.formats:
            return example(self.device, key, n=instruction(self.device, name).n, a=a, b=b)
        return instruction_for(self.device, a, b)

    def like(self, name: str, wanted: str) -> str:
        """The full name of `wanted`, if it gives the same bits as `name`. Raises InputError, which lists those
        that do.
        """
        reference, allowed = instruction(self.device, name), self.equivalents(name)
        if wanted in allowed:
            return example(self.device, wanted, a=reference.a, b=reference.b)
        model = find(self.device, wanted) if isinstance(wanted, str) else None
        if (
            model is None
            or entry(self.device, wanted) not in allowed
            or (model.a, model.b) != (reference.a, reference.b)
        ):
            raise InputError(
                f"instruction = {wanted!r}; allowed, with the bits of {name}: {', '.join(allowed)}"
                f"{nearest(str(wanted), allowed)}"
            )
        return wanted

    def equivalents(self, name: str) -> list[str]:
        """The keys of the device's entries with the arithmetic and formats of `name`, including its own, in the file's
        order.
        """
        reference = instruction(self.device, name)
        return [key for key, model in self.device.matrix_instructions.items() if _computes(reference, model)]

    def equivalent_families(self, name: str) -> list[str]:
        """One key per family of equivalents with timing data (mma, wgmma, ...); `fitted` selects within a family."""
        keys: dict[str, str] = {}
        for key in self.equivalents(name):
            if self.device.matrix_instructions[key].timing is not None:
                keys.setdefault(_SHAPE.sub("k", key, count=1), key)
        return list(keys.values())

    def smallest(self, name: str) -> tuple[int, int]:
        """The fewest rows and columns of C that a variant of `name` computes."""
        variants = [self.device.matrix_instructions[key] for key in self._variants(name)]
        return min(model.m for model in variants), min(model.n for model in variants)

    def _fit(self, name: str, m: int, n: int, cores: int) -> str:
        reference = instruction(self.device, name)
        variants = [
            (key, self.device.matrix_instructions[key])
            for key in self._variants(name)
            if self.device.matrix_instructions[key].core_count == cores
        ]
        timed = [entry for entry in variants if entry[1].timing is not None] or variants
        best: tuple[tuple[int, int], str] | None = None
        for key, model in timed:
            for size in self._widths(model, n):
                padded = round_up(m, model.rows) * round_up(n, size)
                rank = (padded, -model.rows * size)
                if best is None or rank < best[0]:
                    best = rank, example(self.device, key, n=size, a=reference.a, b=reference.b)
        return name if best is None else best[1]

    def _variants(self, name: str) -> tuple[str, ...]:
        """The keys of the device's entries with variants of `name`."""
        known = self.device._variants
        if name not in known:
            reference = instruction(self.device, name)
            models = self.device.matrix_instructions.items()
            known[name] = tuple(key for key, model in models if self._is_variant(name, reference, key, model))
        return known[name]

    @staticmethod
    def _is_variant(name: str, reference: InstructionModel, key: str, model: InstructionModel) -> bool:
        if not _SHAPE.search(name):
            return key == name
        spelt = _SHAPE.sub("k", key, count=1)
        if model.formats:
            spelt = spelt.replace(".A.B", "", 1)
        own_name = _SHAPE.sub("k", name, count=1)
        return _computes(reference, model) and own_name.startswith(spelt.split(".")[0])

    @staticmethod
    def _widths(model: InstructionModel, n: int) -> list[int]:
        """Candidate values of N for n columns: the one instruction that covers them, or the widest."""
        if model.n_last is None:
            return [model.n]
        cover = round_up(n, model.n)
        return [min(cover, model.n_last // model.n * model.n)]


def same_family(name: str, other: str) -> bool:
    """Whether two instructions are of one family: they differ in their shape alone (mma, wgmma, ...)."""
    return _SHAPE.sub("k", name, count=1).split(".")[0] == _SHAPE.sub("k", other, count=1).split(".")[0]


def _computes(reference: InstructionModel, model: InstructionModel) -> bool:
    """Whether the entry `model` has the same arithmetic as the instruction `reference`, for its formats."""
    formats = (reference.a, reference.b) == (model.a, model.b) or (
        reference.a in model.formats and reference.b in model.formats
    )
    return formats and all(getattr(reference, name) == getattr(model, name) for name in ARITHMETIC)
