"""How PyTorch 2.11 calls cuBLAS: bytes of workspace, in which type slices of K may be reduced, and by which function.

The rules are data (configs/frameworks/pytorch-2.11.yaml; docs/library.md says how they were found). It knows calls; no
choice of a library.
"""

from __future__ import annotations

from typing import NamedTuple

from hwsim.errors import UnsupportedError
from hwsim.libraries.cublas.calls import Preference
from hwsim.libraries.model.facts import framework_of

NARROW = ("fp16", "bf16")  # results of 16 bits
FRAMEWORK = ("pytorch", "2.11")
LT = "cublasLtMatmul"


class PytorchCall(NamedTuple):
    """How PyTorch calls cuBLAS: what the library is told, and whether the call is cublasLtMatmul with the bias in its
    epilogue (else cublasGemmEx, with a bias as its C)."""

    told: Preference
    is_lt: bool


def pytorch_call(sizes: tuple[int, int], *, format: str, output: str, has_bias: bool) -> PytorchCall:
    """How PyTorch calls cuBLAS for a product with (n, k): the table of docs/library.md.

    Raises UnsupportedError for a bias of operands that it takes none for.
    """
    n, k = sizes
    framework = framework_of(*FRAMEWORK)
    rule = next(
        call
        for call in framework.calls.values()
        if (not call.operands or format in call.operands)
        and call.bias in (None, has_bias)
        and n >= call.least_n
        and k >= call.least_k
    )
    if has_bias and rule.no_bias:
        raise UnsupportedError(f"{format} with a bias: {rule.no_bias}; leave the bias out")
    is_narrow = format in framework.reductions.narrow and output in framework.reductions.narrow
    return PytorchCall(Preference(rule.workspace_bytes, "compute" if is_narrow else "any"), rule.function == LT)


def pytorch_output(format: str) -> str | None:
    """The format of PyTorch's result where nothing else is asked for; None for operands that it has no product of."""
    outputs = framework_of(*FRAMEWORK).outputs.get(format)
    return None if outputs is None else outputs.plain


def biased_outputs(format: str) -> tuple[str, ...]:
    """The formats of PyTorch's results with a bias, which has the result's format; none where it takes no bias."""
    outputs = framework_of(*FRAMEWORK).outputs.get(format)
    return () if outputs is None else outputs.biased
