"""Models of dot units: what a matrix unit does with numbers, as data (`units`) and as an exact integer reference
(`reference`).

One module per model (fused, exact, fma_chain, pairwise, two_level, integer, block_scaled, composite), all built from
the stages in `terms`. Nothing here knows a device or time.
"""
