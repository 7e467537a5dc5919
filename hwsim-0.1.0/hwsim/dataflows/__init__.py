"""Dataflows: one per architecture family; each maps the record of a GEMM onto a device of that family and writes its
program.

davinci and davinci_separated (Ascend) have kernels of their own; the GPU families (sm70, sm80, sm90, sm100, cdna) are
parametrisations of one tiled kernel. A dataflow knows records and devices; it knows neither a scheme's split, nor bits,
nor cycles.
"""
