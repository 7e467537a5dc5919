"""Error over K, over size, and over the operands' exponent.

The module knows rows of a sweep with errors, and `hwsim.run` for the one series that no sweep has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from hwsim.api import run
from hwsim.errors import HwsimError
from hwsim.report.plot_style import line_style, new_axes
from hwsim.report.plots.series import PlotRow, lines_of, shared

ERROR = "relative_frobenius"
ERROR_LABEL = "error, Frobenius norm, relative to the exact product"


def error_over_k(rows: Iterable[PlotRow]) -> Any:
    """Figure: error of each device and scheme over K. rows: of a sweep with exact: true."""
    return _over(list(rows), "k", "K, products in each dot product")


def error_over_size(rows: Iterable[PlotRow]) -> Any:
    """Figure: error of each device and scheme over the size, the cube root of m n k. rows: as of error_over_k."""
    return _over(list(rows), "size", "size, cube root of m n k")


def _over(rows: list[PlotRow], x: str, label: str) -> Any:
    figure, axes = new_axes(f"error: {shared(rows)}", label, ERROR_LABEL)
    for index, (name, points) in enumerate(lines_of(rows, x, ERROR).items()):
        axes.plot(*zip(*points, strict=True), label=name, **line_style(index))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.legend()
    return figure


def error_over_exponent(
    device: str,
    schemes: Sequence[str],
    *,
    exponents: Sequence[int] = tuple(range(-40, 41, 4)),
    size: int = 64,
    k: int = 256,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Any:
    """Figure: error of each scheme where A's elements are N(0, 1) times 2^exponent, B's N(0, 1): the range of a scheme.

    size: rows of A and columns of B. options: of `hwsim.run`. Products that are infinite or NaN are left out. Raises as
    `hwsim.run` where no scheme runs.
    """
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((size, k), (k, size)))
    figure, axes = new_axes(
        f"error over the operands' range: {device}, {size} x {size}, K = {k}",
        "binary exponent that A's elements are scaled by",
        ERROR_LABEL,
    )
    refused: HwsimError | None = None
    for index, scheme in enumerate(schemes):
        points = []
        for at, exponent in enumerate(exponents):
            try:
                measures = run(np.ldexp(a, exponent), b, device=device, scheme=scheme, timing=False, **options).error
            except HwsimError as error:
                refused = error
                break
            value = None if measures is None else measures.get(ERROR)
            if value is not None and np.isfinite(value) and value > 0:
                points.append((exponent, float(value)))
            if progress is not None:
                progress((index + (at + 1) / len(exponents)) / len(schemes))
        if points:
            axes.plot(*zip(*points, strict=True), label=scheme, **line_style(index))
    if not axes.lines and refused is not None:
        raise refused
    axes.set_yscale("log")
    axes.legend()
    return figure
