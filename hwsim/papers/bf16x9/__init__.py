"""The experiments that measure the claims of configs/papers/bf16x9.yaml."""

from hwsim.papers.bf16x9 import applications_speed, power, scaling, speed
from hwsim.papers.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = (
    *speed.EXPERIMENTS,
    *scaling.EXPERIMENTS,
    *power.EXPERIMENTS,
    *applications_speed.EXPERIMENTS,
)
