"""Dot units: what a matrix unit does with numbers, as data (`units`) and as readable integers (`reference`).

One module per model (fused, exact, fma_chain, pairwise, two_level, integer, block_scaled, composite), all made
of the stages in `terms`. Nothing here knows a device or time.
"""
