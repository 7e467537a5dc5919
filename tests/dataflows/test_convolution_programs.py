"""Programs of convolutions read images through their windows: bits, orders, and what is no image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.frameworks.numpy.windows import im2col
from hwsim.gemm.convolution import conv_of, conv_shape
from hwsim.gemm.record import Gemm
from hwsim.machines import reference
from hwsim.operands.windows import gathered, scattered
from hwsim.resolve.mapping_choice import program_of

GEOMETRY: list[dict[str, Any]] = [
    {},
    {"padding": 1},
    {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)},
    {"stride": 3},
]
SIZES = {"batch": 2, "channels": 3, "height": 7, "width": 6, "filters": 5, "r": 3, "s": 2}


def arrays(groups: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(groups)
    x = rng.standard_normal((2, 3 * groups, 7, 6)).astype(np.float32)
    return x, rng.standard_normal((5 * groups, 3, 3, 2)).astype(np.float32)


@pytest.mark.parametrize("geometry", GEOMETRY)
def test_windows_are_the_rows_of_the_matrix(geometry: dict[str, Any]) -> None:
    x, w = arrays()
    shape = conv_shape(x.shape, w.shape, **geometry)
    assert shape.image is not None and shape.image.windows is not None
    images = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).reshape(-1, 3).view(np.uint32)
    matrix = gathered(images, shape.image.windows)
    assert np.array_equal(matrix.view(np.float32), im2col(x, shape))
    back = scattered(matrix, shape.image.windows, 3)
    assert np.count_nonzero(back) == shape.image.read and np.array_equal(back[back != 0], images[back != 0])


@pytest.mark.parametrize("device", ["v100", "a100", "h200", "b200", "mi300x"])
@pytest.mark.parametrize("scheme", ["native", "ape-fp32-f", "sgemm-cube"])
@pytest.mark.parametrize("geometry", GEOMETRY[1:3])
def test_a_program_gives_the_evaluators_bits(device: str, scheme: str, geometry: dict[str, Any]) -> None:
    x, w = arrays()
    call: dict[str, Any] = {"device": device, "scheme": scheme, **geometry}
    assert hwsim.conv2d(x, w, **call).tobytes() == hwsim.conv2d(x, w, functional=True, **call).tobytes()


@pytest.mark.parametrize("scheme", ["ozaki-int8", "quantensor", "bf16x9"])
def test_pieces_of_rows_are_made_of_all_windows(scheme: str) -> None:
    """A row's exponent is its window's."""
    x, w = arrays(groups=2)
    call: dict[str, Any] = {"device": "h200", "scheme": scheme, "padding": 1, "groups": 2}
    assert hwsim.conv2d(x, w, **call).tobytes() == hwsim.conv2d(x, w, functional=True, **call).tobytes()


def test_c_and_bias_of_a_convolution() -> None:
    x, w = arrays()
    c, bias = np.ones((2, 5, 7, 7), np.float32), np.arange(5, dtype=np.float32)
    call: dict[str, Any] = {"device": "a100", "padding": 1, "alpha": 0.5, "beta": -1.5, "bias": bias}
    assert hwsim.conv2d(x, w, c, **call).tobytes() == hwsim.conv2d(x, w, c, functional=True, **call).tobytes()


def of_gemm() -> tuple[Any, Any, dict[str, Any]]:
    """The matrices of a convolution's GEMM, and its call."""
    x, w = arrays()
    sizes = {**SIZES, "padding": 1}
    a, b = im2col(x, conv_of(sizes)).astype(np.float16), w.reshape(5, -1).T.astype(np.float16)
    return a, b, {"conv": sizes, "device": "a100", "format": "fp16"}


def test_bits_and_cycles_are_of_one_program() -> None:
    a, b, call = of_gemm()
    plain, program = hwsim.run(a, b, **call), hwsim.run(a, b, functional=True, values=[(3, 2)], **call)
    assert plain.result_sha256 == program.result_sha256 and plain.cycles == program.cycles
    assert plain.cycles == hwsim.run(exact=False, **call).cycles
    assert float(program.values[3, 2][-1].after) == program.c[3, 2]


def test_every_legal_order_gives_the_same_bits() -> None:
    a, b, call = of_gemm()
    result, chip = hwsim.run(a, b, **call), load("a100")
    program = program_of(result.gemm, chip)
    windows = result.gemm.problem.image.windows
    images = scattered(a.view(np.uint16), windows, 3)
    codes = dict(zip(program.inputs, (images, b.view(np.uint16)), strict=True))
    for order in range(3):
        assert reference.run(program, chip, codes, order=order).tobytes() == result.c.tobytes()


def test_what_is_no_convolution_is_refused() -> None:
    a, b, call = of_gemm()
    with pytest.raises(InputError, match="the rows of A are no windows of images"):
        hwsim.run(np.arange(a.size).reshape(a.shape).astype(np.float16), b, functional=True, **call)
    with pytest.raises(InputError, match=r"conv: A and B have shapes .* allowed: \(98, 18\) and \(18, 5\)"):
        hwsim.run(a[1:], b, **call)
    data = hwsim.run(exact=False, **call).gemm.to_dict()
    data.pop("digest")
    data["problem"]["image"]["windows"]["height"] = 8
    with pytest.raises(InputError, match=r"image.windows: 96 pixels"):
        Gemm.from_dict(data)
    del data["problem"]["image"]["windows"]
    with pytest.raises(InputError, match="windows"):
        Gemm.from_dict(data)
