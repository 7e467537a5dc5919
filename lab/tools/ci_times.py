"""Where the time of `.ci/run` went: its steps, and its tests by folder.

    python lab/tools/ci_times.py [FOLDER]

FOLDER (default build/ci) is what .ci/run left: times.tsv (step, seconds of wall time, of processors in user and in
system mode) and tests.xml (pytest's JUnit report; seconds of wall time of each test with its fixtures, of all workers
together). The tables are Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]


def steps(text: str) -> list[tuple[str, float, float]]:
    """(step, seconds of wall time, of processors) of times.tsv, in the order in which they ended.

    Raises ValueError for a line of another form.
    """
    rows = (line.split("\t") for line in text.splitlines())
    return [(name, float(wall), float(user) + float(system)) for name, wall, user, system in rows]


def folders(report: str) -> list[tuple[str, int, float]]:
    """(folder of tests, or file directly in tests/ or lab/tests/, number of tests, seconds) of a JUnit report, the
    longest first. Raises xml.etree.ElementTree.ParseError.
    """
    count: Counter[str] = Counter()
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.fromstring(report).iter("testcase"):
        parts = case.get("classname", "").split(".")
        name = "/".join(parts[: 3 if parts[0] == "lab" else 2])
        name += ".py" if name.rpartition("/")[2].startswith("test_") else ""
        count[name] += 1
        seconds[name] += float(case.get("time", 0))
    return [(name, count[name], total) for name, total in sorted(seconds.items(), key=lambda row: -row[1])]


def main() -> int:
    """Print both tables; exit code 2 where a file is missing or damaged."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "ci")
    folder = parser.parse_args().folder
    try:
        parts = steps((folder / "times.tsv").read_text(encoding="utf-8"))
        tests = folders((folder / "tests.xml").read_text(encoding="utf-8"))
    except (OSError, ValueError, ElementTree.ParseError) as error:
        print(f"ci_times.py: error: {error}; run .ci/run first", file=sys.stderr)
        return 2
    print("| step | seconds | seconds of processors |\n| --- | --- | --- |")
    print("\n".join(f"| {name} | {wall:.0f} | {processors:.0f} |" for name, wall, processors in parts))
    print("\n| tests | number | seconds of all workers |\n| --- | --- | --- |")
    print("\n".join(f"| {name} | {number} | {seconds:.1f} |" for name, number, seconds in tests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
