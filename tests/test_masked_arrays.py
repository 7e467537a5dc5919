"""Arrays with masked elements are refused wherever arrays come in; one without any is an array like others."""

import numpy as np
import pytest

import hwsim
from hwsim.devices.arithmetic import mma
from hwsim.errors import InputError
from hwsim.format_arrays import decode, encode

PLAIN = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
MASKED = np.ma.masked_greater(PLAIN, 1.0)
ASKED = {"device": "h200", "format": "fp16"}
IMAGE, FILTERS = np.ones((1, 2, 4, 4), np.float32), np.ones((2, 2, 3, 3), np.float32)
MMA = "mma.m16n8k16.f32.f16.f16.f32"
A, B, C = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16), np.zeros((16, 8), np.float32)


def masked(x):
    """The array with its first element masked."""
    mask = np.zeros(x.shape, bool)
    mask.flat[0] = True
    return np.ma.masked_array(x, mask)


def emulated(product):
    """A product of NumPy's under hwsim.emulate."""
    with hwsim.emulate(**ASKED):
        return product()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("A", lambda: hwsim.run(MASKED, PLAIN, **ASKED)),
        ("B", lambda: hwsim.run(PLAIN, MASKED, **ASKED)),
        ("C", lambda: hwsim.run(PLAIN, PLAIN, c=MASKED, **ASKED)),
        ("bias", lambda: hwsim.run(PLAIN, PLAIN, bias=masked(PLAIN[0]), **ASKED)),
        ("rows", lambda: hwsim.run(PLAIN, PLAIN, rows=masked(np.arange(4)), **ASKED)),
        ("A", lambda: hwsim.matmul(MASKED, PLAIN, **ASKED)),
        ("A", lambda: hwsim.matmul(MASKED[None], PLAIN, **ASKED)),
        ("A", lambda: hwsim.diff(MASKED, PLAIN, ASKED, {"device": "a100", "format": "fp16"})),
        ("x", lambda: hwsim.conv2d(masked(IMAGE), FILTERS, **ASKED)),
        ("w", lambda: hwsim.conv2d(IMAGE, masked(FILTERS), **ASKED)),
        ("bias", lambda: hwsim.conv2d(IMAGE, FILTERS, bias=masked(np.ones(2, np.float32)), **ASKED)),
        ("operand", lambda: emulated(lambda: np.matmul(MASKED, PLAIN))),
        ("operand", lambda: emulated(lambda: np.einsum("ij,jk->ik", PLAIN, MASKED))),
        ("x", lambda: hwsim.Array(MASKED, **ASKED)),
        ("array", lambda: encode(MASKED, "fp16")),
        ("array", lambda: decode(masked(np.zeros(4, np.uint16)), "fp16")),
        (f"{MMA}: A", lambda: mma(hwsim.device("a100"), MMA, masked(A), B, C)),
        (f"{MMA}: c", lambda: mma(hwsim.device("a100"), MMA, A, B, masked(C))),
        ("explain: a", lambda: hwsim.explain("a100", MMA, masked(A[0]), B[:, 0])),
    ],
)
def test_masked_elements_are_refused(name, call):
    with pytest.raises(InputError, match=rf"(?i){name}.* is a masked array with \d+ masked element"):
        call()


def test_an_array_without_masked_elements_is_its_data():
    whole = np.ma.masked_array(PLAIN, np.zeros(PLAIN.shape, bool))
    assert np.array_equal(hwsim.run(whole, PLAIN, **ASKED).c, hwsim.run(PLAIN, PLAIN, **ASKED).c)
