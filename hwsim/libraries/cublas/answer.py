"""What fixes a kernel's order of summation: cuBLASLt's answer on a generation of chips, as plain records.

It knows the numbers that cuBLASLt gives; no rule that reads them.
"""

from __future__ import annotations

from typing import NamedTuple

from hwsim.gemm.schedule import Schedule
from hwsim.libraries.kernel_choice import SummationOrder


class Generation(NamedTuple):
    """How kernels of a generation of chips add over K where it is not as on Hopper; the numbers are cuBLASLt's.

    promotes: without fast accumulation, sums of 8-bit floats are closed every 128 of K. known_options: custom options
    of matrix-vector kernels whose order is known there (None: all that are on Hopper); open_options: those of one lane
    whose sum is not closed. names: (algorithm, name) of kernels with another name. published: what is, and where, in
    words; "": nothing.
    """

    promotes: bool = True
    known_options: frozenset[int] | None = None
    open_options: frozenset[int] = frozenset()
    names: tuple[tuple[int, str], ...] = ()
    published: str = ""


HOPPER = Generation()


class Answer(NamedTuple):
    """What fixes the order of sums: cuBLASLt's algorithm id, K of a tile (0: undefined, None: not known), slices,
    reduction and custom option.

    slices -1: the kernel may cut K of some tiles by itself; then tile and cluster (as cuBLASLt's enums write them;
    None: not known), swizzle and the chip's SMs say of which. generation: of the chip.
    """

    algorithm: int
    tile_k: int | None
    slices: int
    reduction: int
    custom: int
    tile: tuple[int, int] | None = None
    cluster: tuple[int, int] | None = (1, 1)
    swizzle: int = 0
    cores: int = 132
    generation: Generation = HOPPER


UNKNOWN = SummationOrder(Schedule(), known=False)  # one chain stands for it
