"""NumPy's products through a simulated device: which calls are caught, and that they give hwsim's own bits."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import hwsim
import hwsim.frameworks.repeated
from hwsim.errors import InputError

WHERE = {"device": "h200", "scheme": "tf32x3"}
RNG = np.random.default_rng(3)


def draw(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def product(a, b):
    return hwsim.matmul(a, b, **WHERE)


def test_matmul_dot_tensordot_and_einsum_give_the_bits_of_matmul():
    a, b = draw(5, 17), draw(17, 3)
    expected = product(a, b)
    plain = np.matmul
    with hwsim.emulate(**WHERE) as engine:
        found = [
            np.matmul(a, b),
            np.dot(a, b),
            np.tensordot(a, b, 1),
            np.tensordot(a, b, axes=([1], [0])),
            np.einsum("ik,kj->ij", a, b),
            np.einsum("ik,kj", a, b),
            np.einsum("ki,kj->ij", a.T, b),
        ]
    assert np.matmul is plain
    assert engine.calls == 7 and engine.macs == 7 * 5 * 17 * 3
    for c in found:
        assert c.dtype == np.float32 and np.array_equal(c.view(np.uint32), expected.view(np.uint32))
    assert 0 < engine.error < 1e-6 and engine.error <= engine.largest_error


def test_what_was_not_measured_has_no_error():
    """Neither 0.0, as if it were exact: without measuring, and before the first product."""
    a, b = np.ones((4, 8), np.float32), np.ones((8, 3), np.float32)
    with hwsim.emulate(measure=False, **WHERE) as engine:
        np.matmul(a, b)
    assert engine.calls == 1 and engine.error is engine.largest_error is None
    assert engine.report()["error"] is engine.report()["largest_error"] is None
    with hwsim.emulate(**WHERE) as engine:
        assert engine.error is None
        np.matmul(a, b)
    assert engine.error == engine.largest_error == 0.0 == engine.report()["error"]


def test_what_was_not_timed_has_no_cycles():
    """Neither 0, as if it took no time."""
    a, b = np.ones((4, 8), np.float32), np.ones((8, 3), np.float32)
    for timing in (False, True):
        with hwsim.emulate(timing=timing, **WHERE) as engine:
            np.matmul(a, b)
        report = engine.report()
        times = (report["cycles"], report["seconds"])
        assert times == ((engine.cycles, engine.seconds) if timing else (None, None)) and (engine.cycles > 0) == timing


def test_an_engine_prints_as_a_sentence():
    with hwsim.emulate(device="h200", format="bf16", timing=True) as engine:
        assert str(engine) == "native bf16 on h200: 0 products; 0 cycles, 0 ns"
        np.matmul(np.ones((16, 16), np.float32), np.eye(16, dtype=np.float32))
        np.matmul(np.ones((2, 2), int), np.ones((2, 2), int))
    assert str(engine).startswith(
        "native bf16 on h200: 1 product, 4,096 MACs; relative error 0, of one product at most 0; "
    )
    assert str(engine).endswith("; 1 call passed on to NumPy") and repr(engine) == f"<Engine {engine}>"


@pytest.mark.parametrize("where", [WHERE, {"device": "h200", "library": "cublas", "format": "bf16"}])
def test_a_shape_is_resolved_once(monkeypatch, where):
    asked, own = [], hwsim.frameworks.repeated.prepared

    def prepared(a, b, **given):
        asked.append(a.shape)
        return own(a, b, **given)

    monkeypatch.setattr(hwsim.frameworks.repeated, "prepared", prepared)
    with hwsim.emulate(timing=True, **where) as engine:
        cycles = []
        for m in (5, 5, 6, 5):
            a, b = draw(m, 17), draw(17, 3)
            expected = hwsim.run(a, b, **where)
            assert np.array_equal(np.matmul(a, b).view(np.uint32), expected.c.astype(np.float32).view(np.uint32))
            cycles.append(expected.cycles or 0)
        assert engine.cycles == sum(cycles)
    assert asked == [(5, 17), (6, 17)]


def test_seconds_of_a_library_s_kernel_without_cycles_count():
    where = {"device": "h200", "library": "cublas", "format": "fp32"}
    a, b = draw(1, 64), draw(64, 64)
    expected = hwsim.run(a, b, **where)
    with hwsim.emulate(timing=True, **where) as engine:
        np.matmul(a, b)
    assert expected.cycles is None and engine.cycles == 0
    assert engine.seconds == expected.seconds > 0


def test_a_bias_is_added_to_every_product():
    a, b, bias = draw(5, 17), draw(17, 3), draw(3)
    expected = hwsim.matmul(a, b, bias=bias, **WHERE)
    with hwsim.emulate(bias=bias, **WHERE):
        found = [np.matmul(a, b) for _ in range(3)]
    assert not np.array_equal(expected, product(a, b))
    for c in found:
        assert np.array_equal(c.view(np.uint32), expected.view(np.uint32))


def test_other_arguments_of_an_engine_hold_from_the_next_product_on():
    a, b = draw(5, 17), draw(17, 3)
    with hwsim.emulate(device="h200", format="fp16") as engine:
        for fmt in ("fp16", "bf16", "fp16"):
            engine.arguments["format"] = fmt
            assert np.array_equal(np.matmul(a, b), hwsim.matmul(a, b, device="h200", format=fmt))


def test_an_operand_s_dtype_is_of_its_kind():
    a, b = draw(4, 9), draw(9, 2)
    with hwsim.emulate(device="h200", scheme="native") as engine:
        for dtype in (np.float16, np.float32, np.float16):
            x, y = a.astype(dtype), b.astype(dtype)
            assert np.array_equal(np.matmul(x, y), hwsim.matmul(x, y, device="h200").astype(dtype))
    assert engine.calls == 3


def test_the_mean_of_equal_errors_is_not_above_the_largest():
    """Seven squares of this error add up to a mean whose root is one unit in the last place above it."""
    error, squares = 590000011 * 2.0**-52, 0.0
    for _ in range(7):  # no sum(), which compensates from Python 3.12 on
        squares += error * error
    assert math.sqrt(squares / 7) > error
    engine = hwsim.frameworks.numpy.emulation.Engine({})
    one = np.ones((1, 1))
    for _ in range(7):
        engine._compare(one, one, one + error)
    assert engine.error == engine.largest_error == error


def test_the_operator_of_plain_arrays_is_not_caught():
    a, b = draw(4, 4), draw(4, 4)
    with hwsim.emulate(**WHERE) as engine:
        a @ b
        a.dot(b)
    assert engine.calls == 0


def test_vectors_stacks_and_out():
    a, b, x = draw(2, 1, 5, 9), draw(3, 9, 4), draw(9)
    with hwsim.emulate(**WHERE) as engine:
        stack = np.matmul(a, b)
        vector = np.matmul(b.transpose(0, 2, 1), x)
        inner = np.dot(x, x)
        target = np.empty((5, 4), np.float32)
        same = np.matmul(a[0, 0], b[0], out=target)
        high = np.dot(a, b)
    assert stack.shape == (2, 3, 5, 4) and vector.shape == (3, 4) and inner.shape == () and same is target
    assert high.shape == np.dot(a, b).shape == (2, 1, 5, 3, 4)
    for i in range(2):
        for j in range(3):
            assert np.array_equal(stack[i, j], product(a[i, 0], b[j]))
            assert np.array_equal(high[i, 0, :, j], product(a[i, 0], b[j]))
    assert np.array_equal(vector[1], product(b[1].T, x[:, None])[:, 0])
    assert inner == product(x[None], x[:, None])[0, 0]
    assert engine.passed == 0


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("bij,bjk->bik", [(3, 4, 5), (3, 5, 2)]),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)]),
        ("ijk,kjl->il", [(3, 4, 5), (5, 4, 2)]),
        ("ii,ij->j", [(4, 4), (4, 3)]),
        ("ijm,jk->ik", [(3, 4, 2), (4, 5)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,ij->", [(3, 4), (3, 4)]),
        ("abc,cd,bde->ae", [(2, 3, 4), (4, 5), (3, 5, 6)]),
    ],
)
def test_einsum_contracts_as_numpy_does(subscripts, shapes):
    operands = [draw(*shape, dtype=np.float64) for shape in shapes]
    expected = np.einsum(subscripts, *operands)
    with hwsim.emulate(device="h200", scheme="native", format="fp64") as engine:
        found = np.einsum(subscripts, *operands)
    inputs, output = subscripts.split("->")
    sums_over = set(inputs) - set(output) - {","}
    assert (engine.calls > 0) == bool(sums_over)  # what sums over nothing is no product
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_complex_is_four_real_products():
    a, b = draw(4, 6) + 1j * draw(4, 6), draw(6, 5) + 1j * draw(6, 5)
    with hwsim.emulate(**WHERE) as engine:
        c = np.matmul(a, b)
    assert c.dtype == np.complex64 and engine.calls == 4
    assert np.array_equal(c.real, product(a.real, b.real) - product(a.imag, b.imag))
    assert np.array_equal(c.imag, product(a.real, b.imag) + product(a.imag, b.real))


SHORT = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("fmt", SHORT)
def test_short_formats_are_taken(fmt):
    """In the type that each of NumPy's functions gives: float32 from matmul, the operands' from dot and tensordot."""
    a, b = draw(5, 40).astype(SHORT[fmt]), draw(40, 3).astype(SHORT[fmt])
    functions = (np.matmul, np.dot, lambda x, y: np.tensordot(x, y, 1))
    types = [function(a, b).dtype for function in functions]
    expected = hwsim.matmul(a, b, device="b200", format=fmt)
    with hwsim.emulate(device="b200", format=fmt) as engine:
        found = [np.matmul(a, b), np.dot(a, b), np.tensordot(a, b, 1), np.einsum("ik,kj->ij", a, b)]
    assert (engine.calls, engine.passed) == (4, 0) and engine.error < 1e-6
    assert [c.dtype for c in found] == [*types, np.float32]
    for c in found:
        assert np.array_equal(c, expected.astype(c.dtype))
    x = hwsim.Array(a, device="b200", format=fmt)
    assert isinstance(x @ b, hwsim.Array) and isinstance(x.dot(b), hwsim.Array) and x.engine.calls == 2


def test_mixtures_of_short_formats_have_numpys_type_or_none():
    a, b = draw(4, 8).astype(SHORT["e4m3"]), draw(8, 4).astype(SHORT["e5m2"])
    with hwsim.emulate(device="b200", format="bf16") as engine:
        assert np.matmul(a, b).dtype == np.float32
        assert np.matmul(a.astype(SHORT["bf16"]), b.astype(np.float64)).dtype == np.float64
        np.matmul(a.astype(ml_dtypes.int4), b.astype(ml_dtypes.int4))
    assert (engine.calls, engine.passed) == (2, 1)


def test_what_is_not_floating_point_goes_to_numpy():
    with hwsim.emulate(**WHERE) as engine:
        assert np.array_equal(np.matmul(np.eye(3, dtype=int), np.arange(9).reshape(3, 3)), np.arange(9).reshape(3, 3))
        assert np.einsum("...i->...", draw(2, 3)).shape == (2,)
        assert np.dot(2.0, 3.0) == 6.0
    assert engine.calls == 0 and engine.passed == 3


def test_nested_blocks_and_errors_restore_numpy():
    plain = np.matmul
    a = draw(4, 4)
    with hwsim.emulate(**WHERE) as outer:
        with hwsim.emulate(device="h200", scheme="native", format="fp16") as inner:
            np.matmul(a, a)
        np.matmul(a, a)
    assert (outer.calls, inner.calls) == (1, 1)
    with pytest.raises(RuntimeError), hwsim.emulate(**WHERE):
        raise RuntimeError
    assert np.matmul is plain
    with pytest.raises(InputError, match="no scheme"), hwsim.emulate(device="h200", scheme="nothing"):
        pass
    with pytest.raises(InputError, match="leave it out"), hwsim.emulate(device="h200", m=3):
        pass


def test_array_sends_its_operator_there():
    a, b = draw(5, 17), draw(17, 3)
    x = hwsim.Array(a, **WHERE)
    assert isinstance(x + 1, hwsim.Array) and x.engine.calls == 0
    for c in (x @ b, a @ hwsim.Array(b, engine=x.engine), x.dot(b), np.dot(x, b), np.einsum("ik,kj->ij", x, b)):
        assert isinstance(c, hwsim.Array) and c.engine is x.engine
        assert np.array_equal(np.asarray(c), product(a, b))
    assert x.engine.calls == 5
    assert (x @ b @ np.ones((3, 2), np.float32)).engine.calls == 7
    assert isinstance(x[0, 0] + 0, np.floating | hwsim.Array) and x.sum() == a.sum()
