"""Arrays of a backend that are no NumPy arrays, as those of a GPU are not: they answer NumPy's functions and operators,
and become NumPy arrays, or meet them in one operation, only where they are asked to.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from hwsim.backend.cpu import CPU
from hwsim.numerics.dot_operands import DotOperands

METHODS = ("astype", "max", "min", "all", "any", "copy", "ravel", "reshape", "sum", "swapaxes", "transpose", "view")
VALUES = ("dtype", "flags", "itemsize", "nbytes", "ndim", "shape", "size", "strides")


class DeviceArray(NDArrayOperatorsMixin):
    """An array that NumPy's functions dispatch on (NEP 13 and 18). host: where its elements are in truth."""

    def __init__(self, host):
        self.host = host

    def __array__(self, *given, **more):
        raise TypeError("an array of the device does not become a NumPy array by itself")

    def __array_ufunc__(self, ufunc, method, *inputs, **more):
        return on_device(getattr(ufunc, method)(*map(_own, inputs), **_each(more, _own)))

    def __array_function__(self, function, types, args, more):
        return on_device(function(*_each(args, _own), **_each(more, _own)))

    def __getitem__(self, at):
        return on_device(self.host[_each(at, _index)])

    def __setitem__(self, at, value):
        self.host[_each(at, _index)] = _own(value)

    def take(self, index, axis):
        return on_device(self.host.take(_index(index), axis))

    def __len__(self):
        return len(self.host)

    def __bool__(self):
        return bool(self.host)

    def __float__(self):
        return float(self.host)

    def __getattr__(self, name):
        if name in VALUES:
            return getattr(self.host, name)
        if name in METHODS:
            method = getattr(self.host, name)
            return lambda *args, **more: on_device(method(*_each(args, _own), **_each(more, _own)))
        raise AttributeError(f"an array of the device has no {name}")


class DeviceBackend:
    """The CPU's operations on such arrays; arguments of the host are an error. operations: their names."""

    name, variant, variants, calls_at_once = "device", CPU.variant, CPU.variants, 1

    def __init__(self, operations):
        for name in operations:
            setattr(self, name, _on_arrays_of_the_device(getattr(CPU, name)))
        self.from_host, self.to_host, self.result = on_device, to_host, to_host


def _on_arrays_of_the_device(operation):
    def computed(*args, **more):
        return on_device(operation(*_each(args, _own), **_each(more, _own)))

    return computed


def on_device(x):
    """NumPy's arrays, alone or in tuples and lists, as arrays of the device."""
    return DeviceArray(x) if isinstance(x, np.ndarray) else _each(x, on_device)


def to_host(x):
    """The other way round."""
    return x.host if isinstance(x, DeviceArray) else _each(x, to_host)


def _own(x):
    """An operand of an operation on the device, as NumPy takes it; numbers go along, arrays of the host do not."""
    if isinstance(x, np.ndarray) and x.ndim:
        raise TypeError("an array of the host meets one of the device")
    if isinstance(x, DotOperands):  # the exponents of the steps are of the host
        return _each(x._replace(scale_d=0), _own)._replace(scale_d=x.scale_d)
    return x.host if isinstance(x, DeviceArray) else _each(x, _own)


def _index(x):
    """An index: it may be an array of the host."""
    return x.host if isinstance(x, DeviceArray) else _each(x, _index)


def _each(x, change):
    if isinstance(x, tuple | list):
        made = [change(y) for y in x]
        return x._make(made) if isinstance(x, DotOperands) else type(x)(made)
    if isinstance(x, dict):
        return {name: change(value) for name, value in x.items()}
    return x
