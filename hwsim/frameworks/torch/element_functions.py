"""PyTorch's functions of single elements with the bits of its CUDA kernels; gradients stay PyTorch's own.

Each is computed in fp32 and rounded to the tensor's dtype. The module knows the formulas of PyTorch's kernels; it knows
no polynomial. nvcc makes a product and a sum one fused multiply-add. Source: github pytorch/pytorch,
aten/src/ATen/native/cuda: UnaryOpsKernel.cu, PowKernel.cu, UnaryGeometricTanhKernel.cu, ActivationSiluKernel.cu,
ActivationGeluKernel.cu.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hwsim.arithmetic.cuda_functions import cosf, erff, sinf, tanhf
from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.arithmetic.rounded_once import multiply_add
from hwsim.frameworks.torch.caller import Caller
from hwsim.frameworks.torch.own_kernels import cuda_math, follows
from hwsim.frameworks.torch.tensors import array_of

Single = NDArray[np.float32]
ElementFunction = Callable[[CudaMath, Single], Single]
ONE, HALF = np.float32(1), np.float32(0.5)
SQRT_HALF = np.float32(math.sqrt(0.5))
GELU_INNER, GELU_CUBE = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)
CODES = 1 << 16  # of a dtype of 16 bits
AT_ONCE = 1 << 20  # elements, so that what is in between stays small


def sigmoid(cuda: CudaMath, x: Single) -> Single:
    """1 / (1 + e^-x)."""
    return ONE / (ONE + cuda.expf(-x))


def silu(cuda: CudaMath, x: Single) -> Single:
    """x / (1 + e^-x)."""
    return x / (ONE + cuda.expf(-x))


def gelu(cuda: CudaMath, x: Single) -> Single:
    """x / 2 (1 + erf(x / sqrt(2)))."""
    return x * HALF * (ONE + erff(cuda, x * SQRT_HALF))


def gelu_tanh(cuda: CudaMath, x: Single) -> Single:
    """x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    inner = GELU_INNER * multiply_add(np.full_like(x, GELU_CUBE), x * x * x, x)
    return HALF * x * (ONE + tanhf(cuda, inner))


#: By the name of aten's operator, and of gelu's other form. Which of them a chip has, PyTorch's file says.
FUNCTIONS: Mapping[str, ElementFunction] = {
    "rsqrt": CudaMath.rsqrtf,
    "sqrt": lambda _, x: np.sqrt(x),  # rounded to nearest
    "exp": CudaMath.expf,
    "exp2": CudaMath.exp2f,
    "log": CudaMath.logf,
    "tanh": tanhf,
    "erf": erff,
    "sin": sinf,
    "cos": cosf,
    "sigmoid": sigmoid,
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}
#: Of aten::pow with these exponents: its name, and how PyTorch's kernel computes it in the tensor's dtype. With 2 and
#: -1 a CPU has the same bits; other exponents are powf's, which is not followed.
POWERS: Mapping[float, tuple[str, Callable[[Tensor], Tensor]]] = {
    3: ("pow_3", lambda x: x * x * x),
    -2: ("pow_minus_2", lambda x: (x * x).reciprocal()),
    0.5: ("pow_half", lambda x: elements("sqrt", x)),
    -0.5: ("pow_minus_half", lambda x: elements("rsqrt", x)),
}
OTHER_FORMS = ("gelu_tanh",)
#: aten's operators among FUNCTIONS.
ELEMENTWISE = tuple(name for name in FUNCTIONS if name not in OTHER_FORMS)


def function_of_elements(name: str) -> Callable[..., Tensor | None]:
    """aten::`name`; None where PyTorch runs another function."""

    def function(caller: Caller, input: Tensor, *, approximate: str = "none") -> Tensor | None:
        full = name if approximate == "none" else f"{name}_{approximate}"
        if not follows(caller, full, input):
            return None
        return elements(full, input)

    return function


def power(caller: Caller, input: Tensor, exponent: Any) -> Tensor | None:
    """aten::pow with an exponent of POWERS; None for another."""
    if not isinstance(exponent, int | float) or exponent not in POWERS:
        return None
    name, function = POWERS[exponent]
    return function(input) if follows(caller, name, input) else None


def elements(name: str, x: Tensor) -> Tensor:
    """The function of each element, in the dtype and the layout of x."""
    out = torch.empty_like(x)
    if x.dtype == torch.float32:
        values = _of_singles(name, array_of(x.contiguous()))
        return out.copy_(torch.from_numpy(values).reshape(x.shape))
    codes = x.contiguous().view(torch.int16).long() & (CODES - 1)
    return out.copy_(_table(name, x.dtype)[codes])


@cache
def _table(name: str, dtype: torch.dtype) -> Tensor:
    """The function of all codes of a dtype of 16 bits."""
    codes = torch.arange(CODES).to(torch.int16).view(dtype)
    return torch.from_numpy(_of_singles(name, array_of(codes.float()))).to(dtype)


def _of_singles(name: str, x: Any) -> Single:
    flat, math_of_chip = np.ascontiguousarray(x).reshape(-1), cuda_math()
    result = np.empty_like(flat)
    with np.errstate(all="ignore"):
        for first in range(0, len(flat), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            result[part] = FUNCTIONS[name](math_of_chip, flat[part])
    return result


__all__ = ["ELEMENTWISE", "elements", "function_of_elements", "power"]
