"""Compare hwsim's times with GEMM times that others measured: the tables of the package aiconfigurator-core.

    pip install './lab[independent]'        # the tables, and what reads them
    python lab/tools/measure/independent.py     # 400 shapes of each chip, bf16

The tables have rows (format, m, n, k, milliseconds) by chip, framework and the framework's version. Of each framework
the newest version is taken, several rows of a shape by their median; a shape counts where all frameworks have it, and
its time is the median of theirs. How far frameworks differ from one another is printed, too: no model can be nearer.

A sample is drawn by seed from the shapes of 2^30 to 2^39 multiply-adds. A hash of the shape puts it into the half
`fit`, to which numbers may be fitted (their `fitted_to` names it), or `held`, to which none is.

As the frameworks' layers do, A is row-major, B (weights) column-major, and C has the format of the table. Layers run in
turn in a CUDA graph: unless L2 holds COPIES of B beside A and C, the B of the run before was another one. cuBLAS takes
C for column-major: its kernels compute the transpose of C or, with A and B exchanged, C. To the simulated time is added
a launch: the time of the smallest GEMM of the table, 16 x 32 x 32 (lab/docs/cycles.md).
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from statistics import median

import numpy as np

import hwsim
from hwsim.cli.progress import ProgressBar
from hwsim.errors import HwsimError, InputError
from hwsim.formats import format_of
from hwsim.libraries.cublas.versions import versions
from hwsim.libraries.gemm_call import GemmCall
from hwsim.libraries.times import kernel_seconds
from hwsim.machines.load import with_other_arrays

PACKAGE = "aiconfigurator_core"
#: Folder of each device in the package.
SYSTEMS = {
    "h200": "h200_sxm", "h100": "h100_sxm", "a100": "a100_sxm", "b200": "b200_sxm", "gb200": "gb200", "l40s": "l40s",
}  # fmt: skip
#: Name of a format in the tables, and the format of C.
FORMATS = {"bf16": ("bfloat16", "bf16"), "e4m3": ("fp8", "bf16")}
LEAST_MACS, MOST_MACS = 1 << 30, 1 << 39
SHAPES, SEED = 400, 20261123
SMALLEST = (16, 32, 32)  # the GEMM whose time is a launch
COPIES = 6  # of the weights, in turn
THIN, SHORT, TILE, PAST = 160, 256, 64, 8  # bounds of the regions
REGIONS = (f"m <= {THIN}", f"k <= {SHORT}", "m past a tile", "rest")
HALVES = ("fit", "held")
#: Groups by measured time: names, and the least microseconds of each.
DURATIONS = {"to 15 us": 0.0, "15 to 50 us": 15.0, "50 to 150 us": 50.0, "from 150 us": 150.0}
Sizes = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Measured:
    """A shape (m, n, k) and its microseconds by framework."""

    sizes: Sizes
    by_framework: Mapping[str, float]

    @property
    def us(self) -> float:
        """Median of the frameworks, microseconds."""
        return median(self.by_framework.values())

    @property
    def half(self) -> str:
        """`fit` or `held`: the last bit of the first byte of SHA-256 of the text "m x n x k", without blanks."""
        digest = hashlib.sha256("x".join(map(str, self.sizes)).encode()).digest()
        return HALVES[1 - (digest[0] & 1)]

    @property
    def region(self) -> str:
        """The first of REGIONS that the shape is in."""
        m, _, k = self.sizes
        inside = (m <= THIN, k <= SHORT, 0 < m % TILE <= PAST, True)
        return REGIONS[inside.index(True)]

    @property
    def duration(self) -> str:
        """The one of DURATIONS that the time is in."""
        return [name for name, least in DURATIONS.items() if self.us >= least][-1]


@dataclass(frozen=True, slots=True)
class Compared:
    """A measured shape beside the simulated time of one way (`estimate`, or a library's name); microseconds."""

    measured: Measured
    way: str
    simulated_us: float

    @property
    def error(self) -> float:
        """Relative to the measurement."""
        return self.simulated_us / self.measured.us - 1


# --- tables ----------------------------------------------------------------------------------------------------------


def package_folder() -> Path:
    """The package's folder of systems. Raises InputError where it is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise InputError(
            f"{PACKAGE} is not installed, which has the tables; allowed: --tables FOLDER, or pip install "
            "'./lab[independent]'"
        )
    return Path(found.submodule_search_locations[0]) / "systems" / "data"


def tables_of(folder: Path, device: str) -> dict[str, Path]:
    """The newest table of each framework for a device, by "framework version". Raises InputError where there is none.

    folder: SYSTEM/gemm/FRAMEWORK/VERSION/gemm_perf.parquet, or .csv, below it.
    """
    newest: dict[str, Path] = {}
    for path in sorted(folder.glob(f"{SYSTEMS[device]}/gemm/*/*/gemm_perf.*")):
        framework = path.parent.parent.name
        if path.suffix in (".parquet", ".csv") and (
            framework not in newest or _version(path) > _version(newest[framework])
        ):
            newest[framework] = path
    if not newest:
        raise InputError(f"{folder}: no table {SYSTEMS[device]}/gemm/FRAMEWORK/VERSION/gemm_perf.parquet for {device}")
    return {f"{framework} {path.parent.name}": path for framework, path in sorted(newest.items())}


def _version(path: Path) -> tuple[tuple[int, str], ...]:
    """A version's parts in order: numbers by value, and release candidates before the release."""
    parts = re.findall(r"\d+|[a-z]+", path.parent.name)
    return (*((int(x), "") if x.isdigit() else (-1, x) for x in parts), (0, ""))


def rows_of(path: Path, name: str) -> Iterator[tuple[Sizes, float]]:
    """Sizes (m, n, k) and microseconds of the rows of one format, by its name in the table."""
    columns = ("gemm_dtype", "m", "n", "k", "latency")
    if path.suffix == ".parquet":
        from pyarrow import parquet

        table = parquet.read_table(path, columns=list(columns)).to_pydict()
    else:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        table = {column: [row[column] for row in rows] for column in columns}
    for kind, m, n, k, milliseconds in zip(*(table[column] for column in columns), strict=True):
        if kind == name:
            yield (int(m), int(n), int(k)), float(milliseconds) * 1e3


def joined(tables: Mapping[str, Iterable[tuple[Sizes, float]]]) -> dict[Sizes, Measured]:
    """The shapes that all tables have, with the median of a table's rows of a shape; tables: rows by framework."""
    found: dict[str, dict[Sizes, list[float]]] = {}
    for framework, rows in tables.items():
        own = found.setdefault(framework, {})
        for sizes, us in rows:
            own.setdefault(sizes, []).append(us)
    common = set.intersection(*(set(own) for own in found.values())) if found else set()
    return {
        sizes: Measured(sizes, {framework: median(own[sizes]) for framework, own in found.items()})
        for sizes in sorted(common)
    }


def sample(rows: Mapping[Sizes, Measured], shapes: int, seed: int) -> list[Measured]:
    """At most `shapes` shapes of LEAST_MACS to MOST_MACS, drawn by seed and sorted by size."""
    fitting = [row for sizes, row in sorted(rows.items()) if LEAST_MACS <= macs(sizes) <= MOST_MACS]
    if len(fitting) <= shapes:
        return fitting
    drawn = np.random.default_rng(seed).choice(len(fitting), shapes, replace=False)
    return [fitting[i] for i in sorted(drawn.tolist())]


def macs(sizes: Sizes) -> int:
    """Multiply-adds."""
    m, n, k = sizes
    return m * n * k


def floor(rows: Sequence[Measured]) -> dict[str, float]:
    """Mean absolute difference of each two frameworks, relative to the second, by their names."""
    if not rows:
        return {}
    return {
        f"{one} / {other}": float(np.mean([abs(x.by_framework[one] / x.by_framework[other] - 1) for x in rows]))
        for one, other in combinations(rows[0].by_framework, 2)
    }


# --- hwsim -----------------------------------------------------------------------------------------------------------


def simulated(device: str, format: str, sizes: Sizes, way: str) -> float:
    """Simulated microseconds without a launch. way: `estimate`, or a library's name.

    `estimate`: tile and slices of K of least estimated time, or K in one piece, of C or of its transpose: the fastest.
    """
    m, n, k = sizes
    call = {"m": m, "n": n, "k": k, "device": device, "format": format, "output": FORMATS[format][1]}
    call |= {"b_layout": "columns", "exact": False, "threads": 1}
    if way != "estimate":
        return by_library(device, format, sizes, way)
    chip = hwsim.device(device)
    bits, result = format_of(format).bits, format_of(FORMATS[format][1]).bits
    held = (COPIES * n * k + m * k) * bits / 8 + m * n * result / 8
    is_kept = chip.l2 is not None and held <= chip.l2.capacity_bytes
    found = []
    for (rows, columns, weights), split_k in product(((m, n, "B"), (n, m, "A")), ("auto", 1)):
        times = hwsim.run(**call | {"m": rows, "n": columns, "split_k": split_k}).times
        if times.program is None:
            raise InputError(f"{device}: {times.note}; leave it out of --chips")
        loaded, timed = with_other_arrays(times.program, chip, times.unit, () if is_kept else (weights,))
        found.append(timed.cycles / loaded.clock_mhz)
    return min(found)


def by_library(device: str, format: str, sizes: Sizes, name: str) -> float:
    """Microseconds of a library's call without a launch, as `hwsim.run(library=)` says them; no program is simulated.

    Raises InputError where no times of such kernels are known.
    """
    m, n, k = sizes
    library = hwsim.library(name, device=device)
    call = GemmCall(m=m, n=n, k=k, format=format, output=FORMATS[format][1], b_layout="columns")
    times = library.times(call, library.choose(call))
    if times is None:
        raise InputError(f"{device}: no times of {name} for {m} x {n} x {k} are known; leave it out of --ways")
    return kernel_seconds(hwsim.device(device), call, times) * 1e6


def ways_of(device: str) -> tuple[str, ...]:
    """The ways in which a device's times are simulated."""
    return ("estimate", *dict.fromkeys(x.library for x in versions() if device in x.devices))


def compare(
    rows: Sequence[Measured],
    device: str,
    format: str,
    launch_us: float,
    ways: Sequence[str],
    progress: Callable[[float], None],
) -> list[Compared]:
    """Each row in each of the ways. progress: called with the share done."""
    found = []
    for i, row in enumerate(rows):
        for way in ways:
            found.append(Compared(row, way, simulated(device, format, row.sizes, way) + launch_us))
        progress((i + 1) / len(rows))
    return found


def summary(rows: Sequence[Compared]) -> dict[str, float]:
    """Number of rows, and of their relative errors: mean, median and 90th percentile of the sizes, and the mean."""
    errors = np.array([row.error for row in rows])
    size = np.abs(errors)
    return {
        "shapes": len(rows),
        "mean": float(size.mean()),
        "median": float(np.median(size)),
        "p90": float(np.quantile(size, 0.9)),
        "bias": float(errors.mean()),
    }


def summaries(rows: Sequence[Compared]) -> list[dict[str, object]]:
    """The summaries by way: of all rows, by half, by region, and by duration."""
    found: list[dict[str, object]] = []
    for way in dict.fromkeys(row.way for row in rows):
        own = [row for row in rows if row.way == way]
        groups = {"all": own}
        groups |= {half: [x for x in own if x.measured.half == half] for half in HALVES}
        groups |= {region: [x for x in own if x.measured.region == region] for region in REGIONS}
        groups |= {duration: [x for x in own if x.measured.duration == duration] for duration in DURATIONS}
        found += [{"way": way, "group": name, **summary(group)} for name, group in groups.items() if group]
    return found


# --- command ---------------------------------------------------------------------------------------------------------


def main(given: Sequence[str] | None = None) -> int:
    """The command; exit status 0, or 2 after an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", default=",".join(SYSTEMS), help=f"device files, with commas ({', '.join(SYSTEMS)})")
    parser.add_argument(
        "--format", choices=tuple(FORMATS), default="bf16", help="e4m3: its rows hold the quantisation of A"
    )
    parser.add_argument("--ways", help="estimate or a library's name, with commas (all that a chip has)")
    parser.add_argument("--shapes", type=int, default=SHAPES, help="shapes of each chip")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--tables", type=Path, help="folder of systems (default: that of the installed package)")
    parser.add_argument("--json", action="store_true", help="print JSON: per chip tables, summaries, rows")
    parser.add_argument("--worst", type=int, default=0, help="also print so many shapes of largest error")
    arguments = parser.parse_args(given)
    try:
        found = {chip: _of_chip(chip, arguments) for chip in arguments.chips.split(",")}
    except HwsimError as error:
        print(f"independent.py: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        for chip, one in found.items():
            _print(chip, one, arguments.worst)
    return 0


def _of_chip(chip: str, arguments: argparse.Namespace) -> dict[str, object]:
    if chip not in SYSTEMS:
        raise InputError(f"--chips: got {chip!r}; allowed: {', '.join(SYSTEMS)}")
    ways = ways_of(chip) if arguments.ways is None else tuple(arguments.ways.split(","))
    if unknown := sorted(set(ways) - set(ways_of(chip))):
        raise InputError(f"--ways: got {unknown[0]!r}; allowed for {chip}: {', '.join(ways_of(chip))}")
    if arguments.format not in hwsim.device(chip).native:
        raise InputError(f"--format: {chip} has no {arguments.format}; leave it out of --chips")
    name = FORMATS[arguments.format][0]
    tables = tables_of(arguments.tables or package_folder(), chip)
    every = joined({label: rows_of(path, name) for label, path in tables.items()})
    if SMALLEST not in every:
        raise InputError(f"{chip}: no row {SMALLEST} of {name} in all of {', '.join(tables)}; its time is a launch")
    launch = every[SMALLEST].us
    drawn = sample(every, arguments.shapes, arguments.seed)
    if not drawn:
        raise InputError(f"{chip}: no shape of 2^30 to 2^39 multiply-adds of {name} in all of {', '.join(tables)}")
    with closing(ProgressBar(sys.stderr)) as progress:
        rows = compare(drawn, chip, arguments.format, launch, ways, progress)
    return {
        "tables": list(tables),
        "launch_us": launch,
        "frameworks_differ": floor(drawn),
        "summaries": summaries(rows),
        "rows": [
            {
                "m": x.measured.sizes[0], "n": x.measured.sizes[1], "k": x.measured.sizes[2],
                "half": x.measured.half, "region": x.measured.region, "way": x.way,
                "measured_us": round(x.measured.us, 3), "simulated_us": round(x.simulated_us, 3),
                "error": round(x.error, 4),
            }
            for x in rows
        ],
    }  # fmt: skip


def _print(chip: str, one: Mapping[str, object], worst: int) -> None:
    differ = ", ".join(f"{pair} {100 * x:.1f} %" for pair, x in one["frameworks_differ"].items())
    print(f"{chip}: {', '.join(one['tables'])}; launch {one['launch_us']:.2f} us")
    print(f"  frameworks among themselves: {differ or 'one alone'}")
    for x in one["summaries"]:
        errors = " ".join(f"{name} {100 * x[name]:5.1f} %" for name in ("mean", "median", "p90"))
        print(f"  {x['way']:10} {x['group']:14} {x['shapes']:4} shapes: {errors} bias {100 * x['bias']:+5.1f} %")
    for x in sorted(one["rows"], key=lambda row: -abs(row["error"]))[:worst]:
        print(
            f"    {x['way']:10} {x['m']} x {x['n']} x {x['k']} ({x['half']}): measured {x['measured_us']:.1f} us, "
            f"simulated {x['simulated_us']:.1f} ({100 * x['error']:+.0f} %)"
        )


if __name__ == "__main__":
    sys.exit(main())
