"""The mapping: tiles, pipeline stages, clusters and rasterisation of each GEMM kernel, as chosen by a dataflow.

It has one entry per device kernel that multiplies, with everything that cycles depend on. It knows no device and no
plan.
"""

from __future__ import annotations

from dataclasses import dataclass

Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile sizes: m x n elements of C that a core works on at a time, and k elements of K per stage."""

    m: int
    n: int
    k: int

    def to_dict(self) -> dict[str, int]:
        """The sizes as {"m": m, "n": n, "k": k}."""
        return {"m": self.m, "n": self.n, "k": self.k}


@dataclass(frozen=True, slots=True)
class Setting:
    """A named value: an option of a scheme, or a choice specific to one dataflow."""

    name: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class KernelMapping:
    """The mapping of one GEMM kernel onto cores.

    name: "gemm", or "gemm_2" where each term of the plan is a kernel of its own. terms: indices of the plan's terms
    that it computes. instruction: its matrix instruction, full name. tile: per core. warp: the warp tile, (m, n).
    stages: of the software pipeline in shared memory. accumulators: tiles of C held at a time (2: the epilogue of one
    overlaps the main loop of the next). cluster: CTAs (m, n) that receive operands by multicast. cta_group: cores whose
    matrix units multiply one tile each together. swizzle: width of a rasterisation band, in tiles of C. settings:
    choices that only this dataflow has.
    """

    name: str
    terms: tuple[int, ...]
    instruction: str
    tile: Tile
    warp: tuple[int, int] | None = None
    stages: int = 1
    accumulators: int = 1
    cluster: tuple[int, int] = (1, 1)
    cta_group: int = 1
    swizzle: int = 0
    settings: tuple[Setting, ...] = ()

    def setting(self, name: str) -> Scalar:
        """The value of one entry of `settings`. Raises KeyError where there is none of that name."""
        for setting in self.settings:
            if setting.name == name:
                return setting.value
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class GemmMapping:
    """The mapping of all GEMM kernels of a record, in order. Split, merge and join passes follow from plan and
    schedule.
    """

    dataflow: str
    kernels: tuple[KernelMapping, ...]


def settings_of(values: dict[str, Scalar]) -> tuple[Setting, ...]:
    """Settings from names and values, in the given order."""
    return tuple([Setting(name, value) for name, value in values.items()])
