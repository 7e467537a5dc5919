"""Plots of what hwsim computes, as matplotlib figures: for notebooks, for files, and for `hwsim plot` (extra `plot`).

import hwsim.plots as plots
rows = hwsim.sweep({"devices": ["h200", "b200"], "shapes": [...], "options": {"format": "bf16"}}).rows
plots.save(plots.tflops_over_size(rows), "rates.svg")
"""

from hwsim.report.plots import (
    device_bars,
    error_over_exponent,
    error_over_k,
    error_over_size,
    over,
    rooflines,
    save,
    tflops_over_size,
    tile_landscape,
)

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
