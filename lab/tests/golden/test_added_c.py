"""Library calls that add alpha A B to beta C, beside those recorded on an H200 (tests/golden/h200_cublas)."""

import re
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.libraries.cublas.versions import versions
from hwsim_lab.golden.survey import BLOCK, read_survey

FILE = Path(__file__).parents[3] / "tests" / "golden" / "h200_cublas" / "survey.npz"
DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "fp32": np.float32}
KERNELS = re.compile("nvjet|cutlass|xmma|splitK|Memset")
ENDINGS = re.compile("_badd|_b[zx]")  # of nvjet's names: how C is added


@cache
def survey():
    return [entry for entry in read_survey(FILE).entries if entry.format in DTYPES]


def kernels(entry):
    return [ENDINGS.sub("", name) for name in entry.kernels if KERNELS.search(name)]


def test_a_c_and_factors_change_no_kernel() -> None:
    plain = {(x.m, x.n, x.k, x.format, x.output): kernels(x) for x in survey() if not x.beta}
    added = [x for x in survey() if x.beta]
    assert len(added) == 256 and {(x.alpha, x.beta) for x in added} == {(0.5, 1), (-1.5, 0.75), (1, 1), (1.7, -0.3)}
    assert {x.format for x in added} == set(versions()[0].same_with_c)
    assert all(kernels(x) == plain[x.m, x.n, x.k, x.format, x.output] for x in added)


def equal(entry) -> bool:
    rng = np.random.default_rng([entry.seed, entry.index])
    at = tuple(np.sort(rng.choice(size, min(size, BLOCK), replace=False)) for size in (entry.m, entry.n))
    formats = entry.format, entry.format, entry.output
    a, b, c = (x.astype(DTYPES[name]) for x, name in zip(entry.drawn(), formats, strict=True))
    found = hwsim.matmul(
        a, b, c, device="h200", library="cublas", format=entry.format, output=entry.output, b_layout="columns",
        alpha=entry.alpha, beta=entry.beta, shape=(entry.m, entry.n), at=at,
    )  # fmt: skip
    return np.array_equal(np.ascontiguousarray(found).view(entry.d.dtype), entry.d)


@pytest.mark.parametrize(
    ("format", "differing"),
    [
        ("bf16", set()),  # nvjet adds 0.75 C to its own sum; it rounds that first where beta is 1 (fp16 here)
        ("fp16", {(790, 1211, 414)}),  # other slices
        # three of other slices; two whose kernel, unsplit on rows of 4 bytes, contracts beta C and not alpha A B
        ("tf32", {(2796, 205, 493), (646, 81, 3017), (61, 863, 2427), (2781, 4010, 984), (790, 1211, 414)}),
    ],
)
def test_bits_with_a_c(format, differing) -> None:
    added = [x for x in survey() if x.beta and x.format == format]
    assert {(x.m, x.n, x.k) for x in added if not equal(x)} == differing
