"""Fits joules of operations and bytes to measured power, and shows how far they are off where they were not fitted.

    python lab/tools/measure/joules.py                 # h100_power.csv, by power.py on an H100

Joules of a case are its power times its time. hwsim counts the products, lane operations and bytes of the same GEMM.
Energies are the least squares of the relative error over the half `fit`, none below 0; L2's and shared memory's are the
typical ones of configs/energy/chips.yaml, which these cases hardly tell apart. Cases of zeros are left out: hwsim's
counts know no values.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hwsim
from hwsim.analysis.energy import ChipEnergies, EnergyRange, energies_of, energy

TABLE = Path(__file__).parents[2] / "hwsim_lab" / "configs" / "measured" / "h100_power.csv"
DEVICE = "h100"
COPIED = {"copy of 1 GiB": (2 << 30, 2 << 30), "copy of 4 MiB": (2 << 22, 0)}  # bytes of L2 and of HBM
OUTPUTS = {"e4m3": "bf16", "bf16": "bf16", "fp16": "fp16"}  # the others': the unit's
MATRIX = ("bf16", "fp16", "tf32", "e4m3", "int8", "fp64")
TYPICAL = ("l2", "shared")
PICO = 1e-12


@dataclass(frozen=True, slots=True)
class Case:
    """A measured case: what it is, its half, seconds, watts, and counts by what takes energy (in 1e12)."""

    what: str
    half: str
    seconds: float
    watts: float
    counts: dict[str, float]


def cases(path: Path = TABLE, half: str | None = None) -> Iterator[Case]:
    """The rows of a table of power.py, without those of zeros. half: the rows of this half alone."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["operands"] == "zeros" or half not in (None, row["half"]):
                continue
            seconds = float(row["us"]) * 1e-6
            what = " ".join(filter(None, (row["what"], row["format"], row["m"], row["n"], row["k"])))
            counts = {"static": seconds} | counted(row)
            yield Case(what, row["half"], seconds, float(row["power_w"]), counts)


def counted(row: dict[str, str]) -> dict[str, float]:
    """Counts of one case: of a GEMM hwsim's."""
    if row["what"] in COPIED:
        l2, hbm = COPIED[row["what"]]
        return {"l2": l2 * PICO, "hbm": hbm * PICO}
    if row["what"] != "gemm":
        return {}
    name = row["format"]
    sizes = {side: int(row[side]) for side in "mnk"}
    cut = {} if name == "int8" else {"split_k": "auto"}
    found = hwsim.run(
        device=DEVICE, format=name, output=OUTPUTS.get(name), b_layout="columns", exact=False, **sizes, **cut
    )
    joules = dict(energy(found.times, found.gemm, "typical", of_one()).joules_by)
    joules.pop("static")
    return {name if key == "matrix" else key: value for key, value in joules.items()}


def of_one() -> ChipEnergies:
    """Energies of 1 pJ each: joules are then counts, in 1e12."""
    one = EnergyRange(low=1, typical=1, high=1, source="")
    ranges = dict.fromkeys(
        ("lane_fma_pj", "lane_other_pj", "hbm_pj_per_byte", "l2_pj_per_byte", "shared_pj_per_byte"), one
    )
    return energies_of(DEVICE).model_copy(update={**ranges, "mac_pj": dict.fromkeys(MATRIX, one)})


def fitted(rows: list[Case], given: dict[str, float]) -> dict[str, float]:
    """Energies by name: pJ, and watts of `static`. given: those that are not fitted."""
    names = [name for name in ("static", "hbm", "lanes", *MATRIX) if name not in given]
    weight = np.array([1 / (row.watts * row.seconds) for row in rows])
    counts = np.array([[row.counts.get(name, 0.0) for name in names] for row in rows]) * weight[:, None]
    left = np.array([1 - joules(row, given) / (row.watts * row.seconds) for row in rows])
    solved = np.zeros(len(names))
    used = list(range(len(names)))
    while True:
        part: NDArray[np.float64] = np.linalg.lstsq(counts[:, used], left, rcond=None)[0]
        solved[:], solved[used] = 0.0, part
        if (part >= 0).all():
            return given | dict(zip(names, solved.tolist(), strict=True))
        used = [i for i in used if solved[i] > 0]


def joules(row: Case, energies: dict[str, float]) -> float:
    """Joules of a case by energies."""
    return sum(count * energies.get(name, 0.0) for name, count in row.counts.items())


def main() -> None:
    """Print the energies, and each case's error."""
    path = Path(sys.argv[1]) if sys.argv[1:] else TABLE
    rows = list(cases(path))
    table = energies_of(DEVICE)
    typical = dict(zip(TYPICAL, (table.l2_pj_per_byte.typical, table.shared_pj_per_byte.typical), strict=True))
    found = fitted([row for row in rows if row.half == "fit"], typical)
    print("pJ (static: W): " + ", ".join(f"{name} {value:.3g}" for name, value in found.items()))
    for half in ("fit", "held"):
        errors = {row.what: joules(row, found) / row.seconds / row.watts - 1 for row in rows if row.half == half}
        of_gemms = [abs(error) for what, error in errors.items() if what.startswith("gemm")]
        print(f"{half}: {len(of_gemms)} GEMMs, mean {np.mean(of_gemms):.1%}, most {max(of_gemms):.1%}")
        for what, error in errors.items():
            print(f"  {error:+6.1%}  {what}")


if __name__ == "__main__":
    main()
