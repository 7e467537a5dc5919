"""Arithmetic of a device on arrays: elementwise lanes, scaled accumulators, exact sums, operand order within
instructions.
"""
