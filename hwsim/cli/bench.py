"""`hwsim bench`: speed of the units' kernels beside NumPy's float32 matmul, in one process."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

# One thread each: NumPy's BLAS reads these when it is imported, so the measurement gets a process of its own.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument(
        "--device", action="append", help="device whose native units are timed (repeatable; default: ascend910a)"
    )
    parser.add_argument("--size", type=int, default=1024, help="m = n = k (default 1024)")
    parser.add_argument(
        "--threads", type=int, default=1, help="host threads of the kernels; NumPy always has one (default 1)"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="time spent on each row (default 1)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def execute(arguments: argparse.Namespace) -> int:
    """Measure and print; returns the exit code."""
    from hwsim.errors import InputError

    for name in ("size", "threads"):
        if getattr(arguments, name) < 1:
            raise InputError(f"--{name} {getattr(arguments, name)}: allowed: at least 1")
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        command = [
            sys.executable,
            "-m",
            "hwsim",
            "bench",
            "--size",
            str(arguments.size),
            "--threads",
            str(arguments.threads),
            "--seconds",
            str(arguments.seconds),
            *(["--json"] if arguments.json else []),
        ]
        command += [word for name in arguments.device or [] for word in ("--device", name)]
        return subprocess.run(command, env=os.environ | ONE_THREAD, check=False).returncode
    from hwsim.devices import load
    from hwsim.studies.bench import rates

    found = list(
        rates(
            [load(name) for name in arguments.device or ["ascend910a"]],
            size=arguments.size,
            threads=arguments.threads,
            seconds=arguments.seconds,
        )
    )
    if arguments.json:
        print(json.dumps({"schema": "hwsim.bench/1", "rates": [rate.to_dict() for rate in found]}))
        return 0
    print(
        f"{arguments.size}^3, {arguments.threads} host thread(s); NumPy float32 matmul, one thread: "
        f"{found[0].numpy_gmac_per_second:.1f} GMAC/s"
        if found
        else "no native units"
    )
    for rate in found:
        print(
            f"{rate.device:12} {rate.format:6} {rate.model:12} {rate.kernel:9} {rate.gmac_per_second:8.2f} GMAC/s   "
            f"1/{1 / rate.ratio:.1f} of NumPy   {rate.instruction}"
        )
    return 0
