"""Block-scaled units equal the direct reading of their documented steps: a share of lab/tools/fuzz/block_scaled.py."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "lab" / "tools" / "fuzz"))
block_scaled = pytest.importorskip("block_scaled")


@pytest.mark.parametrize("kind", range(len(block_scaled.KINDS)), ids=[name for name, _, _ in block_scaled.KINDS])
def test_every_kind_equals_the_reading(kind: int) -> None:
    """8,192 results of each kind; scales 0 and NaN, and C beside them, are among them."""
    seen = {"finite": 0, "nan": 0}
    for number in range(kind, kind + 8 * len(block_scaled.KINDS), len(block_scaled.KINDS)):
        block_scaled.case(number)
        values = block_scaled.reading(*block_scaled.drawn(number)).view(np.float32)
        seen["finite"] += int((np.isfinite(values) & (values != 0)).sum())
        seen["nan"] += int(np.isnan(values).sum())
    assert seen["finite"] > 1000 and seen["nan"]
