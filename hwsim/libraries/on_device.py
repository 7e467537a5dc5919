"""A library on a device, as `hwsim.library` gives it and `library=` takes it. It joins choice and order of summation.

It knows the protocol of libraries; no library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from hwsim.gemm.record import LibraryId
from hwsim.libraries.gemm_call import GemmCall, GemmFields, OperationCall
from hwsim.libraries.kernel_choice import KernelTimes, LibraryChoice
from hwsim.libraries.protocol import ChoicesByM, LibraryRules


@dataclass(frozen=True, slots=True)
class LibraryOnDevice:
    """One version of a library on one device. rules: what the library knows of its calls."""

    rules: LibraryRules

    def __str__(self) -> str:
        return f"{self.id.name} {self.id.version} on {self.device}"

    @property
    def id(self) -> LibraryId:
        """Name and version, as the record names them."""
        return self.rules.id

    @property
    def device(self) -> str:
        """The name of the chip."""
        return self.rules.device

    @property
    def cores(self) -> int:
        """The chip's SMs or cores."""
        return self.rules.cores

    def choose(self, call: OperationCall | None = None, /, **fields: Unpack[GemmFields]) -> LibraryChoice:
        """What the library runs for a call, with its order of summation.

        call: an operation as one value; else a GEMM by its fields: m, n, k, format, and where they are not the default
        format_b, output, accumulate, a_layout, b_layout, batch, bias, reductions (hwsim.libraries.gemm_call.GemmCall
        says what they mean).

        Raises InputError for values that are not allowed, UnsupportedError where the library refuses the call and where
        its choice is not known.
        """
        wanted_call = _call(call, fields)
        choice = self.rules.choose(wanted_call)
        return replace(choice, order=self.rules.order(wanted_call, choice))

    def times(self, call: OperationCall, choice: LibraryChoice) -> KernelTimes | None:
        """What the chosen kernel takes; None: what its program takes."""
        return self.rules.times(call, choice)

    def orders(
        self,
        sizes_m: Sequence[int],
        call: GemmCall | None = None,
        /,
        *,
        progress: Callable[[float], None] | None = None,
        **fields: Unpack[GemmFields],
    ) -> ChoicesByM:
        """Choices that differ in their order of summation, which of them holds for each m, and the probability that it
        is right there.

        call, fields: as of `choose`, whatever the m. progress: is told the share done. Tile, cluster
        and the schedule's shape of each choice are of its first m. Raises as `choose`.
        """
        wanted_call = _call(call, fields if call is not None else {**fields, "m": 1})
        assert isinstance(wanted_call, GemmCall)
        by_m = self.rules.choose_each(wanted_call, sizes_m, progress)
        first: dict[int, int] = {}
        for m, place in zip(sizes_m, by_m.which, strict=True):
            first.setdefault(place, int(m))
        choices = [
            replace(choice, order=self.rules.order(replace(wanted_call, m=first[place]), choice))
            for place, choice in enumerate(by_m.choices)
        ]
        return by_m._replace(choices=choices)

    def other_calls(self, call: GemmCall) -> list[GemmCall]:
        """For which other calls of such operands a user's file has the weight of a call, where it has none for this
        one.
        """
        return self.rules.other_calls(call)

    def layouts(self, format: str, layouts: tuple[str, str]) -> tuple[str, str]:
        """The storage orders in which A and B of a format can be given, where a caller is free to choose."""
        return self.rules.layouts(format, layouts)


def _call(call: OperationCall | None, fields: GemmFields) -> OperationCall:
    if call is None:
        return GemmCall(**fields)
    if fields:
        raise TypeError(f"a call as one value and {', '.join(fields)}; give one of both")
    return call
