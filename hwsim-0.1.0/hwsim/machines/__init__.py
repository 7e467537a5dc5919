"""Machines: interpreters of programs. `functional` computes bits, `timing` computes cycles; neither knows the other."""
