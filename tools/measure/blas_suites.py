"""NumPy's and SciPy's own tests of products under `hwsim blas`, on an fp64 unit: which fail there and not without.

python tools/measure/blas_suites.py [--device NAME] [--format FORMAT]

Every product of these tests, of float32, float64 and complex, is computed by the unit's chain of fused multiply-adds in
fp64. Needs pytest, hypothesis and SciPy. Exits with 1 where a test fails that passes without.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

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
    parser.add_argument("--device", default="h200")
    parser.add_argument("--format", default="fp64")
    given = parser.parse_args()
    failed = False
    for name, words in SUITES.items():
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            front = [sys.executable, "-m", "hwsim", "blas", "--device", given.device, "--format", given.format]
            counts, broken = outcome(words, [*front, "--json", str(report), "--"])
            calls = sum(row["calls"] for row in json.loads(report.read_text())["routines"])
        _, before = outcome(words) if broken else ({}, set())
        new = sorted(broken - before)
        failed |= bool(new)
        print(f"{name}: {counts.get('passed', 0)} passed, {len(new)} failed here alone; {calls} products", flush=True)
        for test in new:
            print(f"  {test}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
