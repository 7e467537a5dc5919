"""How PyTorch 2.11 calls cuBLAS: bytes of workspace, in which type slices of K may be reduced, and by which function.

`mm` is cublasGemmEx with 32 MiB of workspace, products with a bias are `F.linear` (cublasLtMatmul with 1 MiB), e4m3 is
`_scaled_mm` (1 MiB), int8 `_int_mm` (none); reduced-precision reductions are off. Found by asking cuBLASLt with each
and comparing the kernels that ran: docs/library.md. It knows calls; no choice of a library.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from hwsim.errors import UnsupportedError

MIB = 1 << 20
DEFAULT_WORKSPACE_BYTES = 32 * MIB
Reductions = Literal["any", "compute"]
#: CUBLASLT_REDUCTION_SCHEME_* that are allowed.
REDUCTION_MASKS: dict[str, int] = {"any": 7, "compute": 2}
NARROW = ("fp16", "bf16")
LT_ALONE = ("e4m3", "int8")  # formats of operands that are cublasLtMatmul's, with a bias or without
#: Why calls with a bias have no choices, by format of the operands.
BIAS_NOT_ASKED = {"int8": "PyTorch's _int_mm takes none"}
#: Format of the result where nothing else is asked for.
PYTORCH_OUTPUTS = {
    **{name: name for name in ("fp16", "bf16", "fp32", "fp64")}, "tf32": "fp32", "int8": "int32", "e4m3": "bf16",
}  # fmt: skip
#: Formats of results with a bias, which has the result's format.
BIASED_OUTPUTS = {
    **{name: (PYTORCH_OUTPUTS[name],) for name in ("fp16", "bf16", "tf32", "fp32", "fp64")}, "e4m3": NARROW,
}  # fmt: skip


class PytorchCall(NamedTuple):
    """How PyTorch calls cuBLAS: bytes of workspace, in which type slices may be reduced, and whether the call is
    cublasLtMatmul with the bias in its epilogue (else cublasGemmEx, with a bias as its C)."""

    workspace_bytes: int
    reductions: Reductions
    is_lt: bool


#: `mm` with a result of the accumulator's type.
PLAIN_CALL = PytorchCall(DEFAULT_WORKSPACE_BYTES, "any", False)


def pytorch_call(sizes: tuple[int, int], *, format: str, output: str, has_bias: bool) -> PytorchCall:
    """How PyTorch calls cuBLAS for a product with (n, k): the table of docs/library.md.

    Raises UnsupportedError for a bias of operands that it takes none for.
    """
    n, k = sizes
    is_lt = format in LT_ALONE or (has_bias and n > 1 and k > 1)
    if has_bias and is_lt and format in BIAS_NOT_ASKED:
        raise UnsupportedError(f"{format} with a bias: {BIAS_NOT_ASKED[format]}; leave the bias out")
    workspace = 0 if format == "int8" else MIB if is_lt else DEFAULT_WORKSPACE_BYTES
    return PytorchCall(workspace, "compute" if output in NARROW and format in NARROW else "any", is_lt)
