"""The experiments that measure the claims of configs/papers/bf16x9.yaml."""

from hwsim.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
