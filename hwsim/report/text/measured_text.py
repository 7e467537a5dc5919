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


def measured_text(comparison: MeasuredComparison) -> str:
    """The report: one line per kernel, then the agreement of all, then the kernels that have no simulated time."""
    lines = table([_cells(kernel) for kernel in comparison.kernels], HEAD, right=(2, 3, 4), indent="")
    count = len(comparison.pairs)
    library = "" if comparison.library is None else f", library {comparison.library}"
    pairs = [("compared", f"{plural(count, 'kernel')} on {comparison.device}{library}")]
    if comparison.mean_absolute_error is not None and comparison.median_absolute_error is not None:
        mean, median = 100 * comparison.mean_absolute_error, 100 * comparison.median_absolute_error
        pairs.append(("error", f"mean {mean:.1f} %, median {median:.1f} % (absolute)"))
    if comparison.log_correlation is not None:
        pairs.append(("correlation", f"{comparison.log_correlation:.4f} of the logarithms (Pearson)"))
    refused: dict[str, int] = {}
    for kernel in comparison.kernels:
        if kernel.refused:
            refused[kernel.refused] = refused.get(kernel.refused, 0) + 1
    pairs += [("not simulated", f"{plural(number, 'kernel')}: {reason}") for reason, number in refused.items()]
    if comparison.without_gemm:
        names = ", ".join(f"{name} ({number})" for name, number in comparison.without_gemm.items())
        pairs.append(("no GEMM known", f"{plural(sum(comparison.without_gemm.values()), 'kernel')}: {names}"))
    return "\n".join([*lines, "", *facts(pairs)])


def _cells(kernel: ComparedKernel) -> tuple[str, ...]:
    name, gemm = kernel.measured.name, _gemm(kernel)
    shown = name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
    words = [f"{value}" if key in ("format", "scheme") else f"{key}={value}" for key, value in gemm.items()]
    sizes = "x".join(str(gemm[size]) for size in SIZES)
    shape = " ".join([sizes, *(word for key, word in zip(gemm, words, strict=True) if key not in SIZES)])
    simulated = "" if kernel.simulated_seconds is None else f"{kernel.simulated_seconds * 1e6:,.2f}"
    error = "" if kernel.error is None else f"{100 * kernel.error:+.1f}"
    return shown, shape, f"{kernel.measured.seconds * 1e6:,.2f}", simulated, error


def _gemm(kernel: ComparedKernel) -> Mapping[str, Any]:
    assert kernel.measured.gemm is not None  # compare_measured keeps the others apart
    return kernel.measured.gemm


def measured_dict(comparison: MeasuredComparison) -> dict[str, Any]:
    """The comparison ready for JSON: times in us, errors in percent."""
    mean, median = comparison.mean_absolute_error, comparison.median_absolute_error
    return {
        "schema": "hwsim.compare/1",
        "device": comparison.device,
        "library": comparison.library,
        "kernels": [
            {
                "kernel": kernel.measured.name,
                "where": kernel.measured.where,
                "gemm": dict(_gemm(kernel)),
                "measured_us": kernel.measured.seconds * 1e6,
                "simulated_us": None if kernel.simulated_seconds is None else kernel.simulated_seconds * 1e6,
                "error_percent": None if kernel.error is None else 100 * kernel.error,
                "refused": kernel.refused or None,
            }
            for kernel in comparison.kernels
        ],
        "compared": len(comparison.pairs),
        "mean_absolute_error_percent": None if mean is None else 100 * mean,
        "median_absolute_error_percent": None if median is None else 100 * median,
        "log_correlation": comparison.log_correlation,
        "without_gemm": dict(comparison.without_gemm),
    }


def check_measured_plot(path: Path) -> None:
    """Raise InputError for a suffix that is not in `PLOTS`, UnsupportedError without matplotlib."""
    if path.suffix.lower() not in PLOTS:
        raise InputError(f"--plot {path}: allowed: a name that ends in {', '.join(PLOTS)}")
    _figure_class()


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure  # optional
    except ImportError as error:
        raise UnsupportedError("--plot needs matplotlib: pip install 'hwsim[plot]'") from error
    return Figure


def write_measured_plot(comparison: MeasuredComparison, file: IO[bytes], suffix: str) -> None:
    """Write simulated over measured time, both in us on logarithmic axes, with the line where they are equal. suffix:
    one of `PLOTS`. Kernels with a simulated time of 0 are left out. Raises UnsupportedError without matplotlib.
    """
    figure = _figure_class()(figsize=(5.2, 5.0), layout="constrained")
    axes = figure.add_subplot()
    pairs = comparison.pairs_above_zero
    measured, simulated = ([1e6 * pair[i] for pair in pairs] for i in (0, 1))
    times = [*measured, *simulated] or [1.0]
    low, high = min(times) / 1.5, max(times) * 1.5
    axes.plot([low, high], [low, high], color="0.5", linewidth=1, label="equal")
    axes.scatter(measured, simulated, s=18, label=plural(len(pairs), "kernel"), zorder=2)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set(xlabel="measured, us", ylabel="simulated, us", title=comparison.device)
    axes.legend()
    figure.savefig(file, format=suffix.lower().removeprefix("."), dpi=150)
