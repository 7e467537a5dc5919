"""The experiments that measure the claims of configs/papers/sgemm-cube.yaml."""

from hwsim.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
