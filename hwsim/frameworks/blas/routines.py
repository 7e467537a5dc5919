"""Which routines of a program's BLAS run on a simulated device.

It knows names and types of BLAS, and whether a product keeps the type of its operands; it knows no connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from hwsim.errors import HwsimError, InputError, nearest

if TYPE_CHECKING:
    from hwsim.frameworks.numpy.emulation import Engine

TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
OF_REAL = ("gemm", "gemv", "dot", "syrk")
OF_COMPLEX = (*OF_REAL, "herk")
NAMES = tuple([kind + routine for kind in TYPES for routine in (OF_COMPLEX if kind in "cz" else OF_REAL)])
DOUBLES = ("d", "z")
SIZES = (3, 5, 4)  # m, n, k of a product that tells the type of its result


@dataclass
class RoutineChoice:
    """The routines that run on the device.

    engine: computes a product that tells the type of its result. patterns: of names, as sgemm or d*; none: all whose
    products come in a type as long as their own. Raises InputError for a pattern that names no routine.
    """

    engine: Engine
    patterns: Sequence[str] = ()
    _reasons: dict[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            if not any(fnmatchcase(name, pattern) for name in NAMES):
                raise InputError(
                    f"--routines: '{pattern}' names no routine; allowed: names such as sgemm, or patterns, as d* or "
                    f"*gemm{nearest(pattern, NAMES)}; all: {', '.join(NAMES)}"
                )

    def why_left_out(self, name: str) -> str:
        """Why calls of a routine stay with the program's own BLAS; "" for one that runs on the device."""
        if self.patterns:
            is_named = any(fnmatchcase(name, pattern) for pattern in self.patterns)
            return "" if is_named else f"not in --routines {','.join(self.patterns)}"
        if name[0] not in DOUBLES:
            return ""
        if name not in self._reasons:
            self._reasons[name] = self._of_doubles(name)
        return self._reasons[name]

    def _of_doubles(self, name: str) -> str:
        m, n, k = SIZES
        try:
            result = self.engine.result_dtype(np.ones((m, k)), np.ones((k, n)))
        except HwsimError:
            return ""  # the product says why it does not run
        if result == np.float64:
            return ""
        return f"the device's product comes in {result.name}, not in float64; --routines '{name}' takes it all the same"
