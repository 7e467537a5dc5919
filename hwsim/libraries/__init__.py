"""GEMM libraries: the model of their data, what each runs for a call, and recording one on a GPU."""
