"""cuBLAS as a library of hwsim: its answers, the order in which its kernels add, and what they take."""
