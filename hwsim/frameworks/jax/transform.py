"""`hwsim.jax.emulated`: a function whose dot_general equations are computed on a simulated device.

The function is traced to a jaxpr, which is evaluated with other products; parts of it without products are left as they
are. The module knows jaxprs; products are hwsim.frameworks.jax.products'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, primitives

from hwsim.frameworks.jax.products import Multiplier, ProductRecord

JaxValues = list[Any]
#: Equations with products that are left to JAX: counted by name.
NOT_CAUGHT = ("conv_general_dilated", "ragged_dot_general", "ragged_dot", "cudnn_fusion", "scaled_matmul")
#: Control flow that is followed, beside calls.
LOOPS = ("scan", "while", "cond")
#: Equations whose function runs elsewhere than on their own operands: on each device's part of them.
ELSEWHERE = ("shard_map", "pmap", "xla_pmap")


class Emulated:
    """A function with its products on a simulated device. record: what these were. Call it, or give it to jax.jit,
    jax.grad, jax.vmap.
    """

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        wraps(function)(self)
        self.function, self.record = function, ProductRecord()
        self.multiplier = Multiplier(arguments, self.record)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        flat, tree = jax.tree.flatten((args, kwargs))
        is_traced = [isinstance(leaf, jax.Array) or hasattr(leaf, "dtype") for leaf in flat]
        shapes: list[Any] = []

        def on_arrays(*arrays: Any) -> Any:
            rest = iter(arrays)
            merged = [next(rest) if traced else leaf for leaf, traced in zip(flat, is_traced, strict=True)]
            positional, named = jax.tree.unflatten(tree, merged)
            out = self.function(*positional, **named)
            leaves, structure = jax.tree.flatten(out)
            shapes.append(structure)
            return leaves

        arrays = [leaf for leaf, traced in zip(flat, is_traced, strict=True) if traced]
        closed = jax.make_jaxpr(on_arrays)(*arrays)
        return jax.tree.unflatten(shapes[-1], self._evaluate(closed.jaxpr, closed.consts, arrays))

    def report(self) -> str:
        """A line for each pass and shape of the products so far; then what was not caught."""
        return self.record.text()

    def _evaluate(self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> JaxValues:
        env: dict[Any, Any] = {}

        def read(variable: Any) -> Any:
            return variable.val if isinstance(variable, Literal) else env[variable]

        env.update(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))
        for equation in jaxpr.eqns:
            values = self._equation(equation, [read(variable) for variable in equation.invars])
            env.update(zip(equation.outvars, values, strict=True))
        return [read(variable) for variable in jaxpr.outvars]

    def _equation(self, equation: Any, values: JaxValues) -> JaxValues:
        primitive, params = equation.primitive, equation.params
        if primitive is primitives.dot_general_p:
            lhs, rhs = values
            out = equation.outvars[0].aval.dtype
            result = self.multiplier.dot_general(lhs, rhs, params["dimension_numbers"], params["precision"], out)
            if result is not None:
                return [result]
            self._count(f"dot_general of {values[0].dtype}")
        elif primitive.name in NOT_CAUGHT:
            self._count(primitive.name)
        elif _has_products(equation):
            if primitive.name in LOOPS or _called(equation) is not None:
                return self._below(equation, values)
            self._count(primitive.name)
        bound = primitive.get_bind_params(params)
        functions, bound = bound if isinstance(bound, tuple) else ((), bound)  # a pair until JAX 0.8
        out = primitive.bind(*functions, *values, **bound)
        return list(out) if primitive.multiple_results else [out]

    def _count(self, name: str) -> None:
        self.record.not_caught[name] = self.record.not_caught.get(name, 0) + 1

    def _below(self, equation: Any, values: JaxValues) -> JaxValues:
        """An equation with products inside: control flow stays, calls are evaluated in place."""
        params, name = equation.params, equation.primitive.name
        if name == "scan":
            return self._scan(params, values)
        if name == "while":
            return self._while(params, values)
        if name == "cond":
            index, *operands = values
            branches = [self._as_function(branch) for branch in params["branches"]]
            return list(jax.lax.switch(index, branches, *operands))
        function = self._as_function(_called(equation))
        if name in ("remat", "remat2", "checkpoint"):
            return list(jax.checkpoint(function, policy=params.get("policy"))(*values))
        return list(function(*values))

    def _as_function(self, inner: Any) -> Callable[..., JaxValues]:
        jaxpr, consts = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
        return lambda *values: self._evaluate(jaxpr, consts, values)

    def _scan(self, params: dict[str, Any], values: JaxValues) -> JaxValues:
        consts, start, along = _scanned(params, values)
        body = self._as_function(params["jaxpr"])

        def step(carry: JaxValues, xs: JaxValues) -> tuple[JaxValues, JaxValues]:
            out = body(*consts, *carry, *xs)
            return out[: len(start)], out[len(start) :]

        carry, ys = jax.lax.scan(
            step, start, along, length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
        )
        return [*carry, *ys]

    def _while(self, params: dict[str, Any], values: JaxValues) -> JaxValues:
        of_condition, of_body = params["cond_nconsts"], params["body_nconsts"]
        first, second = values[:of_condition], values[of_condition : of_condition + of_body]
        condition, body = self._as_function(params["cond_jaxpr"]), self._as_function(params["body_jaxpr"])
        start = values[of_condition + of_body :]
        return list(
            jax.lax.while_loop(lambda carry: condition(*first, *carry)[0], lambda carry: body(*second, *carry), start)
        )


def _scanned(params: dict[str, Any], values: JaxValues) -> tuple[JaxValues, JaxValues, JaxValues]:
    """A scan's operands: constants, the first carry, and what it goes along."""
    if "ft_in" in params:  # since JAX 0.11, for Python 3.12 and later
        consts, start, along = map(list, params["ft_in"].update(values).unpack())
        return consts, start, along
    fixed, carried = params["num_consts"], params["num_carry"]
    return values[:fixed], values[fixed : fixed + carried], values[fixed + carried :]


def _called(equation: Any) -> Jaxpr | ClosedJaxpr | None:
    """The function of an equation that calls one function on its own operands (jit, checkpoints, custom derivatives);
    None of others, as linear solves, whose functions say more than the result, and kernels, whose take references.
    """
    if equation.primitive.name in ELSEWHERE:
        return None
    inner = [parameter for parameter in equation.params.values() if isinstance(parameter, (Jaxpr, ClosedJaxpr))]
    if len(inner) != 1:
        return None
    jaxpr = _jaxprs(inner[0])[0]
    fits = [_kinds(jaxpr.invars), _kinds(jaxpr.outvars)] == [_kinds(equation.invars), _kinds(equation.outvars)]
    return inner[0] if fits else None


def _kinds(variables: Any) -> list[Any]:
    """Shape and dtype of each variable; of what has none, as a reference to memory, all that JAX says of it."""
    return [
        (variable.aval.shape, variable.aval.dtype) if isinstance(variable.aval, jax.core.ShapedArray) else variable.aval
        for variable in variables
    ]


def _jaxprs(value: Any) -> list[Jaxpr]:
    if isinstance(value, ClosedJaxpr):
        return [value.jaxpr]
    if isinstance(value, Jaxpr):
        return [value]
    return [jaxpr for item in value for jaxpr in _jaxprs(item)] if isinstance(value, (tuple, list)) else []


def _has_products(equation: Any) -> bool:
    """Whether an equation has a product, or one that is to be counted, somewhere inside."""
    for value in equation.params.values():
        for jaxpr in _jaxprs(value):
            for inner in jaxpr.eqns:
                is_one = inner.primitive is primitives.dot_general_p or inner.primitive.name in NOT_CAUGHT
                if is_one or _has_products(inner):
                    return True
    return False


def emulated(function: Callable[..., Any], **arguments: Any) -> Emulated:
    """The function with every dot_general on a simulated device, its gradients' products too.

    jit, grad and vmap go around it (jax.grad(hwsim.jax.emulated(loss))), so that the
    gradient's products are found. Inside, jit, scan, while, cond and checkpoints are followed; custom derivatives of
    functions with products inside are not used: these are differentiated as they are written. Convolutions, complex
    products, linear solves, shard_map and Pallas kernels are left to JAX and counted. Raises as `dot_general`.

    Args:
        function: of JAX arrays.
        arguments: as of `dot_general`.
    """
    return Emulated(function, arguments)
