"""Sources that hwsim.golden.recorder builds with nvcc: a generator of kernels, and the header that they include."""
