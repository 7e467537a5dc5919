"""The tiled GEMM kernel of GPUs: global memory, shared memory, matrix unit, epilogue; parametrised by family."""
