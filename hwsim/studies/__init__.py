"""Studies: error metrics, inputs, sweeps and the papers' experiments."""
