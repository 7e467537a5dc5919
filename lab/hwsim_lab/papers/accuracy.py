"""Errors of every scheme on every device that runs it, for the same inputs, with a plain FP32 chain for comparison.

The reference is the product of the operands that a scheme takes (rounded to fp32, or fp64 as they are), to 104 bits.
The caller passes the product function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis import exact_product, inputs
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.plan import Mixed
from hwsim.gemm.problem import Problem
from hwsim.schemes import schemes

Array = NDArray[Any]
EDGE, DEPTH = 32, 1024
CONDITIONED = 160  # m = n = k of the generator, as in BF16x9; its first EDGE rows and columns are taken
SPANS = (10, 40)
CONDITIONS = (1e1, 1e2, 1e3, 1e4, 1e5, 1e6)
CHAIN = "FP32 chain"
NORMWISE, ELEMENTWISE = "relative_frobenius", "mean_relative"


@dataclass(frozen=True, eq=False)
class Inputs:
    """A pair of fp64 matrices. metric: the error metric that the table shows for them."""

    name: str
    a: Array
    b: Array
    metric: str = NORMWISE

    def operands(self, format: str) -> tuple[Array, Array]:
        """The operands as a scheme takes them: fp64, or rounded to fp32."""
        return (self.a, self.b) if format == "fp64" else (self.a.astype(np.float32), self.b.astype(np.float32))


@dataclass(frozen=True, slots=True)
class Method:
    """A scheme with its arguments, or a native format.

    takes: the format of its operands. times: whether its bits depend on the device's times (through its choices).
    """

    name: str
    arguments: Mapping[str, Any]
    takes: str
    times: bool = False


@dataclass(frozen=True, slots=True)
class AccuracyPoint:
    """Errors by metric of one scheme on one device for one pair of matrices, and the metric that the table shows."""

    device: str
    scheme: str
    inputs: str
    metric: str
    errors: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The point as plain data; errors that are not finite (overflow) are None."""
        errors = {name: x if math.isfinite(x) else None for name, x in self.errors.items()}
        return {"device": self.device, "scheme": self.scheme, "inputs": self.inputs, "errors": errors}


def all_inputs(edge: int = EDGE, depth: int = DEPTH, conditions: Iterable[float] = CONDITIONS) -> list[Inputs]:
    """The inputs of the table: m = n = edge and k = depth, and the ill-conditioned ones."""
    rng = np.random.default_rng(1)
    shapes = (edge, depth), (depth, edge)
    found = [
        Inputs("N(0, 1)", rng.standard_normal(shapes[0]), rng.standard_normal(shapes[1])),
        Inputs("[-1, 1]", rng.uniform(-1, 1, shapes[0]), rng.uniform(-1, 1, shapes[1])),
    ]
    found += [Inputs(f"2^±{span}", *inputs.spread_normal(edge, edge, depth, 2, span)) for span in SPANS]
    for condition in conditions:
        a, b = inputs.conditioned(CONDITIONED, 3, condition)
        found.append(Inputs(f"cond {condition:.0e}".replace("e+0", "e"), a[:edge], b[:, :edge], ELEMENTWISE))
    return found


def methods(device: Any) -> list[Method]:
    """Native floating-point formats of the device, and all schemes of floating-point operands."""
    chip = load(device)
    found = [
        Method(f"native {name}", {"format": name}, "fp64" if name == "fp64" else "fp32")
        for name in chip.native
        if not format_of(name).is_integer
    ]
    for name, scheme in schemes().items():
        if name != "native" and not scheme.input_formats[0].startswith("int"):
            takes = scheme.input_formats[0]
            plan = scheme.plan(scheme.complete({}), Problem.of(takes, 1, 1, 1))
            found.append(Method(name, {"scheme": scheme}, takes, isinstance(plan, Mixed)))
    return found


def arithmetic(device: Any) -> str:
    """Everything that fixes the bits on a device: units, instructions, vector unit, memories (through the tile's K)."""
    chip = load(device)
    parts = chip.model_dump_json(
        include={"family", "default_format", "dot_units", "matrix_instructions", "native", "vector", "memories"},
        exclude={"matrix_instructions": {"__all__": {"timing"}}, "vector": {"overhead_cycles", "cycles_per_repeat"}},
    )
    return str(parts)


def errors_of(a: Array, b: Array, exact: tuple[Array, Array], computed: Array) -> dict[str, float]:
    """Errors by metric; exact: the product as a pair of doubles.

    l1, l2, linf: norms of the error over those of A and B (TF32/TF64, 3.1); undefined where C overflows.
    """
    high, low = exact
    with np.errstate(all="ignore"):
        difference = (high - np.asarray(computed, np.float64)) + low
        norms = {
            name: float(np.linalg.norm(difference, order) / (np.linalg.norm(a, order) * np.linalg.norm(b, order)))
            if np.isfinite(difference).all()
            else math.nan
            for name, order in (("l1", 1), ("l2", 2), ("linf", np.inf))
        }
        relative = np.abs(difference[high != 0] / high[high != 0])
        whole = float(np.linalg.norm(difference) / np.linalg.norm(high))
    return {NORMWISE: whole, ELEMENTWISE: float(relative.mean()), "max_relative": float(relative.max())} | norms


def table(
    matmul: Callable[..., Array],
    chain: Callable[[Array, Array], Array],
    devices: Sequence[str],
    given: Sequence[Inputs],
    names: Iterable[str] = (),
    progress: Callable[[float], None] | None = None,
) -> Iterator[AccuracyPoint]:
    """Yield the points, the plain FP32 chain first. names: only these schemes (a native format as "native fp16").

    matmul(a, b, device=, scheme= or format=): the product function. chain(a, b): plain fp32.
    """
    exact: dict[tuple[str, str], tuple[Array, Array]] = {}
    wanted = set(names)
    known: dict[tuple[str, str, str], dict[str, float]] = {}  # devices of the same arithmetic give the same bits

    def measured(x: Inputs, format: str, computed: Array) -> dict[str, float]:
        a, b = (y.astype(np.float64) for y in x.operands(format))
        if (x.name, format) not in exact:
            exact[x.name, format] = exact_product.product(a, b)
        return errors_of(a, b, exact[x.name, format], computed)

    for x in given:
        yield AccuracyPoint("any", CHAIN, x.name, x.metric, measured(x, "fp32", chain(*x.operands("fp32"))))
    for done, name in enumerate(devices):
        chip = load(name)
        bits = arithmetic(chip)
        for method in methods(chip):
            if wanted and method.name not in wanted:
                continue
            try:
                for x in given:
                    key = (name if method.times else bits, method.name, x.name)
                    if key not in known:
                        c = matmul(*x.operands(method.takes), device=chip, **method.arguments)
                        known[key] = measured(x, method.takes, c)
                    yield AccuracyPoint(name, method.name, x.name, x.metric, known[key])
            except (UnsupportedError, InputError):
                continue  # not on this device; `hwsim schemes --device` says why
        if progress is not None:
            progress((done + 1) / len(devices))


def markdown(points: Iterable[AccuracyPoint]) -> str:
    """The points as a Markdown table: one row for each scheme and group of devices with the same errors, one column per
    input.
    """
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for point in points:
        error = point.errors[point.metric]
        rows.setdefault((point.scheme, point.device), {})[point.inputs] = (
            f"{error:.1e}" if math.isfinite(error) else "overflow"
        )
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (scheme, device), row in rows.items():
        alike.setdefault((scheme, tuple(row.get(name, "") for name in columns)), []).append(device)
    order = list(dict.fromkeys(scheme for scheme, _ in rows))
    lines = ["| scheme | devices | " + " | ".join(columns) + " |", "| --- | --- |" + " ---: |" * len(columns)]
    for (scheme, cells), devices in sorted(alike.items(), key=lambda item: order.index(item[0][0])):
        lines.append(f"| {scheme} | {', '.join(devices)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
