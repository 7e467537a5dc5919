from typing import Any

import numpy as np
import numpy.typing as npt

from hwsim.numerics.units import DotSpec

def gemm(
    spec: DotSpec,
    a: npt.NDArray[np.unsignedinteger[Any]],
    b: npt.NDArray[np.unsignedinteger[Any]],
    c: npt.NDArray[np.unsignedinteger[Any]] | None = None,
    *,
    scale_a: npt.NDArray[np.unsignedinteger[Any]] | None = None,
    scale_b: npt.NDArray[np.unsignedinteger[Any]] | None = None,
    divide: npt.NDArray[np.uint8] | None = None,
    threads: int = 1,
    out: npt.NDArray[np.unsignedinteger[Any]] | None = None,
    _variant: str | None = None,
) -> npt.NDArray[np.unsignedinteger[Any]]: ...
def promote(
    spec: DotSpec,
    a: npt.NDArray[np.unsignedinteger[Any]],
    b: npt.NDArray[np.unsignedinteger[Any]],
    total: npt.NDArray[np.floating[Any]],
    *,
    length: int,
    divide: npt.NDArray[np.uint8] | None = None,
    saturate: bool = False,
    nan_code: int | None = None,
    threads: int = 1,
    _variant: str | None = None,
) -> npt.NDArray[Any]:
    """total (M, N), in place: the chains of a b over each `length` of K, begun at +0, added one after the other.

    spec: a DotSpec with c = d = fp32 or fp64, without block scales. a (M, K), b (K, N): as of `gemm`. total: float32 or
    float64 like the results, C-contiguous; each addition rounds to nearest even, with saturate and nan_code as of
    `hwsim._kernels.lanes.combine`. length: a multiple of the unit's products per step that divides K. divide: as of
    `gemm`, for the steps of one chain. threads, _variant: as of `gemm`.
    Raises InputError for what does not fit, UnsupportedError for other units.
    """

def runnable_variants() -> tuple[str, ...]: ...
def choose_variant(name: str) -> None: ...
def chosen_variant() -> str: ...
def format_fields(name: str) -> dict[str, Any]: ...
def spec_fields(spec: DotSpec) -> dict[str, Any]:
    """A DotSpec as the kernels' record, field by field in the order of hw_spec: formats and the inner unit as mappings.

    Raises UnsupportedError for a unit without a kernel.
    """
