"""Sources of the recorder, which hwsim.golden.recorder builds with nvcc: a generator of kernels, and what they include."""
