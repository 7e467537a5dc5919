"""Tests beside NumPy whose OpenBLAS uses the kernels of another processor (OPENBLAS_CORETYPE).

They differ in the last bits of a product of floats, so a test that depends on such a bit fails here. A core whose
instructions this processor lacks is refused. --core: as OpenBLAS calls them (repeatable; default: all that this
processor runs). It needs threadpoolctl (pip), which says what OpenBLAS took.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from runs import CannotRunError, called, clean_environment, passes

#: OpenBLAS's kernels for x86-64, with the instruction sets that /proc/cpuinfo must name.
CORES = {
    "Prescott": ("pni",),
    "Nehalem": ("sse4_2",),
    "Sandybridge": ("avx",),
    "Haswell": ("avx2", "fma"),
    "SkylakeX": ("avx512f", "avx512bw", "avx512vl"),
}
#: Tests that multiply by NumPy themselves, or run parts of hwsim that do.
TESTS = (
    "tests/evaluate/test_plans_splits.py",
    "tests/schedules/test_scheduled_gemm.py",
    "tests/schedules/test_api_operands.py",
    "tests/schemes",
    "tests/emulation",
    "lab/tests/studies/test_accuracy.py",
    "tests/studies/test_evidence.py",
    "tests/studies/test_invariance.py",
    "tests/studies/test_predicted_error.py",
    "tests/devices/test_numerics_cases.py",
    "tests/report_page/test_run_page.py",
    "lab/tests/papers",
    "tests/frameworks",
)
#: What OpenBLAS calls such kernels where it calls them otherwise.
CALLED = {"Prescott": ("Prescott", "Katmai")}
#: The kernels that NumPy's OpenBLAS has chosen; another BLAS does not read the variable.
CHOSEN = (
    "import numpy, threadpoolctl\n"
    "for one in threadpoolctl.threadpool_info():\n"
    "    print(one['internal_api'], one.get('version'), one.get('architecture'))"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--core", action="append", choices=CORES, help="kernels to use (repeatable)")
    parser.add_argument("--processes", default="auto", metavar="N", help="of pytest-xdist (default: auto)")


def run(arguments: argparse.Namespace) -> bool:
    """Run the tests beside each core's kernels; whether all passed. Raises CannotRunError."""
    found = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    runs = [name for name, needed in CORES.items() if set(needed) <= set(found)]
    for name in arguments.core or runs:
        if name not in runs:
            raise CannotRunError(f"this processor has not what {name} needs; allowed: {', '.join(runs)}")
    results = []
    for name in arguments.core or runs:
        env = clean_environment(OPENBLAS_CORETYPE=name)
        chosen = called([sys.executable, "-c", CHOSEN], env)  # needs threadpoolctl
        if not set(chosen.split()) & set(CALLED.get(name, (name,))):
            raise CannotRunError(f"{name} was asked for, and NumPy's BLAS is: {chosen.strip() or 'not known'}")
        tests = arguments.tests or TESTS
        pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", arguments.processes, *tests]
        results.append(passes(f"{name} ({chosen.strip()})", pytest, env))
    return all(results)
