"""Error over K, over size, and over the operands' exponent.

The module knows rows of a sweep with errors, and `hwsim.run` for the one series that no sweep has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from hwsim.analysis.inputs import NORMAL, drawn
from hwsim.api import run
from hwsim.errors import HwsimError
from hwsim.report.plots.lines import ERROR, over
from hwsim.report.plots.series import SIZE, PlotRow
from hwsim.request.declarations import OPERAND_DISTRIBUTION
from hwsim.schemes import Scheme, shown_name
from hwsim.studies.sweep_pool import UNDEFINED

EXPONENTS = tuple(range(-40, 41, 4))
EXPONENT_SIZE, EXPONENT_K = 64, 256  # rows of A and columns of B, and K, of the products over the exponent


def error_over_k(rows: Iterable[PlotRow], **drawn: Any) -> Any:
    """Figure: error of each device and scheme over K. rows: of a sweep with exact: true. drawn: as of `over`."""
    return over(rows, "k", ERROR, **drawn)


def error_over_size(rows: Iterable[PlotRow], **drawn: Any) -> Any:
    """Figure: error of each device and scheme over the size, the cube root of m n k. Arguments as of `error_over_k`."""
    return over(rows, SIZE, ERROR, **drawn)


def error_over_exponent(
    device: str | Sequence[str],
    schemes: Sequence[str | Scheme],
    *,
    formats: Sequence[str] = (),
    exponents: Sequence[int] = EXPONENTS,
    size: int = EXPONENT_SIZE,
    k: int = EXPONENT_K,
    seed: int | Sequence[int] = 0,
    distribution: str | Sequence[str] = NORMAL,
    progress: Callable[[float], None] | None = None,
    **options: Any,
) -> Any:
    """Figure: error of each device, scheme and format where A and B are random, and A's elements times 2^exponent.

    size: rows of A and columns of B. distribution: of the elements, as `operand_distribution` of `hwsim.run`;
    several are lines or panels. options: of `hwsim.run`. Products that are infinite or NaN are named below the figure.
    Raises as `hwsim.run` where nothing runs.
    """
    devices = [device] if isinstance(device, str) else list(device)
    seeds = [seed] if isinstance(seed, int) else list(seed)
    listed: list[str | None] = [*formats] or [None]
    rows = exponent_rows(
        devices,
        [(scheme, form, {} if form is None else {"format": form}) for scheme, form in product(schemes, listed)],
        exponents=exponents,
        size=size,
        k=k,
        seeds=seeds,
        distributions=[distribution] if isinstance(distribution, str) else distribution,
        progress=progress,
        options=options,
    )
    return over_exponent(rows)


def over_exponent(rows: Iterable[PlotRow], **drawn: Any) -> Any:
    """Figure of rows as `exponent_rows` gives them; drawn: as of `over`."""
    return over(rows, "exponent", ERROR, **drawn)


def exponent_rows(
    devices: Sequence[str],
    schemes: Sequence[tuple[str | Scheme, str | None, Mapping[str, Any]]],
    *,
    exponents: Sequence[int] = EXPONENTS,
    size: int = EXPONENT_SIZE,
    k: int = EXPONENT_K,
    seeds: Sequence[int] = (0,),
    distributions: Sequence[str] = (NORMAL,),
    progress: Callable[[float], None] | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """A row for each device, scheme, distribution, seed and exponent; `refused` says why one has no error, and
    `undefined_elements` how many elements of C are infinite or NaN.

    schemes: each with its format (None: the scheme's own) and its options; of these, input_format is the operands'
    own, fp32 or fp64. Raises as `hwsim.run` where all are refused.
    """
    ways = list(product(devices, schemes, distributions, seeds))
    rows: list[dict[str, Any]] = []
    error: HwsimError | None = None
    for index, (device, (scheme, form, of_way), distribution, seed) in enumerate(ways):
        named = {**(options or {}), **of_way}
        dtype = np.float64 if named.pop("input_format", None) == "fp64" else np.float32
        a, b = (side.astype(dtype) for side in drawn(size, size, k, seed, "fp32", distribution))
        shown = {"device": device, "scheme": shown_name(scheme)}
        way = {**shown, "format": form, OPERAND_DISTRIBUTION: distribution, "seed": seed, "m": size, "n": size, "k": k}
        for at, exponent in enumerate(exponents):
            with np.errstate(over="ignore", under="ignore"):  # what leaves the range is infinite or zero
                scaled = np.ldexp(a, exponent)
            try:
                measures = run(scaled, b, device=device, scheme=scheme, timing=False, **named).error
            except HwsimError as refusal:
                error = refusal
                refused = " ".join(str(refusal).split())
                rows.append(way | {"exponent": exponent, ERROR: None, UNDEFINED: None, "refused": refused})
                break
            value = None if measures is None else measures.relative_frobenius
            finite = None if measures is None else measures.finite
            values = {
                ERROR: value,
                "memory_format": "fp64" if dtype == np.float64 else "fp32",
                UNDEFINED: None if finite is None else finite.undefined,
            }
            rows.append(way | {"exponent": exponent, **values, "refused": None})
            if progress is not None:
                progress((index + (at + 1) / len(exponents)) / len(ways))
    if error is not None and all(row[ERROR] is None for row in rows):
        raise error
    return rows
