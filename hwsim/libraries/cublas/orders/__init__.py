"""How cuBLAS's kernels add over K, one module for each kind of kernel."""
