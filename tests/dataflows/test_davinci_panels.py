"""Operands packed into panels on coupled DaVinci cores: bits, cycles, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from operands import bits

import hwsim
from hwsim.backend.cpu import CPU
from hwsim.dataflows.davinci.coupled import COUPLED
from hwsim.dataflows.davinci.panels import Panels, pack_kernel
from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.machines import functional, reference
from hwsim.program.check import check
from hwsim.program.ir import GlobalArray, Program
from hwsim.resolve.gemm_record import record_of
from hwsim.schemes import scheme_of

CHIP = load("ascend910a")
TIMES = {"device": "ascend910a", "format": "fp16", "input_format": "fp16", "exact": False, "split_k": 1}
PLANS = {
    "native": ("native", {"format": "fp16"}),
    "termwise": ("sgemm-cube", {}),
    "elementwise": ("sgemm-cube", {"accumulation": "elementwise"}),
    "alternating": ("ootomo-fp16", {}),
}


@pytest.mark.parametrize("order", ["rows", "columns"])
@pytest.mark.parametrize("length", [1, 16, 33, 300])
@pytest.mark.parametrize("width", [16, 48])
def test_every_panel_holds_its_elements_of_every_line(order, length, width):
    lines = 70
    sides = (lines, length) if order == "rows" else (length, lines)
    panels = Panels(GlobalArray("B", *sides, "fp16", order), width)
    program = Program(
        (panels.source, *panels.arrays), (pack_kernel("pack_b", [panels], CHIP),), ("B",), panels.arrays[-1].name
    )
    check(program, CHIP)
    values = np.arange(lines * length, dtype=np.uint16).reshape(lines, length)
    given = {"B": values if order == "rows" else np.ascontiguousarray(values.T)}
    count, rest = divmod(length, width)
    last = values[:, count * width :] if rest else np.concatenate(np.split(values, count, axis=1))
    expected = last if order == "rows" else last.T
    assert np.array_equal(functional.run(program, CHIP, given), expected)
    assert np.array_equal(reference.run(program, CHIP, given, order=1), expected)


@pytest.mark.covering("how", "sizes")
@pytest.mark.parametrize("how", PLANS)
@pytest.mark.parametrize("sizes", [(1, 100, 70), (20, 33, 200), (50, 16, 40), (33, 300, 50)])
def test_no_bit_depends_on_panels(sizes, how):
    name, chosen = PLANS[how]
    m, n, k = sizes
    a, b = bits((m, k), 1, specials=True), bits((k, n), 2, specials=True)
    given = {"device": "ascend910a", "scheme": name, **chosen}
    plain = hwsim.run(a, b, pack_b=False, **given)
    for options in ({"pack_b": True}, {"pack_b": True, "pack_a": True, "a_layout": "columns"}):
        packed = hwsim.run(a, b, functional=True, **options, **given)
        assert packed.options["pack_b"] is True
        assert np.array_equal(plain.c.view(np.uint32), packed.c.view(np.uint32))


@pytest.mark.parametrize("order", range(3))
@pytest.mark.parametrize("slices", [1, 3])
def test_every_legal_order_gives_the_same_bits(slices, order):
    problem, own = Problem.of("fp32", 20, 40, 70, a_layout="columns"), scheme_of("sgemm-cube")
    gemm = record_of(own.plan(own.complete({}), problem), CHIP, problem, Schedule(split_k=slices))
    program = COUPLED.lower(COUPLED.map(gemm, CHIP, {"tile": (16, 16, 16), "pack_a": True, "pack_b": True}), CHIP)
    check(program, CHIP)
    a, b = (bits(shape, seed).view(np.uint32) for shape, seed in (((20, 70), 5), ((70, 40), 6)))
    inputs = dict(zip(program.inputs, (a, b), strict=True))
    assert np.array_equal(
        functional.run(program, CHIP, inputs), reference.run(program, CHIP, inputs, order=order, dots=CPU.gemm)
    )


@pytest.mark.parametrize("sizes", [(1, 64, 4096), (16, 100, 4096), (16, 64, 1024), (1, 512, 4096)])
def test_a_narrow_b_by_rows_is_packed_where_that_is_faster(sizes):
    m, n, k = sizes
    chosen, plain = hwsim.run(m=m, n=n, k=k, **TIMES), hwsim.run(m=m, n=n, k=k, pack_b=False, **TIMES)
    assert chosen.options["pack_b"] and chosen.cycles < 0.95 * plain.cycles
    assert any(entry.name == "pack_b" and entry.by == "estimate" for entry in chosen.gemm.decisions)


@pytest.mark.parametrize("sizes", [(1, 64, 100), (1, 1000, 4096), (512, 512, 512)])
def test_nothing_is_packed_where_that_is_slower(sizes):
    m, n, k = sizes
    chosen, packed = hwsim.run(m=m, n=n, k=k, **TIMES), hwsim.run(m=m, n=n, k=k, pack_b=True, **TIMES)
    assert "pack_b" not in chosen.options and chosen.cycles < packed.cycles


def test_a_narrow_a_by_columns_is_the_transpose_of_a_narrow_b_by_rows():
    wide = hwsim.run(m=16, n=100, k=4096, **TIMES)
    tall = hwsim.run(m=100, n=16, k=4096, a_layout="columns", b_layout="columns", **TIMES)
    assert tall.options["pack_a"] and wide.options["pack_b"]
    assert 0.9 < tall.cycles / wide.cycles < 1.1


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"pack_b": True, "b_layout": "columns"}, "pack_b = true.*lines run along K"),
        ({"pack_a": True}, "pack_a = true.*lines run along K"),
        (
            {"pack_a": True, "a_layout": "columns", "scheme": "sgemm-cube", "convert_a": "kernel"},
            "pack_a = true.*split in the kernel",
        ),
    ],
)
def test_panels_that_save_nothing_are_refused(options, why):
    with pytest.raises(InputError, match=why):
        hwsim.run(m=64, n=64, k=64, device="ascend910a", exact=False, **options)
