"""The mapping: how a dataflow lays one GEMM out over cores, memories and time, as far as cycles depend on it.

Tile sizes, stages and the like, one record per device kernel of the GEMM proper. It knows no device and no plan.
"""

from __future__ import annotations

from dataclasses import dataclass

Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Tile:
    """m x n elements of C that a core works on at a time, and k elements of K per stage."""

    m: int
    n: int
    k: int

    def to_dict(self) -> dict[str, int]:
        """{"m", "n", "k"}."""
        return {"m": self.m, "n": self.n, "k": self.k}


@dataclass(frozen=True, slots=True)
class Setting:
    """A named value: an option of a scheme, or a choice that only one dataflow knows."""

    name: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class KernelMapping:
    """One device kernel that multiplies.

    name: "gemm", or "gemm_2" where each term of the plan is a kernel of its own. terms: indices of the plan's terms
    that it forms. instruction: its matrix instruction, spelt out. tile: of one core. warp: (m, n) of C that one warp
    owns. stages: buffers of K blocks in shared memory. accumulators: tiles of C held at a time (2: the epilogue of one
    runs beside the main loop of the next). cluster: CTAs (m, n) that receive operands together. cta_group: cores whose
    matrix units multiply one tile each together. swizzle: tiles in a band of columns that is gone through together.
    settings: what only this dataflow knows.
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
        """The value of one of `settings`. Raises KeyError where it has none of that name."""
        for one in self.settings:
            if one.name == name:
                return one.value
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class GemmMapping:
    """The kernels of a GEMM that multiply, in order; passes that split, merge and join follow from plan and
    schedule."""

    dataflow: str
    kernels: tuple[KernelMapping, ...]


def settings_of(values: dict[str, Scalar]) -> tuple[Setting, ...]:
    """Settings from names and values, in their order."""
    return tuple(Setting(name, value) for name, value in values.items())
