"""Spectral round trips on the sphere: Legendre transform and FFT to the grid and back, a thousand times over.

A weather model does this every step. The Legendre transforms of all orders are one product with a block-diagonal
matrix, which goes to the matrix unit; the FFT is NumPy's. Exact arithmetic gives the coefficients back. Claims: with
bf16x9 their error after a thousand rounds is below 2e-4, less than that of one round with FP16; after one round bf16x9
is as good as plain FP32, but its error grows faster, up to tenfold in the end: the unit truncates as it adds and errs
to one side, round after round, where errors of rounding to nearest partly cancel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Application, Case, relative

FIELDS = 2


def transforms(truncation: int) -> tuple[Any, Any, int]:
    """Matrices (orders * latitudes, coefficients) to the grid and its inverse, and the number of latitudes.

    Orthonormal associated Legendre functions at Gauss latitudes, by the three-term recurrence.
    """
    latitudes = 3 * truncation // 2 + 1
    nodes, weights = np.polynomial.legendre.leggauss(latitudes)
    count = (truncation + 1) * (truncation + 2) // 2
    to_grid = np.zeros(((truncation + 1) * latitudes, count))
    back = np.zeros((count, (truncation + 1) * latitudes))
    column, sectoral = 0, np.full(latitudes, np.sqrt(0.5))
    for m in range(truncation + 1):
        if m:
            sectoral = -np.sqrt((2 * m + 1) / (2 * m)) * np.sqrt(1 - nodes**2) * sectoral
        below, current = np.zeros(latitudes), sectoral
        rows = slice(m * latitudes, (m + 1) * latitudes)
        for n in range(m, truncation + 1):
            to_grid[rows, column] = current
            back[column, rows] = weights * current
            column += 1
            up = np.sqrt(((n + 1) ** 2 - m**2) / (4 * (n + 1) ** 2 - 1))
            down = np.sqrt((n**2 - m**2) / (4 * n**2 - 1)) if n > m else 0.0
            below, current = current, (nodes * current - down * below) / up
    return to_grid, back, latitudes


def study(case: Case, quick: bool) -> dict[str, Any]:
    """Error of the coefficients after every round."""
    truncation, rounds = (5, 60) if quick else (10, 1000)
    to_grid, back, latitudes = transforms(truncation)
    orders, longitudes = truncation + 1, 3 * truncation + 2
    rng = np.random.default_rng(7)
    first = rng.standard_normal((to_grid.shape[1], 2, FIELDS)).astype(np.float32).astype(np.float64)
    first[:orders, 1] = 0  # order 0 is real
    coefficients, errors = first, []
    with case.products(threads=1):
        for _ in range(rounds):
            waves = np.matmul(to_grid, coefficients.reshape(-1, 2 * FIELDS)).reshape(orders, latitudes, 2, FIELDS)
            grid = np.fft.irfft(waves[:, :, 0] + 1j * waves[:, :, 1], longitudes, axis=0, norm="forward")
            waves = np.fft.rfft(grid, axis=0, norm="forward")[:orders]
            parts = np.stack([waves.real, waves.imag], axis=2).reshape(-1, 2 * FIELDS)
            coefficients = np.matmul(back, parts).reshape(first.shape)
            errors.append(relative(first, coefficients))
    return {"errors": errors}


def compare(_: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    errors = found["errors"]
    return {"after 1 round": errors[0], "after a tenth": errors[len(errors) // 10], "after all": errors[-1]}


def claims(rows: Any) -> list[tuple[str, bool]]:
    plain, own, half = rows["fp32"], rows["bf16x9"], rows["fp16"]
    return [
        ("fp64: the transforms are inverses to 1e-11", rows["fp64"]["after all"] < 1e-11),
        ("bf16x9: below 2e-4 and below one FP16 round", own["after all"] < min(2e-4, half["after 1 round"])),
        ("bf16x9: as good as FP32 after one round", own["after 1 round"] < 1.5 * plain["after 1 round"]),
        ("bf16x9: between FP32 and ten times that in the end", 1 < own["after all"] / plain["after all"] < 10),
    ]


def draw(axes: Any, rows: Any, results: Any) -> None:
    for label in rows:
        errors = results[label]["errors"]
        axes.loglog(np.arange(1, len(errors) + 1), errors, label=label)
    axes.set(xlabel="rounds", ylabel="relative error of the coefficients")
    axes.legend()


APPLICATION = Application(
    "spherical-harmonic round trips",
    ("fp64", "fp32", "fp16", "tf32x3", "ape-fp32-f", "bf16x9"),
    study,
    compare,
    claims,
    draw,
)

if __name__ == "__main__":
    raise SystemExit(APPLICATION.main())
