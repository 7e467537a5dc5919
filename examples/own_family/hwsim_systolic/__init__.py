"""A family for hwsim: weight-stationary systolic arrays, and one device of it, 128 x 128 processing elements."""

from pathlib import Path

from hwsim_systolic.dataflow import SYSTOLIC

DEVICE = Path(__file__).with_name("wsa128.yaml")

__all__ = ["DEVICE", "SYSTOLIC"]
