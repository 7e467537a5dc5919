"""What Ape says of chips and of integers (its sections 2 and 4.4): formats, peaks, memories, integer sums.

It knows device files and runs integer GEMMs beside NumPy's; none of the paper's numbers.
"""

from __future__ import annotations

import numpy as np

from hwsim.api import matmul
from hwsim.devices import load
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale
from hwsim_lab.papers.rates import peak_tflops, takes
from hwsim_lab.papers.splits import Array, products
from hwsim_lab.papers.splits import SchemeSplit as Split

CLAIMS = (
    "sec2-1-ascend-910a", "sec2-1-cloud-brain", "sec2-2-format-support", "sec2-2-int32-accumulator",
    "sec4-4-int16-split", "sec4-4-int16-exact",
)  # fmt: skip
NPU, GPU = "ascend910a", "a100"
A100_FORMATS = ("fp16", "bf16", "tf32", "fp64", "int8", "int4", "int1", "fp32")


def supported(device: str, formats: tuple[str, ...]) -> list[int]:
    """1 for each format that the matrix unit takes, else 0."""
    return [int(takes(device, name)) for name in formats]


def wrong_int8(device: str) -> int:
    """Elements of an INT8 GEMM that are not the exact integers."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((64, 4096), (4096, 64)))
    a[:16], b[:, :16] = -128, -128
    return different(matmul(a, b, device=device, format="int8"), a, b)


def wrong_int16(device: str) -> int:
    """Elements of an emulated INT16 GEMM that are not the integers modulo 2^32."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(1 << 15), 1 << 15, (256, 256)).astype(np.int16) for _ in range(2))
    return different(matmul(a, b, device=device, scheme="ape-int16", accumulate="int32"), a, b)


def different(got: Array, a: Array, b: Array) -> int:
    """Elements other than those of the product of integers, as int32."""
    return int((got.astype(np.int64) != (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)).sum())


def parts_differ() -> int:
    """INT16 numbers that are not 256 times the high part plus the low one, in the scheme's default split on the GPU."""
    every = np.arange(-(1 << 15), 1 << 15).astype(np.int16)[:, None]
    one = np.ones((1, 1), np.int16)
    return int((matmul(every, one, device=GPU, scheme="ape-int16").astype(np.int64) != every.astype(np.int64)).sum())


def measure(scale: Scale) -> Found:
    """Device files, and integer GEMMs."""
    chip = load(NPU)
    fp16 = peak_tflops(NPU, "fp16")
    plan = Split("ape-int16", GPU, (("low_byte", "unsigned"),)).plan
    measured: dict[str, dict[str, Quantity]] = {
        "sec2-1-ascend-910a": {
            "fp16": fp16,
            "int8": peak_tflops(NPU, "int8"),
            "capacity": float(chip.hbm.capacity_bytes) / 2**30 if chip.hbm is not None else 0.0,
            "bandwidth": float(chip.hbm.bytes_per_second) / 1e9 if chip.hbm is not None else 0.0,
            "fp64": int(takes(NPU, "fp64")),
        },
        "sec2-1-cloud-brain": {"peak": 4096 * fp16 / 1e6},
        "sec2-2-format-support": {
            **{name: supported(name, ("fp16", "bf16", "tf32")) for name in ("v100", "t4")},
            "a100": supported(GPU, A100_FORMATS), "ascend": supported(NPU, ("fp16", "int8")),
        },
        "sec2-2-int32-accumulator": {"wrong_a100": wrong_int8(GPU), "wrong_ascend": wrong_int8(NPU)},
        "sec4-4-int16-split": {
            "parts": len(plan.a_pieces), "products": len(products(plan)), "different": parts_differ(),
        },
        "sec4-4-int16-exact": {"wrong_a100": wrong_int16(GPU), "wrong_ascend": wrong_int16(NPU)},
    }  # fmt: skip
    lacks = "hwsim's A100 has no entries for INT4 and INT1, whose results nobody recorded."
    return Found(measured, {"sec2-2-format-support": lacks})


EXPERIMENTS = (Experiment("chips", CLAIMS, measure, {"quick": 5, "full": 5}),)
