"""Instruction patterns: one entry of a device file for instructions that differ only in N or in operand formats.

The entry's name contains `nN` where N is free and `.A.B` where the formats are. The module matches such a pattern with
the full name of an instruction; it knows no device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

#: What instructions of one engine with equal bits have in common, beside the formats of their operands.
ARITHMETIC = ("engine", "unit", "k", "c", "d", "scale_format", "sparsity", "operand_rounding", "scale_input_d_rule")

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
    """The format's name as it appears in instruction names."""
    return SPELLINGS.get(fmt, fmt)


@dataclass(frozen=True, slots=True)
class Choices:
    """The free parameters of a pattern.

    n: the smallest N. n_last: N is any multiple of n up to it, or one of n_also; None: only n. formats: A and B may
    each be any of these (empty: the entry's own).
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
    """The parameters that a full instruction name fixes; None: the pattern leaves nothing open."""

    n: int | None
    a: str | None
    b: str | None


def match(entry: str, choices: Choices, name: str) -> Choice | None:
    """The parameters for which the entry's name becomes `name`, or None when it never does."""
    matched = _expression(entry, choices.formats).fullmatch(name)
    if matched is None:
        return None
    groups = matched.groupdict()
    n = int(groups["n"]) if "n" in groups else None
    if n is not None and not choices.allows(n):
        return None
    formats = {spelt(fmt): fmt for fmt in choices.formats}
    return Choice(n, formats.get(groups.get("a", "")), formats.get(groups.get("b", "")))


def spell(entry: str, n: int, a: str, b: str) -> str:
    """The entry's name with N and the formats of A and B inserted."""
    return entry.replace(FREE_N, f"n{n}", 1).replace(FREE_FORMATS, f".{spelt(a)}.{spelt(b)}", 1)


@cache
def _expression(entry: str, formats: tuple[str, ...]) -> re.Pattern[str]:
    text = re.escape(entry).replace(FREE_N, "n(?P<n>[1-9][0-9]{0,3})", 1)
    any_format = "|".join(re.escape(spelt(fmt)) for fmt in formats)
    if formats:
        text = text.replace(re.escape(FREE_FORMATS), rf"\.(?P<a>{any_format})\.(?P<b>{any_format})", 1)
    return re.compile(text)
