"""How often split_k = "auto" cuts K where cuBLAS does, by the kernels in gemm*.json and blind*.json.

python tools/measure/cuts.py tests/golden/h200_timing/gemm.json tests/golden/h200_timing/gemm_nt.json \
    tests/golden/h200_timing/blind*.json
Prints, by format: shapes, the share in which both cut or both do not, and how many one of them cuts alone.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hwsim.dataflows import dataflow
from hwsim.dataflows.tiled import lowering as tiled
from hwsim.devices import load
from hwsim.gemm.problem import Problem
from hwsim.resolve.bits import plan_for
from hwsim.schemes import scheme_of

HEAD = "format  shapes  alike  cut by cuBLAS alone  by the estimate alone"


def is_cut(kernels: list[Mapping[str, Any]]) -> bool:
    """Whether slices of K have CTAs of their own (z of the grid), or a second kernel adds them up."""
    own = [kernel for kernel in kernels if not kernel["name"].startswith("Memset")]
    return len(own) > 1 or any("splitK" in kernel["name"] or kernel["grid"][2] > 1 for kernel in own)


def shapes(file: str) -> Iterator[tuple[str, tuple[int, int, int], str, bool]]:
    """Format, (m, n, k), layout of B, whether cuBLAS cuts K."""
    for key, kernels in json.loads(Path(file).read_text())["kernels"].items():
        format, sizes, *layout = key.split()
        m, n, k = (int(x) for x in sizes.split("x"))
        by_columns = (layout or ["nt" if format == "e4m3" else "nn"]) == ["nt"]
        yield format, (m, n, k), "columns" if by_columns else "rows", is_cut(kernels)


def main(files: list[str]) -> None:
    """Print the table."""
    chip, counts = load("h200"), {}
    family = dataflow(chip).FAMILY
    for format, sizes, layout, library in sorted({shape for file in files for shape in shapes(file)}):
        plan = plan_for(chip, scheme_of("native"), Problem(format, *sizes), format, {}).plan
        ours = tiled.cut(family, plan, chip, *sizes, {"b_layout": layout})[0] > 1
        counts.setdefault(format, Counter())[library, ours] += 1
    print(HEAD)
    for format, found in counts.items():
        total, alike = found.total(), found[True, True] + found[False, False]
        print(f"{format:6}  {total:6}  {alike / total:5.0%}  {found[True, False]:19}  {found[False, True]:21}")


if __name__ == "__main__":
    main(sys.argv[1:])
