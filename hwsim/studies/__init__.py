"""Studies: comparisons of two settings, tuning, sensitivity, sweeps and invariance."""
