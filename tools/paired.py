"""How long one command takes beside another: both run in turn, and the ratio of their times is taken pair by pair.

python tools/paired.py "COMMAND" "BASE" [--pairs N]

Each command is a line of the shell, as "cd FOLDER && hwsim run". What else a machine does slows both of a pair alike,
so that the median of the ratios stands where the times themselves do not. Wall: until the process has ended. CPU: user
and system time of all its threads. A first run of each, not counted, leaves compiled modules behind; without them
Python compiles a checkout's modules at each run, and an installed package's not. PYTHONDONTWRITEBYTECODE is therefore
not handed on.
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
    """Of one run of a command."""

    wall: float
    cpu: float


def run(command: str) -> Seconds:
    """Run a line of the shell without its output. Raises CalledProcessError where it fails."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        command, shell=True, check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Seconds(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def pairs(command: str, base: str, count: int) -> list[tuple[Seconds, Seconds]]:
    """Times of both commands, `count` times, which of them begins in turn; after a run of each that fills caches."""
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
    """Medians of the times, and median and quartiles of their ratios."""
    low, middle, high = statistics.quantiles([x / y for x, y in zip(times, base, strict=True)], n=4, method="inclusive")
    return (
        f"{name:4}  command {statistics.median(times):.3f} s, base {statistics.median(base):.3f} s; "
        f"ratio {middle:.3f} (quartiles {low:.3f} to {high:.3f}, {len(times)} pairs)"
    )


def main() -> None:
    """Print a row for wall time and one for CPU time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="what is compared")
    parser.add_argument("base", help="what it is compared with")
    parser.add_argument("--pairs", type=int, default=20, help="runs of each, two or more (default 20)")
    given = parser.parse_args()
    if given.pairs < 2:
        parser.error(f"--pairs {given.pairs}: quartiles need two or more")
    try:
        found = pairs(given.command, given.base, given.pairs)
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{error.cmd}: exit code {error.returncode}\n{error.stderr}") from None
    print(row("wall", [one.wall for one, _ in found], [other.wall for _, other in found]))
    print(row("CPU", [one.cpu for one, _ in found], [other.cpu for _, other in found]))


if __name__ == "__main__":
    main()
