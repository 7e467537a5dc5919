"""Functions of single numbers as Triton's compiler lowers them: `tl.exp`, `tl.sqrt`, a quotient.

The module knows which operation of Triton's dialect a function is, and asks the compiler for its PTX; it knows no
interpreter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.cuda_math import CudaMath
from hwsim.devices.device import Device
from hwsim.devices.special_functions import special_functions
from hwsim.errors import UnsupportedError
from hwsim.frameworks.triton.compiler import function_ptx
from hwsim.frameworks.triton.ptx import PtxFunction, steps_of
from hwsim.frameworks.triton.targets import TritonTarget

Single = NDArray[np.float32]
#: The interpreter's builder calls, without create_: the operation, and how many numbers it takes.
OPERATIONS = {
    "exp": ("math.exp", 1),
    "exp2": ("math.exp2", 1),
    "log": ("math.log", 1),
    "log2": ("math.log2", 1),
    "sin": ("math.sin", 1),
    "cos": ("math.cos", 1),
    "erf": ("math.erf", 1),
    "sqrt": ("math.sqrt", 1),
    "precise_sqrt": ("tt.precise_sqrt", 1),
    "rsqrt": ("math.rsqrt", 1),
    "floor": ("math.floor", 1),
    "ceil": ("math.ceil", 1),
    "fdiv": ("arith.divf", 2),
    "approx_divf": ("tt.approx_divf", 2),
    "precise_divf": ("tt.precise_divf", 2),
}
EXTERN = '{libname = "", libpath = "", pure = true, symbol = "%s"}'  # a function of libdevice


class Functions:
    """The functions of a device, of fp32 arrays: OPERATIONS, and libdevice's by their symbols."""

    def __init__(self, device: Device, target: TritonTarget) -> None:
        self._device, self._target = device, target
        self._evaluators: dict[str, PtxFunction | None] = {}

    def __call__(self, name: str, inputs: list[NDArray[Any]]) -> Single | None:
        """The results; None where hwsim does not know the chip's bits."""
        if name not in self._evaluators:
            self._evaluators[name] = _evaluator(name, len(inputs), self._device, self._target)
        evaluator = self._evaluators[name]
        if evaluator is None:
            return None
        try:
            arrays = np.broadcast_arrays(*inputs)
            return evaluator([np.ascontiguousarray(x) for x in arrays]).reshape(arrays[0].shape)
        except UnsupportedError:
            return None


def _evaluator(name: str, inputs: int, device: Device, target: TritonTarget) -> PtxFunction | None:
    try:
        math = CudaMath(special_functions(device))
        return PtxFunction(steps_of(_ptx(name, inputs, target)), math)
    except UnsupportedError:
        return None


@lru_cache(256)
def _ptx(name: str, inputs: int, target: TritonTarget) -> str:
    operation, count = OPERATIONS.get(name, ("", inputs))
    return function_ptx(operation or "tt.extern_elementwise", count, target, "" if operation else EXTERN % name)
