"""Microbenchmarks of a Hopper GPU: how long its instructions, transfers and launches take."""
