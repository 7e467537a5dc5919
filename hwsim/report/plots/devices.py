"""Devices beside each other: peaks by format, and roofs with the points of runs under them.

The module knows device files and results; it runs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hwsim.devices import load
from hwsim.errors import InputError
from hwsim.report.plot_style import line_style, new_panels
from hwsim.report.text.compare_text import peak_tflops

if TYPE_CHECKING:
    from hwsim.result import Result

LOW, HIGH = 1.0, 1e5  # FLOP/byte
NEAR = 0.01  # relative: points that lie over each other


def device_bars(devices: Sequence[str], formats: Sequence[str] | None = None) -> Any:
    """Figure: the peak of each format (all that two of the devices have, but for `formats`) on each device, TFLOP/s."""
    chips = [load(name) for name in devices]
    peaks = peaks_by_device(devices)
    names = list(formats or dict.fromkeys(name for of_device in peaks.values() for name in of_device))
    names = [name for name in names if any(name in of_device for of_device in peaks.values())]
    if not names:
        raise InputError(f"{', '.join(devices)}: no rate of {', '.join(formats or ('any format',))} is known")
    width = 0.8 / len(chips)
    panels = new_panels(
        "peak of the matrix units", "operand format", "TFLOP/s (TOP/s of integers)", width=2 + 0.9 * len(names)
    )
    (axes,) = panels.axes
    for index, chip in enumerate(chips):
        at = [place + index * width for place, name in enumerate(names) if name in peaks[chip.name]]
        values = [peaks[chip.name][name] for name in names if name in peaks[chip.name]]
        axes.bar(at, values, width, label=chip.name, color=line_style(index, 0)["color"])
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(names))], names)
    axes.set_yscale("log")
    return panels.finish()


def peaks_by_device(devices: Sequence[str]) -> dict[str, dict[str, float]]:
    """The peak of each native format whose rate is known, TFLOP/s, by device."""
    return {
        chip.name: {name: peak for name, native in chip.native.items() if (peak := peak_tflops(chip, native))}
        for chip in map(load, devices)
    }


def rooflines(
    devices: Sequence[str], format: str | Sequence[str], results: Iterable[Result] | Mapping[str, Iterable[Result]] = ()
) -> Any:
    """Figure: attainable rate over work per byte of HBM on each device, and results as points; a panel for each format.

    results: of the only format, or by format. One that moves no byte of HBM has no place; it is named below. Raises
    InputError where no device has both a rate of a format and HBM's rate.
    """
    formats = [format] if isinstance(format, str) else list(format)
    names = [""] if len(formats) == 1 else formats
    title = f"roofline, {formats[0]}" if len(formats) == 1 else "roofline"
    panels = new_panels(title, "work per byte of HBM, FLOP/byte", "TFLOP/s", names)
    by_format = results if isinstance(results, Mapping) else {formats[0]: results}
    points = {name: list(of_format) for name, of_format in by_format.items()}
    schemes = list(dict.fromkeys(result.scheme for of_format in points.values() for result in of_format))
    missing, unplaced = [], []
    for axes, name in zip(panels.axes, formats, strict=True):
        drawn: list[tuple[float, float]] = []
        for index, device in enumerate(devices):
            chip = load(device)
            peak = peak_tflops(chip, chip.native[name]) if name in chip.native else None
            if peak is None or chip.hbm is None:
                missing.append(f"{chip.name}, {name}")
                continue
            rate = chip.hbm.bytes_per_second / 1e12
            look = line_style(index, 0, (len(devices) - 1 - index, 0)) | {"marker": ""}  # equal roofs are all seen
            label = f"{chip.name}: {peak:,.4g} TFLOP/s" if len(formats) == 1 else chip.name
            axes.plot([LOW, peak / rate, HIGH], [LOW * rate, peak, peak], label=label, **look)
        for result in points.get(name, ()):
            point = result.roofline
            run_of = f"{result.device}, {result.scheme}, {result.m} x {result.n} x {result.k}"
            if point is None or not point.hbm_bytes:
                unplaced.append(run_of)
                continue
            colour = [load(device).name for device in devices].index(result.device)
            look = line_style(colour, schemes.index(result.scheme)) | {"linestyle": "", "markersize": 8}
            here = (point.intensity, point.achieved)
            below = sum(all(map(_is_near, there, here)) for there in drawn)
            drawn.append(here)
            look |= {"markersize": 8 + 4 * below, "fillstyle": "none"} if below else {}  # a ring around the others
            axes.plot([point.intensity], [point.achieved], label=run_of, **look)
        axes.set(xscale="log", yscale="log", xlim=(LOW, HIGH))
    if not any(len(axes.lines) for axes in panels.axes):
        raise InputError(f"{', '.join(devices)}: none has a known rate of {', '.join(formats)} and of HBM")
    left_out = {"no known rate": missing, "not drawn, no byte from or to HBM": unplaced}
    return panels.finish("\n".join(f"{why}: {'; '.join(names)}" for why, names in left_out.items() if names))


def _is_near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=NEAR)
