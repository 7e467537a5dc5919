"""The experiments that measure the claims of lab/hwsim_lab/configs/papers/bf16x9.yaml."""

from hwsim_lab.papers.bf16x9 import (
    accuracy_bounds,
    accuracy_range,
    accuracy_schemes,
    applications_accuracy,
    applications_speed,
    circuit_contraction,
    cluster_energies,
    condition_sweep,
    definitions,
    exponent_maps,
    ising_tree,
    pieces,
    power,
    scaling,
    special_products,
    spectral_transform,
    speed,
)
from hwsim_lab.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    *speed.EXPERIMENTS,
    *scaling.EXPERIMENTS,
    *power.EXPERIMENTS,
    *applications_speed.EXPERIMENTS,
    *circuit_contraction.EXPERIMENTS,
    *definitions.EXPERIMENTS,
    *pieces.EXPERIMENTS,
    *special_products.EXPERIMENTS,
    *condition_sweep.EXPERIMENTS,
    *exponent_maps.EXPERIMENTS,
    *spectral_transform.EXPERIMENTS,
    *ising_tree.EXPERIMENTS,
    *cluster_energies.EXPERIMENTS,
    *applications_accuracy.EXPERIMENTS,
    *accuracy_bounds.EXPERIMENTS,
    *accuracy_schemes.EXPERIMENTS,
    *accuracy_range.EXPERIMENTS,
)
