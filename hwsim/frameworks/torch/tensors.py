"""Tensors as NumPy arrays and back, without copies: bfloat16 and fp8 as ml_dtypes' types.

The module knows dtypes and memory; it knows no device and no product.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray

from hwsim.backend.by_name import CUDA, backend
from hwsim.errors import UnsupportedError
from hwsim.host.arrays import is_of_a_backend

AnyArray = NDArray[Any]

#: {PyTorch's dtype: (hwsim's format, NumPy's dtype)}
FORMATS: dict[torch.dtype, tuple[str, Any]] = {
    torch.float64: ("fp64", np.float64),
    torch.float32: ("fp32", np.float32),
    torch.float16: ("fp16", np.float16),
    torch.bfloat16: ("bf16", ml_dtypes.bfloat16),
    torch.float8_e4m3fn: ("e4m3", ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: ("e5m2", ml_dtypes.float8_e5m2),
    torch.float8_e4m3fnuz: ("e4m3fnuz", ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2fnuz: ("e5m2fnuz", ml_dtypes.float8_e5m2fnuz),
    torch.int8: ("int8", np.int8),
    torch.int32: ("int32", np.int32),
}
#: Dtypes that NumPy lacks, by the integer type in which they cross over.
_AS_INTEGERS = {1: torch.uint8, 2: torch.int16}
_PLAIN = (torch.float64, torch.float32, torch.float16, torch.int8, torch.int32)
_OF_NUMPY = {np.dtype(array): dtype for dtype, (_, array) in FORMATS.items()}


def is_known(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements are real numbers of a format that hwsim has."""
    return tensor.dtype in FORMATS


def format_name(dtype: torch.dtype) -> str:
    """hwsim's name of a dtype. Raises UnsupportedError for others."""
    if dtype not in FORMATS:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in FORMATS)
        raise UnsupportedError(f"{dtype}: hwsim.torch multiplies {names}")
    return FORMATS[dtype][0]


def array_of(tensor: torch.Tensor) -> AnyArray:
    """The tensor's memory as an array of its shape and strides. A tensor of another device, and a view of another sign
    than its memory's, are copied.
    """
    plain = tensor.detach().cpu().resolve_neg()
    _, dtype = FORMATS[plain.dtype]
    if plain.dtype in _PLAIN:
        return _shared(plain)
    return _shared(plain.view(_AS_INTEGERS[plain.element_size()])).view(dtype)


def _shared(tensor: torch.Tensor) -> AnyArray:
    """The tensor's memory by DLPack: `Tensor.numpy` would keep its storage from being resized ever after."""
    array: AnyArray = np.from_dlpack(tensor)
    return array


def gpu_array_of(tensor: torch.Tensor) -> Any:
    """The memory of a tensor of a GPU as an array of the engine's, there."""
    plain = tensor.detach().resolve_neg()
    _, dtype = FORMATS[plain.dtype]
    words = plain if plain.dtype in _PLAIN else plain.view(_AS_INTEGERS[plain.element_size()])
    return backend(CUDA, on_gpu=True).from_host(words).view(dtype)


def tensor_of(array: AnyArray, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor over the array's memory, converted where `dtype` is another."""
    torch_dtype = _OF_NUMPY[array.dtype]
    if is_of_a_backend(array):
        on_gpu: Any = array
        return torch.from_dlpack(on_gpu.typed).view(torch_dtype).to(dtype=dtype, device=device)
    if torch_dtype in _PLAIN:
        tensor = torch.from_numpy(array)
    else:
        codes = array.view(np.uint8 if array.dtype.itemsize == 1 else np.int16)
        tensor = torch.from_numpy(codes).view(torch_dtype)
    return tensor.to(dtype=dtype, device=device)


def layout(tensor: torch.Tensor) -> str:
    """ "columns" where a matrix of the tensor lies column by column, else "rows"."""
    rows, columns = tensor.shape[-2:]
    down, along = tensor.stride()[-2:]
    is_by_rows = along == 1 and down >= max(1, columns)
    return "columns" if not is_by_rows and down == 1 and along >= max(1, rows) else "rows"
