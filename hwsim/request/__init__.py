"""What a caller may ask for: the declared options of a GEMM, and a request made of them."""
