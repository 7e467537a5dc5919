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
def runnable_variants() -> tuple[str, ...]: ...
def choose_variant(name: str) -> None: ...
def chosen_variant() -> str: ...
def format_fields(name: str) -> dict[str, Any]: ...
