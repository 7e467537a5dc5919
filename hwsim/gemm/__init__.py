"""What one GEMM is, as data: problem, plan of a scheme, order of summation, options, resolved record."""
