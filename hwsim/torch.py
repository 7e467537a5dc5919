"""PyTorch on a simulated device: the matrix products of a model, forward and backward, with the bits of a chip.

with hwsim.torch.emulate(device="b200", scheme="native", format="bf16") as run:   # eager or torch.compile
    loss = model(x).sum(); loss.backward()
print(run.report())                                     # per layer: calls, MACs, errors, overflows; what was not caught
hwsim.torch.swap(model, device="h200", library="cublas")  # modules that compute there from now on, no `with` needed
hwsim.torch.diff(model, x, "h200", "b200")              # the first product and element at which two chips part
hwsim.torch.compare(model, x, "h200", "mi300x", "plain")  # outputs: distance, KL divergence, changed answers, a page
hwsim.torch.invariance(model, x, [1, 8, 64], device="h100", library="pytorch")  # batch sizes with equal bits, by layer

Needs the extra `torch` (CPU PyTorch suffices). With engine="cuda" CUDA tensors are multiplied on their GPU.
"""

from hwsim.frameworks.torch import (
    BatchInvariance,
    Comparison,
    Emulation,
    Parting,
    compare,
    diff,
    emulate,
    invariance,
    swap,
    unswap,
)

__all__ = [
    "BatchInvariance",
    "Comparison",
    "Emulation",
    "Parting",
    "compare",
    "diff",
    "emulate",
    "invariance",
    "swap",
    "unswap",
]
