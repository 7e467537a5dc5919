"""Libraries whose kernels' order of summation is published source: DeepGEMM, CUTLASS."""
