"""NumPy's calls inside hwsim.emulate."""

import numpy as np

import hwsim

from . import operands
from .operands import EQUATIONS, EXTENTS, compare, contraction, drawn, product, stacked


def case(rng, number, settings):
    """(call, dtype) of one compared call."""
    data = np.random.default_rng(number)
    dtype = rng.choice(("float32", "float64"))
    m, k, n = (rng.choice(EXTENTS) for _ in range(3))
    call = rng.choice(("matmul", "matmul", "dot", "tensordot", "einsum", "Array"))

    def tensor(*shape):
        order = rng.choice("CFS")
        if order == "F":
            return np.asfortranarray(drawn(rng, data, shape, dtype))
        if order == "S":
            return drawn(rng, data, (*shape[:-1], 2 * shape[-1]), dtype)[..., ::-2]
        return drawn(rng, data, shape, dtype)

    lead = rng.choice(((), (), (2,), (3, 2))) if call == "matmul" else ()
    a, b = tensor(*lead, m, k), tensor(*lead, k, n)
    said = f"numpy.{call} {dtype} {settings} {a.shape} {b.shape} {a.strides} {b.strides}"
    if call == "Array":
        made = np.asarray(hwsim.Array(a, **settings) @ b)
    with hwsim.emulate(measure=False, **settings):
        if call in ("matmul", "dot"):
            made = getattr(np, call)(a, b)
        elif call == "tensordot":
            made = np.tensordot(a, b.T, axes=((1,), (1,)))
        elif call == "einsum":
            equation = rng.choice(EQUATIONS)
            sizes = {"i": m, "j": k, "k": n, "l": 3, "b": 2, "h": 3, "d": 5}
            left, right = equation.partition("->")[0].split(",")
            a, b = tensor(*(sizes[x] for x in left)), tensor(*(sizes[x] for x in right))
            said = f"numpy.einsum {equation} {dtype} {settings} {a.shape} {b.shape}"
            made = np.einsum(equation, a, b)
    if call == "einsum":
        expected = contraction(equation, sizes, a, b, lambda x, y: stacked(settings, x, y, dtype))
    elif lead:
        flat = stacked(settings, a.reshape(-1, m, k), b.reshape(-1, k, n), dtype)
        expected = flat.reshape(*lead, m, n)
    else:
        expected = product(settings, a, b, dtype)
    compare(said, np.asarray(made), expected.astype(operands.DTYPES[dtype]))
    return call, dtype
