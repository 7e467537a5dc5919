"""Triton kernels on a simulated device: `tl.dot` with the bits of a chip, without a GPU.

with hwsim.triton.emulate(device="h100") as run:   # TRITON_INTERPRET=1 before Triton is imported
    kernel[grid](...)
print(run.report())                                # dots, multiply-adds, errors, cycles of the matrix unit

Needs the extra `triton`.
"""

from hwsim.frameworks.triton import DotRecord, TritonEmulation, emulate

__all__ = ["DotRecord", "TritonEmulation", "emulate"]
