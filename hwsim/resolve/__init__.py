"""From a request to the one resolved record of a GEMM: scheme, units, order of summation, mapping."""
