"""hwsim.jax: products of JAX functions with the bits of hwsim.matmul, under jit, grad, vmap and control flow."""

import functools

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs hwsim[jax]")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import hwsim  # noqa: E402
import hwsim.jax  # noqa: E402
from hwsim.errors import InputError, UnsupportedError  # noqa: E402
from hwsim.frameworks.jax.algorithms import ALGORITHMS  # noqa: E402
from hwsim.frameworks.product import multiplied  # noqa: E402
from hwsim.frameworks.settings import settings_of  # noqa: E402

B200 = {"device": "b200", "scheme": "bf16x9"}
H200 = {"device": "h200", "format": "bf16"}


def drawn(seed, *shape, dtype=np.float32):
    """Full significands, many magnitudes."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 12, shape)).astype(dtype)


def same(x, y):
    x, y = np.asarray(x), np.asarray(y)
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


def test_dot_general_has_hwsim_s_bits_with_and_without_jit():
    a, b = drawn(1, 5, 67), drawn(2, 67, 9)
    expected = hwsim.matmul(a, b, **B200)
    dot = hwsim.jax.dot_general(**B200)
    numbers = (((1,), (0,)), ((), ()))
    assert same(dot(a, b, numbers), expected)
    assert same(jax.jit(lambda a, b: dot(a, b, numbers))(a, b), expected)
    assert same(dot(a.T.copy(), b, (((0,), (0,)), ((), ()))), expected)
    assert dot.record.calls == 3 and dot.record.macs == 3 * 5 * 67 * 9
    assert same(jnp.einsum("ik,kj->ij", a, b, _dot_general=dot), expected)


def test_batches_vmap_and_narrow_results():
    a, b = drawn(1, 3, 4, 33, dtype=ml_dtypes.bfloat16), drawn(2, 3, 33, 5, dtype=ml_dtypes.bfloat16)
    dot = hwsim.jax.dot_general(**H200)
    expected = hwsim.matmul(a, b, output="bf16", **H200)
    assert same(dot(a, b, (((2,), (1,)), ((0,), (0,)))), expected)
    assert dot.record.calls == 1 and dot.record.macs == 3 * 4 * 33 * 5  # of all matrices of the stack
    one = functools.partial(dot, dimension_numbers=(((1,), (0,)), ((), ())))
    assert same(jax.vmap(lambda x, y: one(x, y))(a, b), expected)
    calls = dot.record.calls
    assert same(jax.vmap(lambda x: one(x, jnp.asarray(b[0])))(a), hwsim.matmul(a, b[0], output="bf16", **H200))
    assert dot.record.calls == calls + 1
    wide = one(a[0], b[0], preferred_element_type=jnp.float32)
    assert same(wide, hwsim.matmul(a[0], b[0], **H200))


def test_gradients_are_products_on_the_device():
    a, b = drawn(1, 6, 40), drawn(2, 40, 7)
    weights = drawn(3, 6, 7)
    passes = {"backward_input": {"format": "tf32"}, "backward_weight": "plain"}
    run = hwsim.jax.emulated(lambda a, b: ((a @ b) * weights).sum(), **H200, **passes)
    _, (of_a, of_b) = jax.jit(jax.value_and_grad(run, argnums=(0, 1)))(a, b)
    assert same(of_a, hwsim.matmul(weights, b.T, device="h200", format="tf32"))
    assert np.allclose(of_b, a.T @ weights, rtol=1e-5)
    assert {key[0] for key in run.record.products} == {"forward", "backward_input"}
    both = hwsim.jax.emulated(lambda a, b: ((a @ b) * weights).sum(), **B200)
    of_a, of_b = jax.grad(both, argnums=(0, 1))(a, b)
    assert same(of_a, hwsim.matmul(weights, b.T, **B200)) and same(of_b, hwsim.matmul(a.T, weights, **B200))


def test_derivatives_are_right_in_fp64():
    with jax.enable_x64(True):
        a, b = (np.random.default_rng(i).standard_normal(s) for i, s in ((1, (3, 4)), (2, (4, 2))))
        run = hwsim.jax.emulated(lambda a, b: jnp.tanh(a @ b).sum(), device="h200", format="fp64")
        check_grads(run, (a, b), order=2, modes=["rev"])


def test_control_flow_and_custom_derivatives():
    w = drawn(1, 8, 8) / 64
    x = drawn(2, 5, 8)

    def function(x, w):
        x, _ = jax.lax.scan(lambda x, _: (jax.nn.relu(x @ w), None), x, None, length=3)
        x = jax.lax.cond(x.sum() > -1e30, lambda x: x @ w, lambda x: x, x)
        x = jax.lax.while_loop(lambda s: s[1] < 2, lambda s: (s[0] @ w, s[1] + 1), (x, 0))[0]
        return jax.jit(lambda x: jnp.einsum("ij,jk->ik", x, w))(x)

    run = hwsim.jax.emulated(function, **B200)
    expected = x
    multiply = functools.partial(hwsim.matmul, **B200)
    for _ in range(3):
        expected = np.maximum(multiply(expected, w), 0)
    for _ in range(4):
        expected = multiply(expected, w)
    assert same(run(x, w), expected) and same(jax.jit(run)(x, w), expected)
    assert run.record.calls == 14
    step = jax.checkpoint(lambda x, w: jnp.sin(x @ w))
    loss = hwsim.jax.emulated(lambda x, w: step(x, w).sum(), **B200)
    got = jax.grad(loss)(x, w)
    expected = multiply(np.asarray(jnp.cos(multiply(x, w))), w.T)
    assert same(got, expected)
    assert {key[0] for key in loss.record.products} >= {"forward", "backward_input"}


def test_precisions_and_algorithms_name_schemes():
    a, b = drawn(1, 5, 64), drawn(2, 64, 6)
    run = hwsim.jax.dot_general(device="b200", scheme="precision")
    numbers = (((1,), (0,)), ((), ()))
    cases = {
        "BF16_BF16_F32_X9": {"scheme": "bf16x9"},
        "TF32_TF32_F32_X3": {"scheme": "tf32x3"},
        "TF32_TF32_F32": {"format": "tf32"},
        "F16_F16_F32": {"format": "fp16"},
    }
    for name, arguments in cases.items():
        precision = getattr(jax.lax.DotAlgorithmPreset, name)
        assert same(run(a, b, numbers, precision), hwsim.matmul(a, b, device="b200", **arguments)), name
    assert same(run(a, b, numbers), hwsim.matmul(a, b, device="b200", format="tf32"))
    assert same(run(a, b, numbers, jax.lax.Precision.HIGHEST), hwsim.matmul(a, b, device="b200", format="fp32"))
    emulated = hwsim.jax.emulated(
        lambda a, b: jnp.dot(a, b, precision="BF16_BF16_F32_X3"), device="b200", scheme="precision"
    )
    assert same(jax.jit(emulated)(a, b), hwsim.matmul(a, b, device="b200", scheme="bf16x3"))
    with pytest.raises(UnsupportedError, match="no scheme computes it"):
        run(a, b, numbers, jax.lax.DotAlgorithmPreset.F16_F16_F16)
    presets = {name for name in dir(jax.lax.DotAlgorithmPreset) if name.isupper()}
    assert set(ALGORITHMS) <= presets


def test_a_training_step_is_the_products_by_hand():
    x, y = drawn(1, 16, 20), drawn(2, 16, 3)
    params = {"w1": drawn(3, 20, 12), "w2": drawn(4, 12, 3)}

    def loss(params, x, y):
        return ((jax.nn.relu(x @ params["w1"]) @ params["w2"] - y) ** 2).sum()

    gradients = jax.jit(jax.grad(hwsim.jax.emulated(loss, **H200)))(params, x, y)
    multiply = functools.partial(hwsim.matmul, **H200)
    h = multiply(x, params["w1"])
    r = np.maximum(h, 0)
    d = 2 * (multiply(r, params["w2"]) - y)
    assert same(gradients["w2"], multiply(r.T, d))
    assert same(gradients["w1"], multiply(x.T, multiply(d, params["w2"].T) * (h > 0)))


def test_what_is_not_caught_is_counted_and_arguments_are_checked():
    images, filters = np.ones((1, 2, 5, 5), np.float32), np.ones((3, 2, 3, 3), np.float32)
    run = hwsim.jax.emulated(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"), **H200)
    run(images, filters)
    run2 = hwsim.jax.emulated(lambda x: x @ x, **H200)
    run2(np.ones((3, 3), np.complex64))
    assert run.record.not_caught == {"conv_general_dilated": 1} and "not caught" in run.report()
    assert run2.record.not_caught == {"dot_general of complex64": 1}
    with pytest.raises(UnsupportedError, match="h2000"):
        hwsim.jax.emulated(lambda x: x, device="h2000")
    with pytest.raises(InputError, match="each product has its own"):
        hwsim.jax.dot_general(rows=[1])
    with pytest.raises(UnsupportedError, match="real floats"):
        hwsim.jax.dot_general(**H200)(
            np.ones((2, 2), np.complex64), np.ones((2, 2), np.complex64), (((1,), (0,)), ((), ()))
        )


@pytest.mark.parametrize(
    ("given", "of_b"), [({"format": "e4m3", "scale": "power-of-two"}, 2.0**90), ({"format": "fp64"}, 2.0**-10)]
)
def test_subnormals_count_though_xla_s_callbacks_flush_them(given, of_b):
    """Those among the operands, which are scaled, and those that a wider result becomes."""
    given = {"device": "h200"} | given
    rng = np.random.default_rng(40)
    a, b = ((rng.standard_normal(s) * by).astype(np.float32) for s, by in (((6, 20), 2.0**-128), ((20, 5), of_b)))
    expected = multiplied(settings_of(given).of("", "forward"), a, b, timing=False)[0].astype(np.float32)
    assert expected.all() and (of_b > 1 or np.abs(expected).max() < 2.0**-126)
    assert same(jax.jit(hwsim.jax.emulated(jnp.matmul, **given))(a, b), expected)


def test_odd_dimension_numbers_are_stacks_of_products():
    a, b = drawn(1, 3, 5, 2, 7), drawn(2, 7, 2, 4, 3)
    numbers = (((3,), (0,)), ((2, 0), (1, 3)))
    dot = hwsim.jax.dot_general(**H200)
    left, right = a.transpose(2, 0, 1, 3), b.transpose(1, 3, 0, 2)
    want = np.stack([[hwsim.matmul(left[i, j], right[i, j], **H200) for j in range(3)] for i in range(2)])
    assert same(dot(a, b, numbers), want) and same(jax.jit(lambda a, b: dot(a, b, numbers))(a, b), want)
    a, b = drawn(3, 4, 3, 5), drawn(4, 5, 6, 3)  # two contracted dimensions, in another order
    want = hwsim.matmul(a.reshape(4, 15), b.transpose(2, 0, 1).reshape(15, 6), **H200)
    assert same(dot(a, b, (((1, 2), (2, 0)), ((), ()))), want)
    run = hwsim.jax.emulated(lambda a, b: jax.lax.dot_general(a, b, numbers).sum(), device="h200", format="fp32")
    a, b = drawn(1, 3, 5, 2, 7), drawn(2, 7, 2, 4, 3)
    for got, plain in zip(jax.grad(run, (0, 1))(a, b), jax.grad(run.function, (0, 1))(a, b), strict=True):
        assert got.shape == plain.shape and np.allclose(got, plain, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("a", "b", "numbers"),
    [
        ((3, 4), (5, 6), (((1,), (0,)), ((), ()))),
        ((3, 4), (4, 6), (((5,), (0,)), ((), ()))),
        ((3, 4), (4, 6), (((-1,), (0,)), ((), ()))),
        ((3, 4), (4, 6), (((1,), ()), ((), ()))),
        ((2, 3, 4), (1, 4, 6), (((2,), (1,)), ((0,), (0,)))),  # NumPy would broadcast
    ],
)
def test_jax_says_what_does_not_fit(a, b, numbers):
    left, right = drawn(1, *a), drawn(2, *b)
    with pytest.raises(TypeError) as plain:
        jax.lax.dot_general(left, right, numbers)
    with pytest.raises(TypeError) as got:
        hwsim.jax.dot_general(**H200)(left, right, numbers)
    assert str(got.value) == str(plain.value)


NUMBERS = (((1,), (0,)), ((), ()))


@pytest.mark.parametrize("right", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("left", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_both_formats_of_8_bits_are_multiplied_and_mixed(left, right):
    """NumPy's kind of e5m2 is that of float16, of e4m3 that of no number; JAX promotes neither to the other."""
    a, b = drawn(5, 3, 67, dtype=left), drawn(6, 67, 4, dtype=right)
    expected = hwsim.matmul(a, b, device="h200")
    assert same(hwsim.jax.dot_general(device="h200")(a, b, NUMBERS, None, jnp.float32), expected)
    product = functools.partial(jax.lax.dot_general, dimension_numbers=NUMBERS, preferred_element_type=jnp.float32)
    of_a_function = hwsim.jax.emulated(product, device="h200")
    assert same(of_a_function(a, b), expected) and not of_a_function.record.not_caught


@pytest.mark.parametrize("accumulate", ["promoted", "fast"])
def test_algorithms_of_8_bits_take_each_operand_s_own_format(accumulate):
    name = "ANY_F8_ANY_F8_F32" + ("_FAST_ACCUM" if accumulate == "fast" else "")
    a, b = drawn(5, 3, 300, dtype=ml_dtypes.float8_e4m3fn), drawn(6, 300, 4, dtype=ml_dtypes.float8_e5m2)
    dot = hwsim.jax.dot_general(device="h200", scheme="precision")
    expected = hwsim.matmul(a, b, device="h200", format="e4m3", format_b="e5m2", accumulate=accumulate)
    assert same(dot(a, b, NUMBERS, name, jnp.float32), expected)


def _kernel(x, y, out):
    out[...] = x[...] @ y[...]


def test_linear_solves_shards_and_kernels_are_jax_s_own_and_counted():
    """Equations that hold products, and whose functions do not compute the equation's result from its operands."""
    from jax.experimental import pallas

    a, b = drawn(7, 8, 8) + 9 * np.eye(8, dtype=np.float32), drawn(8, 8, 8)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    split = jax.sharding.PartitionSpec
    summed = jax.shard_map(
        lambda a, b: jax.lax.psum(a @ b, "x"),
        mesh=mesh,
        in_specs=(split(None, "x"), split("x", None)),
        out_specs=split(),
    )
    kernel = pallas.pallas_call(_kernel, out_shape=jax.ShapeDtypeStruct((8, 8), jnp.float32), interpret=True)
    for name, own in (("custom_linear_solve", jnp.linalg.solve), ("shard_map", summed), ("pallas_call", kernel)):
        emulated = hwsim.jax.emulated(own, **H200)
        assert same(emulated(a, b), own(a, b))
        assert emulated.record.calls == 0 and emulated.record.not_caught == {name: 1}
    emulated = hwsim.jax.emulated(lambda a, b: jnp.linalg.solve(a, a @ b), **H200)
    gradient = jax.grad(lambda b: emulated(a, b).sum())(b)
    (behind,) = jax.vjp(lambda y: jnp.linalg.solve(a, y), b)[1](jnp.ones((8, 8)))
    assert same(gradient, hwsim.matmul(a.T, np.asarray(behind), **H200))
    assert emulated.record.calls == 3  # the product and its two gradients


def test_a_call_with_operands_of_another_weak_type_is_followed():
    """Tangents may be weaker or stronger than the arguments that their function was written for."""
    inner, x = jax.jit(lambda a, s: (a @ a) * s), jnp.asarray(drawn(7, 4, 4))
    emulated = hwsim.jax.emulated(lambda x: jax.jvp(lambda s: inner(x, s), (2.0,), (jnp.float32(1.0),)), **H200)
    assert same(emulated(x)[1], hwsim.matmul(np.asarray(x), np.asarray(x), **H200))
    assert emulated.record.calls == 1 and not emulated.record.not_caught


@pytest.mark.parametrize("right", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_algorithms_of_8_bits_have_no_gradient(right):
    dot = hwsim.jax.dot_general(device="h200", scheme="precision")
    a, b = drawn(5, 3, 32, dtype=ml_dtypes.float8_e4m3fn), drawn(6, 32, 4, dtype=right)
    how = {"precision": "ANY_F8_ANY_F8_F32", "preferred_element_type": jnp.float32}
    made, pull = jax.vjp(lambda x, y: dot(x, y, (((1,), (0,)), ((), ())), **how), jnp.asarray(a), jnp.asarray(b))
    with pytest.raises(UnsupportedError, match="multiplies no gradient of float32"):
        pull(jnp.ones_like(made))


def test_an_accumulation_that_the_caller_asks_for_leaves_gradients():
    dot = hwsim.jax.dot_general(device="h200", scheme="precision", accumulate="fast")
    a, b = (jnp.asarray(drawn(i, 8, 8, dtype=ml_dtypes.bfloat16)) for i in (1, 2))
    made, pull = jax.vjp(lambda x, y: dot(x, y, (((1,), (0,)), ((), ()))), a, b)
    ones = jnp.ones_like(made)
    expected = hwsim.matmul(np.asarray(ones), np.asarray(b).T, device="h200", format="bf16", output="bf16")
    assert same(pull(ones)[0], expected)


def test_an_einsum_that_sums_over_nothing_is_no_product():
    angles, powers = np.arange(1000, 1005, dtype=np.float32), np.array([1, 0.125], np.float32)
    run = hwsim.jax.emulated(lambda x, y: jnp.einsum("i,j->ij", x, y), device="h200", format="bf16")
    assert same(np.asarray(run(angles, powers)), np.outer(angles, powers)) and run.record.calls == 0
