"""The experiments that measure the claims of configs/papers/ape.yaml."""

from hwsim.papers.ape import (
    chips,
    hybrid_times,
    magnitudes,
    masks,
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
    *hybrid_times.EXPERIMENTS,
    *masks.EXPERIMENTS,
)
