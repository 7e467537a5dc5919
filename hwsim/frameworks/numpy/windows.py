"""How images become matrices: the windows that filters meet, one row each. The module knows shapes and arrays alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.gemm.convolution import ConvShape
from hwsim.libraries.model.convolution_model import KOrder

AnyArray = NDArray[Any]
CHANNELS_LAST: KOrder = "rsc"


def im2col(x: AnyArray, shape: ConvShape, group: int = 0, k_order: KOrder = "crs") -> AnyArray:
    """The A matrix (m, k) of one group: one row per output element, columns in order of c, r, s, or of r, s, c.

    Elements outside the image are zeros. x: (N, C, H, W). group: index of the group.
    """
    (top, left), (dy, dx), (gap_y, gap_x) = shape.padding, shape.stride, shape.dilation
    count = shape.channels // shape.groups
    part = x[:, group * count : (group + 1) * count]
    if top or left:
        full = np.zeros((*part.shape[:2], shape.height + 2 * top, shape.width + 2 * left), x.dtype)
        full[:, :, top : top + shape.height, left : left + shape.width] = part
        part = full
    n, c, y, z = part.strides
    sizes, strides = (count, shape.r, shape.s), (c, y * gap_y, z * gap_x)
    if k_order == CHANNELS_LAST:
        sizes, strides = (*sizes[1:], count), (*strides[1:], c)
    windows = np.lib.stride_tricks.as_strided(
        part,
        (shape.batch, shape.out_height, shape.out_width, *sizes),
        (n, y * dy, z * dx, *strides),
        writeable=False,
    )
    m, _, k = shape.gemm
    return windows.reshape(m, k)


__all__ = ["CHANNELS_LAST", "im2col"]
