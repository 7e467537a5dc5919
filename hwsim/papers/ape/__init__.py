"""The experiments that measure the claims of configs/papers/ape.yaml."""

from hwsim.papers.ape import (
    applications,
    chips,
    convolution,
    magnitudes,
    rates,
    representation,
    single_products,
    speedups,
)
from hwsim.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    *representation.EXPERIMENTS,
    *rates.EXPERIMENTS,
    *single_products.EXPERIMENTS,
    *chips.EXPERIMENTS,
    *magnitudes.EXPERIMENTS,
    *speedups.EXPERIMENTS,
    *convolution.EXPERIMENTS,
    *applications.EXPERIMENTS,
)
