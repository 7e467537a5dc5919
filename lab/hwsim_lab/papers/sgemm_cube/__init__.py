"""The experiments that measure the claims of lab/hwsim_lab/configs/papers/sgemm-cube.yaml."""

from hwsim_lab.papers.experiment import Experiment
from hwsim_lab.papers.sgemm_cube import accuracy, blocking, chips, speed, splitting

EXPERIMENTS: tuple[Experiment, ...] = (
    *chips.EXPERIMENTS,
    *splitting.EXPERIMENTS,
    *blocking.EXPERIMENTS,
    *accuracy.EXPERIMENTS,
    *speed.EXPERIMENTS,
)
