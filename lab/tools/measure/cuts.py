"""How often the estimate behind split_k = "auto" cuts K where cuBLAS does, by the kernels of the sets of times
(lab/hwsim_lab/configs/measured/gemm_times.csv).

    python lab/tools/measure/cuts.py

Prints, by format: shapes, the share in which both cut or both do not, and how many one of them cuts alone.
"""

from __future__ import annotations

from collections import Counter

from hwsim.dataflows.registry import dataflow
from hwsim.devices import load
from hwsim.gemm.problem import Problem
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of
from hwsim_lab.papers.measured import GemmTime, gemm_times

HEAD = "format  shapes  alike  cut by cuBLAS alone  by the estimate alone"


def is_cut(row: GemmTime) -> bool:
    """Whether slices of K have CTAs of their own (z of the grid), or a second kernel adds them up."""
    own = [(name, grid) for name, grid in zip(row.kernels, row.grids, strict=True) if not name.startswith("Memset")]
    return len(own) > 1 or any("splitK" in name or int(grid.split("x")[2]) > 1 for name, grid in own)


def main() -> None:
    """Print the table."""
    chip, counts = load("h200"), {}
    flow = dataflow(chip)
    shapes = {(row.format, (row.m, row.n, row.k), row.b_layout, is_cut(row)) for row in gemm_times() if row.kernels}
    for format, sizes, layout, library in sorted(shapes):
        problem = Problem.of(format, *sizes, b_layout=layout)
        plan = plan_for(chip, scheme_of("native"), problem, format, {}).plan
        best = flow.split_k(record_of(plan, chip, problem), chip, {})
        ours = best is not None and best.slices > 1
        counts.setdefault(format, Counter())[library, ours] += 1
    print(HEAD)
    for format, found in counts.items():
        total, alike = found.total(), found[True, True] + found[False, False]
        print(f"{format:6}  {total:6}  {alike / total:5.0%}  {found[True, False]:19}  {found[False, True]:21}")


if __name__ == "__main__":
    main()
