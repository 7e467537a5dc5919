"""BF16x9 beside six products, FP16 splittings and native FP32 over all applications: Sections 1 and 6.

It knows which error of each application is taken; the applications themselves are elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from hwsim_lab.papers.bf16x9 import circuit_contraction, cluster_energies, ising_tree, spectral_transform
from hwsim_lab.papers.cells import CellCall, call
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

X9, X6, MARKIDIS, OOTOMO, NATIVE = "BF16x9", "BF16x6", "Markidis", "Ootomo", "native FP32"
#: Names in `spectral_transform`; the other applications have these names.
SPECTRAL = {X9: "x9", X6: "x6", MARKIDIS: "markidis", OOTOMO: "ootomo", NATIVE: "native"}
FIELDS = ("T", "U", "V")
SEEDS = 1  # of circuits and of the chain


def fields(setting: spectral_transform.TransformSetting, method: str) -> list[float]:
    """RMS error of temperature and wind after the last pair of transforms."""
    found = spectral_transform.errors(setting, SPECTRAL[method])
    return [found.after(setting.pairs, field) for field in FIELDS]


def amplitude(scale: Scale, method: str) -> float:
    """Median error of the circuit's amplitudes."""
    wanted = tuple(dict.fromkeys(((0, NATIVE), (0, method))))
    return circuit_contraction.errors(circuit_contraction.QUBITS[scale], SEEDS, wanted=wanted).median(0, method)


def of_applications(scale: Scale, method: str) -> list[float]:
    """Errors of T, U, V at high resolution, of amplitudes, of the chain's energy."""
    energy = ising_tree.deviations(method, ising_tree.BEFORE[scale], SEEDS)[0]
    return [*fields(spectral_transform.HIGH[scale], method), amplitude(scale, method), energy]


def chain_error(scale: Scale, method: str) -> float:
    """Error of the chain's energy, the median of all seeds."""
    return float(np.median(ising_tree.deviations(method, ising_tree.BEFORE[scale])))


def quotients(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """one / other, elementwise."""
    return [x / y for x, y in zip(one, other, strict=True)]


def measure(scale: Scale) -> Found:
    """The errors, and their quotients over native FP32's."""
    errors = {method: of_applications(scale, method) for method in (X9, X6, MARKIDIS, OOTOMO, NATIVE)}
    low = spectral_transform.LOW[scale]
    in_fields = quotients(fields(low, X9), fields(low, NATIVE)) + quotients(errors[X9], errors[NATIVE])[: len(FIELDS)]
    amplitudes, _ = quotients(errors[X9], errors[NATIVE])[len(FIELDS) :]
    clusters, chain = (
        of(X9) / of(NATIVE) for of in (partial(cluster_energies.mean_error, scale), partial(chain_error, scale))
    )
    ratio = [*in_fields, amplitudes, clusters, chain]
    measured: dict[str, dict[str, Quantity]] = {
        "intro-bf16x9-against-bf16x6-applications": {"error_x9": errors[X9], "error_x6": errors[X6]},
        "intro-bf16x9-against-fp16-applications": {
            "error_x9": errors[X9], "error_markidis": errors[MARKIDIS], "error_ootomo": errors[OOTOMO],
        },
        "section6-comparable-usually-better": {"ratio": ratio},
    }  # fmt: skip
    high = spectral_transform.HIGH[scale]
    note = (
        f"T, U and V after {high.pairs} pairs (the paper 1000), amplitudes and the chain's energy of {SEEDS} seed; "
        "settings as in the notes of the applications' own claims. "
    )
    x6 = quotients(errors[X9], errors[X6])
    notes = dict.fromkeys(measured, note)
    notes["section6-comparable-usually-better"] += (
        f"The chain's energy is the one with more than 1.2: {ratio[-1]:.2f}, the median of {ising_tree.SEEDS} seeds, "
        "which differ among themselves as much."
    )
    notes["intro-bf16x9-against-bf16x6-applications"] += (
        f"x9 over x6: {', '.join(f'{one:.2f}' for one in x6)}: what the three smallest products add is far below the "
        "rounding of the FP32 sums in which all are added."
    )
    rows = [(method, name, value) for method, own in errors.items() for name, value in zip(NAMES, own, strict=True)]
    columns = dict(zip(("method", "quantity", "error"), map(list, zip(*rows, strict=True)), strict=True))
    return Found(measured, notes, (Series("applications", columns, "quantity", "error", "method", "y"),))


def _cells(scale: Scale) -> list[CellCall]:
    every = (X9, X6, MARKIDIS, OOTOMO, NATIVE)
    high, low = spectral_transform.HIGH[scale], spectral_transform.LOW[scale]
    return [
        *(call(spectral_transform.errors, high, SPECTRAL[method]) for method in every),
        *(call(spectral_transform.errors, low, SPECTRAL[method]) for method in (X9, NATIVE)),
        *circuit_contraction.amplitude_runs(
            circuit_contraction.QUBITS[scale], SEEDS, [(0, method) for method in every]
        ),
        *ising_tree.energy_cells(scale, every, SEEDS),
        *ising_tree.energy_cells(scale, (X9, NATIVE)),
        *cluster_energies.energy_cells(scale),
    ]


NAMES = ("T", "U", "V", "amplitudes", "Ising energy")
EXPERIMENTS = (
    Experiment(
        "applications-accuracy",
        (
            "intro-bf16x9-against-bf16x6-applications", "intro-bf16x9-against-fp16-applications",
            "section6-comparable-usually-better",
        ),
        measure,
        {"quick": 40.0, "full": 4000.0},
        _cells,
    ),
)  # fmt: skip
