"""Quantities of a GEMM and its kernel on which a time depends: what the chip needs at least, tiles, steps, edges.

It knows calls, choices and least times; no fitted number and no program.
"""

from __future__ import annotations

import math

from hwsim.devices.least_time import LeastTime
from hwsim.formats import format_of
from hwsim.libraries.cublas.calls import ELEMENT_BYTES, REDUCTION_IN_PLACE, VECTOR_BYTES
from hwsim.libraries.cublas.choice import CublasChoice
from hwsim.libraries.gemm_call import GemmCall

#: What a row's numbers multiply, all at least 0. A step: one tile of K of one CTA; a wave: a tile of C on each SM.
#: Means are over all SMs; what has no "mean" is of the busiest SM.
QUANTITIES = (
    "constant",
    "least_us",
    "products_us",
    "l2_us",
    "hbm_us",
    "wave_us",  # products at the peak rate, edges of tiles and idle SMs of the last wave counted
    "mean_wave_us",
    "steps",
    "mean_steps",
    "waves",
    "steps_of_a_tile",
    "step_kilobytes",  # of A and B that the steps load
    "mean_step_kilobytes",
    "wave_kilo_elements",  # of D that are written
    "mean_wave_kilo_elements",
    "unaligned_steps",  # with UNALIGNED_TILE
    "mean_unaligned_steps",
    "slice_kilo_k",
    "kilo_results",  # of all slices
    "mega_elements_a",
    "mega_elements_b",
)
#: What networks take.
FACTS = (
    "m",
    "n",
    "k",
    "batch",
    "mega_macs",
    "megabytes",
    "least_us",
    "products_share",
    "l2_share",
    "hbm_share",
    "hbm_terabytes_per_second",
    "wave_ratio",
    "load_ratio",
    "wave_us",
    "tiles_per_core",
    "waves",
    "filled",  # share of the waves' SMs that have a tile
    "steps_of_a_tile",
    "edge_m",
    "edge_n",  # the share of the last tile that is in C
    "tile_m",
    "tile_n",
    "tile_k",
    "stages",
    "cluster_m",
    "cluster_n",
    "slices",
    "algorithm",
    "format",
    "output_bits",
    "is_promoted",
    "a_by_columns",
    "b_by_rows",
    "has_bias",
    "m_alignment",
    "n_alignment",
    "k_alignment",
    "custom",
    "kilo_results",
    "slice_k",
    "kilo_results_of_slices",
    "unaligned_steps",
    "mean_unaligned_steps",
    "unaligned_tiles_per_core",
    "unaligned_rows",
    "unaligned_edge",
    "row_bytes",  # the largest power of two, to VECTOR_BYTES, that divides rows of A, B and D
    "operand_megabytes",
    "columns_of_tiles",
    "rows_of_tiles",
    "sum_logarithm",
    "sum_ratio",
    "reduction",  # of slices: cuBLASLt's number
    "serial_slices",
    "serial_kilo_results",
    "stride_power_a",  # the largest power of two, to MOST_STRIDE, that divides the bytes of a row or column in memory
    "stride_power_b",
    "stride_power_d",
    "stride_a",  # bytes
    "stride_b",
    "rounds_of_2",  # waves, were 2 CTAs on an SM at once
    "filled_of_2",  # share of such waves that has a tile
    "rounds_of_3",
    "filled_of_4",
    "last_step",  # elements of K in the last step of a slice, 0 where it is whole
    "ctas",
    "sum_per_step",  # microseconds of the row's sum, of a step of K in each wave
    "sum_per_mean_step",
    "least_per_step",
    "m_of_64",  # what is left of m in blocks of 64, as a share of a block
    "m_of_128",
    "n_of_64",
    "n_of_128",
    "k_of_32",
    "k_of_64",
)
ABOUT_A_LAUNCH_US = 2.0  # the networks' factor is of the time with a launch: very short kernels hide in it
FORMATS = ("fp16", "bf16", "tf32", "fp32", "fp64", "e4m3", "int8")
MOST_ALIGNED = 128  # elements
MOST_STRIDE = 16384  # bytes
STEP = 32  # of K, where the choice does not say it
#: (m, n, k) of Hopper's xmma kernels for rows that are not whole 16 bytes, by their names; the answers that ship for
#: such calls with a bias have another tile.
UNALIGNED_TILE = (256, 64, 64)
TILE_N, TILE_M = 64, 64  # of kernels without a tile


def quantities(choice: CublasChoice, call: GemmCall, cores: int, least: LeastTime) -> tuple[float, ...]:
    """The values of QUANTITIES."""
    m, n, k = call.sizes
    shape = _KernelShape(choice, call, cores, least)
    item = ELEMENT_BYTES[choice.operand]
    loaded, written = (shape.rows + shape.columns) * shape.step * item / 1e3, shape.rows * shape.columns / 1e3
    return (
        1.0,
        least.us,
        least.products_us,
        least.l2_us,
        least.hbm_us,
        shape.wave_us,
        shape.wave_us * shape.filled,
        shape.waves * shape.deep,
        shape.tiles * shape.deep,
        shape.waves,
        shape.deep,
        shape.waves * shape.deep * loaded,
        shape.tiles * shape.deep * loaded,
        shape.waves * written,
        shape.tiles * written,
        shape.unaligned_steps,
        shape.unaligned_tiles * shape.unaligned_deep,
        k / choice.split_k / 1e3,
        call.batch * m * n * choice.split_k / 1e3,
        call.batch * m * k / 1e6,
        call.batch * n * k / 1e6,
    )


def facts(choice: CublasChoice, call: GemmCall, cores: int, least: LeastTime, sum_us: float) -> tuple[float, ...]:
    """The values of FACTS. sum_us: of the row, without a launch."""
    m, n, k = call.sizes
    shape, item = _KernelShape(choice, call, cores, least), ELEMENT_BYTES[choice.operand]
    moved = call.batch * ((m * k + k * n) * item + m * n * format_of(call.result).bits / 8)
    high, wide = choice.cluster or (0, 0)
    with_launch = least.us + ABOUT_A_LAUNCH_US
    l2_bytes_per_us = moved / least.l2_us
    load_us = shape.tiles * cores * shape.deep * shape.step * (shape.rows + shape.columns) * item / l2_bytes_per_us
    alignments = (math.gcd(size, MOST_ALIGNED) for size in call.sizes)
    leading = (m if call.a_layout == "columns" else k, n if call.b_layout == "rows" else k, n)
    numbers = (
        *(m, n, k, call.batch, call.batch * m * n * k / 1e6, moved / 1e6),
        *(least.us, least.products_us / least.us, least.l2_us / least.us, least.hbm_us / least.us),
        least.hbm_bytes_per_second / 1e12,
        *((shape.wave_us + ABOUT_A_LAUNCH_US) / with_launch, (load_us + ABOUT_A_LAUNCH_US) / with_launch),
        *(shape.wave_us, shape.tiles, shape.waves, shape.filled, shape.deep, shape.edge_m, shape.edge_n),
        *(shape.rows, shape.columns, shape.step, choice.stages or 0, high, wide, choice.split_k),
        *(choice.algorithm, FORMATS.index(choice.operand), format_of(call.result).bits),
        choice.schedule.promotion_k is not None,
        *(call.a_layout == "columns", call.b_layout == "rows", call.bias, *alignments, choice.custom),
        *(call.batch * m * n / 1e3, k / choice.split_k, call.batch * m * n * choice.split_k / 1e3),
        *(shape.unaligned_steps, shape.unaligned_tiles * shape.unaligned_deep, shape.unaligned_tiles),
        *(min(m, UNALIGNED_TILE[0]), (m % UNALIGNED_TILE[0] or UNALIGNED_TILE[0]) / UNALIGNED_TILE[0]),
        math.gcd(*leading) * item % VECTOR_BYTES or VECTOR_BYTES,
        call.batch * (m * k + k * n) * item / 1e6,
        *(math.ceil(n / (shape.columns or TILE_N)), math.ceil(m / (shape.rows or TILE_M))),
        *(math.log(sum_us + ABOUT_A_LAUNCH_US), math.log((sum_us + ABOUT_A_LAUNCH_US) / with_launch)),
        *(choice.reduction if choice.split_k > 1 else 0, _serial_slices(choice)),
        call.batch * m * n * _serial_slices(choice) / 1e3,
        *_strides([size * item for size in leading]),
        *_waves_at_once(shape, cores),
        *_per_step(shape, least, sum_us),
        *((size % block) / block for size, block in ((m, 64), (m, 128), (n, 64), (n, 128), (k, 32), (k, 64))),
    )
    return tuple([float(number) for number in numbers])


def _strides(strides: list[int]) -> tuple[int, ...]:
    """stride_power_a to stride_b. strides: bytes between rows or columns of A, B and D."""
    return *(math.gcd(stride, MOST_STRIDE) for stride in strides), *strides[:2]


def _waves_at_once(shape: _KernelShape, cores: int) -> tuple[float, ...]:
    """rounds_of_2 to ctas; zeros where the choice has no tile."""
    turns = [math.ceil(shape.ctas / (cores * at_once)) for at_once in (2, 3, 4)]
    filled = [shape.ctas / (cores * at_once * max(count, 1)) for at_once, count in zip((2, 3, 4), turns, strict=True)]
    return turns[0], filled[0], turns[1], filled[2], shape.last_step, shape.ctas


def _per_step(shape: _KernelShape, least: LeastTime, sum_us: float) -> tuple[float, ...]:
    """sum_per_step, sum_per_mean_step and least_per_step."""
    steps, mean_steps = max(shape.waves, 1) * max(shape.deep, 1), max(shape.tiles, 1) * max(shape.deep, 1)
    return sum_us / steps, sum_us / mean_steps, least.us / steps


def _serial_slices(choice: CublasChoice) -> int:
    """Slices that wait for another: all but the first, where one after the other adds to the result in place."""
    return choice.split_k - 1 if choice.reduction == REDUCTION_IN_PLACE else 0


class _KernelShape:
    """CTAs, tiles, waves and steps of a kernel; zeros where the choice has no tile. tiles, unaligned_tiles: per SM."""

    def __init__(self, choice: CublasChoice, call: GemmCall, cores: int, least: LeastTime) -> None:
        m, n, k = call.sizes
        self.rows, self.columns = choice.tile or (0, 0)
        self.step = choice.tile_k or STEP
        self.tiles = self.filled = self.edge_m = self.edge_n = self.wave_us = self.last_step = 0.0
        self.waves = self.deep = self.ctas = 0
        if choice.tile is not None:
            count = math.ceil(m / self.rows) * math.ceil(n / self.columns) * choice.split_k * call.batch
            self.ctas, self.tiles, self.waves = count, count / cores, math.ceil(count / cores)
            self.deep = math.ceil(k / choice.split_k / self.step)
            self.last_step = (k / choice.split_k) % self.step
            self.filled = self.tiles / self.waves
            self.edge_m = (m % self.rows or self.rows) / self.rows
            self.edge_n = (n % self.columns or self.columns) / self.columns
            macs = self.waves * self.deep * self.step * self.rows * self.columns * cores
            self.wave_us = least.products_us * macs / (call.batch * m * n * k)
        high, wide, depth = UNALIGNED_TILE
        count = math.ceil(m / high) * math.ceil(n / wide) * call.batch
        self.unaligned_tiles, self.unaligned_deep = count / cores, math.ceil(k / depth)
        self.unaligned_steps = math.ceil(count / cores) * self.unaligned_deep
