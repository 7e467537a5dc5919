"""Programs whose BLAS products run on a simulated device: `hwsim blas -- program`.

A small library without Python (kernels_ext/blas/shim.c) takes the products before the program's own BLAS does, and
sends them to a server in hwsim's process.
"""
