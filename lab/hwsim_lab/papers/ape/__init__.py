"""The experiments that measure the claims of lab/hwsim_lab/configs/papers/ape.yaml."""

from hwsim_lab.papers.ape import (
    applications,
    chips,
    circuits,
    convolution,
    gemm_errors,
    hybrid_times,
    kernel_choice,
    magnitudes,
    masks,
    rates,
    representation,
    single_products,
    speedups,
    tensor_core,
    wider_numbers,
)
from hwsim_lab.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    *representation.EXPERIMENTS,
    *rates.EXPERIMENTS,
    *single_products.EXPERIMENTS,
    *chips.EXPERIMENTS,
    *magnitudes.EXPERIMENTS,
    *speedups.EXPERIMENTS,
    *hybrid_times.EXPERIMENTS,
    *masks.EXPERIMENTS,
    *tensor_core.EXPERIMENTS,
    *gemm_errors.EXPERIMENTS,
    *kernel_choice.EXPERIMENTS,
    *circuits.EXPERIMENTS,
    *wider_numbers.EXPERIMENTS,
    *convolution.EXPERIMENTS,
    *applications.EXPERIMENTS,
)
