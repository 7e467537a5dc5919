"""The experiments that measure the claims of configs/papers/sgemm-cube.yaml."""

from hwsim.papers.experiment import Experiment
from hwsim.papers.sgemm_cube import accuracy, blocking, chips, speed, splitting

EXPERIMENTS: tuple[Experiment, ...] = (
    *chips.EXPERIMENTS,
    *splitting.EXPERIMENTS,
    *blocking.EXPERIMENTS,
    *accuracy.EXPERIMENTS,
    *speed.EXPERIMENTS,
)
