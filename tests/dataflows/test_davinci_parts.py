"""Parts of the DaVinci dataflows on their own: grids of blocks, estimates, what a decision says, periods of K."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from operands import bits

import hwsim
from hwsim.dataflows.davinci.block_grid import BlockGrid
from hwsim.dataflows.davinci.coupled import COUPLED
from hwsim.dataflows.davinci.coupled_plan import CoupledPlan
from hwsim.dataflows.davinci.coupled_tiling import Limits, estimate_cycles
from hwsim.dataflows.davinci.cube_blocking import CubeMemory
from hwsim.dataflows.davinci.separated import SEPARATED
from hwsim.dataflows.davinci.separated_kernels import SeparatedKernels
from hwsim.dataflows.davinci.separated_mapping import blocking_of
from hwsim.dataflows.records import plan_of
from hwsim.devices import instruction_for, load
from hwsim.devices.variants import changed
from hwsim.errors import InputError
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of

CHIP = load("ascend910a")
UNIT = instruction_for(CHIP, "fp16", "fp16")


@pytest.mark.parametrize("cores", [1, 7, 20, 32])
@pytest.mark.parametrize("sizes", [(1, 1), (100, 900), (900, 100), (333, 335), (2000, 48)])
def test_a_grid_covers_c_once_with_the_fewest_tiles_a_block(sizes: tuple[int, int], cores: int) -> None:
    (m, n), (tm, tn) = sizes, (16, 32)
    grid = BlockGrid.of(m, n, (tm, tn), cores)
    groups = grid.groups(m, n)
    assert sum(count * rows * columns for _, count, rows, columns in groups) == m * n
    tiles = -(-m // tm), -(-n // tn)
    fewest = min(
        -(-tiles[0] // rows) * -(-tiles[1] // columns)
        for rows in range(1, cores + 1)
        for columns in range(1, cores // rows + 1)
    )
    assert grid.rows * grid.cols <= cores and grid.block_m * grid.block_n == fewest * tm * tn


@pytest.mark.parametrize(
    ("link", "tile"), [("L1_L0A", (256, 64, 16)), ("L1_L0B", (16, 64, 256)), ("GM_L1", (16, 64, 256))]
)
def test_an_estimate_knows_each_link(link: str, tile: tuple[int, int, int]) -> None:
    """The cycles of the only slow link are a block's bytes over its rate."""
    slow = changed(CHIP, {f"links.{link}.bytes_per_cycle": 0.01})
    limits, sizes = Limits.of(slow, 2), (tile[0], tile[2], 4 * tile[1])
    block = 2 * tile[1] * (tile[0] if link == "L1_L0A" else tile[2])
    cycles = estimate_cycles(slow, UNIT, limits, tile, *sizes)
    assert cycles == pytest.approx(4 * block / 0.01, rel=0.01)


def test_an_estimate_of_a_tile_of_which_one_block_of_a_fills_l1() -> None:
    """With two blocks of B there is no room for one of A: a block at a time, no division by zero."""
    limits = Limits.of(CHIP, 2)
    tile = (256, 1024, 256)
    assert limits.l1 < 2 * tile[1] * tile[2] + tile[0] * tile[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(estimate_cycles(CHIP, UNIT, limits, tile, 256, 256, 4096))


@pytest.mark.parametrize(("interval", "why"), [(None, "as many blocks of A as L1 holds"), (512, "k_group / b_k")])
def test_why_so_many_blocks_of_a_stay(interval: int | None, why: str) -> None:
    own, problem = scheme_of("sgemm-cube"), Problem.of("fp32", 64, 64, 2048)
    gemm = record_of(own.plan(own.complete({}), problem), CHIP, problem, Schedule(promotion_k=interval))
    assert COUPLED.map(gemm, CHIP, {}).decided("n_fused").why.startswith(why)


def test_temporaries_of_a_split_of_which_every_piece_is_kept() -> None:
    """Two tiles: the residual, and a piece cast back."""
    own, problem = scheme_of("sgemm-cube"), Problem.of("fp32", 64, 64, 64)
    for options, count in (({"accumulation": "elementwise"}, 2), ({}, 3)):  # termwise, a sweep has the low piece alone
        gemm = record_of(own.plan(own.complete(options), problem), CHIP, problem)
        assert CoupledPlan.of(gemm, UNIT, CHIP).conversion_temporaries == count, options


def test_a_tile_beyond_the_memories_is_refused() -> None:
    with pytest.raises(InputError, match=r"tile 512,512,512 \(m,n,k\)"):
        hwsim.run(np.ones((8, 8), np.float16), np.ones((8, 8), np.float16), device="ascend910b3", tile=(512, 512, 512))


@pytest.mark.parametrize("k", [32, 64, 96, 70])
def test_k_of_a_few_packets(k: int) -> None:
    """One, two and three periods of double-buffered packets, and a rest: each but the first adds to the first."""
    a, b = (bits(shape, i, -4, 4).astype(np.float16) for i, shape in enumerate([(16, k), (k, 16)]))
    given = {"device": "ascend910b3", "tile": (16, 16, 16), "step_ka": 2, "step_kb": 2, "buffering": "double"}
    by_program, direct = (hwsim.matmul(a, b, functional=functional, **given) for functional in (True, False))
    assert by_program.tobytes() == direct.tobytes()


@pytest.mark.parametrize("scheme", ["native", "ape-fp32-b"])
def test_an_estimate_knows_the_pieces_that_l2_gives(scheme: str) -> None:
    """With a slow L2 a tile takes the bytes of all pieces of its blocks over L2's rate."""
    slow = changed(load("ascend910b3"), {"l2.bytes_per_second": 1e8, "hbm.bytes_per_second": 1e18})
    m, n, k, steps = 64, 48, 32, 100
    own, problem = scheme_of(scheme), Problem.of("fp16" if scheme == "native" else "fp32", m, n, k * steps)
    gemm = record_of(own.plan(own.complete({"format": "fp16"} if scheme == "native" else {}), problem), slow, problem)
    kernels = SeparatedKernels(gemm, plan_of(gemm), slow)
    memory = CubeMemory(slow, kernels.terms, gemm.unit, problem.sizes)
    assert memory.pieces == ((1, 1) if scheme == "native" else (3, 3))
    block = 2 * k * memory.pieces[0] * (m + n)
    cycles = memory.estimate_cycles(memory.with_packets(m, n, k, 2, (1, 1)))
    assert cycles / (slow.clock_mhz * 1e6) == pytest.approx(steps * block / 1e8, rel=0.03)


@pytest.mark.parametrize("scheme", ["native", "sgemm-cube", "ape-fp32-b"])
@pytest.mark.parametrize("options", [{}, {"buffering": "single"}, {"tile": (64, 64, 64), "step_ka": 4}], ids=str)
def test_the_bytes_that_a_cube_needs_are_those_that_its_kernel_declares(scheme: str, options: dict[str, Any]) -> None:
    chip, problem = load("ascend910b3"), Problem.of("fp16" if scheme == "native" else "fp32", 200, 300, 400)
    gemm = SEPARATED.map(
        record_of(plan_for(chip, scheme_of(scheme), problem, None, {}).plan, chip, problem), chip, options
    )
    kernels = SeparatedKernels(gemm, plan_of(gemm), chip)
    memory = CubeMemory(chip, kernels.terms, gemm.unit, problem.sizes)
    of_kernel = {kernel.name: kernel for kernel in SEPARATED.lower(gemm, chip).kernels}
    most: dict[str, int] = {}
    for mapping in gemm.mapping.kernels:
        declared: dict[str, int] = {}
        for buffer in of_kernel[mapping.name].buffers:
            declared[buffer.memory] = declared.get(buffer.memory, 0) + buffer.slots * buffer.slot_bytes
        most = {name: max(size, most.get(name, 0)) for name, size in declared.items()}
    assert memory.taken(blocking_of(gemm.mapping.kernels[0])) == most
