"""One GEMM as data: problem, plan of a scheme, order of summation, mapping, options, and the resolved record."""
