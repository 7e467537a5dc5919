"""Plots of what hwsim computes, as matplotlib figures: for notebooks, for files, and for `hwsim plot` (extra `plot`).

import hwsim.plots as plots
rows = hwsim.sweep({"devices": ["h200", "b200"], "shapes": [...], "options": {"format": "bf16"}}).rows
plots.save(plots.tflops_over_size(rows), "rates.svg")
"""

from hwsim.report.plot_style import save
from hwsim.report.plots.devices import device_bars, rooflines
from hwsim.report.plots.error_figures import error_over_exponent, error_over_k, error_over_size
from hwsim.report.plots.lines import over
from hwsim.report.plots.rates import tflops_over_size, tile_landscape

__all__ = [
    "device_bars",
    "error_over_exponent",
    "error_over_k",
    "error_over_size",
    "over",
    "rooflines",
    "save",
    "tflops_over_size",
    "tile_landscape",
]
