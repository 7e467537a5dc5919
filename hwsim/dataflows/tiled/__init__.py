"""The tiled GEMM kernels of GPUs: global memory, shared memory, matrix unit, epilogue."""
