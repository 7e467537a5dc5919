"""The direct evaluator: the bits of a GEMM from its record, without a program."""
