"""The experiments that measure the claims of lab/hwsim_lab/configs/papers/le-gemm.yaml."""

from __future__ import annotations

from hwsim_lab.papers.experiment import Experiment
from hwsim_lab.papers.le_gemm import accuracy, baselines, design, modes, speed, splits

EXPERIMENTS: tuple[Experiment, ...] = (
    *design.EXPERIMENTS,
    *splits.EXPERIMENTS,
    *speed.EXPERIMENTS,
    *baselines.EXPERIMENTS,
    *accuracy.EXPERIMENTS,
    *modes.EXPERIMENTS,
)
