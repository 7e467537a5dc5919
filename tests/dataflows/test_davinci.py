"""The davinci dataflow: the scheme's bits whatever the blocking, and programs that keep the device's rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from lowered import lower
from operands import bits
from straight_line import product, sgemm_cube, to_fp16

import hwsim
from hwsim import _kernels
from hwsim.backend.cpu import CPU
from hwsim.dataflows.davinci.coupled_tiling import Limits, b_m_least_traffic, legal, n_fused
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.problem import Problem
from hwsim.machines import functional, reference
from hwsim.numerics.reference import gemm as exact_gemm
from hwsim.program.check import check
from hwsim.schemes import scheme_of

CHIP = load("ascend910a")
LIMITS = Limits.of(CHIP, 2)


def same(x, y):
    return np.array_equal(np.asarray(x).view(np.uint32), np.asarray(y).view(np.uint32))


def matmul(a, b, **options):
    return hwsim.matmul(a, b, device="ascend910a", scheme="sgemm-cube", **options)


@pytest.mark.covering(("accumulation", "sb"), "specials")
@pytest.mark.parametrize("specials", [False, True])
@pytest.mark.parametrize("sb", [0, 6, 12, 15])
@pytest.mark.parametrize("accumulation", ["termwise", "elementwise"])
def test_bits_are_the_schemes(accumulation, sb, specials):
    m, n, k = 19, 21, 67
    a, b = bits((m, k), sb + 1, specials=specials), bits((k, n), sb + 2, specials=specials)
    got = matmul(a, b, tile=(16, 16, 16), k_group=32, scaling_exponent=sb, accumulation=accumulation)
    assert same(got, sgemm_cube(a, b, sb, 32, accumulation))


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 17, 3), (16, 16, 16), (33, 5, 67), (3, 40, 100)])
def test_odd_shapes(shape):
    m, n, k = shape
    a, b = bits((m, k), 3, -10, 10), bits((k, n), 4, -10, 10)
    result = hwsim.run(a, b, device="ascend910a", scheme="sgemm-cube")
    assert same(result.c, sgemm_cube(a, b, 12, result.options["k_group"]))
    assert result.cycles > 0


def test_native_fp16_takes_fp16_arrays_as_they_are():
    a, b = (x.astype(np.float16) for x in (bits((20, 70), 5, -8, 8), bits((70, 18), 6, -8, 8)))
    result = hwsim.run(a, b, device="ascend910a", scheme="native", tile=(16, 32, 16), k_group=64)
    assert same(result.c, product(a.view(np.uint16), b.view(np.uint16), 64))
    assert [phase["name"] for phase in result.phases] == ["zero", "gemm"]
    rounded = hwsim.run(
        a.astype(np.float32) * np.float32(1.0001),
        b.astype(np.float32),
        device="ascend910a",
        scheme="native",
        format="fp16",
        tile=(16, 32, 16),
        k_group=64,
    )
    assert same(rounded.c, product(to_fp16(a.astype(np.float32) * np.float32(1.0001)), b.view(np.uint16), 64))


def test_any_tile_of_one_k_group_gives_the_same_bits():
    a, b = bits((100, 520), 7, -12, 12), bits((520, 90), 8, -12, 12)
    tiles = [(16, 16, 16), (32, 64, 48), (176, 64, 176), (96, 128, 16), (16, 32, 512)]
    results = [
        matmul(a, b, tile=tile, k_group=128, buffering=buffering)
        for tile in tiles
        for buffering in ("single", "double")
    ]
    assert all(same(results[0], other) for other in results[1:])
    assert not same(results[0], matmul(a, b, tile=(16, 16, 16), k_group=16))


def test_bits_do_not_depend_on_threads_or_timing():
    a, b = bits((70, 200), 9), bits((200, 60), 10)
    one = hwsim.run(a, b, device="ascend910a", scheme="sgemm-cube", threads=1)
    two = hwsim.run(a, b, device="ascend910a", scheme="sgemm-cube", threads=2, timing=False)
    assert same(one.c, two.c)
    assert two.cycles is None


def test_strided_and_transposed_operands():
    a, b = bits((60, 40), 11), bits((50, 60), 12)
    assert same(matmul(a.T, b.T, tile=(16, 16, 16)), matmul(a.T.copy(), b.T.copy(), tile=(16, 16, 16)))
    assert same(
        matmul(a[::2, ::-1], b.T[::-1, 1:][:40], tile=(16, 16, 16)),
        matmul(a[::2, ::-1].copy(), b.T[::-1, 1:][:40].copy(), tile=(16, 16, 16)),
    )


@pytest.mark.covering("order", "options")
@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize("options", [{}, {"accumulation": "elementwise"}])
def test_every_legal_order_gives_the_same_bits(order, options):
    """The coalescing machine against one that copies for real and picks the order of engines at random."""
    m, n, k = 34, 33, 50
    a, b = bits((m, k), 13), bits((k, n), 14)
    scheme = scheme_of("sgemm-cube")
    complete = scheme.complete(options)
    buffering = "single" if order % 2 else "double"
    program = lower(
        scheme.plan(complete, Problem.of("fp32", m, n, k)),
        CHIP,
        m,
        n,
        k,
        {"tile": {"m": 16, "k": 16, "n": 16}, "n_fused": 2, "buffering": buffering},
    )
    inputs = {"A.in": a.view(np.uint32), "B.in": b.view(np.uint32)}
    dots = CPU.gemm if order else exact_gemm  # one order by Python's integers, which are slow
    expected = reference.run(program, CHIP, inputs, order=order, dots=dots)
    assert np.array_equal(functional.run(program, CHIP, inputs), expected)


def test_eq8_and_eq11_of_the_paper():
    assert LIMITS.l1 == 2**19
    assert n_fused(LIMITS, 176, 64, 176) == 44
    assert 86 < b_m_least_traffic(LIMITS, 0.92) < b_m_least_traffic(LIMITS, 1.0) < 91
    tiles = set(legal(LIMITS))
    assert (176, 64, 176) in tiles and (96, 64, 96) in tiles
    expected = {
        (m, k, n)
        for m in range(16, 1025, 16)
        for k in range(16, 1025, 16)
        for n in range(16, 1025, 16)
        if m * k <= 64 * 256
        and k * n <= 64 * 256
        and 6 * m * n <= 248 * 1024
        and 4 * m * n <= 256 * 1024
        and (2**19 - 2 * k * n) // (m * k) >= 1
    }
    assert tiles == expected


@pytest.mark.parametrize("buffering", ["single", "double"])
def test_legal_tiles_make_sound_programs(buffering):
    """A sample of all that Eq. 10 allows, at a size that no block divides."""
    plan = scheme_of("sgemm-cube").plan(scheme_of("sgemm-cube").complete({}), Problem.of("fp32", 1, 1, 1))
    tiles = sorted(legal(LIMITS))
    for m, k, n in tiles[:: len(tiles) // 12]:
        check(
            lower(
                plan,
                CHIP,
                2 * m + 7,
                3 * n + 1,
                5 * k + 3,
                {"tile": {"m": m, "k": k, "n": n}, "n_fused": 2, "buffering": buffering},
            ),
            CHIP,
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tile": (256, 256, 16)}, "L0A"),
        ({"tile": (16, 256, 256)}, "L0B"),
        ({"tile": (256, 16, 256)}, "UB"),
        ({"tile": (20, 16, 16)}, "multiple of 16"),
        ({"tile": (16, 16)}, "3"),
        ({"tile": {"m": 16, "k": 16}}, "allowed"),
        ({"tile": (176, 64, 176), "n_fused": 45}, "1 to 44"),
        ({"tile": (176, 64, 176), "n_fused": 0}, "n_fused = 0; allowed: an integer of at least 1"),
        ({"tile": (176, 64, 176), "k_group": 100}, "multiple of b_k"),
        ({"tile": (176, 64, 176), "k_group": 128, "n_fused": 3}, "one of them"),
        ({"buffering": "triple"}, "single, double"),
        ({"scaling_exponent": -1}, "scaling_exponent = -1; allowed: an integer of at least 0"),
        ({"scaling_exponent": "x"}, "int"),
        ({"accumulation": "rowwise"}, "termwise, elementwise"),
        ({"scaling": 3}, "scaling_exponent"),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(InputError, match=words):
        hwsim.run(m=64, n=64, k=64, device="ascend910a", scheme="sgemm-cube", exact=False, **options)


def test_a_device_without_memories_is_refused():
    with pytest.raises(UnsupportedError, match=r"memories\.L1"):
        hwsim.run(m=64, n=64, k=64, device=CHIP.model_copy(update={"memories": {}}), scheme="native", exact=False)


@pytest.mark.parametrize("kernel", _kernels.variants)
def test_every_kernel_build_gives_the_same_bits(kernel):
    """The whole command in a process of its own per build; operands with specials and wide exponents."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from operands import bits; import hwsim\n"
        "a, b = bits((45, 150), 21, specials=True), bits((150, 37), 22, specials=True)\n"
        "for how in ('termwise', 'elementwise'):\n"
        "    r = hwsim.run(a, b, device='ascend910a', scheme='sgemm-cube', accumulation=how, tile=(16, 16, 16),\n"
        "                  k_group=32)\n"
        "    print(r.kernel, r.result_sha256)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        env=os.environ | {"HWSIM_KERNEL": kernel},
        check=True,
    )
    a, b = bits((45, 150), 21, specials=True), bits((150, 37), 22, specials=True)
    expected = [
        hwsim.run(
            a, b, device="ascend910a", scheme="sgemm-cube", accumulation=how, tile=(16, 16, 16), k_group=32
        ).result_sha256
        for how in ("termwise", "elementwise")
    ]
    assert done.stdout.split() == [kernel, expected[0], kernel, expected[1]]


def test_missing_units_are_named():
    with pytest.raises(UnsupportedError, match="fp16"):
        hwsim.run(m=64, n=64, k=64, device="ascend910a", scheme="native", format="bf16", exact=False)


def test_k_group_alone_chooses_a_tile_that_makes_it():
    a, b = bits((40, 300), 15, -6, 6), bits((300, 30), 16, -6, 6)
    for accumulation in ("termwise", "elementwise"):
        for group in (16, 48, 96, 256):
            free = hwsim.run(
                a, b, device="ascend910a", scheme="sgemm-cube", k_group=group, accumulation=accumulation, timing=False
            )
            assert free.options["k_group"] == group
            assert same(free.c, matmul(a, b, tile=(16, 16, 16), k_group=group, accumulation=accumulation))
    with pytest.raises(InputError, match="k_group = 40"):
        matmul(a, b, k_group=40)


def test_padding_is_counted():
    """Edges are padded to whole 16 x 16 x 16 fractals, for each of the three products."""
    result = hwsim.run(m=33, n=17, k=40, device="ascend910a", scheme="sgemm-cube", exact=False, tile=(32, 32, 16))
    assert result.macs == {"useful": 3 * 33 * 17 * 40, "padded": 3 * 48 * 32 * 48}


@pytest.mark.parametrize("blocks", [4, 8, 16])
def test_blocks_of_a_alone_leave_the_tile_open(blocks):
    """Warnings are told too, which look for slices with the same K from zero; `k_group` may stand beside."""
    sizes = {"device": "ascend910a", "m": 1000, "n": 777, "k": 1500, "exact": False}
    result = hwsim.run(**sizes, n_fused=blocks)
    group = result.options["k_group"]
    assert result.options["n_fused"] == blocks and group == blocks * result.options["tile"]["k"]
    assert isinstance(result.warnings, list)
    both = hwsim.run(**sizes, n_fused=blocks, k_group=group)
    assert (both.cycles, both.options["tile"]) == (result.cycles, result.options["tile"])
    with pytest.raises(InputError, match="give one of them"):
        hwsim.run(**sizes, n_fused=7, k_group=256)


@pytest.mark.parametrize(("blocks", "group"), [(3, 96), (2, 128), (6, 32)])
def test_blocks_of_a_hold_whole_groups_where_terms_are_joined(blocks, group):
    options = {"device": "ascend910a", "scheme": "sgemm-cube", "accumulation": "elementwise", "exact": False}
    result = hwsim.run(m=200, n=200, k=384, n_fused=blocks, k_group=group, **options)
    assert (result.options["n_fused"], result.options["k_group"]) == (blocks, group)
    assert blocks * result.options["tile"]["k"] % group == 0
