"""Paired timing of two commands: they run alternately, and the ratio of their times is computed per pair.

python lab/tools/paired.py "COMMAND" "BASE" [--pairs N]

Each command is a shell command line, such as "cd FOLDER && hwsim run". Other load on the machine slows both commands of
a pair, so the median ratio is reproducible where the times are not. Wall: elapsed time until the process exits. CPU:
user and system time of all its threads. One warm-up run of each writes the bytecode caches; without them Python would
compile a checkout's modules at each run, but not those of an installed package. PYTHONDONTWRITEBYTECODE is therefore
removed from the environment.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True)
class Seconds:
    """Wall and CPU time of one run of a command."""

    wall: float
    cpu: float


def run(command: str) -> Seconds:
    """Run a shell command line and discard its output. Raises CalledProcessError if it fails."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        command, shell=True, check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Seconds(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def pairs(command: str, base: str, count: int) -> list[tuple[Seconds, Seconds]]:
    """Times of `count` pairs, after a warm-up run of each command; the order alternates from pair to pair."""
    run(command)
    run(base)
    found = []
    for i in range(count):
        if i % 2:
            second = run(base)
            found.append((run(command), second))
        else:
            found.append((run(command), run(base)))
    return found


def row(name: str, times: Sequence[float], base: Sequence[float]) -> str:
    """A line with the medians of the times, and the median and quartiles of the ratios."""
    low, middle, high = statistics.quantiles([x / y for x, y in zip(times, base, strict=True)], n=4, method="inclusive")
    return (
        f"{name:4}  command {statistics.median(times):.3f} s, base {statistics.median(base):.3f} s; "
        f"ratio {middle:.3f} (quartiles {low:.3f} to {high:.3f}, {len(times)} pairs)"
    )


def main() -> None:
    """Print a row for wall time and one for CPU time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="command to measure")
    parser.add_argument("base", help="command to compare with")
    parser.add_argument("--pairs", type=int, default=20, help="number of pairs, at least 2 (default 20)")
    given = parser.parse_args()
    if given.pairs < 2:
        parser.error(f"--pairs {given.pairs}: quartiles need at least 2")
    try:
        found = pairs(given.command, given.base, given.pairs)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{error.cmd}: exit code {error.returncode}\n{error.stderr}") from None
    print(row("wall", [one.wall for one, _ in found], [other.wall for _, other in found]))
    print(row("CPU", [one.cpu for one, _ in found], [other.cpu for _, other in found]))


if __name__ == "__main__":
    main()
