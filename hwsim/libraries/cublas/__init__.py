"""What a GEMM library runs for a product: its choice, fitted to its answers, and the order in which its kernels add."""
