"""Times of a library's kernels as shares of what the chip could do at most, fitted to recorded GEMMs.

A kernel's microseconds are its least time over an efficiency between 0 and 1. The efficiency follows from a sum of
numbers times quantities, one row of numbers for kernels of a kind, and from a factor, which says what such a sum
cannot: edges of tiles, alignments, the power limit. lab/tools/library/fit_times.py makes both (docs/library.md). The
module knows choices, sizes and least times; no program and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from hwsim.devices.least_time import LeastTime
from hwsim.libraries.cublas.choice import CublasChoice
from hwsim.libraries.cublas.tables import records
from hwsim.libraries.cublas.times.factor import factor_at
from hwsim.libraries.cublas.times.kernel_facts import ABOUT_A_LAUNCH_US, QUANTITIES, facts, quantities
from hwsim.libraries.cublas.times.network import Networks
from hwsim.libraries.gemm_call import GemmCall

YES = {"yes": True, "no": False}
SAME = {"bf16": "fp16"}  # formats whose kernels are as fast
LEAST_EFFICIENCY = 1e-9
DIGITS = 9  # of an efficiency: hosts differ in the last bits of exponentials and sums
Key = tuple[int, str, bool, bool]


@dataclass(frozen=True, slots=True)
class TimeRow:
    """Of kernels of one algorithm with operands of one format, with or without slices of K and a bias.

    numbers: microseconds per quantity. gemms: recorded ones that an earlier fit had. mean_error: relative, of GEMMs
    that are not in the fit; where few were recorded, of each quarter of a fit by the others. chips, batch_chips: on
    which they were recorded, and on which batches of them were.
    """

    numbers: tuple[float, ...]
    gemms: int
    mean_error: float
    chips: tuple[str, ...]
    batch_chips: tuple[str, ...]

    def microseconds(self, point: tuple[float, ...], least: LeastTime) -> float:
        """Microseconds beyond a launch, at least the least time. point: of `quantities`."""
        total = math.fsum(number * quantity for number, quantity in zip(self.numbers, point, strict=True))
        return max(total, least.us)


@dataclass(frozen=True, slots=True)
class FittedTimes:
    """What a call takes by the row of its kernels and the factor. evidence: of both. launch_us: of the call, which they
    leave out.
    """

    row: TimeRow
    networks: Networks = field(repr=False)
    choice: CublasChoice
    call: GemmCall
    cores: int
    evidence: str
    launch_us: float | None = None

    @property
    def why(self) -> str:
        """From what the numbers come, in words."""
        return f"fitted to recorded GEMMs of such kernels, mean error {100 * self.row.mean_error:.0f} %"

    def efficiency(self, least: LeastTime) -> float:
        """The least time over the time of the call beyond a launch, more than 0 and at most 1."""
        point = quantities(self.choice, self.call, self.cores, least)
        sum_us = self.row.microseconds(point, least)
        factor = factor_at(self.networks, facts(self.choice, self.call, self.cores, least, sum_us))
        share = min(max(least.us / max(with_factor(sum_us, factor), least.us), LEAST_EFFICIENCY), 1.0)
        return float(f"{share:.{DIGITS}g}")

    def seconds(self, program_us: float, least: LeastTime) -> float:
        """Seconds of the call beyond a launch, whatever its program takes."""
        return least.us / self.efficiency(least) * 1e-6


def with_factor(sum_us: float, factor: float) -> float:
    """Microseconds beyond a launch: a row's sum, with a launch, times a factor."""
    return (sum_us + ABOUT_A_LAUNCH_US) * factor - ABOUT_A_LAUNCH_US


def key_of(choice: CublasChoice, call: GemmCall) -> Key:
    """The row of a call: algorithm, operands' format, whether K is in slices, whether there is a bias."""
    return choice.algorithm, SAME.get(choice.operand, choice.operand), choice.split_k > 1, call.bias


def row_of(name: str, key: Key) -> TimeRow | None:
    """The row for a key, or else for the same kernels without or with a bias; None where none was recorded."""
    rows = rows_of(name)
    return rows.get(key) or rows.get((*key[:3], not key[3]))


@cache
def rows_of(name: str) -> dict[Key, TimeRow]:
    """The rows of a file beside the library files; none without a name.

    Raises InputError where it cannot be read, ConfigError where a row is none.
    """
    if not name:
        return {}
    columns = ("algorithm", "operand", "slices", "bias", *QUANTITIES, "gemms", "mean_error", "chips", "batch_chips")
    return dict(records(name, "library", columns, _row))


def _row(fields: Mapping[str, str]) -> tuple[Key, TimeRow]:
    """The key of a line, and its row."""
    numbers, error = tuple(float(fields[name]) for name in QUANTITIES), float(fields["mean_error"])
    if not all(map(math.isfinite, numbers)) or min(numbers) < 0 or not 0 <= error < math.inf:
        raise ValueError("a number or the mean error is negative or not finite")
    for name in ("slices", "bias"):
        if fields[name] not in YES:
            raise ValueError(f"{name} = {fields[name]!r}; allowed: {', '.join(YES)}")
    key = int(fields["algorithm"]), fields["operand"], YES[fields["slices"]], YES[fields["bias"]]
    chips, batch_chips = (tuple(fields[name].split()) for name in ("chips", "batch_chips"))
    return key, TimeRow(numbers, int(fields["gemms"]), error, chips, batch_chips)
