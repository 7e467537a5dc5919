"""JAX's dot_general on a simulated device, alone and with its gradient."""

import jax
import jax.numpy as jnp
import numpy as np

import hwsim.jax

from .operands import EXTENTS, compare, drawn, product, stacked

DOTS = {}


def case(rng, number, settings):
    """(call, dtype) of one compared call."""
    data = np.random.default_rng(number)
    dtype = rng.choice(("float32", "bfloat16", "float16"))
    m, k, n = (rng.choice(EXTENTS) for _ in range(3))
    call = rng.choice(("dot_general", "dot_general", "batch", "gradient", "vmap"))
    dot = DOTS.setdefault(str(settings), hwsim.jax.dot_general(**settings))
    wide = rng.random() < 0.3 and dtype != "float32"
    result = "float32" if wide else dtype
    count = rng.choice((2, 3)) if call in ("batch", "vmap") else 1
    a, b = drawn(rng, data, (count, m, k), dtype), drawn(rng, data, (count, k, n), dtype)
    turned = (False, False)  # whether K comes first in A, last in B
    if call != "gradient":
        turned = rng.random() < 0.5, rng.random() < 0.5
    left, right = (x.transpose(0, 2, 1) if is_turned else x for x, is_turned in zip((a, b), turned, strict=True))
    said = f"jax {call} {dtype} -> {result} {settings} {(count, m, k, n)} {turned}"
    preferred = {"preferred_element_type": jnp.float32} if wide else {}

    def of_matrices(x, y):
        along = ((0 if turned[0] else 1,), (1 if turned[1] else 0,))
        return dot(x, y, (along, ((), ())), **preferred)

    if call == "batch":
        along = ((1 if turned[0] else 2,), (2 if turned[1] else 1,))
        made = dot(jnp.asarray(left), jnp.asarray(right), (along, ((0,), (0,))), **preferred)
        compare(said, np.asarray(made), stacked(settings, a, b, result))
    elif call == "vmap":
        shared = rng.random() < 0.5
        made = jax.vmap(of_matrices, (0, None if shared else 0))(left, right[0] if shared else right)
        expected = stacked(settings, a, np.broadcast_to(b[:1], b.shape) if shared else b, result)
        compare(said, np.asarray(made), expected)
    elif call == "gradient":
        given = drawn(rng, data, (m, n), result)
        _, pull = jax.vjp(of_matrices, jnp.asarray(a[0]), jnp.asarray(b[0]))
        of_a, of_b = pull(jnp.asarray(given))
        compare(f"{said}, of A", np.asarray(of_a), product(settings, given, b[0].T, dtype))
        compare(f"{said}, of B", np.asarray(of_b), product(settings, a[0].T, given, dtype))
    else:
        made = of_matrices(jnp.asarray(left[0]), jnp.asarray(right[0]))
        compare(said, np.asarray(made), product(settings, a[0], b[0], result))
    return call, dtype
