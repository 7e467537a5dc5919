"""Speed of the functional kernels beside NumPy's float32 product in the same process, one host thread each.

Rates of one process only compare with each other; machines are shared and differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim._kernels import gemm, variant
from hwsim._kernels.convert import encode
from hwsim.devices import dot_spec
from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.devices.model import Device


@dataclass(frozen=True, slots=True)
class Rate:
    """GMAC/s of one unit at size^3, and as a share of NumPy's float32 product at that size."""

    device: str
    format: str
    instruction: str
    model: str
    kernel: str
    threads: int
    size: int
    gmac_per_second: float
    numpy_gmac_per_second: float

    @property
    def ratio(self) -> float:
        """Of NumPy's rate."""
        return self.gmac_per_second / self.numpy_gmac_per_second

    def to_dict(self) -> dict[str, Any]:
        """All fields and the ratio."""
        return asdict(self) | {"ratio": self.ratio}


def rates(devices: list[Device], *, size: int = 1024, threads: int = 1, seconds: float = 1.0) -> Iterator[Rate]:
    """Time the native unit of every format of `devices` on N(0, 1) operands; best of several within `seconds` each."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, size, size), np.float32)
    plain = size**3 / _best(lambda: a @ b, seconds) / 1e9
    for device in devices:
        for format, instruction in device.native.items():
            spec = dot_spec(device, instruction)
            scale = 32 if format_of(spec.a).is_integer else 1  # fills the range of small integers
            left, right = (encode(x * np.float32(scale), format_of(f)) for x, f in ((a, spec.a), (b, spec.b)))

            def product(spec: Any = spec, left: Any = left, right: Any = right) -> object:
                return gemm(spec, left, right, threads=threads)

            rate = size**3 / _best(product, seconds) / 1e9
            yield Rate(device.name, format, instruction, spec.unit.model, variant, threads, size, rate, plain)


def _best(work: Callable[[], object], seconds: float) -> float:
    """Shortest time of one call, in seconds."""
    end = time.perf_counter() + seconds
    best = float("inf")
    work()
    while True:
        start = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best
