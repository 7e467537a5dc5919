"""One resolved product for many operands of its shapes and formats, as a training step repeats it.

Resolving a request, though its record is kept, costs more than a small product. The module knows resolved records and
arrays; it does not know how a request is resolved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from hwsim.backend.environment import in_default_environment
from hwsim.compute.bits import Arrays, compute
from hwsim.formats import format_of
from hwsim.gemm.plan import Side
from hwsim.operands.operand import Operand, operand_pair, to_common_format
from hwsim.operands.powers import encoded
from hwsim.request.operands import quantized_pair, scaled_pair
from hwsim.request.options import FORMAT_B
from hwsim.resolve.resolved import Resolved
from hwsim.schemes import Scheme

AnyArray = NDArray[Any]
NO_SCALES = (None, None, None)
UNSCALED = (0, 0)  # exponents of the powers of two that A and B are multiplied by


@dataclass(frozen=True, slots=True)
class Prepared:
    """A resolved product, called with each pair of operands. It keeps no operand data.

    taken: the format that both operands are converted to. lead: leading dimensions of the product. input_format,
    format: as given to `hwsim.run`, which say whose codes unsigned arrays hold. threads: of the host. quantizer: the
    scheme, where it quantises each pair of operands; scheme_options: its options.
    """

    resolved: Resolved
    taken: str
    lead: tuple[int, ...]
    input_format: str | None
    format: str | None
    threads: int
    quantizer: Scheme | None = None
    scheme_options: Mapping[str, Any] = field(default_factory=dict)

    @in_default_environment
    def __call__(
        self,
        a: AnyArray,
        b: AnyArray,
        c: AnyArray | None = None,
        bias: AnyArray | None = None,
        exponents: tuple[int, int] = UNSCALED,
        scales: Sequence[Any] = NO_SCALES,
    ) -> AnyArray:
        """The product of a (..., m, k) and b (..., k, n), of the shapes and dtypes that it was made for; c (..., m, n)
        and bias (n,) where it was made with them. exponents: of powers of two by which a and b, finite fp32 arrays
        where theirs is not 0, are multiplied first. scales:
        scale_a, scale_b and tensor_scales, as of hwsim.run. Raises InputError for a c or bias of another shape.
        """
        of_b = self.scheme_options.get(FORMAT_B)
        left, right = operand_pair(a, b, input_format=self.input_format, format=self.format, format_b=of_b)
        is_scaled = any(x is not None for x in scales)
        if is_scaled or self.quantizer is not None:
            if is_scaled:
                left, right = scaled_pair(left, right, *scales)
            else:
                assert self.quantizer is not None
                left, right = quantized_pair(left, right, self.quantizer, self.scheme_options)
            arrays = Arrays(left, right, self.lead, c, bias)
            return compute(self.resolved, arrays, by_program=False, threads=self.threads, progress=None)[0]
        left, right = to_common_format(left, right)
        left, right = self._converted(left, "a", exponents[0]), self._converted(right, "b", exponents[1])
        arrays = Arrays(left, right, self.lead, c, bias)
        return compute(self.resolved, arrays, by_program=False, threads=self.threads, progress=None)[0]

    def _converted(self, x: Operand, side: Side, exponent: int) -> Operand:
        """An operand in the format that is taken, or, multiplied by a power of two, in the unit's own."""
        backend = self.resolved.backend
        x = x.on(backend)
        if not exponent:
            return x.converted(self.taken, backend)
        if x.format == self.taken:
            return self.resolved.evaluator.scaled(x, side, exponent, self.threads)
        target = format_of(self.taken)
        return Operand(encoded(x.array, exponent, target, threads=self.threads, backend=backend), self.taken)
