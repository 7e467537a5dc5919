"""Names of instructions that differ only in N or in the operands' formats: one entry of a device file for all.

The entry's name says `nN` where N is free and `.A.B` where the formats are. This module knows how such a name
and a spelt-out one belong together; it knows no device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

#: What instructions of one engine with equal bits have in common, beside the formats of their operands.
ARITHMETIC = ("engine", "unit", "k", "c", "d", "scale_format")

#: How PTX spells formats in the names of instructions; others are spelt as they are.
SPELLINGS = {
    "fp64": "f64",
    "fp32": "f32",
    "fp16": "f16",
    "int32": "s32",
    "int8": "s8",
    "uint8": "u8",
    "int4": "s4",
}
FREE_N = "nN"
FREE_FORMATS = ".A.B"


def spelt(fmt: str) -> str:
    """The format's name as it stands in an instruction's."""
    return SPELLINGS.get(fmt, fmt)


@dataclass(frozen=True, slots=True)
class Choices:
    """What an entry leaves open. n: the smallest N; n_last: N is any multiple of n up to it, and those in n_also.

    n_last None: only n. formats: A and B may each be any of these (none: the entry's own).
    """

    n: int
    n_last: int | None = None
    n_also: tuple[int, ...] = ()
    formats: tuple[str, ...] = ()

    def allows(self, n: int) -> bool:
        """Whether N may be `n`."""
        return n in self.n_also or (0 < n <= (self.n_last or self.n) and n % self.n == 0)

    def __str__(self) -> str:
        parts = []
        if self.n_last is not None:
            also = f", or {', '.join(map(str, self.n_also))}" if self.n_also else ""
            parts.append(f"N a multiple of {self.n} up to {self.n_last}{also}")
        if self.formats:
            parts.append(f"A and B any of {', '.join(map(spelt, self.formats))}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a spelt-out name chooses; None: nothing to choose."""

    n: int | None
    a: str | None
    b: str | None


def match(entry: str, choices: Choices, name: str) -> Choice | None:
    """Return what `name` chooses of the entry, or None when it is not one of its names."""
    found = _expression(entry, choices.formats).fullmatch(name)
    if found is None:
        return None
    groups = found.groupdict()
    n = int(groups["n"]) if "n" in groups else None
    if n is not None and not choices.allows(n):
        return None
    formats = {spelt(fmt): fmt for fmt in choices.formats}
    return Choice(n, formats.get(groups.get("a", "")), formats.get(groups.get("b", "")))


def spell(entry: str, n: int, a: str, b: str) -> str:
    """Return the entry's name with N and the formats of A and B put in."""
    return entry.replace(FREE_N, f"n{n}", 1).replace(FREE_FORMATS, f".{spelt(a)}.{spelt(b)}", 1)


@cache
def _expression(entry: str, formats: tuple[str, ...]) -> re.Pattern[str]:
    text = re.escape(entry).replace(FREE_N, "n(?P<n>[1-9][0-9]{0,3})", 1)
    any_format = "|".join(re.escape(spelt(fmt)) for fmt in formats)
    if formats:
        text = text.replace(re.escape(FREE_FORMATS), rf"\.(?P<a>{any_format})\.(?P<b>{any_format})", 1)
    return re.compile(text)
