"""Measured and simulated times of kernels as text, data and a plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hwsim.errors import InputError, UnsupportedError
from hwsim.report.text.words import facts, plural, table

if TYPE_CHECKING:
    from hwsim.studies.measured import ComparedKernel, MeasuredComparison

PLOTS = (".svg", ".png", ".pdf")
SIZES = ("m", "n", "k")
LONGEST = 40  # characters of a kernel's name in the table
HEAD = ("kernel", "shape", "measured us", "simulated us", "error %")


def measured_text(found: MeasuredComparison) -> str:
    """The report: one line per kernel, then the agreement of all, then the kernels that have no simulated time."""
    lines = table([_cells(one) for one in found.kernels], HEAD, right=(2, 3, 4), indent="")
    count = len(found.pairs)
    library = "" if found.library is None else f", library {found.library}"
    pairs = [("compared", f"{plural(count, 'kernel')} on {found.device}{library}")]
    if found.mean_absolute_error is not None and found.median_absolute_error is not None:
        mean, median = 100 * found.mean_absolute_error, 100 * found.median_absolute_error
        pairs.append(("error", f"mean {mean:.1f} %, median {median:.1f} % (absolute)"))
    if found.log_correlation is not None:
        pairs.append(("correlation", f"{found.log_correlation:.4f} of the logarithms (Pearson)"))
    refused: dict[str, int] = {}
    for one in found.kernels:
        if one.refused:
            refused[one.refused] = refused.get(one.refused, 0) + 1
    pairs += [("not simulated", f"{plural(number, 'kernel')}: {reason}") for reason, number in refused.items()]
    if found.without_gemm:
        names = ", ".join(f"{name} ({number})" for name, number in found.without_gemm.items())
        pairs.append(("no GEMM known", f"{plural(sum(found.without_gemm.values()), 'kernel')}: {names}"))
    return "\n".join([*lines, "", *facts(pairs)])


def _cells(one: ComparedKernel) -> tuple[str, ...]:
    name, gemm = one.measured.name, _gemm(one)
    shown = name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
    words = [f"{value}" if key in ("format", "scheme") else f"{key}={value}" for key, value in gemm.items()]
    sizes = "x".join(str(gemm[size]) for size in SIZES)
    shape = " ".join([sizes, *(word for key, word in zip(gemm, words, strict=True) if key not in SIZES)])
    simulated = "" if one.simulated_seconds is None else f"{one.simulated_seconds * 1e6:,.2f}"
    error = "" if one.error is None else f"{100 * one.error:+.1f}"
    return shown, shape, f"{one.measured.seconds * 1e6:,.2f}", simulated, error


def _gemm(one: ComparedKernel) -> Mapping[str, Any]:
    assert one.measured.gemm is not None  # compare_measured keeps the others apart
    return one.measured.gemm


def measured_dict(found: MeasuredComparison) -> dict[str, Any]:
    """The comparison ready for JSON: times in us, errors in percent."""
    mean, median = found.mean_absolute_error, found.median_absolute_error
    return {
        "schema": "hwsim.compare/1",
        "device": found.device,
        "library": found.library,
        "kernels": [
            {
                "kernel": one.measured.name,
                "where": one.measured.where,
                "gemm": dict(_gemm(one)),
                "measured_us": one.measured.seconds * 1e6,
                "simulated_us": None if one.simulated_seconds is None else one.simulated_seconds * 1e6,
                "error_percent": None if one.error is None else 100 * one.error,
                "refused": one.refused or None,
            }
            for one in found.kernels
        ],
        "compared": len(found.pairs),
        "mean_absolute_error_percent": None if mean is None else 100 * mean,
        "median_absolute_error_percent": None if median is None else 100 * median,
        "log_correlation": found.log_correlation,
        "without_gemm": dict(found.without_gemm),
    }


def check_measured_plot(path: Path) -> None:
    """Raise InputError for another suffix than those of `PLOTS`, UnsupportedError without matplotlib."""
    if path.suffix.lower() not in PLOTS:
        raise InputError(f"--plot {path}: allowed: a name that ends in {', '.join(PLOTS)}")
    _figure_class()


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError as error:
        raise UnsupportedError("--plot needs matplotlib: pip install 'hwsim[plot]'") from error
    return Figure


def write_measured_plot(found: MeasuredComparison, file: IO[bytes], suffix: str) -> None:
    """Write simulated over measured time, both in us on logarithmic axes, with the line where they are equal. suffix:
    one of `PLOTS`. Kernels with a simulated time of 0 are left out. Raises UnsupportedError without matplotlib.
    """
    figure = _figure_class()(figsize=(5.2, 5.0), layout="constrained")
    axes = figure.add_subplot()
    pairs = found.pairs_above_zero
    measured, simulated = ([1e6 * pair[i] for pair in pairs] for i in (0, 1))
    times = [*measured, *simulated] or [1.0]
    low, high = min(times) / 1.5, max(times) * 1.5
    axes.plot([low, high], [low, high], color="0.5", linewidth=1, label="equal")
    axes.scatter(measured, simulated, s=18, label=plural(len(pairs), "kernel"), zorder=2)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set(xlabel="measured, us", ylabel="simulated, us", title=found.device)
    axes.legend()
    figure.savefig(file, format=suffix.lower().removeprefix("."), dpi=150)
