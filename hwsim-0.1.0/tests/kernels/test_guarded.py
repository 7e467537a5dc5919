"""The kernels read and write nothing beyond their arrays: each ends, or begins, at a page that nobody may touch.

In a process of its own, which such an access ends: `python test_guarded.py`.
"""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from typing import Any

import numpy as np
from test_dot_models import SPECS, VARIANTS, operands

from hwsim._kernels import convert, gemm
from hwsim.formats import format_of

PAGE = mmap.PAGESIZE
KEPT: list[mmap.mmap] = []  # the memory of the arrays


def guarded(like: Any, *, at_end: bool) -> Any:
    """A copy of an array, C-contiguous, that ends (or begins) at a page without access."""
    like = np.ascontiguousarray(like)
    pages = -(-like.nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 1) * PAGE)
    KEPT.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    closed = start + pages * PAGE if at_end else start
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(closed), PAGE, 0):  # PROT_NONE
        raise OSError(ctypes.get_errno(), "mprotect")
    offset = pages * PAGE - like.nbytes if at_end else PAGE
    copy = np.frombuffer(memory, like.dtype, like.size, offset).reshape(like.shape)
    copy[...] = like
    return copy


def products(at_end: bool) -> None:
    """Every unit, in every build: rows and columns beside what lanes take, B by rows and by columns."""
    for spec in SPECS.values():
        for m, n, k in ((1, 1, 1), (7, 19, 37)):
            a, b, c = operands(1, spec, m, n, k, "near")
            expected = gemm(spec, a, b, c)
            a, c, out = (guarded(x, at_end=at_end) for x in (a, c, expected))
            for right in (guarded(b, at_end=at_end), guarded(b.T, at_end=at_end).T):
                for variant in VARIANTS:
                    out[...] = 0
                    assert np.array_equal(gemm(spec, a, right, c, out=out, _variant=variant), expected)


def conversions(at_end: bool) -> None:
    """Numbers to codes and back, of one run, of rows apart, and of columns apart."""
    rng = np.random.default_rng(1)
    for name, dtype in (("fp16", np.float32), ("bf16", np.float32), ("e4m3", np.float32), ("fp32", np.float64)):
        for rows, cols in ((1, 1), (3, 37), (16, 9), (17, 130)):
            x = rng.standard_normal((rows, cols)).astype(dtype)
            expected = convert.encode(x, format_of(name))
            views = (
                guarded(x, at_end=at_end),
                guarded(x.T, at_end=at_end).T,
                guarded(np.repeat(x, 2, 1), at_end=at_end)[:, int(at_end) :: 2],
            )
            for view in views:
                assert np.array_equal(convert.encode(view, format_of(name)), expected)


def test_nothing_beyond_the_arrays_is_touched() -> None:
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])


if __name__ == "__main__":
    for end in (True, False):
        products(end)
        conversions(end)
