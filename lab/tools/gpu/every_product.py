"""Every product on the GPU, however small, and how many there were: for comparisons of the engine `cuda`.

As a plugin of pytest (`HWSIM_ENGINE=cuda PYTHONPATH=lab/tools/gpu pytest -p every_product tests/golden`) it does so for
the tests. Products of several pieces move to the GPU as a whole.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from hwsim.backend.cuda import backend, on_device

#: How often the GPU computed a product, and the sums of chains.
COUNTS: Counter[str] = Counter()


def _counted(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any, **more: Any) -> Any:
        result = operation(*arguments, **more)
        COUNTS[name] += 1
        return result

    return counted


def every_product() -> None:
    """Send every product to the GPU from now on, and count those that it computed. A second call changes nothing."""
    if COUNTS:
        return
    COUNTS["calls"] = 0
    backend.LEAST_MACS = backend.LEAST_MACS_PER_BYTE = backend.LEAST_WHOLE_MACS = 0
    for module in (backend, on_device):
        for name in ("product", "add_chains"):
            setattr(module, name, _counted(name, getattr(module, name)))


def pytest_configure(config: Any) -> None:
    """A hook of pytest."""
    every_product()


def pytest_sessionfinish(session: Any) -> None:
    """A hook of pytest: each process says what its GPU computed."""
    print(f"\non the GPU: {COUNTS['product']} products, {COUNTS['add_chains']} sums of chains", file=sys.stderr)
