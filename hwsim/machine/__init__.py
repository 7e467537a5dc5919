"""Machines: interpreters of a program. `functional` gives bits, `timing` gives cycles; neither knows the other."""
