"""Arrays as callers hand them over: anything that NumPy takes for an array, but no masked elements.

It knows NumPy's kinds of arrays; it knows no format and no shape that is allowed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError


def given_array(name: str, value: Any) -> NDArray[Any]:
    """What a caller handed over as `name`, as an array.

    Raises InputError for one with masked elements (numpy.ma), which no product can leave out.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        count = int(np.ma.getmaskarray(value).sum())
        raise InputError(
            f"{name} is a masked array with {count} masked element{'s' if count > 1 else ''}, which a product cannot "
            "leave out; give x.filled(0) or other values in their place, or x.data"
        )
    return np.asarray(value)
