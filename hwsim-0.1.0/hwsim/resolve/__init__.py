"""Resolution of a request into the record of a GEMM: scheme, instructions, order of summation, mapping."""
