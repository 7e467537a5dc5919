"""What cuBLAS's kernels take, as fitted to recorded GEMMs."""
