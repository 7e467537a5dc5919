"""The experiments that measure the claims of configs/papers/tf32-tf64.yaml."""

from hwsim.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
