"""Products of a program that repeats its shapes: each kind of operands is resolved once.

The module knows arguments of `hwsim.run`, arrays and prepared products; it knows nobody who multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.api import prepared
from hwsim.backend.by_name import backend_of
from hwsim.compute.prepared import UNSCALED
from hwsim.host.memory import keep_freed_pages
from hwsim.operands.powers import times_power

if TYPE_CHECKING:
    from hwsim.compute.prepared import Prepared
    from hwsim.gemm.record import Gemm

AnyArray = NDArray[Any]
ARRAYS = ("c", "bias", "scale_a", "scale_b", "tensor_scales")  # arguments whose values may differ from call to call
MOST_KINDS = 4096  # of operands, that products are kept ready for


@dataclass(frozen=True, slots=True)
class Ready:
    """A product for all operands of one kind (None: asked for anew each time), its time on the simulated device, and
    the record that fixes its bits.
    """

    product: Prepared | None
    cycles: int | None
    seconds: float | None
    gemm: Gemm


@dataclass(slots=True)
class Repeated:
    """What was made ready for operands of a kind: shapes, dtypes, and what varies of the arguments.

    fixed: by variant, the other arguments that it was made with.
    """

    ready: dict[Any, Ready] = field(default_factory=dict)
    fixed: dict[str, dict[str, Any]] = field(default_factory=dict)

    def product(
        self,
        a: AnyArray,
        b: AnyArray,
        fixed: Mapping[str, Any],
        varying: Mapping[str, Any],
        variant: str = "",
        exponents: tuple[int, int] = UNSCALED,
    ) -> tuple[AnyArray, Ready]:
        """The product of a (..., m, k) and b (..., k, n), and its time.

        fixed, varying: arguments of `hwsim.run`, C and the bias in either. fixed: by `variant`; where they are other
        objects than before, what is ready is made anew. exponents: of powers of two by which a and b, finite fp32
        arrays, are multiplied first (0: any arrays). Raises as `hwsim.run`.
        """
        former = self.fixed.get(variant)
        if (
            former is None
            or len(former) != len(fixed)
            or any(former.get(name, self) is not fixed[name] for name in fixed)
        ):
            self.fixed[variant] = dict(fixed)
            if former is not None:
                self.ready.clear()
        c, bias, *scales = (varying[name] if name in varying else fixed.get(name) for name in ARRAYS)
        varying_key = repr([item for item in varying.items() if item[0] not in ARRAYS])  # tells 0.0 from -0.0
        of_scales = [None if x is None else (np.shape(x), getattr(x, "dtype", None)) for x in scales]
        kind = (
            type(a),
            variant,
            a.shape,
            a.dtype,
            b.shape,
            b.dtype,
            c is None,
            bias is None,
            repr(of_scales),
            varying_key,
        )
        ready = self.ready.get(kind)
        if ready is not None and ready.product is not None:
            return ready.product(a, b, c, bias, exponents, scales), ready
        keep_freed_pages()
        a, b = (
            times_power(operand, exponent, backend=backend_of(operand)) if exponent else operand
            for operand, exponent in zip((a, b), exponents, strict=True)
        )
        result, product = prepared(a, b, **{**fixed, **varying})  # threads may be in both
        assert result.c is not None
        ready = Ready(product, result.cycles, result.seconds, result.gemm)
        if len(self.ready) >= MOST_KINDS:
            self.ready.clear()
        self.ready[kind] = ready
        return result.c, ready
