"""Machines: interpreters of a program. `functional` gives its bits, `timing` its cycles; neither knows the other."""
