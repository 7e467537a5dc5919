"""Arrays of the GPU that answer NumPy's functions and operators (NEP 13 and 18), as a backend's arrays have to.

Their memory is CuPy's, as unsigned integers, whatever their dtype is: CuPy's own arithmetic on floats takes subnormal
numbers for zeros. Functions that move elements run on the GPU; every other one is NumPy's, on the host, whose bits they
have. The module knows memory; it knows no format and no unit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from hwsim.backend.cuda.device import cupy, to_gpu
from hwsim.host.arrays import lies_on_gpu


class Flags(NamedTuple):
    """How an array of the GPU lies in memory, by NumPy's names. CuPy has no flag for writing: all may be written."""

    c_contiguous: bool
    f_contiguous: bool
    writeable: bool = True


class GpuArray(NDArrayOperatorsMixin):
    """An array of the GPU. memory: CuPy's, of unsigned integers as wide as dtype."""

    is_of_a_backend = True  # hwsim.host.arrays leaves it where it is

    def __init__(self, memory: Any, dtype: Any) -> None:
        self.memory, self.dtype = memory, np.dtype(dtype)

    # --- what it is --------------------------------------------------------------------------------------------------

    shape = property(lambda self: self.memory.shape)
    ndim = property(lambda self: self.memory.ndim)
    size = property(lambda self: self.memory.size)
    strides = property(lambda self: self.memory.strides)
    itemsize = property(lambda self: self.memory.itemsize)
    nbytes = property(lambda self: self.memory.nbytes)
    flags = property(lambda self: Flags(self.memory.flags.c_contiguous, self.memory.flags.f_contiguous))
    T = property(lambda self: self.transpose())

    def get(self) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        host: np.ndarray[Any, Any] = self.memory.get()
        return host.view(self.dtype)

    @property
    def typed(self) -> Any:
        """The memory as CuPy's array of the dtype; of a dtype that CuPy has not, of unsigned integers."""
        return self.memory.view(self.dtype) if self.dtype.kind in "biuf" and self.dtype.isbuiltin == 1 else self.memory

    def __len__(self) -> int:
        return len(self.memory)

    def __bool__(self) -> bool:
        return bool(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __array__(self, *args: Any, **more: Any) -> Any:
        raise TypeError("an array of the GPU does not become NumPy's by itself; take its .get()")

    def __dlpack__(self, **more: Any) -> Any:
        return self.typed.__dlpack__(**more)

    def __dlpack_device__(self) -> Any:
        return self.memory.__dlpack_device__()

    # --- elements that move ------------------------------------------------------------------------------------------

    def __getitem__(self, at: Any) -> GpuArray:
        return GpuArray(self.memory[_place(at)], self.dtype)

    def __setitem__(self, at: Any, value: Any) -> None:
        self.memory[_place(at)] = on_gpu(value).astype(self.dtype).memory

    def view(self, dtype: Any) -> GpuArray:
        """The same memory as another dtype."""
        return GpuArray(self.memory.view(word_of(np.dtype(dtype))), dtype)

    def reshape(self, *shape: Any, order: str = "C") -> GpuArray:
        """The elements in another shape."""
        return GpuArray(self.memory.reshape(*shape, order=order), self.dtype)

    def ravel(self, order: str = "C") -> GpuArray:
        """The elements in one axis."""
        return GpuArray(self.memory.ravel(order), self.dtype)

    def transpose(self, *axes: Any) -> GpuArray:
        """Another order of axes."""
        return GpuArray(self.memory.transpose(*axes), self.dtype)

    def swapaxes(self, first: int, second: int) -> GpuArray:
        """Two axes in each other's place."""
        return GpuArray(self.memory.swapaxes(first, second), self.dtype)

    def copy(self, order: str = "C") -> GpuArray:
        """The elements in memory of their own."""
        return GpuArray(self.memory.copy(order), self.dtype)

    def take(self, index: Any, axis: int | None = None) -> GpuArray:
        """Elements at places along an axis."""
        return GpuArray(self.memory.take(_place(index), axis), self.dtype)

    def astype(self, dtype: Any, order: str = "K", copy: bool = True, **more: Any) -> GpuArray:
        """The values as another dtype."""
        if np.dtype(dtype) != self.dtype:
            other: GpuArray = _by_host(np.ndarray.astype, (self, dtype), more)
            return other
        lies_so = order == "K" or (self.flags.c_contiguous if order == "C" else self.flags.f_contiguous)
        return GpuArray(self.memory.copy(order), self.dtype) if copy or not lies_so else self

    def any(self, **more: Any) -> GpuArray:
        """Whether an element is true."""
        return _truth(self.memory.any(**more)) if self.dtype.kind in "bu" else _by_host(np.any, (self,), more)

    def all(self, **more: Any) -> GpuArray:
        """Whether each element is true."""
        return _by_host(np.all, (self,), more) if self.dtype != np.bool_ else _truth(self.memory.all(**more))

    def max(self, *args: Any, **more: Any) -> Any:
        """The largest element."""
        return _by_host(np.max, (self, *args), more)

    def min(self, *args: Any, **more: Any) -> Any:
        """The least element."""
        return _by_host(np.min, (self, *args), more)

    def sum(self, *args: Any, **more: Any) -> Any:
        """The sum of elements."""
        return _by_host(np.sum, (self, *args), more)

    # --- NumPy's functions -------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        if ufunc is np.bitwise_and and method == "__call__" and not more and _are_words(inputs):
            return GpuArray(cupy().bitwise_and(*(getattr(x, "memory", x) for x in inputs)), self.dtype)
        return _by_host(getattr(ufunc, method), inputs, more)

    def __array_function__(self, function: Any, types: Any, args: Any, more: Any) -> Any:
        return (MOVING.get(function) or _of_host(function))(*args, **more)


def _are_words(inputs: tuple[Any, ...]) -> bool:
    """Whether arguments are arrays and scalars of one unsigned type: CuPy computes these as NumPy does."""
    types = {x.dtype if isinstance(x, GpuArray | np.generic) else None for x in inputs}
    return len(types) == 1 and all(dtype is not None and dtype.kind == "u" for dtype in types)


def word_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The unsigned integers of a dtype's width."""
    return np.dtype(f"u{dtype.itemsize}")


def on_gpu(x: Any) -> GpuArray:
    """An array, NumPy's or one that another library holds on a GPU, or a number, as an array of the current GPU: itself
    where it is one, and without a copy where it lies there.
    """
    if isinstance(x, GpuArray):
        return x
    gpu = cupy()
    if not isinstance(x, gpu.ndarray):
        if not lies_on_gpu(x):
            return _moved(np.asarray(x))
        x = gpu.from_dlpack(x)
    if x.device != gpu.cuda.Device():
        x = gpu.array(x)  # of another GPU
    return GpuArray(x.view(word_of(x.dtype)), x.dtype)


def _moved(x: np.ndarray[Any, Any]) -> GpuArray:
    return GpuArray(
        to_gpu(x.view(word_of(x.dtype)) if x.ndim else x.reshape(1).view(word_of(x.dtype))).reshape(x.shape), x.dtype
    )


def _truth(memory: Any) -> GpuArray:
    return GpuArray(memory.view(np.uint8), np.bool_)


def _place(at: Any) -> Any:
    """An index as CuPy takes it."""
    if isinstance(at, tuple):
        return tuple(map(_place, at))
    if isinstance(at, GpuArray):
        return at.typed
    return cupy().asarray(at) if isinstance(at, np.ndarray | list) else at


def _each(x: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(x, tuple | list):
        return type(x)(change(y) for y in x)
    return {name: change(value) for name, value in x.items()} if isinstance(x, dict) else x


def _down(x: Any) -> Any:
    return x.get() if isinstance(x, GpuArray) else _each(x, _down)


def _up(x: Any) -> Any:
    return _moved(x) if isinstance(x, np.ndarray) else _each(x, _up)


def _by_host(function: Callable[..., Any], args: Any, more: dict[str, Any]) -> Any:
    """A function of NumPy's on the host. out: is filled on the GPU."""
    out = more.pop("out", None)
    (target,) = out if isinstance(out, tuple) else (out,)
    result = _up(function(*_down(tuple(args)), **_down(more)))
    if target is None:
        return result
    target[...] = result
    return target


def _of_host(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **more: _by_host(function, args, more)


def _broadcast_to(x: Any, shape: Any, **more: Any) -> GpuArray:
    return GpuArray(cupy().broadcast_to(on_gpu(x).memory, shape), x.dtype)


def _expand_dims(x: GpuArray, axis: Any) -> GpuArray:
    return GpuArray(cupy().expand_dims(x.memory, axis), x.dtype)


def _stack(arrays: Any, axis: int = 0, **more: Any) -> GpuArray:
    wide = [on_gpu(x) for x in arrays]
    dtype = np.result_type(*(x.dtype for x in wide))
    return GpuArray(cupy().stack([x.astype(dtype, copy=False).memory for x in wide], axis), dtype)


def _copyto(target: GpuArray, source: Any, **more: Any) -> None:
    if more:
        raise TypeError("copyto of arrays of the GPU takes no further arguments")
    target[...] = source


def _like(make: str) -> Callable[..., GpuArray]:
    def like(x: GpuArray, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> GpuArray:
        kind = x.dtype if dtype is None else np.dtype(dtype)
        return GpuArray(getattr(cupy(), make)(x.shape if shape is None else shape, word_of(kind)), kind)

    return like


def _where(condition: Any, *sides: Any) -> Any:
    """Of arrays and numbers; numbers count in the arrays' dtype."""
    dtypes = {x.dtype for x in sides if isinstance(x, GpuArray)}
    if len(sides) != 2 or len(dtypes) != 1 or not isinstance(condition, GpuArray):
        return _by_host(np.where, (condition, *sides), {})
    (dtype,) = dtypes
    if any(np.result_type(x.dtype if isinstance(x, GpuArray) else x, dtype) != dtype for x in sides):
        return _by_host(np.where, (condition, *sides), {})
    left, right = (on_gpu(x if isinstance(x, GpuArray) else np.asarray(x, dtype)).memory for x in sides)
    return GpuArray(cupy().where(condition.typed, left, right), dtype)


def _result_type(*args: Any) -> np.dtype[Any]:
    return np.result_type(*(x.dtype if isinstance(x, GpuArray) else x for x in args))


MOVING: dict[Any, Callable[..., Any]] = {
    np.any: lambda x, axis=None, **more: x.any(axis=axis, **more),
    np.all: lambda x, axis=None, **more: x.all(axis=axis, **more),
    np.broadcast_to: _broadcast_to,
    np.copyto: _copyto,
    np.empty_like: _like("empty"),
    np.expand_dims: _expand_dims,
    np.result_type: _result_type,
    np.shape: lambda x: x.shape,
    np.stack: _stack,
    np.where: _where,
    np.zeros_like: _like("zeros"),
}
