"""Reads operands from .npy files. It knows that format and what a matrix is, not what is done with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.host.input_files import check_regular

MAGIC = b"\x93NUMPY"
MAP_FROM_BYTES = 1 << 26  # larger files are mapped, not read at once
MATRIX = 2  # dimensions
ALLOWED = "allowed: one real matrix of float16, float32, float64 or integers, as numpy.save writes it"


def read_matrix(name: str, path: Path, *, takes_stacks: bool = False) -> NDArray[Any]:
    """The matrix in the file `path`, for operand `name` ("A", "B"). takes_stacks: it may be a stack of matrices.

    Raises InputError as `read_array`.
    """
    array = read_array(name, path)
    if array.ndim < MATRIX or (array.ndim > MATRIX and not takes_stacks):
        stack = ", or a stack of matrices (three or more)" if takes_stacks else ""
        raise InputError(f"{name} from {path}: has shape {array.shape}; allowed: a matrix (two dimensions){stack}")
    return array


def _sizes(array: NDArray[Any]) -> str:
    return " x ".join(map(str, array.shape))


def read_array(name: str, path: Path, *, takes_bool: bool = False) -> NDArray[Any]:
    """The array in the file `path`, for `name`. takes_bool: it may hold truth values.

    Raises InputError, naming the file, when it is not there, not .npy, or holds no real numbers.
    """

    def problem(text: str) -> InputError:
        return InputError(f"{name} from {path}: {text}")

    check_regular(path, f"file of {name}")
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
        size = path.stat().st_size
    except OSError as error:
        raise problem(f"cannot read it: {error.strerror or error}") from error
    if start != MAGIC:
        raise problem(f"not a .npy file; {ALLOWED}")
    try:
        array = np.load(path, mmap_mode="r" if size >= MAP_FROM_BYTES else None, allow_pickle=False)
    except OSError as error:
        raise problem(f"cannot read it: {error.strerror or error}") from error
    except Exception as error:  # a damaged header can fail in any way
        if "pickle" in str(error) or "Object arrays" in str(error):
            raise problem(f"holds Python objects; {ALLOWED}") from error
        raise problem(f"damaged .npy file ({error}); {ALLOWED}") from error
    if 0 in array.shape:
        raise problem(f"has shape {array.shape}; allowed: at least one row and one column")
    if array.dtype.kind == "V":
        raise problem(
            f"has dtype {array.dtype}: numpy.save does not keep the name of an ml_dtypes format; save the codes, "
            f"x.view(np.uint{8 * array.dtype.itemsize}), and give --input-format FORMAT"
        )
    if not (
        array.dtype.kind in ("iub" if takes_bool else "iu") or (array.dtype.kind == "f" and array.dtype.itemsize <= 8)
    ):
        raise problem(f"has dtype {array.dtype}; {ALLOWED}")
    return np.asarray(array)


def read_pair(
    a: Path | None, b: Path | None, *, takes_stacks: bool = False
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """A and B, or (None, None). takes_stacks: they may have leading dimensions.

    Raises InputError when one is missing or they cannot be multiplied.
    """
    if (a is None) != (b is None):
        raise InputError("got one of --a and --b; give both, or neither for random matrices")
    if a is None or b is None:
        return None, None
    left, right = (read_matrix(name, path, takes_stacks=takes_stacks) for name, path in (("A", a), ("B", b)))
    if left.shape[-1] != right.shape[-2]:
        raise InputError(
            f"A from {a} is {_sizes(left)} and B from {b} is {_sizes(right)}: A's columns must equal B's rows"
        )
    return left, right
