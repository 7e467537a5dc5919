"""Time of a library's kernels: that of their program, and what such kernels cost besides, as fitted to recorded GEMMs.

Microseconds are a sum of numbers times quantities (QUANTITIES): a constant, the program's own time, that of the kernel
which hwsim would choose, megabytes, and what steps of K and tiles cost on the busiest SM and on average. What such a
sum cannot say (the power limit of large GEMMs, edges of tiles, alignments) is a factor from regression trees over the
quantities and FACTS. lab/tools/library/fit_times.py makes both from times measured on each chip (docs/library.md). The
module knows choices and sizes; no program and no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file

import numpy as np

from hwsim.errors import InputError
from hwsim.formats import format_of
from hwsim.host.places import package_folder
from hwsim.libraries.cublas.calls import ELEMENT_BYTES
from hwsim.libraries.cublas.choice import CublasChoice
from hwsim.libraries.cublas.tables import records
from hwsim.libraries.cublas.times.forest import Forest, unpack
from hwsim.libraries.gemm_call import GemmCall

#: What the numbers multiply. A step: one tile of K of one CTA; a wave: a tile of C on each SM. Means are over all SMs.
QUANTITIES = (
    "constant",
    "program_us",
    "estimate_us",  # of the best kernel by hwsim's own estimate, without the library
    "megabytes",  # of A, B and D
    "steps",  # of the busiest SM, all waves
    "waves",
    "step_mega_macs",  # multiply-adds of the busiest SM's steps, edges and all
    "step_kilo_elements",  # of A and B that they load
    "mean_steps",
    "mean_step_mega_macs",
    "mean_step_kilo_elements",
    "steps_of_a_tile",
    "wave_kilo_elements",  # of D that the busiest SM writes
    "mean_wave_kilo_elements",
    "multicast_kilo_elements",  # as step_kilo_elements, of which the CTAs of a cluster read each once
    "mean_multicast_kilo_elements",
    "slice_kilo_k",  # K of a slice
    "kilo_results",  # of all slices
)
#: What the trees split on beside the quantities.
FACTS = (
    "m",
    "n",
    "k",
    "macs",
    "tile_m",
    "tile_n",
    "tile_k",
    "stages",
    "cluster_m",
    "cluster_n",
    "slices",
    "algorithm",
    "format",
    "output_bits",
    "is_promoted",
    "b_by_rows",
    "m_alignment",
    "n_alignment",
    "k_alignment",
    "edge_m",
    "edge_n",  # edge: the share of the last tile that is in C
    "sum_us",
)
ABOUT_A_LAUNCH_US = 2.0  # the factor is of the time with a launch: very short kernels hide in it
MOST_ALIGNED = 128  # elements
FORMATS = tuple(ELEMENT_BYTES)
STEP = 32  # of K, where the choice does not say it
SLICES = {"yes": True, "no": False}
ANY = "any"  # operands: where too few GEMMs of one format were recorded
SAME = {"bf16": "fp16"}  # formats whose kernels are as fast
Key = tuple[int, str, bool]


@dataclass(frozen=True, slots=True)
class TimeRow:
    """Of kernels of one algorithm with operands of one format, with or without slices of K.

    numbers: microseconds per quantity. gemms: recorded ones that it was fitted to. mean_error: relative, of the times
    of each quarter of them by numbers fitted to the others.
    """

    numbers: tuple[float, ...]
    gemms: int
    mean_error: float

    def seconds(self, point: tuple[float, ...]) -> float:
        """Seconds beyond a launch, at least 0; found: of `quantities`."""
        total = math.fsum(number * quantity for number, quantity in zip(self.numbers, point, strict=True))
        return max(total, 0.0) * 1e-6


@dataclass(frozen=True, slots=True)
class FittedTimes:
    """What a call takes by the row of its kernels and, for a single product, the trees. evidence: of both."""

    row: TimeRow
    forest: Forest | None
    choice: CublasChoice
    call: GemmCall
    cores: int
    evidence: str

    @property
    def why(self) -> str:
        """From what the numbers come, in words."""
        error = f"mean error {100 * self.row.mean_error:.0f} %"
        return f"fitted to {self.row.gemms} recorded GEMMs of such kernels, {error}"

    def seconds(self, program_us: float, estimate_us: float) -> float:
        """Seconds of the call beyond a launch; arguments as of hwsim.libraries.kernel_choice.KernelTimes."""
        point = quantities(self.choice, self.call, self.cores, program_us, estimate_us)
        seconds = self.row.seconds(point)
        if self.forest is None or self.call.batch > 1:  # recorded ones were single products
            return seconds
        us = seconds * 1e6
        return with_factor(self.forest, (*point, *facts(self.choice, self.call, us)), us) * 1e-6


def quantities(
    choice: CublasChoice, call: GemmCall, cores: int, program_us: float, estimate_us: float
) -> tuple[float, ...]:
    """The values of QUANTITIES. program_us, estimate_us: of all products, 0 where there is none."""
    (m, n, k), matrices = call.sizes, call.batch
    moved = (m * k + k * n) * ELEMENT_BYTES[choice.operand] + m * n * format_of(call.result).bits / 8
    common = (1.0, program_us, estimate_us, matrices * moved / 1e6)
    whole = (k / choice.split_k / 1e3, matrices * m * n * choice.split_k / 1e3)
    if choice.tile is None:
        return (*common, *(0.0,) * (len(QUANTITIES) - len(common) - len(whole)), *whole)
    rows, columns = choice.tile
    step = choice.tile_k or STEP
    tiles = math.ceil(m / rows) * math.ceil(n / columns) * choice.split_k * matrices
    waves, mean = math.ceil(tiles / cores), tiles / cores
    deep = math.ceil(k / choice.split_k / step)
    macs, loaded, written = rows * columns * step / 1e6, (rows + columns) * step / 1e3, rows * columns / 1e3
    busiest = (waves * deep, waves, waves * deep * macs, waves * deep * loaded)
    means = (mean * deep, mean * deep * macs, mean * deep * loaded)
    high, wide = choice.cluster or (1, 1)
    shared = deep * (rows / wide + columns / high) * step / 1e3
    written_and_shared = (float(deep), waves * written, mean * written, waves * shared, mean * shared)
    return (*common, *busiest, *means, *written_and_shared, *whole)


def facts(choice: CublasChoice, call: GemmCall, sum_us: float) -> tuple[float, ...]:
    """The values of FACTS. sum_us: of the row, without a launch."""
    m, n, k = call.sizes
    rows, columns = choice.tile or (0, 0)
    high, wide = choice.cluster or (0, 0)
    shape = (m, n, k, m * n * k / 1e6, rows, columns, choice.tile_k, choice.stages or 0, high, wide, choice.split_k)
    is_promoted = choice.schedule.promotion_k is not None
    kind = (
        choice.algorithm,
        FORMATS.index(choice.operand),
        format_of(call.result).bits,
        is_promoted,
        call.b_layout == "rows",
    )
    alignments = (math.gcd(size, MOST_ALIGNED) for size in call.sizes)
    edges = ((m % rows or rows) / rows if rows else 0.0, (n % columns or columns) / columns if columns else 0.0)
    return tuple([float(x) for x in (*shape, *kind, *alignments, *edges, sum_us)])


def with_factor(forest: Forest, point: tuple[float, ...], sum_us: float) -> float:
    """Microseconds beyond a launch: the row's sum times the trees' factor, at least 0."""
    return max((sum_us + ABOUT_A_LAUNCH_US) * math.exp(forest.at(point)) - ABOUT_A_LAUNCH_US, 0.0)


def key_of(choice: CublasChoice) -> Key:
    """The row of a choice: algorithm, operands' format, whether K is in slices."""
    return choice.algorithm, SAME.get(choice.operand, choice.operand), choice.split_k > 1


def row_of(name: str, device: str, key: Key) -> TimeRow | None:
    """The row for a key, or that of all formats; None where no such kernel was recorded."""
    rows = rows_of(name, device)
    return rows.get(key) or rows.get((key[0], ANY, key[2]))


@cache
def rows_of(name: str, device: str) -> dict[Key, TimeRow]:
    """The rows of a file beside the library files, of one chip; none without a name.

    Raises InputError where it cannot be read, ConfigError where a row is none.
    """
    if not name:
        return {}
    columns = ("device", "algorithm", "operand", "slices", *QUANTITIES, "gemms", "mean_error")
    rows = records(name, "library", columns, _row)
    return {key: row for (chip, key), row in rows if chip == device}


def _row(fields: Mapping[str, str]) -> tuple[tuple[str, Key], TimeRow]:
    """The chip and key of a line, and its row."""
    numbers, error = tuple(float(fields[name]) for name in QUANTITIES), float(fields["mean_error"])
    if not all(map(math.isfinite, numbers)) or not 0 <= error < math.inf:
        raise ValueError("a number is not finite, or the mean error is negative")
    if fields["slices"] not in SLICES:
        raise ValueError(f"slices = {fields['slices']!r}; allowed: {', '.join(SLICES)}")
    key = int(fields["algorithm"]), fields["operand"], SLICES[fields["slices"]]
    return (fields["device"], key), TimeRow(numbers, int(fields["gemms"]), error)


@cache
def forest_of(name: str, device: str) -> Forest | None:
    """The trees of a file beside the library files, of one chip; None without a name, or where it has none of the chip.

    Raises InputError where it cannot be read.
    """
    if not name:
        return None
    try:
        with as_file(package_folder("libraries") / name) as path, np.load(path) as file:
            arrays = {key.split("/")[1]: file[key] for key in file.files if key.split("/")[0] == device}
            return unpack(arrays) if arrays else None
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InputError(f"{name}: {error}; install hwsim again") from None
