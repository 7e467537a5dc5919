"""Triton kernels on a simulated device: `tl.dot` with the bits of a chip, without a GPU.

with hwsim.triton.emulate(device="h100") as run:   # TRITON_INTERPRET=1 before Triton is imported
    kernel[grid](...)
print(run.report())                                # dots, multiply-adds, errors, cycles of the matrix unit

Needs the extra `triton`.
"""

from hwsim.errors import UnsupportedError

try:
    import triton as _triton
except ModuleNotFoundError as error:
    if error.name != "triton":
        raise
    raise UnsupportedError("hwsim.triton needs Triton: pip install 'hwsim[triton]'") from None

from hwsim.frameworks.triton.dot_counts import DotRecord, TritonEmulation, emulate

del _triton

__all__ = ["DotRecord", "TritonEmulation", "emulate"]
