"""Arrays as callers hand them over: anything that NumPy takes for an array, but no masked elements.

It knows NumPy's kinds of arrays, and where DLPack says that memory is; it knows no format and no shape that is allowed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError

CUDA_MEMORY = (2, 13)  # DLPack's kDLCUDA and kDLCUDAManaged


def given_array(name: str, value: Any) -> NDArray[Any]:
    """What a caller handed over as `name`, as an array; an array of a backend stays what it is.

    Raises InputError for one with masked elements (numpy.ma), which no product can leave out, for one of a GPU that no
    backend took, and for one of which NumPy makes no array.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        count = int(np.ma.getmaskarray(value).sum())
        raise InputError(
            f"{name} is a masked array with {count} masked element{'s' if count > 1 else ''}, which a product cannot "
            "leave out; give x.filled(0) or other values in their place, or x.data"
        )
    if is_of_a_backend(value):
        return value  # type: ignore[no-any-return]
    if lies_on_gpu(value):
        raise InputError(
            f"{name} lies on a GPU; hwsim.matmul takes a, b, c there with engine='cuda', and bias beside them; else "
            "give NumPy's array (x.get(), x.cpu())"
        )
    try:
        return np.asarray(value)
    except (TypeError, RuntimeError) as error:  # a tensor with a gradient, or of a dtype that NumPy lacks
        kind = getattr(value, "dtype", type(value).__name__)
        raise InputError(
            f"{name} of {kind}: NumPy makes no array of it ({error}); give NumPy's array. Where NumPy lacks the dtype, "
            "give codes with input_format=: x.detach().view(torch.uint16) of 16 bits, torch.uint8 of 8 or fewer"
        ) from error


def is_of_a_backend(value: Any) -> bool:
    """Whether an array is none of NumPy's, but one of a backend's own (hwsim.backend.operations)."""
    return getattr(value, "is_of_a_backend", False) is True


def lies_on_gpu(x: Any) -> bool:
    """Whether an array, of whatever library, says by DLPack that its memory is an NVIDIA GPU's."""
    if x is None or type(x) is np.ndarray or not hasattr(x, "__dlpack_device__"):
        return False
    return int(x.__dlpack_device__()[0]) in CUDA_MEMORY
