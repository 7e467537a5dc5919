"""The experiments that measure the claims of configs/papers/ape.yaml."""

from hwsim.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
