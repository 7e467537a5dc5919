"""Operands of calls, and products by hwsim.run; it knows NumPy alone."""

import ml_dtypes
import numpy as np

import hwsim

EXTENTS = (1, 2, 3, 5, 8, 16, 17, 33, 40, 67)
DTYPES = {
    "float32": np.float32,
    "float64": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
NARROW = {"float16": "fp16", "bfloat16": "bf16"}
WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
ODD = (float("nan"), float("inf"), float("-inf"), -0.0, 1e-40, 3e38, 2.0**-24)


def drawn(rng, data, shape, dtype):
    """Numbers of full significands and many magnitudes; in some arrays zeros, or one odd number."""
    x = data.standard_normal(shape) * 2.0 ** data.integers(-8, 9, shape)
    if rng.random() < 0.2:
        x = np.where(data.random(shape) < 0.1, 0.0, x)
    if rng.random() < 0.1 and x.size:
        x.flat[rng.randrange(x.size)] = rng.choice(ODD)
    with np.errstate(over="ignore"):
        return x.astype(DTYPES[dtype])


def product(settings, a, b, dtype, **more):
    """A B of matrices by hwsim.run, of `dtype`."""
    output = {"output": NARROW[dtype]} if dtype in NARROW else {}
    found = hwsim.run(a, b, **settings, **output, **more, timing=False).c
    with np.errstate(over="ignore"):
        return np.asarray(found).astype(DTYPES[dtype], copy=False)


def stacked(settings, a, b, dtype, **more):
    """As `product` for each pair of two stacks (count, ., .)."""
    return np.stack([product(settings, x, y, dtype, **more) for x, y in zip(a, b, strict=True)])


def compare(said, got, expected):
    """All bits of both but NaNs' payloads, and their shapes and dtypes."""
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype), (said, got.shape, got.dtype, expected.shape)
    word = WORDS[got.dtype.itemsize]
    ours, theirs = (np.ascontiguousarray(x).view(word) for x in (got, expected))
    differs = (ours != theirs) & ~(np.isnan(got) & np.isnan(expected))
    if differs.any():
        at, count = tuple(np.argwhere(differs)[0].tolist()), int(differs.sum())
        raise AssertionError(f"{said}: {count} of {got.size}, at {at} {ours[at]:#x}, expected {theirs[at]:#x}")


def contraction(equation, sizes, a, b, multiply):
    """An einsum of two operands by stacks of products. multiply: of (count, i, k) and (count, k, j)."""
    (left, right), out = equation.partition("->")[0].split(","), equation.partition("->")[2]
    stack = [x for x in left if x in right and x in out]
    along = [x for x in left if x in right and x not in out]
    rows, columns = ([x for x in own if x not in other] for own, other in ((left, right), (right, left)))
    size = lambda names: int(np.prod([sizes[x] for x in names]))  # noqa: E731
    one = a.transpose([left.index(x) for x in stack + rows + along]).reshape(size(stack), size(rows), size(along))
    two = b.transpose([right.index(x) for x in stack + along + columns]).reshape(size(stack), size(along), -1)
    made = multiply(one, two) if along else one * two  # what sums over nothing is no product
    found = made.reshape([sizes[x] for x in stack + rows + columns])
    return found.transpose([(stack + rows + columns).index(x) for x in out])


EQUATIONS = ("ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "bij,bkj->bki", "bhid,bhjd->bhij", "ij,jk->ki", "ij,kl->ijkl")
