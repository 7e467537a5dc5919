"""PyTorch's tensors of scales, and packed FP4 elements, as arrays for `hwsim.run`.

It knows PyTorch's shapes and dtypes; it knows no device and no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hwsim.errors import UnsupportedError
from hwsim.formats import array_of as typed
from hwsim.formats import format_of
from hwsim.frameworks.torch.tensors import array_of, is_known
from hwsim.operands import scale_layouts

AnyArray = NDArray[Any]
PACKED = getattr(torch, "float4_e2m1fn_x2", None)  # two elements a byte
#: {dtype of a scale: (format, elements of K that share one)}
NARROW = {torch.float8_e4m3fn: ("ue4m3", 16), getattr(torch, "float8_e8m0fnu", None): ("ue8m0", 32)}


class TensorScales(NamedTuple):
    """The scales of A and B as hwsim.run takes them, and the factors of the whole operands (None: there are none)."""

    scale_a: AnyArray
    scale_b: AnyArray
    tensor_scales: tuple[float, float] | None = None


def takes_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether hwsim multiplies such elements: FP8, or packed FP4."""
    return all(is_known(x) or x.dtype == PACKED for x in (a, b))


def elements_of(tensor: torch.Tensor, axis: int) -> AnyArray:
    """The elements of an operand. axis: of K, along which FP4 is packed, the low half of a byte first."""
    if tensor.dtype != PACKED:
        return array_of(tensor)
    packed = tensor.detach() if axis == -1 else tensor.detach().t()
    codes: AnyArray = np.from_dlpack(packed.cpu().contiguous().view(torch.uint8))
    pairs = np.stack([codes & np.uint8(15), codes >> np.uint8(4)], -1).reshape(codes.shape[0], -1)
    elements = typed(np.ascontiguousarray(pairs), format_of("e2m1"))
    return elements if axis == -1 else elements.T


def scales_of(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: Sequence[torch.Tensor],
    scale_b: Sequence[torch.Tensor],
) -> TensorScales:
    """The scales of a product of a (m, k) and b (k, n). scale_a, scale_b: one tensor each, or of NVFP4 that of the
    blocks and that of the whole operand.

    Raises UnsupportedError for scales that hwsim.torch does not take.
    """
    packed = 2 if a.dtype == PACKED else 1
    m, k, n = a.shape[0], a.shape[1] * packed, b.shape[1]
    factors = None
    if len(scale_a) > 1 or len(scale_b) > 1:
        if (len(scale_a), len(scale_b)) != (2, 2):
            raise UnsupportedError(f"_scaled_mm: {len(scale_a)} and {len(scale_b)} tensors of scales; allowed: 1 or 2")
        factors = (float(scale_a[1]), float(scale_b[1]))
    left = _of_side(scale_a[0], m, k, is_b=False)
    right = _of_side(scale_b[0], n, k, is_b=True)
    return TensorScales(left, right, factors)


def _of_side(scale: torch.Tensor, rows: int, k: int, *, is_b: bool) -> AnyArray:
    """The scales (rows, blocks of K) of one operand."""
    if scale.dtype in NARROW:
        name, block = NARROW[scale.dtype]
        codes = np.from_dlpack(scale.detach().cpu().contiguous().view(torch.uint8)).reshape(-1)
        return typed(scale_layouts.unswizzled(codes, rows, -(-k // block)).copy(), format_of(name))
    if scale.dtype != torch.float32:
        raise UnsupportedError(f"_scaled_mm: scales of {scale.dtype}; allowed: float32, float8_e8m0fnu, float8_e4m3fn")
    values = array_of(scale)
    if values.ndim < 2:
        return values.reshape(1, 1) if values.size == 1 else values.reshape(-1, 1)
    return values.T if is_b else values
