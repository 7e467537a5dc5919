"""One resolved product for many operands of its shapes and formats, as a training step repeats it.

Resolving a request, though its record is kept, costs more than a small product. The module knows resolved records and
arrays; it does not know how a request is resolved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hwsim.environment import in_default_environment
from hwsim.operands import operand, to_common_format
from hwsim.product import Arrays, compute

if TYPE_CHECKING:
    from hwsim.resolve.resolver import Resolved

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A resolved product, called with each pair of operands. It keeps no operand data.

    taken: the format that both operands are converted to. lead: leading dimensions of the product. input_format,
    format: as given to `hwsim.run`, which say whose codes unsigned arrays hold. threads: of the host.
    """

    resolved: Resolved
    taken: str
    lead: tuple[int, ...]
    input_format: str | None
    format: str | None
    threads: int

    @in_default_environment
    def __call__(self, a: Array, b: Array, c: Array | None = None, bias: Array | None = None) -> Array:
        """The product of a (..., m, k) and b (..., k, n), of the shapes and dtypes that it was made for; c (..., m, n)
        and bias (n,) where it was made with them. Raises InputError for a c or bias of another shape.
        """
        left, right = (
            operand(name, x, input_format=self.input_format, format=self.format) for name, x in (("A", a), ("B", b))
        )
        left, right = (x.converted(self.taken) for x in to_common_format(left, right))
        arrays = Arrays(left, right, self.lead, c, bias)
        return compute(self.resolved, arrays, by_program=False, threads=self.threads, progress=None)[0]
