"""The Triton products of batch-invariant inference as a library."""

import numpy as np
import pytest

import hwsim

NAME = "batch-invariant"


@pytest.mark.parametrize("device", ["h100", "a100", "l40s"])
@pytest.mark.parametrize("format", ["bf16", "fp16"])
def test_a_row_has_equal_bits_whatever_the_batch(device, format):
    labels = hwsim.invariance(n=384, k=1000, m=range(1, 300), device=device, library=NAME, format=format, output=format)
    assert len(set(labels)) == 1


@pytest.mark.parametrize(
    ("device", "format", "tile"),
    [
        ("h100", "bf16", {"m": 128, "n": 128, "k": 64}),
        ("h100", "fp16", {"m": 128, "n": 256, "k": 64}),
        ("l40s", "fp16", {"m": 128, "n": 128, "k": 64}),  # too little shared memory
    ],
)
def test_the_tile_is_the_published_one_whatever_the_sizes(device, format, tile):
    for m, n, k in ((1, 64, 96), (300, 500, 1000)):
        run = hwsim.run(m=m, n=n, k=k, device=device, format=format, output=format, library=NAME, exact=False)
        assert run.options["tile"] == tile and run.cycles and run.gemm.library.name == NAME


def test_program_and_evaluator_agree_and_a_bias_is_added_before_rounding():
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((70, 200), (200, 90)))
    bias = rng.standard_normal(90).astype(np.float16)
    given = {"device": "h100", "format": "fp16", "output": "fp16", "library": NAME}
    plain, with_bias = hwsim.run(a, b, **given), hwsim.run(a, b, bias=bias, **given)
    assert np.array_equal(plain.c, hwsim.matmul(a, b, functional=True, **given))
    of_sum = hwsim.matmul(a, b, device="h100", format="fp16") + bias.astype(np.float32)
    assert np.array_equal(with_bias.c, of_sum.astype(np.float16))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"format": "tf32"}, "operands of tf32"),
        ({"format": "bf16", "output": "fp32"}, "a result of fp32, another format"),
        ({"format": "bf16", "alpha": 2.0}, "alpha, beta or C"),
        ({"format": "bf16", "device": "mi300x"}, "knows its kernels on chips of sm80, sm90"),
    ],
)
def test_what_it_does_not_have_is_refused(options, why):
    with pytest.raises(hwsim.UnsupportedError, match=why):
        hwsim.run(**{"m": 8, "n": 8, "k": 8, "device": "h100", "exact": False, "library": NAME} | options)


def test_another_version_is_refused():
    with pytest.raises(hwsim.UnsupportedError, match="no version '1'"):
        hwsim.library(NAME, device="h100", version="1")
