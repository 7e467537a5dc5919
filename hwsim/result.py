"""The result of one run: arrays, cycles, and what they rest on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from hwsim.analysis.roofline import Roofline
    from hwsim.analysis.what_if import WhatIf
    from hwsim.trace.trace import Trace

SCHEMA = "hwsim.run/1"


@dataclass
class Result:
    """What `hwsim.run` returns.

    c: the product, (m, n) or the rows and columns asked for, stacks of them for stacks of operands; None without exact;
    codes: its bit patterns. m, n, k: of one matrix. refused: {choice: why not} of what the scheme left to the device.
    schedule:
    what fixed the bits, as `Schedule.to_dict` gives it, where no program of the device did. cycles: core clock
    cycles over all phases, None without timing (`timing_note` says why). seconds = cycles / clock, without launches
    unless they were asked for.
    phases: name, cycles, seconds of each device kernel. engines: {name: {"busy_cycles", "stall_cycles": {cause:
    cycles}}}, summed over the cores that took part. macs: {"useful", "padded"}: products of elements that the
    matrix unit forms, and those with the zeros of padded blocks. traffic_bytes by link and shared memory. evidence:
    weakest level that numerics and timing rest on, and (`schedule`) how good it is known that the vendor's library
    runs the product so.
    """

    device: str
    scheme: str
    options: dict[str, Any]
    m: int
    n: int
    k: int
    seed: int | None
    c: NDArray[Any] | None
    schedule: dict[str, Any] | None
    cycles: int | None
    seconds: float | None
    tflops: float | None
    peak_fraction: float | None
    phases: list[dict[str, Any]]
    engines: dict[str, dict[str, Any]]
    macs: dict[str, int]
    traffic_bytes: dict[str, int]
    evidence: dict[str, str]
    device_sha256: str
    kernel: str
    hwsim_version: str
    timing_note: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    _warnings: Callable[[], list[dict[str, Any]]] = field(default=list, repr=False)
    _errors: Callable[[], dict[str, Any]] | None = field(default=None, repr=False)
    _trace: Callable[[], Trace] | None = field(default=None, repr=False)
    _what_if: Callable[[], list[WhatIf]] | None = field(default=None, repr=False)
    _roofline: Callable[[], Roofline] | None = field(default=None, repr=False)

    @cached_property
    def warnings(self) -> list[dict[str, Any]]:
        """{"code", "count", "message"} of what is notable about operands and blocking; found when first asked for."""
        return self._warnings()

    @cached_property
    def error(self) -> dict[str, Any] | None:
        """relative_frobenius and max_relative against fp64, and of a plain fp32 FMA chain as `baseline`.

        Of a product in fp64 against the product to 104 bits (`rows`: of evenly spaced rows, that many of each matrix,
        where all would take long). Computed when first asked for; None without exact.
        """
        return None if self._errors is None else self._errors()

    @cached_property
    def trace(self) -> Trace | None:
        """One row per instruction of one core of each kind (None without timing); made when first asked for."""
        return None if self._trace is None else self._trace()

    @cached_property
    def what_if(self) -> list[WhatIf] | None:
        """What to speed up: cycles if one engine, link, memory or opcode took no time (None without timing).

        One more timing run for each part; made when first asked for.
        """
        return None if self._what_if is None else self._what_if()

    @cached_property
    def roofline(self) -> Roofline | None:
        """Work per byte of HBM, and what the device could attain with it (None without timing)."""
        return None if self._roofline is None else self._roofline()

    @property
    def codes(self) -> NDArray[Any] | None:
        """Bit patterns of `c`."""
        return None if self.c is None else self.c.view(f"u{self.c.dtype.itemsize}")

    @cached_property
    def result_sha256(self) -> str | None:
        """SHA-256 of C's little-endian bytes, row-major."""
        if self.c is None:
            return None
        little = np.ascontiguousarray(self.c).astype(self.c.dtype.newbyteorder("<"), copy=False)
        return hashlib.sha256(little.tobytes()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Everything but the arrays, ready for JSON."""
        names = (
            "device",
            "scheme",
            "options",
            "m",
            "n",
            "k",
            "seed",
            "schedule",
            "cycles",
            "seconds",
            "tflops",
            "peak_fraction",
            "phases",
            "error",
            "result_sha256",
            "engines",
            "macs",
            "traffic_bytes",
            "evidence",
            "warnings",
            "timing_note",
            "refused",
            "hwsim_version",
            "kernel",
            "device_sha256",
        )
        return {"schema": SCHEMA} | {name: getattr(self, name) for name in names}

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON text; numbers that JSON cannot hold (NaN, infinities) are null."""
        import json

        return json.dumps(plain(self.to_dict()), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """The same for JSON: numbers that it cannot hold (NaN, infinities) are None, keys are text, tuples lists."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
