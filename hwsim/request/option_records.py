"""The options of a call by owner, one frozen record each, validated and with their defaults.

Written by hwsim.request.generate from the declarations; change these, not this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from hwsim.gemm.schedule import Schedule
from hwsim.libraries.on_device import LibraryOnDevice


@dataclass(frozen=True, slots=True)
class ProblemOptions:
    """Options of the owner "problem"."""

    m: int | None = None
    n: int | None = None
    k: int | None = None
    batch: int | None = None
    conv: Mapping[str, Any] | None = None
    input_format: str | None = None
    seed: int = 0
    operand_distribution: str = "normal"
    scale_a: ArrayLike | None = None
    scale_b: ArrayLike | None = None
    tensor_scales: Sequence[float] | None = None
    sparsity: str | None = None


@dataclass(frozen=True, slots=True)
class SchemeOptions:
    """Options of the owner "scheme"."""

    error_target: float | None = None
    format: str | None = None


@dataclass(frozen=True, slots=True)
class EpilogueOptions:
    """Options of the owner "epilogue"."""

    c: ArrayLike | None = None
    alpha: float | None = None
    beta: float | None = None
    bias: ArrayLike | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class OrderOptions:
    """Options of the owner "order of summation"."""

    schedule: Schedule | Mapping[str, Any] | None = None
    scale_order: str | None = None


@dataclass(frozen=True, slots=True)
class LibraryOptions:
    """Options of the owner "library"."""

    library: str | Path | LibraryOnDevice | None = None
    reductions: str | None = None
    workspace_bytes: int | None = None
    lt_workspace_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RegionOptions:
    """Options of the owner "region"."""

    rows: slice | ArrayLike | None = None
    cols: slice | ArrayLike | None = None
    shape: tuple[int, int] | list[int] | None = None
    at: Sequence[slice | ArrayLike] | None = None


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """Options of the owner "machine"."""

    exact: bool = True
    timing: bool = True
    functional: bool | None = None
    values: Sequence[Sequence[int]] | None = None
    l2: str = "series"
    clock_mhz: float | None = None
    power_limit_w: float | None = None
    launch_overhead: bool = False
    threads: int | None = None
    engine: str | None = None
