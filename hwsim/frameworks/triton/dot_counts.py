"""`with hwsim.triton.emulate(device=...)`: Triton kernels in the interpreter, their dots with the bits of a chip.

The module knows devices and what was asked; hwsim.frameworks.triton.compiler asks Triton, .tile computes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import triton.language
from numpy.typing import NDArray
from triton.runtime.interpreter import InterpretedFunction

from hwsim.analysis.running_error import RunningError
from hwsim.devices.device import Device
from hwsim.devices.loader import load
from hwsim.devices.query import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.frameworks.triton.compiler import (
    least_dot_size,
    lowered,
    module_map,
    target_options,
)
from hwsim.frameworks.triton.dot_errors import error_of
from hwsim.frameworks.triton.dot_question import DotQuestion
from hwsim.frameworks.triton.dot_text import MLIR_TYPES, SCALED_TYPES
from hwsim.frameworks.triton.elementwise import OPERATIONS, Functions
from hwsim.frameworks.triton.interpreter import hooked
from hwsim.frameworks.triton.reductions import ThreadSums, sites_of
from hwsim.frameworks.triton.targets import target_of
from hwsim.frameworks.triton.tile import LoweredDot
from hwsim.frameworks.triton.ttgir import parsed
from hwsim.frameworks.triton.whole_kernel import calls_of, ttgir_of

Codes = NDArray[Any]
EVERY = 64  # dots of a kind: one of them is measured
SUMS = {"sum", "cumsum", "cumprod", "softmax", "reduce", "associative_scan"}  # calls whose order threads decide


@dataclass
class DotRecord:
    """Dots of one kind. dots: calls of tl.dot. macs: multiply-adds as written, a scheme's further products not counted.
    cycles: of the matrix unit of one core for all products; None where the device gives no rate. errors: of measured
    dots, ||got - fp64|| / ||fp64||.
    """

    instruction: str
    products: int
    dots: int = 0
    macs: int = 0
    cycles: float | None = 0.0
    errors: RunningError = field(default_factory=RunningError, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        names = ("instruction", "products", "dots", "macs", "cycles")
        return {**{name: getattr(self, name) for name in names}, "error": self.errors.mean}


class TritonEmulation:
    """What `emulate` yields: the device, and the dots of the kernels that ran."""

    def __init__(self, device: Device, measure_every: int) -> None:
        self.device, self.target = device, target_of(device)
        self.has_ptx = device.compute_capability is not None
        self.dots: dict[DotQuestion, DotRecord] = {}
        self.not_simulated: Counter[str] = Counter()  # calls that have the interpreter's bits, by name
        self._every = measure_every
        self._functions = Functions(device, self.target)
        self._kernels: dict[Any, str] = {}
        self._reductions: ThreadSums | None = None
        self._lowered: dict[DotQuestion, LoweredDot] = {}

    def report(self) -> str:
        """A table of the kinds of dots: tile, formats, instruction, dots, multiply-adds, error, cycles of the unit."""
        lines = [f"Triton on {self.device.name} ({self.target.backend}:{self.target.arch})"]
        head = ("tile", "formats", "precision", "instruction", "products", "dots", "MACs", "error", "cycles")
        rows = [head]
        for question, record in self.dots.items():
            tile = "x".join(map(str, (*question.d_shape, question.k)))
            formats = f"{' x '.join(question.formats)} -> {question.d_type}"
            error = "-" if record.errors.mean is None else f"{record.errors.mean:.3g}"
            cycles = "-" if record.cycles is None else f"{record.cycles:,.0f}"
            numbers = (str(record.products), f"{record.dots:,}", f"{record.macs:,}", error, cycles)
            precision = question.input_precision if "fp32" in question.formats else "-"  # it is of fp32 alone
            rows.append((tile, formats, precision, record.instruction, *numbers))
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        lines += [f"not simulated: {name}, {count:,} calls" for name, count in self.not_simulated.items()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        kinds = [{**asdict(question), **record.to_dict()} for question, record in self.dots.items()]
        return {
            "device": self.device.name,
            "target": f"{self.target.backend}:{self.target.arch}",
            "dots": kinds,
            "not_simulated": dict(self.not_simulated),
        }

    def options(self, num_warps: int) -> Any:
        """The target's options."""
        return target_options(self.target, num_warps)

    def modules(self) -> Any:
        """The target's modules in the place of Triton's own, by name."""
        return module_map(self.target)

    def least_size(self, num_warps: int) -> Any:
        """The target's least M, N, K of a dot."""
        return least_dot_size(self.target, num_warps)

    def function(self, name: str, inputs: list[NDArray[Any]]) -> NDArray[Any] | None:
        """A function of fp32 numbers with the device's bits; None where hwsim does not know them."""
        return self._functions(name, inputs)

    def begin(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Find out in which order a kernel's threads sum, where it sums."""
        self._reductions = None
        if calls_of(function) & SUMS:
            with contextlib.suppress(UnsupportedError):
                text = ttgir_of(function, arguments, keywords, self.target, self._kernels)
                self._reductions = ThreadSums(sites_of(text), self.target)

    def reduced(
        self, kind: str, x: NDArray[Any], axis: int | None, reverse: bool, places: list[tuple[str, int]]
    ) -> NDArray[Any] | None:
        """A sum or scan of fp32 numbers in the order of the kernel's threads; None where hwsim does not know it."""
        return None if self._reductions is None else self._reductions(kind, x, axis, reverse, places)

    def left_out(self, name: str) -> None:
        """Count a call that has the interpreter's bits."""
        self.not_simulated[name] += 1

    def dot(self, question: DotQuestion, arrays: Mapping[str, Codes]) -> Codes:
        """Codes of c + a b as the device computes Triton's lowering of a dot. arrays: a, b, c, and a_scale, b_scale of
        a scaled dot.
        """
        known = MLIR_TYPES if question.scaling is None else SCALED_TYPES
        for name in (question.a_type, question.b_type):
            if name not in known:
                raise UnsupportedError(f"a dot of {name}: hwsim takes {', '.join(known)}")
        lowered_dot = self._lowered.get(question)
        if lowered_dot is None:
            answer = lowered(question, self.target)
            lowered_dot = self._lowered[question] = LoweredDot(self.device, parsed(answer.ttgir), answer.assembly)
        result = lowered_dot(arrays)
        self._count(question, lowered_dot, arrays, result)
        return result

    def _count(
        self, question: DotQuestion, lowered_dot: LoweredDot, arrays: Mapping[str, Codes], result: Codes
    ) -> None:
        record = self.dots.setdefault(question, DotRecord(lowered_dot.instruction, lowered_dot.dots))
        if self._every and record.dots % self._every == 0:
            error = error_of(question, arrays, result)
            if error is not None:
                record.errors.add(error)
        macs = result.size * question.k
        timing = instruction(self.device, lowered_dot.instruction).timing
        record.dots += 1
        record.macs += macs
        rate = None if timing is None else instruction(self.device, lowered_dot.instruction).macs_per_cycle
        record.cycles = (
            None if rate is None or record.cycles is None else record.cycles + lowered_dot.dots * macs / float(rate)
        )


@contextlib.contextmanager
def emulate(
    device: str | Path | Mapping[str, Any] | Device = "h100", *, processes: int = 1, measure_every: int = EVERY
) -> Iterator[TritonEmulation]:
    """Context manager: inside it Triton kernels run in Triton's interpreter, and give a device's bits.

    Set TRITON_INTERPRET=1 before Triton is imported. The kernels are untouched. Triton's own compiler says for
    each kind of dot which instruction runs, how K is cut and what is added around it; hwsim computes that by the
    device's unit from the accumulator on. On NVIDIA's chips it computes functions, sums and scans of fp32 numbers and
    fused operations by the compiler's PTX too. What has the interpreter's bits is counted in `not_simulated`.

    Args:
        device: a device that Triton has a target for.
        processes: how many run a grid; its tensors move to shared memory. The report then has no counts.
        measure_every: the error of the first and then of every so many dots of a kind is measured (0: none).

    Raises:
        InputError: the interpreter is off, an argument does not fit. UnsupportedError: a dot that hwsim cannot compute.
    """
    if processes < 1:
        raise InputError(f"processes: {processes}; allowed: 1 and more")
    if not isinstance(triton.language.zeros, InterpretedFunction):
        raise InputError(
            "Triton's interpreter is off: set TRITON_INTERPRET=1 in the environment before Triton is imported"
        )
    run = TritonEmulation(load(device), measure_every)
    with hooked(run, tuple(OPERATIONS), processes):
        yield run
