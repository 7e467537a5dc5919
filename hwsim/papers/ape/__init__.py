"""The experiments that measure the claims of configs/papers/ape.yaml."""

from hwsim.papers.ape import representation
from hwsim.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = representation.EXPERIMENTS
