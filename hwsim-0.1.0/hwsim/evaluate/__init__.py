"""The direct evaluator: computes the bits of a GEMM from its record, without a program."""
