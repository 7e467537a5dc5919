"""Paired speed of two builds of the dot kernels: both run in one process, in turn.

python lab/tools/paired_kernels.py BASE NEW [--device D] [--format F] [--size N] [--pairs N] [--build avx2]

BASE and NEW are files of the extension hwsim._kernels.dot (dot.cpython-311-x86_64-linux-gnu.so), for the same Python.
Each unit computes size^3 on N(0, 1), or on operands of all exponents, by one thread. The ratio of the best times and
the median of the ratios of pairs are printed: processor time, so other load hardly counts. Exit code 1: bits differ.
"""

from __future__ import annotations

import argparse
import statistics
import time
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from hwsim.devices import dot_spec, load
from hwsim.errors import HwsimError
from hwsim.formats import format_of
from hwsim_lab.bench.rows import UNITS, UnitRow, rows_of
from hwsim_lab.bench.units import operand_codes

NAME = "hwsim._kernels.dot"


def loaded(path: str) -> ModuleType:
    """The extension of a file, beside others of its name. Raises ImportError where it is none."""
    if not Path(path).is_file():
        raise ImportError(f"{path}: no such file; allowed: a built {NAME}")
    loader = ExtensionFileLoader(NAME, path)
    spec = spec_from_file_location(NAME, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path}: no extension; allowed: a built {NAME}")
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def compare(builds: list[ModuleType], row: UnitRow, size: int, pairs: int, build: str | None) -> bool:
    """Print a unit's line. Whether the bits are equal."""
    spec = row.spec or dot_spec(load(row.device), load(row.device).native[row.format])
    a, b = (operand_codes(size, format_of(name), row.exponents, seed) for seed, name in enumerate((spec.a, spec.b)))
    base, new = (module.gemm(spec, a, b, _variant=build) for module in builds)
    times: list[tuple[float, float]] = []
    for i in range(pairs):
        taken = [0.0, 0.0]
        for which in (0, 1) if i % 2 else (1, 0):
            start = time.thread_time()
            builds[which].gemm(spec, a, b, _variant=build)
            taken[which] = time.thread_time() - start
        times.append((taken[0], taken[1]))
    best = [min(side) for side in zip(*times, strict=True)]
    is_equal = bool((base == new).all())
    print(
        f"{row.device or 'chain':11} {row.format:9} {row.exponents:9}"
        f" base {size**3 / best[0] / 1e9:6.2f}, new {size**3 / best[1] / 1e9:6.2f} GMAC/s;"
        f" ratio of best {best[0] / best[1]:.3f}, median {statistics.median(x / y for x, y in times):.3f}"
        f"{'' if is_equal else '; BITS DIFFER'}",
        flush=True,
    )
    return is_equal


def main() -> None:
    """Compare the units of a device, or those of lab/docs/speed.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("new")
    parser.add_argument("--device", help="its native units; default: those of lab/docs/speed.md")
    parser.add_argument("--format", help="of these only")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--build", help="avx512, avx2 or baseline; default: the best that runs")
    given = parser.parse_args()
    try:
        builds = [loaded(given.base), loaded(given.new)]
        rows = rows_of(given.device, list(load(given.device).native)) if given.device else list(UNITS)
        chosen = [row for row in rows if given.format in (None, row.format)]
        if not chosen:
            allowed = ", ".join(dict.fromkeys(row.format for row in rows))
            parser.error(f"--format {given.format}: no unit has it; allowed: {allowed}")
        equal = [compare(builds, row, given.size, given.pairs, given.build) for row in chosen]
    except (ImportError, HwsimError) as error:
        parser.error(str(error))
    raise SystemExit(0 if all(equal) else 1)


if __name__ == "__main__":
    main()
