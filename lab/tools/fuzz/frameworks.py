"""Random calls of PyTorch, JAX and NumPy on a simulated device, beside the products by hwsim.run that they stand for.

python lab/tools/fuzz/frameworks.py [--count 2000] [--first 0] [--log FILE]

A case draws a device, a scheme, a dtype, a call, shapes, strides and operands; its result, and gradients of some, are
compared bit for bit. What a call multiplies is written in `calls` from the framework's documentation and, for the order
of sums in convolutions, docs/torch.md: one product at a time, without hwsim.torch, hwsim.jax and hwsim.emulate. A NaN
need only be a NaN: a framework's own additions and casts have theirs. It needs the extra `torch`; JAX's calls are left
out where the extra `jax` is not there.
"""

import importlib.util
import random

import campaign
from calls import numpy_calls, torch_calls

#: Arguments of emulate.
SETTINGS = (
    {"device": "h200", "format": "bf16"},
    {"device": "h200"},
    {"device": "h200", "format": "tf32", "k_group": 32},
    {"device": "h200", "format": "e4m3", "accumulate": "promoted"},
    {"device": "mi300x", "format": "fp16"},
    {"device": "ascend910a"},
    {"device": "b200", "scheme": "bf16x9"},
    {"device": "ascend910a", "scheme": "sgemm-cube"},
    {"device": "a100", "scheme": "tf32x3"},
    {"device": "a100", "scheme": "ozaki-int8"},
    {"device": "v100", "scheme": "le-gemm"},
    {"device": "t4", "scheme": "egemm-tc"},
)


def case(number):
    """One case: (what came of it, what it reached)."""
    rng = random.Random(number)
    kind, settings = rng.choice(["torch"] * 6 + ["numpy", "jax"]), dict(rng.choice(SETTINGS))
    if kind == "jax" and importlib.util.find_spec("jax") is None:
        return "no jax", ()
    if kind == "jax":
        from calls import jax_calls  # a process that JAX was loaded in cannot be forked

        called = jax_calls.case(rng, number, settings)
    else:
        called = {"torch": torch_calls, "numpy": numpy_calls}[kind].case(rng, number, settings)
    words = " ".join(str(x) for name, x in settings.items() if name != "k_group")
    return "equal", [("call", f"{kind} {called[0]}", 1), ("dtype", called[1], 1), ("settings", words, 1)]


if __name__ == "__main__":
    campaign.MEMORY_BYTES = 1 << 40  # PyTorch for GPUs reserves address space that it does not use
    campaign.main("frameworks", case, __doc__.partition("\n")[0])
