"""A dot_general that computes on a simulated device, under jit, grad and vmap.

Operands are brought to stacks of matrices by JAX's own operations; the product of two stacks is a host callback with
gradients of its own. The module knows JAX's dimension numbers; settings and products are hwsim.frameworks'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from hwsim.backend.environment import in_default_environment
from hwsim.errors import UnsupportedError
from hwsim.frameworks.jax.algorithms import BY_PRECISION, arguments_of
from hwsim.frameworks.product import NARROW, multiplied
from hwsim.frameworks.settings import PassName, Settings, settings_of
from hwsim.operands.operand import operand

JaxArray = Any  # of JAX


@dataclass
class ProductCount:
    """Products of one pass and shape: calls, multiply-accumulates in them, and the seconds that simulating took."""

    calls: int = 0
    macs: int = 0
    host_seconds: float = 0.0


@dataclass
class ProductRecord:
    """The products of a run by (pass, m, n, k), and the equations with products that were not caught, by name."""

    products: dict[tuple[str, int, int, int], ProductCount] = field(default_factory=dict)
    not_caught: dict[str, int] = field(default_factory=dict)

    def add(self, stage: str, shape: tuple[int, int, int], count: int, seconds: float) -> None:
        """Add a stack of `count` products (m, n, k)."""
        entry = self.products.setdefault((stage, *shape), ProductCount())
        entry.calls += 1
        entry.macs += count * prod(shape)
        entry.host_seconds += seconds

    @property
    def calls(self) -> int:
        """The number of all calls."""
        return sum(entry.calls for entry in self.products.values())

    @property
    def macs(self) -> int:
        """The number of all multiply-accumulates."""
        return sum(entry.macs for entry in self.products.values())

    def text(self) -> str:
        """A line for each pass and shape."""
        lines = [f"{'pass':<16} {'m':>7} {'n':>7} {'k':>7} {'calls':>7} {'MMAC':>10}"]
        for (stage, m, n, k), entry in self.products.items():
            lines.append(f"{stage:<16} {m:>7} {n:>7} {k:>7} {entry.calls:>7} {entry.macs / 1e6:>10.1f}")
        lines += [f"not caught: {name}, {count} equations" for name, count in sorted(self.not_caught.items())]
        return "\n".join(lines)


class Multiplier:
    """Products by the arguments of `emulated`; each precision that a call names has settings of its own."""

    def __init__(self, arguments: Mapping[str, Any], record: ProductRecord) -> None:
        self.by_precision = arguments.get("scheme") == BY_PRECISION
        self.arguments = {k: v for k, v in arguments.items() if not (self.by_precision and k == "scheme")}
        self.record = record
        self._settings: dict[str, Settings] = {}
        if not self.by_precision:
            self._settings[""] = settings_of(self.arguments)

    def settings(self, precision: Any, left: Any, right: Any) -> Settings:
        """The settings of a call with operands of these dtypes."""
        if not self.by_precision:
            return self._settings[""]
        more = dict(arguments_of(precision, str(left)))
        if "accumulate" in more and left != right:  # 8-bit floats, each operand in its own format
            more |= {"format": _format(left), "format_b": _format(right)}
        key = repr(sorted(more.items()))
        if key not in self._settings:
            self._settings[key] = settings_of({**self.arguments, **more})
        return self._settings[key]

    def dot_general(
        self, lhs: JaxArray, rhs: JaxArray, dimension_numbers: Any, precision: Any, out: Any
    ) -> JaxArray | None:
        """jax.lax.dot_general on the device, with a result of dtype `out`; None for dtypes that hwsim lacks.

        Without a contracted dimension it multiplies elements, as XLA does.
        """
        ((left_k, right_k), (left_batch, right_batch)) = dimension_numbers
        if not all(_is_taken(x.dtype) for x in (lhs, rhs)):
            return None
        a, lead, rows = _as_stack(lhs, left_batch, left_k, k_last=True)
        b, _, columns = _as_stack(rhs, right_batch, right_k, k_last=False)
        if not left_k:
            return (a.astype(out) * b.astype(out)).reshape((*lead, *rows, *columns))
        settings = self.settings(precision, lhs.dtype, rhs.dtype)
        return _product(self, settings, out, a, b).reshape((*lead, *rows, *columns))

    @in_default_environment  # XLA's callbacks flush subnormals; conversion to the result's dtype is NumPy's
    def compute(
        self,
        settings: Settings,
        stage: PassName,
        gradient: str,
        out: Any,
        a: np.ndarray[Any, Any],
        b: np.ndarray[Any, Any],
    ) -> np.ndarray[Any, Any]:
        """The product of two stacks on the host: a (..., m, k), b (..., k, n)."""
        start = time.perf_counter()
        left, right = np.asarray(a), np.asarray(b)
        chosen = settings.of("", stage)
        lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        shape = (left.shape[-2], right.shape[-1], left.shape[-1])
        if chosen.arguments is None or 0 in (*lead, *shape):
            wide = np.float64 if out == np.float64 else np.float32
            return np.matmul(left.astype(wide), right.astype(wide)).astype(out)
        name = _format(out)
        more: dict[str, Any] = {"timing": False} | ({"output": name} if name in NARROW else {})
        if prod(lead) == 1:  # a matrix, not a stack of one
            left, right = left.reshape(left.shape[-2:]), right.reshape(right.shape[-2:])
        product, _ = multiplied(chosen, left, right, gradient=gradient, **more)
        self.record.add(stage, shape, prod(lead), time.perf_counter() - start)
        return product.astype(out).reshape(*lead, *shape[:2])


def _format(dtype: Any) -> str | None:
    """hwsim's name of a dtype."""
    return operand("operand", np.zeros((1, 1), dtype)).format


def _is_taken(dtype: Any) -> bool:
    """Whether hwsim has the format: real floating point, and int8."""
    if dtype.kind == "f" and dtype.itemsize > 1:  # float8_e5m2's kind is "f" too, other narrow ones' is "V"
        return dtype.itemsize <= 8
    return dtype == np.int8 or dtype in (
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2fnuz,
    )


def _as_stack(
    x: JaxArray, batch: tuple[int, ...], inner: tuple[int, ...], *, k_last: bool
) -> tuple[JaxArray, tuple[int, ...], tuple[int, ...]]:
    """(count, m, k), or (count, k, n), of an operand; the sizes of its batch dimensions and of its own."""
    free_axes = [i for i in range(x.ndim) if i not in batch and i not in inner]
    order = [*batch, *free_axes, *inner] if k_last else [*batch, *inner, *free_axes]
    lead, free = tuple(x.shape[i] for i in batch), tuple(x.shape[i] for i in free_axes)
    depth = prod(x.shape[i] for i in inner)
    shape = (prod(lead), prod(free), depth) if k_last else (prod(lead), depth, prod(free))
    return jnp.transpose(x, order).reshape(shape), lead, free


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _product(multiplier: Multiplier, settings: Settings, out: Any, a: JaxArray, b: JaxArray) -> JaxArray:
    return _called(multiplier, settings, "forward", "", out, a, b)


def _called(
    multiplier: Multiplier, settings: Settings, stage: PassName, gradient: str, out: Any, a: JaxArray, b: JaxArray
) -> JaxArray:
    shape = jax.ShapeDtypeStruct((*a.shape[:-1], b.shape[-1]), out)
    compute = partial(multiplier.compute, settings, stage, gradient, out)
    return jax.pure_callback(compute, shape, a, b, vmap_method="expand_dims")


def _forward(
    multiplier: Multiplier, settings: Settings, out: Any, a: JaxArray, b: JaxArray
) -> tuple[JaxArray, tuple[JaxArray, JaxArray]]:
    return _product(multiplier, settings, out, a, b), (a, b)


def _backward(
    multiplier: Multiplier, settings: Settings, out: Any, saved: tuple[JaxArray, JaxArray], grad: JaxArray
) -> tuple[JaxArray, JaxArray]:
    a, b = saved
    arguments = settings.of("", "forward").arguments or {}
    if multiplier.by_precision and "accumulate" in arguments and a.dtype.itemsize == 1 < grad.dtype.itemsize:
        raise UnsupportedError(
            f"a dot algorithm of 8-bit floats multiplies no gradient of {grad.dtype}: differentiate products of "
            "another algorithm, or give the product a rule of its own (jax.custom_vjp) that casts the gradient"
        )
    of_a = _differentiable(multiplier, settings, "backward_input", "a", a.dtype, grad, jnp.swapaxes(b, -1, -2))
    of_b = _differentiable(multiplier, settings, "backward_weight", "b", b.dtype, jnp.swapaxes(a, -1, -2), grad)
    return of_a, of_b


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3, 4))
def _differentiable(
    multiplier: Multiplier, settings: Settings, stage: PassName, gradient: str, out: Any, a: JaxArray, b: JaxArray
) -> JaxArray:
    """A gradient's product, which may be differentiated again (by the same passes)."""
    return _called(multiplier, settings, stage, gradient, out, a, b)


def _again(
    multiplier: Multiplier, settings: Settings, stage: PassName, gradient: str, out: Any, a: JaxArray, b: JaxArray
) -> tuple[JaxArray, tuple[JaxArray, JaxArray]]:
    return _differentiable(multiplier, settings, stage, gradient, out, a, b), (a, b)


def _again_backward(
    multiplier: Multiplier,
    settings: Settings,
    stage: PassName,
    gradient: str,
    out: Any,
    saved: tuple[JaxArray, JaxArray],
    grad: JaxArray,
) -> tuple[JaxArray, JaxArray]:
    return _backward(multiplier, settings, out, saved, grad)


_product.defvjp(_forward, _backward)
_differentiable.defvjp(_again, _again_backward)


def dot_general(**arguments: Any) -> Callable[..., JaxArray]:
    """A function that takes jax.lax.dot_general's place: for Flax's `dot_general=`, jnp.einsum's `_dot_general`, or to
    be called.

    arguments: as of `hwsim.run` (device, scheme, format, ...), scheme="precision" to take the scheme from each
    call's precision or dot algorithm, and forward, backward_input (gradient of the first operand), backward_weight (of
    the second): a mapping of what differs in a pass, or "plain" for NumPy's product. The result has JAX's dtype. It
    works under jit, grad and vmap; its attribute `record` counts. Raises InputError, UnsupportedError, ConfigError at
    once for wrong arguments; in a call what JAX raises for shapes and dimensions that do not fit, and UnsupportedError
    for dtypes that hwsim has no format for.
    """
    multiplier = Multiplier(arguments, ProductRecord())

    def function(
        lhs: JaxArray,
        rhs: JaxArray,
        dimension_numbers: Any,
        precision: Any = None,
        preferred_element_type: Any = None,
        *,
        out_sharding: Any = None,
        **_: Any,
    ) -> JaxArray:
        a, b = jnp.asarray(lhs), jnp.asarray(rhs)
        checked = partial(
            jax.lax.dot_general, dimension_numbers=dimension_numbers, preferred_element_type=preferred_element_type
        )
        out = jax.eval_shape(checked, a, b).dtype  # JAX says what does not fit
        result = multiplier.dot_general(a, b, dimension_numbers, precision, out)
        if result is None:
            raise UnsupportedError(f"hwsim.jax.dot_general: {a.dtype} by {b.dtype}; it multiplies real floats and int8")
        return result

    function.record = multiplier.record  # type: ignore[attr-defined]
    return function
