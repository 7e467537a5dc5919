"""Coupled-cluster energies in native FP32 and BF16x9: Section 6.3, Fig. 10.

It knows the stand-in for the water clusters, the threshold and the precisions; the equations are in `coupled_cluster`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import hwsim
from hwsim_lab.papers.bf16x9.coupled_cluster import CoupledCluster, polyene
from hwsim_lab.papers.cells import CellCall, HeldCell, call
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

DEVICE = "b200"
NATIVE, X9 = "native FP32", "BF16x9"
METHODS: dict[str, dict[str, Any]] = {NATIVE: {"format": "fp32"}, X9: {"scheme": "bf16x9"}}
ATOMS: dict[Scale, tuple[int, ...]] = {"quick": (4, 6, 8), "full": (4, 6, 8, 10, 12, 14)}
THRESHOLD = 1e-7  # hartree


@HeldCell
def energy(atoms: int, method: str | None) -> float:
    """The converged correlation energy, hartree; method None: in FP64."""
    model = polyene(atoms)
    if method is None:
        return CoupledCluster(model, np.matmul, np.float64).converged(THRESHOLD)[0]
    options = METHODS[method]
    cluster = CoupledCluster(model, lambda a, b: np.asarray(hwsim.matmul(a, b, device=DEVICE, **options)), np.float32)
    return cluster.converged(THRESHOLD)[0]


def errors(scale: Scale, method: str) -> list[float]:
    """|E - E(FP64)| / |E(FP64)| of each cluster."""
    return [abs(energy(n, method) / energy(n, None) - 1) for n in ATOMS[scale]]


def mean_error(scale: Scale, method: str) -> float:
    """The mean of the clusters."""
    return float(np.mean(errors(scale, method)))


def measure(scale: Scale) -> Found:
    """How far the energies of both precisions are apart."""
    atoms = ATOMS[scale]
    difference = [abs(energy(n, X9) - energy(n, NATIVE)) / abs(energy(n, None)) for n in atoms]
    measured: dict[str, dict[str, Quantity]] = {"fig10-energies-identical": {"difference": difference}}
    listed = "; ".join(f"{n}: {energy(n, None):.9f}, {energy(n, NATIVE):.9f}, {energy(n, X9):.9f}" for n in atoms)
    note = (
        "In place of water clusters (whose integrals need a package for them): chains of carbon atoms in the "
        "Pariser-Parr-Pople model, all contractions of spin-orbital CCSD as matrix products, amplitudes in FP32, "
        f"DIIS, threshold {THRESHOLD:g} hartree; the paper's is spin-free and t1-transformed. Correlation energies in "
        f"hartree (FP64, FP32, BF16x9) by atoms: {listed}."
    )
    columns: dict[str, list[Any]] = {
        "atoms": [n for n in atoms for _ in range(2)],
        "method": [NATIVE, X9] * len(atoms),
        "error": [x for pair in zip(errors(scale, NATIVE), errors(scale, X9), strict=True) for x in pair],
    }
    return Found(
        measured, {"fig10-energies-identical": note}, (Series("fig10", columns, "atoms", "error", "method", "y"),)
    )


def energy_cells(scale: Scale) -> list[CellCall]:
    """The runs behind `errors`, the longest first."""
    return [call(energy, n, method) for n in reversed(ATOMS[scale]) for method in (X9, NATIVE, None)]


EXPERIMENTS = (
    Experiment("cluster-energies", ("fig10-energies-identical",), measure, {"quick": 4.0, "full": 400.0}, energy_cells),
)
