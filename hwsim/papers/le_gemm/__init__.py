"""The experiments that measure the claims of configs/papers/le-gemm.yaml."""

from hwsim.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
