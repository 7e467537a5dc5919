"""The experiments that measure the claims of configs/papers/bf16x9.yaml."""

from hwsim.papers.bf16x9 import (
    accuracy_bounds,
    accuracy_range,
    accuracy_schemes,
    applications_speed,
    definitions,
    pieces,
    power,
    scaling,
    special_products,
    speed,
)
from hwsim.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    *speed.EXPERIMENTS,
    *scaling.EXPERIMENTS,
    *power.EXPERIMENTS,
    *applications_speed.EXPERIMENTS,
    *definitions.EXPERIMENTS,
    *pieces.EXPERIMENTS,
    *special_products.EXPERIMENTS,
    *accuracy_bounds.EXPERIMENTS,
    *accuracy_schemes.EXPERIMENTS,
    *accuracy_range.EXPERIMENTS,
)
