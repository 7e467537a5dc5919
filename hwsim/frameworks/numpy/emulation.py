"""NumPy code on a simulated device: `with hwsim.emulate(...)`, and an array class whose products run there.

`emulate` redirects np.matmul, np.dot, np.tensordot and np.einsum for code that calls them through the np module;
`Array` redirects its own `@` and `.dot`. `@` between plain arrays calls no Python code, so it cannot be redirected.
Both pass the products to an `Engine`, which counts them. The module knows NumPy's interfaces and repeated products
only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.exact_product import reference
from hwsim.analysis.running_error import RunningError
from hwsim.backend.environment import in_default_environment
from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.formats import FORMATS, array_dtype
from hwsim.frameworks.numpy import contraction
from hwsim.frameworks.repeated import Repeated
from hwsim.host.arrays import given_array
from hwsim.report.text.words import duration, plural
from hwsim.request.declarations import DEFAULT_DEVICE, DEFAULT_SCHEME
from hwsim.schemes import scheme_of

Plain = NDArray[Any]
CAUGHT = ("matmul", "dot", "tensordot", "einsum")
SAMPLED_ROWS = 8  # of each product, compared with fp64
# Floating-point dtypes of ml_dtypes: bfloat16, and formats of fewer bits. Their kind is "V", or not.
SHORT = frozenset(
    array_dtype(fmt) for fmt in FORMATS.values() if not fmt.is_integer and array_dtype(fmt).isbuiltin != 1
)


@dataclass(repr=False)
class Engine:
    """Multiplies real and complex floating-point matrices on a device, and keeps statistics of the products.

    arguments: of `hwsim.run` (device, scheme, format, ...). measure: compare some rows of each product with fp64.
    timing: add up cycles. calls, macs: matrix products (a complex one counts as four) and multiply-accumulates in them.
    passed: calls passed on to NumPy (integers, objects, single elements). errors: of the measured calls, ||got - fp64||
    / ||fp64|| on the sampled rows; for fp64 products, ||got - exact|| / ||exact||.
    """

    arguments: dict[str, Any]
    measure: bool = True
    timing: bool = False
    calls: int = 0
    macs: int = 0
    passed: int = 0
    cycles: int = 0
    seconds: float = 0.0
    errors: RunningError = field(default_factory=RunningError)
    _busy: bool = field(default=False, repr=False)
    _repeated: Repeated = field(default_factory=Repeated, repr=False)

    @property
    def error(self) -> float | None:
        """Root mean square of the calls' relative errors (sampled rows, Frobenius norm); None where none was
        measured.
        """
        return self.errors.mean

    @property
    def largest_error(self) -> float | None:
        """The largest of these errors; None where none was measured."""
        return self.errors.largest

    def __str__(self) -> str:
        """What was multiplied, on what, and with which error and time, in words."""
        where, scheme = self.arguments.get("device", DEFAULT_DEVICE), self.arguments.get("scheme", DEFAULT_SCHEME)
        names = (getattr(scheme, "name", scheme), self.arguments.get("format"), "on", getattr(where, "name", where))
        parts = [f"{' '.join(str(name) for name in names if name)}: {plural(self.calls, 'product')}"]
        parts[0] += f", {plural(self.macs, 'MAC')}" if self.calls else ""
        if self.error is not None and self.largest_error is not None:
            parts.append(f"relative error {self.error:.2g}, of one product at most {self.largest_error:.2g}")
        if self.timing:
            parts.append(f"{plural(self.cycles, 'cycle')}, {duration(self.seconds)}")
        if self.passed:
            parts.append(f"{plural(self.passed, 'call')} passed on to NumPy")
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"<Engine {self}>"

    def takes(self, *operands: Any) -> bool:
        """Whether the engine handles these operands: real or complex floating-point arrays with at least one dimension
        and element.
        """
        if self._busy:
            return False
        arrays = [given_array("an operand", operand) for operand in operands]
        return all(
            array.ndim and array.size and _is_float(array.dtype) and array.dtype.itemsize <= 16 for array in arrays
        )

    @in_default_environment  # complex products and narrower dtypes are NumPy's arithmetic
    def multiply(self, a: Plain, b: Plain) -> Plain:
        """The product of a (..., m, k) and b (..., k, n), in the dtype that numpy.matmul gives.

        Leading dimensions broadcast. Raises as `hwsim.run`.
        """
        kind = _kind(a, b)
        out = np.empty((*a.shape[:-1], b.shape[-1]), kind)
        for index in np.ndindex(*a.shape[:-2]):
            out[index] = self._complex(a[index], b[index]) if kind.kind == "c" else self._real(a[index], b[index])
        return out

    def result_dtype(self, a: Plain, b: Plain) -> np.dtype[Any]:
        """The dtype in which the product of two real matrices comes from the device; nothing is counted. Raises as
        `hwsim.run`.
        """
        return self._repeated.product(a, b, self.arguments, {"timing": False})[0].dtype

    def _complex(self, a: Plain, b: Plain) -> Plain:
        """A complex product from four real ones."""
        real = self._real(a.real, b.real) - self._real(a.imag, b.imag)
        return real + 1j * (self._real(a.real, b.imag) + self._real(a.imag, b.real))

    def _real(self, a: Plain, b: Plain) -> Plain:
        self._busy = True
        try:
            result, ready = self._repeated.product(a, b, self.arguments, {"timing": self.timing})
        finally:
            self._busy = False
        product: Plain = result.astype(_kind(a, b))
        self.calls += 1
        self.macs += a.size * b.shape[1]
        if self.timing:  # a library's kernel may have seconds and no cycles
            self.cycles += ready.cycles or 0
            self.seconds += ready.seconds or 0.0
        if self.measure:
            self._compare(a, b, product)
        return product

    def _compare(self, a: Plain, b: Plain, product: Plain) -> None:
        rows = np.linspace(0, len(a) - 1, min(len(a), SAMPLED_ROWS)).astype(int)
        with np.errstate(all="ignore"):
            left, right, low = a[rows].astype(np.float64), b.astype(np.float64), np.zeros(())
            if product.dtype == np.float64:
                exact, low, compared = reference(left, right)
                rows = rows[compared]
            else:
                exact = left @ right
            norm = float(np.linalg.norm(exact))
            error = float(np.linalg.norm((product[rows].astype(np.float64) - exact) - low)) / norm if norm else 0.0
        if np.isfinite(error):
            self.errors.add(error)

    def report(self) -> dict[str, Any]:
        """The statistics as plain data: counts, errors (None where none was measured), cycles and seconds (None without
        timing=True).
        """
        counts = {name: getattr(self, name) for name in ("calls", "macs", "passed", "error", "largest_error")}
        return counts | {name: getattr(self, name) if self.timing else None for name in ("cycles", "seconds")}

    # --- NumPy's functions ---------------------------------------------------------------------------------------

    def matmul(self, plain: Callable[..., Any], a: Any, b: Any, out: Any = None, **rest: Any) -> Any:
        """numpy.matmul through the engine; `plain` is NumPy's own function, for operands that the engine does not
        take.
        """
        if rest or not self.takes(a, b):
            self.passed += not self._busy
            return plain(a, b, out=out, **rest)
        return _stored(contraction.matmul(_plain(a), _plain(b), self.multiply), out)

    def dot(self, plain: Callable[..., Any], a: Any, b: Any, out: Any = None) -> Any:
        """numpy.dot through the engine; `plain` as in `matmul`."""
        if not self.takes(a, b):
            self.passed += not self._busy
            return plain(a, b, out=out)
        x, y = _plain(a), _plain(b)
        if y.ndim <= 2 and x.ndim <= 2:
            product = contraction.matmul(x, y, self.multiply)
        else:
            product = contraction.tensordot(x, y, ((x.ndim - 1,), (max(y.ndim - 2, 0),)), self.multiply)
        return _stored(_as_dot(product, x, y), out)

    def tensordot(self, plain: Callable[..., Any], a: Any, b: Any, axes: Any = 2) -> Any:
        """numpy.tensordot through the engine; `plain` as in `matmul`."""
        if not self.takes(a, b):
            self.passed += not self._busy
            return plain(a, b, axes=axes)
        x, y = _plain(a), _plain(b)
        return _as_dot(contraction.tensordot(x, y, axes, self.multiply), x, y)

    def einsum(self, plain: Callable[..., Any], *operands: Any, out: Any = None, **rest: Any) -> Any:
        """numpy.einsum through the engine, for plain letters and at least two operands; anything else goes to
        `plain`.
        """
        parsed = None
        if operands and isinstance(operands[0], str) and len(operands) > 2 and self.takes(*operands[1:]):
            parsed = contraction.parse(operands[0], len(operands) - 1)
        if parsed is None or set(rest) - {"optimize"}:
            self.passed += not self._busy
            return plain(*operands, out=out, **rest) if out is not None else plain(*operands, **rest)
        arrays = [_plain(operand) for operand in operands[1:]]
        return _stored(contraction.einsum(*parsed, arrays, self.multiply, plain), out)


def _is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is real or complex floating point, including ml_dtypes' formats."""
    return dtype.kind in "fc" or dtype in SHORT


def _kind(a: Plain, b: Plain) -> np.dtype[Any]:
    """The dtype of NumPy's matrix product of the two (float32 for bfloat16 and shorter formats)."""
    if a.dtype in SHORT or b.dtype in SHORT:
        return (np.zeros((1, 1), a.dtype) @ np.zeros((1, 1), b.dtype)).dtype
    return np.result_type(a, b)


def _as_dot(product: Plain, a: Plain, b: Plain) -> Plain:
    """The product in numpy.dot's dtype, which differs from matmul's for two bfloat16 arrays."""
    return product.astype(a.dtype) if a.dtype == b.dtype and a.dtype in SHORT else product


def _plain(x: Any) -> Plain:
    return given_array("an operand", x).view(np.ndarray)


@in_default_environment  # a narrower dtype of `out`
def _stored(value: Plain, out: Any) -> Any:
    if out is None:
        return value if value.ndim else value[()]
    target = out[0] if isinstance(out, tuple) else out
    target[...] = value
    return target


@contextlib.contextmanager
def emulate(*, measure: bool = True, timing: bool = False, **arguments: Any) -> Iterator[Engine]:
    """Context manager: inside it np.matmul, np.dot, np.tensordot and np.einsum run on a simulated device.

    Yields the `Engine`, which counts. Only calls through the np module are redirected. `a @ b` and `a.dot(b)` of plain
    arrays are not (see `Array`), nor are products inside NumPy's compiled code. Blocks may be nested; the innermost one
    applies. Not for several threads
    at a time. Raises what `hwsim.run` raises, immediately for an unknown device or scheme.

    Args:
        measure: compute the error of each product against an exact one.
        timing: add up the simulated device's time.
        arguments: as of `hwsim.run`: device, scheme, format, schedule, threads, ...
    """
    engine = new_engine(arguments, measure, timing)
    before = {name: getattr(np, name) for name in CAUGHT}
    originals = {name: getattr(function, "_hwsim_plain", function) for name, function in before.items()}

    def caught(name: str) -> Callable[..., Any]:
        def function(*operands: Any, **options: Any) -> Any:
            return getattr(engine, name)(originals[name], *operands, **options)

        function._hwsim_plain = originals[name]  # type: ignore[attr-defined]
        function.__name__, function.__doc__ = name, originals[name].__doc__
        return function

    try:
        for name in CAUGHT:
            setattr(np, name, caught(name))
        yield engine
    finally:
        for name, function in before.items():
            setattr(np, name, function)


def new_engine(arguments: dict[str, Any], measure: bool = True, timing: bool = False) -> Engine:
    """An engine for these arguments of `hwsim.run`. Raises InputError for arguments that each product has of its own,
    and what loading a device or a scheme raises.
    """
    reserved = {"a", "b", "c", "m", "n", "k", "exact", "timing", "rows", "cols"} & set(arguments)
    if reserved:
        raise InputError(f"{', '.join(sorted(reserved))}: each product has its own; leave it out")
    full = dict(arguments)
    full["device"] = load(full.get("device", DEFAULT_DEVICE))
    if isinstance(full.get("scheme", DEFAULT_SCHEME), str):
        full["scheme"] = scheme_of(full.get("scheme", DEFAULT_SCHEME))
    return Engine(full, measure, timing)


class Array(np.ndarray[Any, Any]):
    """A NumPy array whose products (`@`, `.dot`, np.matmul, np.dot, np.tensordot, np.einsum) run on a simulated device.

    Array(x, device=..., scheme=..., ...): a view of x where it is an array of floating point. Results of its products
    are Arrays with the same `engine`; everything else is NumPy's. engine: one that counts several arrays' products
    together, or, as of `hwsim.run`, the name of what computes the bits.
    """

    engine: Engine | None
    _FUNCTIONS: ClassVar[dict[Any, str]] = {np.dot: "dot", np.tensordot: "tensordot", np.einsum: "einsum"}

    def __new__(
        cls, x: Any, *, engine: Engine | str | None = None, measure: bool = True, timing: bool = False, **arguments: Any
    ) -> Array:
        """A view of `x` with the given engine, or with a new one made from `arguments`."""
        array: Array = given_array("x", x).view(cls)
        if not isinstance(engine, Engine):
            engine = new_engine(arguments | ({"engine": engine} if engine else {}), measure, timing)
        array.engine = engine
        return array

    def __array_finalize__(self, source: Any) -> None:
        self.engine = getattr(source, "engine", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [_plain(x) if isinstance(x, Array) else x for x in inputs]
        outs = options.get("out")
        if outs is not None:
            options["out"] = tuple(_plain(x) if isinstance(x, Array) else x for x in outs)
        engine = _of(inputs)
        if ufunc is np.matmul and method == "__call__" and engine is not None:
            result = engine.matmul(ufunc, *plain, **options)
        else:
            result = getattr(ufunc, method)(*plain, **options)
        if outs is not None:
            return outs[0] if len(outs) == 1 else outs
        return _wrapped(result, engine)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        name, engine = self._FUNCTIONS.get(func), _of(args)
        if name is None or engine is None:
            return super().__array_function__(func, types, args, kwargs)
        plain = [_plain(x) if isinstance(x, Array) else x for x in args]
        return _wrapped(getattr(engine, name)(func, *plain, **kwargs), engine)

    def dot(self, b: Any, out: Any = None) -> Any:
        """numpy.dot through the engine."""
        return np.dot(self, b, out) if out is not None else np.dot(self, b)


def _of(operands: Any) -> Engine | None:
    return next(
        (operand.engine for operand in operands if isinstance(operand, Array) and operand.engine is not None), None
    )


def _wrapped(value: Any, engine: Engine | None) -> Any:
    if isinstance(value, tuple):
        return tuple(_wrapped(x, engine) for x in value)
    if engine is None or not isinstance(value, np.ndarray) or not _is_float(value.dtype):
        return value
    return Array(value, engine=engine)
