"""The experiments that measure the claims of lab/hwsim_lab/configs/papers/tf32-tf64.yaml."""

from __future__ import annotations

from hwsim_lab.papers.experiment import Experiment
from hwsim_lab.papers.tf32_tf64 import chips, definitions, double, instructions, single, speed

EXPERIMENTS: tuple[Experiment, ...] = (
    *chips.EXPERIMENTS,
    *definitions.EXPERIMENTS,
    *instructions.EXPERIMENTS,
    *speed.EXPERIMENTS,
    *single.EXPERIMENTS,
    *double.EXPERIMENTS,
)
