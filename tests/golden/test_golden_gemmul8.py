"""Schemes ozaki2-int8 and ozaki2-fp8 give GEMMul8's bits and its exponents of rows and columns."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.evaluate.split import pieces_of
from hwsim.gemm.problem import Problem
from hwsim.operands.operand import operand
from hwsim.schemes import scheme_of

sys.path.insert(0, str(Path(__file__).parent))
import gemmul8

FOLDER = Path(__file__).parent / "h200_gemmul8"
RESULTS = np.load(FOLDER / "products.npz")
ROWS = json.loads((FOLDER / "products.json").read_text())
#: By backend, format and whether fast: rows of one such group are one test.
EACH = 4  # products of a group that are computed
GROUPS = sorted({(*row[1:3], row[4]) for row in ROWS})


@pytest.mark.parametrize("group", GROUPS, ids=lambda x: " ".join(map(str, x)))
def test_products_equal_those_of_gemmul8(group: tuple[Any, ...]) -> None:
    """Some products of each group, on operands from bit fields: every bit of 8 rows and 8 columns."""
    rows = [row for row in ROWS if (*row[1:3], row[4]) == group][:EACH]
    for row in rows:
        number, backend, _, moduli, is_fast, a_rows, b_rows, *_ = row
        a, b = gemmul8.pair(row)
        some = slice(8) if is_fast else slice(None)  # the powers of accurate mode depend on all of A and B
        asked = {
            "moduli": moduli,
            "mode": "fast" if is_fast else "accurate",
            "a_layout": "rows" if a_rows else "columns",
            "b_layout": "rows" if b_rows else "columns",
        }
        c = hwsim.matmul(a[some], b[:, some], device="h200", scheme=f"ozaki2-{backend}", **asked)
        assert c[:8, :8].tobytes() == RESULTS[f"{number}"].tobytes(), row
    assert len(rows) == EACH


def test_exponents_equal_those_of_fast_mode() -> None:
    """Of rows and columns that are not zero, whether K is contiguous or not."""
    seen = 0
    for row in [row for row in ROWS if row[4]]:
        number, backend, fmt, moduli, _, a_rows, b_rows, *_ = row
        a, b = gemmul8.pair(row)
        declared = scheme_of(f"ozaki2-{backend}")
        plan = declared.plan(declared.complete({"moduli": moduli}), Problem.of(fmt, 8, 8, a.shape[1]))
        for side, x, is_k_major in (("a", a[:8], a_rows), ("b", b[:, :8], not b_rows)):
            pieces = pieces_of(operand("x", x), plan, side, hwsim.device("h200"), is_k_major=is_k_major)
            is_zero = (x == 0).all(axis=1 if side == "a" else 0)
            assert pieces.exponents is not None
            assert (is_zero | (pieces.exponents == RESULTS[f"{number} {side}"])).all(), row
            seen += int((~is_zero).sum())
    assert seen > 500
