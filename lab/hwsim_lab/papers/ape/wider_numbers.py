"""Numbers wider than a unit's (Ape's section 2.3, Fig. 11, section 8): pairs of FP32, INT16 of bytes, FP64 of FP16.

It knows schemes and devices by name, and makes a unit that accumulates FP16 products in FP64, which nobody built.
"""

from __future__ import annotations

import numpy as np

from hwsim.analysis.exact_product import reference
from hwsim.analysis.metrics import max_relative
from hwsim.api import matmul
from hwsim.devices import changed, load
from hwsim.devices.device import Device
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale
from hwsim_lab.papers.rates import takes
from hwsim_lab.papers.splits import Array, SchemeSplit

CHIPS = ("a100", "ascend910a")
INTEGER_EDGE: dict[Scale, int] = {"quick": 256, "full": 512}
MMA = "mma.m16n8k16.f32.f16.f16.f32"
PARTS, SHIFT, LARGEST_WEIGHT = 5, 12, 5  # of FP64's split; products of weight down to 2^-(12 * 5)
DEPTH, OUTPUTS = 16, 40


class CountedFp32:
    """An FP32 number whose sums and differences are counted."""

    count = 0

    def __init__(self, value: np.float32) -> None:
        self.value = value

    def __add__(self, other: CountedFp32) -> CountedFp32:
        CountedFp32.count += 1
        return CountedFp32(self.value + other.value)

    def __sub__(self, other: CountedFp32) -> CountedFp32:
        CountedFp32.count += 1
        return CountedFp32(self.value - other.value)


Pair = tuple[CountedFp32, CountedFp32]


def two_sum(a: CountedFp32, b: CountedFp32) -> Pair:
    """The rounded sum, and its error (Knuth)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def fast_two_sum(a: CountedFp32, b: CountedFp32) -> Pair:
    """The same for |a| >= |b| (Dekker)."""
    total = a + b
    return total, b - (total - a)


def pair_sum(x: Pair, y: Pair) -> Pair:
    """The sum of two unevaluated pairs: sums of the high and of the low parts, and two renormalisations."""
    high, error = two_sum(x[0], y[0])
    low, rest = two_sum(x[1], y[1])
    high, error = fast_two_sum(high, error + low)
    return fast_two_sum(high, error + rest)


def pair_instructions() -> tuple[int, float]:
    """FP32 instructions of one sum of pairs, and its relative error."""
    rng = np.random.default_rng(0)
    values = rng.uniform(1, 2, 2)
    pairs = []
    for value in values:
        high = np.float32(value)
        pairs.append((CountedFp32(high), CountedFp32(np.float32(value - float(high)))))
    CountedFp32.count = 0
    high_part, low_part = pair_sum(pairs[0], pairs[1])
    own = float(high_part.value) + float(low_part.value)
    return CountedFp32.count, abs(own - values.sum()) / float(values.sum())


def double_words(scale: Scale) -> Found:
    """Section 2.3: the written-out sequence, run and counted."""
    count, error = pair_instructions()
    note = f"The sequence is run on FP32 numbers of NumPy; its sum is right to {error:.0e}. Not a kernel of hwsim's."
    return Found({"sec2-3-thall-20-instructions": {"instructions": count}}, {"sec2-3-thall-20-instructions": note})


def wrong_int16(device: str, edge: int) -> int:
    """Elements of an emulated INT16 GEMM that are not the integers modulo 2^32."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(1 << 15), 1 << 15, (edge, edge)).astype(np.int16) for _ in range(2))
    got = matmul(a, b, device=device, scheme="ape-int16", accumulate="int32")
    wanted = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    return int((got.astype(np.int64) != wanted).sum())


def int16(scale: Scale) -> Found:
    """Fig. 11: INT16 on both devices."""
    edge = INTEGER_EDGE[scale]
    measured: dict[str, dict[str, Quantity]] = {
        "fig11-int16-both-devices": {
            "native": [int(takes(device, "int16")) for device in CHIPS],
            "wrong": [wrong_int16(device, edge) for device in CHIPS],
        }
    }
    parts = len(SchemeSplit("ape-int16", "a100", (("low_byte", "unsigned"),)).pieces)
    note = f"m = n = k = {edge}; {parts} parts, the low one unsigned on the A100, less 128 on the Ascend 910A."
    return Found(measured, {"fig11-int16-both-devices": note})


def fp16_parts(x: Array) -> list[Array]:
    """FP64 numbers as FP16 ones, part i to be multiplied by 2^(-12 i): each is the remainder rounded to nearest."""
    found = []
    for _ in range(PARTS):
        found.append(x.astype(np.float16))
        x = (x - found[-1].astype(np.float64)) * 2.0**SHIFT
    return found


def by_parts(a: Array, b: Array, device: Device | str) -> Array:
    """FP64 products from FP16 ones: the products of one weight in one accumulator, weights joined in FP64, least first.

    An instruction's K is DEPTH, so that products one after another are one GEMM of parts side by side.
    """
    left, right = fp16_parts(a), fp16_parts(b)
    total = np.zeros((len(a), b.shape[1]))
    for weight in reversed(range(LARGEST_WEIGHT + 1)):
        pairs = [(i, weight - i) for i in range(PARTS) if 0 <= weight - i < PARTS]
        rows, columns = (np.concatenate([left[i] for i, _ in pairs], 1), np.concatenate([right[j] for _, j in pairs]))
        total = total + matmul(rows, columns, device=device, format="fp16").astype(np.float64) * 2.0 ** (
            -SHIFT * weight
        )
    return total


def wide_unit() -> Device:
    """An A100 whose FP16 instruction accumulates in FP64: exact products, each sum rounded to nearest."""
    path = f"instructions.{MMA}"
    return changed(load("a100"), {f"{path}.unit": "f64", f"{path}.c": "fp64", f"{path}.d": "fp64"})


def fp64(scale: Scale) -> Found:
    """Section 8: FP64 dot products by a unit for FP16 with an FP64 accumulator."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(1, 2, shape) for shape in ((OUTPUTS, DEPTH), (DEPTH, OUTPUTS)))
    high, low, _ = reference(a, b)

    def error(product: Array) -> float:
        return max_relative(high, product, low)

    measured: dict[str, dict[str, Quantity]] = {
        "sec8-fp64-accumulator": {
            "error": error(by_parts(a, b, wide_unit())),
            "native": error(matmul(a, b, device="a100", format="fp64")),
            "fp32_accumulator": error(by_parts(a, b, "a100")),
        }
    }
    note = "Assumed: one accumulator per weight, joined in FP64 from the least weight up; sums in order of k."
    return Found(measured, {"sec8-fp64-accumulator": note})


EXPERIMENTS = (
    Experiment("sums of pairs", ("sec2-3-thall-20-instructions",), double_words, {"quick": 1, "full": 1}),
    Experiment("INT16 on both", ("fig11-int16-both-devices",), int16, {"quick": 1, "full": 3}),
    Experiment("FP64 accumulator", ("sec8-fp64-accumulator",), fp64, {"quick": 1, "full": 1}),
)
