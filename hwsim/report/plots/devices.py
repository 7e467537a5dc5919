"""Devices beside each other: peaks by format, and roofs with the points of runs under them.

The module knows device files and results; it runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.report.plot_style import COLOURS, line_style, new_axes
from hwsim.report.text.compare_text import peak_tflops

if TYPE_CHECKING:
    from hwsim.result import Result

LOW, HIGH = 1.0, 1e5  # FLOP/byte


def device_bars(devices: Sequence[str], formats: Sequence[str] | None = None) -> Any:
    """Figure: the peak of each format (all that two of the devices have, but for `formats`) on each device, TFLOP/s."""
    chips = [load(name) for name in devices]
    peaks = {
        chip.name: {name: peak for name, native in chip.native.items() if (peak := peak_tflops(chip, native))}
        for chip in chips
    }
    names = list(formats or dict.fromkeys(name for of_device in peaks.values() for name in of_device))
    names = [name for name in names if any(name in of_device for of_device in peaks.values())]
    if not names:
        raise InputError(f"{', '.join(devices)}: no rate of {', '.join(formats or ('any format',))} is known")
    width = 0.8 / len(chips)
    figure, axes = new_axes(
        "peak of the matrix units", "operand format", "TFLOP/s (TOP/s of integers)", width=2 + 0.9 * len(names)
    )
    for index, chip in enumerate(chips):
        at = [place + index * width for place, name in enumerate(names) if name in peaks[chip.name]]
        values = [peaks[chip.name][name] for name in names if name in peaks[chip.name]]
        axes.bar(at, values, width, label=chip.name, color=COLOURS[index % len(COLOURS)])
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(names))], names)
    axes.set_yscale("log")
    axes.legend()
    return figure


def rooflines(devices: Sequence[str], format: str, results: Iterable[Result] = ()) -> Any:
    """Figure: attainable rate over work per byte of HBM on each device in a format, and results as points.

    Raises InputError where no device has both a rate of the format and HBM's rate.
    """
    figure, axes = new_axes(f"roofline, {format}", "work per byte of HBM, FLOP/byte", "TFLOP/s")
    for name in devices:
        chip = load(name)
        peak = peak_tflops(chip, chip.native[format]) if format in chip.native else None
        if peak is None or chip.hbm is None:
            continue
        rate = chip.hbm.bytes_per_second / 1e12
        style = line_style(len(axes.lines)) | {"marker": ""}
        axes.plot(
            [LOW, peak / rate, HIGH], [LOW * rate, peak, peak], label=f"{chip.name}: {peak:,.4g} TFLOP/s", **style
        )
    if not axes.lines:
        raise InputError(f"{', '.join(devices)}: none has a known rate of {format} and of HBM")
    for index, result in enumerate(results):
        point = result.roofline
        if point is not None and point.hbm_bytes:
            style = line_style(index) | {"linestyle": "", "markersize": 8}
            label = f"{result.device} {result.scheme}, {result.m} x {result.n} x {result.k}"
            axes.plot([point.intensity], [point.achieved], label=label, **style)
    axes.set(xscale="log", yscale="log", xlim=(LOW, HIGH))
    axes.legend()
    return figure
