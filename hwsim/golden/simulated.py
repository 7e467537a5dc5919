"""hwsim's devices as the computation behind golden checks: the `Mma` for `verify` and `campaign`, and GEMMs.

It maps a set's tiles to an instruction: whole tiles unchanged, smaller ones padded with zeros, single dot products one
by one. It knows no device by name.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.api import matmul
from hwsim.backend.cpu import CPU
from hwsim.backend.operations import Backend
from hwsim.devices import arithmetic, find, load
from hwsim.devices import instruction as model_of
from hwsim.errors import InputError
from hwsim.formats import array_of, format_of
from hwsim.golden.format import UnsignedCodes
from hwsim.golden.gemms import GemmSet

if TYPE_CHECKING:
    from hwsim.devices.device import Device


@cache
def _device(name: str) -> Device:
    return load(name)


def has(device: str, name: str) -> bool:
    """Whether the device has the instruction."""
    return find(_device(device), name) is not None


def mma(
    device: str,
    instruction: str,
    a: UnsignedCodes,
    b: UnsignedCodes,
    c: UnsignedCodes,
    *,
    backend: Backend = CPU,
    **scales: Any,
) -> UnsignedCodes:
    """Results d (cases, M, N) of an instruction on hwsim's device, as codes: see `hwsim.golden.verify.Mma`. backend:
    computes them.

    M, N and K may be smaller than the instruction's. Raises InputError for larger ones, UnsupportedError for a device
    or an instruction that hwsim has not.
    """
    chip = _device(device)
    name, model = instruction, model_of(chip, instruction)
    m, k, n = *a.shape[1:], b.shape[2]
    if m > model.m or n > model.n or k > model.k:
        raise InputError(f"{name}: tiles of at most {model.m} x {model.n} x {model.k} are allowed; got {m} x {n} x {k}")
    if (m, n, k) == (model.m, model.n, model.k):
        return arithmetic.mma(chip, name, a, b, c, backend=backend, **scales)
    if m * n == 1 or "scale_a" in scales:  # padding would multiply the work
        across = {name: s for name, s in scales.items() if name == "scale_d"}
        if "scale_a" in scales:
            columns = np.swapaxes(scales["scale_b"], 1, 2)
            across |= {"scale_a": scales["scale_a"][:, :, None, :], "scale_b": columns[:, None, :, :]}
        columns_of_b = np.swapaxes(b, 1, 2)[:, None, :, :]
        return arithmetic.dot(chip, name, a[:, :, None, :], columns_of_b, c, backend=backend, **across)
    wide = (_within(a, model.m, model.k), _within(b, model.k, model.n), _within(c, model.m, model.n))
    return arithmetic.mma(chip, name, *wide, backend=backend, **scales)[:, :m, :n]


def _within(tiles: UnsignedCodes, rows: int, columns: int) -> UnsignedCodes:
    """The tiles in the corner of larger zero ones; +0 has the code 0 in every format."""
    full = np.zeros((tiles.shape[0], rows, columns), tiles.dtype)
    full[:, : tiles.shape[1], : tiles.shape[2]] = tiles
    return full


def gemm(device: str, block: GemmSet) -> UnsignedCodes:
    """The fp32 codes of a whole GEMM by the native scheme: see `hwsim.golden.gemms.verify_gemms`."""
    number_format = format_of(block.format)
    options: dict[str, Any] = {} if block.accumulate is None else {"accumulate": block.accumulate}
    a, b = array_of(block.a, number_format), array_of(block.bt, number_format).T
    product: NDArray[Any] = matmul(a, b, device=_device(device), scheme="native", format=block.format, **options)
    return product.view(np.uint32)
