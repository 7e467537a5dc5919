"""Tiles of a library's kernels whose instructions have their rows along C's columns: bits, cycles, and who has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.errors import ProgramError
from hwsim.machines import reference, timing
from hwsim.program.check import check
from hwsim.resolve.mapping_choice import program_of

LIBRARY = {"device": "h200", "format": "bf16", "output": "bf16", "library": "cublas", "b_layout": "columns"}


@pytest.mark.parametrize(("few", "many", "k"), [(16, 4096, 4096), (64, 4096, 4096), (8, 8192, 1024)])
def test_few_rows_take_as_long_as_few_columns(few: int, many: int, k: int) -> None:
    """cuBLAS computes one as the transpose of the other; the merge of slices goes row by row."""
    rows = hwsim.run(m=few, n=many, k=k, exact=False, **LIBRARY)
    columns = hwsim.run(m=many, n=few, k=k, exact=False, **LIBRARY)
    assert rows.options["unit"] == columns.options["unit"] and rows.options["swapped"]
    assert "swapped" not in columns.options
    assert rows.macs["padded"] == columns.macs["padded"] == rows.macs["useful"]
    assert rows.cycles == pytest.approx(columns.cycles, rel=0.01)
    assert rows.gemm.decided("swapped").by == "library"


def test_a_tile_of_ones_own_is_as_it_is_given() -> None:
    own = hwsim.run(m=16, n=256, k=256, device="h200", format="bf16", exact=False, tile=(16, 64, 64))
    assert "swapped" not in own.options and own.options["unit"].startswith("wgmma.m64n64k16")


def test_bits_are_the_evaluators_and_any_legal_order_gives_them() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((24, 200), (200, 128)))
    direct, program = (hwsim.run(a, b, **LIBRARY, functional=functional) for functional in (False, True))
    assert program.options["swapped"] and np.array_equal(direct.codes, program.codes)
    chip = hwsim.device("h200")
    lowered = program_of(program.gemm, chip)
    check(lowered, chip)
    codes = {name: x.view(np.uint16) for name, x in zip(lowered.inputs, (a, b), strict=True)}
    assert np.array_equal(reference.run(lowered, chip, codes, order=1), direct.codes)
    again = type(program.gemm).from_dict(program.gemm.to_dict())
    assert timing.run(program_of(again, chip), chip).cycles == timing.run(lowered, chip).cycles


def test_only_products_of_one_format_are_swapped() -> None:
    chip = hwsim.device("mi300x")
    result = hwsim.run(m=64, n=64, k=64, device=chip, format="e4m3fnuz", format_b="e5m2fnuz", exact=False)
    program = program_of(result.gemm, chip)

    def swapped(node: Any) -> Any:
        if getattr(node, "opcode", "") == "mma":
            return replace(node, swapped=True)
        return replace(node, body=tuple(map(swapped, node.body))) if hasattr(node, "body") else node

    kernels = tuple(
        replace(
            kernel,
            groups=tuple(
                replace(group, streams=tuple(replace(s, body=tuple(map(swapped, s.body))) for s in group.streams))
                for group in kernel.groups
            ),
        )
        for kernel in program.kernels
    )
    with pytest.raises(ProgramError, match="swapped; only products of one format"):
        check(replace(program, kernels=kernels), chip)
