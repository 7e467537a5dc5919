"""`hwsim bench`: speed of the kernels beside NumPy, ml_dtypes and torch, of the timing engine and of programs."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import hwsim
from hwsim import _kernels
from hwsim.api import matmul, program, run
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError
from hwsim.host.threads import MOST
from hwsim.schemes import scheme_of, schemes
from hwsim_lab.bench import rows as bench_rows
from hwsim_lab.bench import units as bench
from hwsim_lab.bench.text import text

SECTIONS = ("units", "conversions", "timing", "schemes", "execution")
# A library's BLAS reads these when it is imported: each number of threads gets a process of its own.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
FULL = {"size": 1024, "scheme_size": 2048, "execution_size": 512, "program_size": 8192, "seconds": 1.0}
QUICK = {"size": 64, "scheme_size": 64, "execution_size": 64, "program_size": 256, "seconds": 0.0}


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    listed = ", ".join(row.scheme for row in bench_rows.SCHEMES)
    parser.add_argument(
        "--section", action="append", choices=SECTIONS, help="what to measure (repeatable; default: all)"
    )
    parser.add_argument(
        "--device",
        action="append",
        help="device whose native units and programs are timed (repeatable; default: the units with a wanted speed, "
        f"and programs on {', '.join(bench_rows.EXECUTED_ON)})",
    )
    parser.add_argument(
        "--scheme", action="append", help=f"scheme that is timed (repeatable; default: {listed}; all for programs)"
    )
    parser.add_argument("--size", type=int, help=f"m = n = k of the units (default {FULL['size']})")
    parser.add_argument("--scheme-size", type=int, help=f"m = n = k of the schemes (default {FULL['scheme_size']})")
    parser.add_argument(
        "--execution-size", type=int, help=f"m = n = k of executed programs (default {FULL['execution_size']})"
    )
    parser.add_argument(
        "--threads", type=int, action="append", help="host threads, of NumPy too (repeatable; default: 1 and all)"
    )
    parser.add_argument("--seconds", type=float, help=f"time spent on each row (default {FULL['seconds']:g})")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two runs each: shows that all of it works")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; returns the exit code."""
    defaults = QUICK if arguments.quick else FULL
    for name in ("size", "scheme_size", "execution_size", "seconds"):
        if getattr(arguments, name) is None:
            setattr(arguments, name, defaults[name])
    arguments.threads = sorted(set(arguments.threads or [1, _all_threads()]))
    for name, values in (
        ("size", [arguments.size]),
        ("scheme-size", [arguments.scheme_size]),
        ("execution-size", [arguments.execution_size]),
        ("threads", arguments.threads),
    ):
        if min(values) < 1:
            raise InputError(f"--{name} {min(values)}: allowed: at least 1")
    if max(arguments.threads) > MOST:
        raise InputError(f"--threads {max(arguments.threads)}: allowed: at most {MOST}")
    if not 0 <= arguments.seconds < math.inf:
        raise InputError(f"--seconds {arguments.seconds:g}: allowed: at least 0")
    if len(arguments.threads) == 1 and all(os.environ.get(x) == str(arguments.threads[0]) for x in THREAD_VARIABLES):
        found = _measure(arguments, arguments.threads[0], int(defaults["program_size"]))
    else:
        found = {}
        for threads in arguments.threads:
            done = _other_process(arguments, threads)
            if isinstance(done, int):
                return done
            for name, value in done.items():
                if isinstance(value, list):
                    found.setdefault(name, []).extend(value)
                else:
                    found[name] = value
    if arguments.json:
        print(json.dumps(found))
    else:
        print(text(found))
    return 0


def _machine() -> dict[str, Any]:
    """The processor and the versions of the libraries that are measured."""
    names = [platform.processor() or platform.machine()]
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        names += [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    packages: dict[str, str | None] = {}
    for name in ("numpy", "ml_dtypes", "torch"):
        packages[name] = None
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {"processor": names[-1], "threads": _all_threads(), "packages": packages}


def _all_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _other_process(arguments: argparse.Namespace, threads: int) -> dict[str, Any] | int:
    """The results of a process with this number of threads, or its exit code where it fails (it has printed the
    error).
    """
    words = ["--threads", threads, "--size", arguments.size, "--scheme-size", arguments.scheme_size]
    words += ["--execution-size", arguments.execution_size]
    words += ["--seconds", arguments.seconds, "--json", *(["--quick"] if arguments.quick else [])]
    for name in ("section", "device", "scheme"):
        words += [word for value in getattr(arguments, name) or [] for word in (f"--{name}", value)]
    command = [sys.executable, "-m", "hwsim", "bench", *map(str, words)]
    path = [str(Path(hwsim.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]  # this hwsim
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)) | {"PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode:
        return done.returncode
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _measure(arguments: argparse.Namespace, threads: int, program_size: int) -> dict[str, Any]:
    """All requested sections with this number of threads; single-threaded ones only where that is one."""
    sections, seconds = arguments.section or SECTIONS, arguments.seconds
    found: dict[str, Any] = {
        "schema": "hwsim.bench/3",
        "kernel": _kernels.variant,
        "machine": _machine(),
        "units": [],
        "conversions": [],
        "timing": [],
        "schemes": [],
        "execution": [],
    }
    if "units" in sections:
        rows = list(bench_rows.UNITS)
        if arguments.device:
            rows = [row for name in arguments.device for row in bench_rows.rows_of(name, list(load(name).native))]
        rates = bench.unit_rates(rows, size=arguments.size, threads=threads, seconds=seconds)
        found["units"] = [rate.to_dict() for rate in rates]
    if "conversions" in sections and threads == min(arguments.threads) == 1:
        elements = 1 << 10 if arguments.quick else 1 << 18
        conversions = bench.conversion_rates(list(bench_rows.CONVERSIONS), elements=elements, seconds=seconds)
        found["conversions"] = [rate.to_dict() for rate in conversions]
    if "timing" in sections and threads == 1:
        m = n = k = program_size
        for device_name, scheme, fmt in bench_rows.PROGRAMS:
            chip, lowered = program(m=m, n=n, k=k, device=device_name, scheme=scheme, format=fmt)
            found["timing"].append(bench.engine_rate(chip, scheme, lowered, (m, n, k), seconds=seconds).to_dict())
    if "schemes" in sections:
        known = {row.scheme: row for row in bench_rows.SCHEMES}
        for name in arguments.scheme or known:
            scheme_of(name)
            row = known.get(name) or bench_rows.SchemeRow(name, bench_rows.SCHEMES[0].device)
            found["schemes"].append(
                bench.scheme_rate(
                    row,
                    lambda a, b, row=row: matmul(a, b, device=row.device, scheme=row.scheme, threads=threads),  # type: ignore[misc]
                    size=arguments.scheme_size,
                    threads=threads,
                    seconds=seconds,
                ).to_dict()
            )
    if "execution" in sections:
        found["execution"] = list(_executions(arguments, threads))
    return found


def _executions(arguments: argparse.Namespace, threads: int) -> Iterator[dict[str, Any]]:
    """The times of the programs that are asked for, of those that there are."""
    names = arguments.scheme or (["native"] if arguments.quick else list(schemes()))
    for row in bench_rows.executions(arguments.device or bench_rows.EXECUTED_ON, names):
        options: dict[str, Any] = {"device": row.device, "scheme": row.scheme, "threads": threads, "timing": False}
        with suppress(UnsupportedError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of schemes, about accuracy
            yield bench.execution_rate(
                row, partial(run, **options), size=arguments.execution_size, threads=threads, seconds=arguments.seconds
            ).to_dict()
