"""What a GEMM library answers when it is asked for a kernel, as decision trees fitted to its answers."""
