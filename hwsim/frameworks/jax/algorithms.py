"""JAX's names of precisions and dot algorithms as arguments of `hwsim.run`. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsim.errors import UnsupportedError, nearest

#: What a call's precision may be named after: takes the scheme from the call.
BY_PRECISION = "precision"
#: {jax.lax.DotAlgorithmPreset: arguments}. Source: the docstrings of jax.lax.DotAlgorithmPreset, and XLA's
#: xla_data.proto (PrecisionConfig.Algorithm). ANY_F8 takes the operands' own formats.
ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    "BF16_BF16_F32": {"scheme": "native", "format": "bf16"},
    "BF16_BF16_F32_X3": {"scheme": "bf16x3"},
    "BF16_BF16_F32_X6": {"scheme": "bf16x6"},
    "BF16_BF16_F32_X9": {"scheme": "bf16x9"},
    "TF32_TF32_F32": {"scheme": "native", "format": "tf32"},
    "TF32_TF32_F32_X3": {"scheme": "tf32x3"},
    "F16_F16_F32": {"scheme": "native", "format": "fp16"},
    "F32_F32_F32": {"scheme": "native", "format": "fp32"},
    "F64_F64_F64": {"scheme": "native", "format": "fp64"},
    "ANY_F8_ANY_F8_F32": {"scheme": "native", "accumulate": "promoted"},
    "ANY_F8_ANY_F8_F32_FAST_ACCUM": {"scheme": "native", "accumulate": "fast"},
}
#: {jax.lax.Precision: arguments} for float32 operands: TF32, but for the highest. Narrower ones are native products.
PRECISIONS: Mapping[str, Mapping[str, Any]] = {
    "DEFAULT": {"scheme": "native", "format": "tf32"},
    "HIGH": {"scheme": "native", "format": "tf32"},
    "HIGHEST": {"scheme": "native", "format": "fp32"},
}
WIDE = ("float32", "float64")


def arguments_of(precision: Any, dtype: str) -> Mapping[str, Any]:
    """The arguments of a call with this precision (None, a Precision or a pair of them, a DotAlgorithmPreset, or a
    name) and operands of this dtype. Raises UnsupportedError for algorithms that no scheme is.
    """
    first = precision[0] if isinstance(precision, tuple) else precision
    name = "DEFAULT" if first is None else str(getattr(first, "name", first)).upper()
    if name in PRECISIONS:
        if dtype == "float64":
            return ALGORITHMS["F64_F64_F64"]
        return PRECISIONS[name] if dtype in WIDE else {"scheme": "native"}
    if name not in ALGORITHMS:
        names = [*ALGORITHMS, *PRECISIONS]
        raise UnsupportedError(
            f"dot algorithm {name}: no scheme computes it; there are {', '.join(names)}{nearest(name, names)}"
        )
    return ALGORITHMS[name]
