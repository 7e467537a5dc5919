"""Sources of the kernels; those that a GPU's programs are compiled from are installed."""
