"""Windows of images as rows of a matrix, on arrays of codes: im2col and its reverse. It knows no format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hwsim.gemm.problem import Windows

Codes = NDArray[Any]
OUTSIDE = -1  # in place of a pixel's number


def pixels(windows: Windows) -> NDArray[np.int64]:
    """(windows, taps): the number of the pixel in all images that each tap of a window reads; OUTSIDE: none."""
    lines = [_lines(windows, axis) for axis in (0, 1)]
    row, col = lines[0][None, :, None, :, None], lines[1][None, None, :, None, :]
    image = np.arange(windows.batch)[:, None, None, None, None] * (windows.height * windows.width)
    number = np.where((row == OUTSIDE) | (col == OUTSIDE), OUTSIDE, image + row * windows.width + col)
    taps = windows.window[0] * windows.window[1]
    return number.reshape(-1, taps).astype(np.int64)


def _lines(windows: Windows, axis: int) -> NDArray[np.int64]:
    """(places, taps): the line of an image that a tap reads at each place of the window along an axis."""
    size, window = (windows.height, windows.width)[axis], windows.window[axis]
    taps = np.arange(window) * windows.dilation[axis]
    first = np.arange(windows.places[axis]) * windows.stride[axis] - windows.padding[axis]
    line = first[:, None] + taps
    return np.where((line >= 0) & (line < size), line, OUTSIDE)


def gathered(image: Codes, windows: Windows) -> Codes:
    """(windows, channels * taps), in order of channel, then tap: of images (pixels, channels).

    Matrices of a stack lie one below another, in both. Codes outside an image are 0.
    """
    number = pixels(windows)
    matrices = image.shape[0] // (windows.batch * windows.height * windows.width)
    parts = []
    for part in np.split(image, matrices):
        taken = np.where((number == OUTSIDE)[..., None], part.dtype.type(0), part[number])
        parts.append(taken.swapaxes(1, 2).reshape(len(number), -1))
    return np.concatenate(parts)


def scattered(matrix: Codes, windows: Windows, channels: int) -> Codes:
    """The images (pixels, channels), one matrix below another, whose `gathered` windows are the rows of `matrix`; what
    no window reads is 0.
    """
    number = pixels(windows)
    is_inside = number != OUTSIDE
    images = []
    for part in np.split(matrix, len(matrix) // len(number)):
        image = np.zeros((windows.batch * windows.height * windows.width, channels), matrix.dtype)
        image[number[is_inside]] = part.reshape(len(number), channels, -1).swapaxes(1, 2)[is_inside]
        images.append(image)
    return np.concatenate(images)
