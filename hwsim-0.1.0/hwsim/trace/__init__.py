"""Traces of the timing machine, and their writers (Perfetto, CSV, NumPy)."""
