"""Dataflows: one per architecture family turns the record of a GEMM into a program for a device of that family.

davinci and davinci_separated (Ascend) write their kernels themselves; the families of GPUs (sm70, sm80, sm90, sm100,
cdna) are descriptions of one tiled kernel. A dataflow knows records and devices; it does not know how a scheme splits,
which bits come out, or cycles.
"""
