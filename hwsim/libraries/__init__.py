"""Libraries of kernels: the protocol, the model of their data, cuBLAS, and recording one on a GPU."""
