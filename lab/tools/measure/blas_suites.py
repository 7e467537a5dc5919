"""NumPy's and SciPy's own tests of products under `hwsim blas`, on an fp64 unit: which fail there and not without.

python lab/tools/measure/blas_suites.py [--device NAME or FILE] [--format FORMAT] [--suite NAME ...]

The device is the template exact_fp64, whose dot products are rounded once, unless another is given (h200: a chain of
fused multiply-adds). Every product of these tests, of float32, float64 and complex, is computed there in fp64. Needs
pytest, hypothesis and SciPy. Exits with 1 where a test fails that passes without. Products that memory does not hold
are the program's own.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hwsim.devices.templates import new_device_file

PRODUCTS = "matmul or Matmul or dot or Dot or inner or Inner or einsum or Einsum or vdot"
ARRAYS = ("numpy._core.tests.test_multiarray", "numpy._core.tests.test_einsum")
SUITES = {
    "numpy: products": ["--pyargs", *ARRAYS, "-k", PRODUCTS],
    "numpy.linalg": ["--pyargs", "numpy.linalg.tests.test_linalg"],
    "scipy.linalg: blas": ["--pyargs", "scipy.linalg.tests.test_blas"],
    "scipy.linalg: basic": ["--pyargs", "scipy.linalg.tests.test_basic"],
}
COUNT = re.compile(r"(\d+) (passed|failed|skipped|error)")


def outcome(words, front=()):
    """(counts, names of failed tests) of a run of pytest."""
    command = [*front, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rf", *words]
    with tempfile.TemporaryDirectory() as folder:  # away from hwsim's own configuration of pytest
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    lines = [line for line in done.stdout.splitlines() if COUNT.search(line)]
    if not lines:
        sys.exit(f"pytest says nothing: {done.stdout[-500:]}{done.stderr[-500:]}")
    counts = {what: int(number) for number, what in COUNT.findall(lines[-1])}
    return counts, set(re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", metavar="NAME or FILE")
    parser.add_argument("--format", default="fp64")
    parser.add_argument("--suite", nargs="+", choices=list(SUITES), default=list(SUITES), metavar="NAME")
    given = parser.parse_args()
    failed = False
    for name in given.suite:
        words = SUITES[name]
        with tempfile.TemporaryDirectory() as folder:
            report, device = Path(folder) / "report.json", given.device
            if device is None:
                device = str(new_device_file(Path(folder) / "exact_fp64.yaml", "exact_fp64"))
            elif Path(device).is_file():
                device = str(Path(device).resolve())  # pytest runs in another folder
            front = [sys.executable, "-m", "hwsim", "blas", "--device", device, "--format", given.format]
            start = time.perf_counter()
            counts, broken = outcome(words, [*front, "--json", str(report), "--"])
            took = time.perf_counter() - start
            said = json.loads(report.read_text())
        _, before = outcome(words) if broken else ({}, set())
        new = sorted(broken - before)
        failed |= bool(new)
        calls, longest = (
            how([row[key] for row in said["routines"]]) for how, key in ((sum, "calls"), (max, "largest_k"))
        )
        print(
            f"{name}: {counts.get('passed', 0)} passed, {len(new)} failed here alone, {len(broken) - len(new)} also "
            f"without; {calls} products, k up to {longest}, {took:.0f} s",
            flush=True,
        )
        for line in [
            *new,
            *(f"left to the program's own BLAS, {count} calls: {why}" for why, count in said["refused"].items()),
        ]:
            print(f"  {line}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
