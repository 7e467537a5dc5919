"""Single products of the units (Section 2.1, 2.2; Fig. 1 and 2): exactness, accumulators, conversion, order of calls.

It runs matrix instructions of the A100 and of the hypothetical TF64 unit, and small products beside them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import hwsim
from hwsim._kernels.convert import decode, encode
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.devices.query import instruction
from hwsim.devices.variants import changed
from hwsim.formats import format_of
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale
from hwsim_lab.papers.tf32_tf64.definitions import A100, TF64

Array = NDArray[Any]
INSTRUCTIONS, PAIRS, EDGE = 1000, 10_000, 64
CLAIMS = (
    "sec2-1-not-ieee", "sec2-2-dropped-product", "fig2-accumulation", "fig1-tf32-products-exact",
    "fig1-tf32-accumulator", "fig1-tf32-hardware-conversion", "fig1-tf64-products-exact", "fig1-tf64-accumulator",
)  # fmt: skip


def rounded(x: Array, name: str, rounding: str = "RNE") -> Array:
    """FP32 numbers rounded to a format, in FP32."""
    fmt = format_of(name)
    return decode(encode(np.ascontiguousarray(x, np.float32), fmt, rounding), fmt, np.float32)


def typed(x: Array, name: str) -> Array:
    """Numbers of a format in its own type of array."""
    return x.astype(format_of(name).dtype_name)


def with_unit(chip: Device, name: str, model: dict[str, Any]) -> Device:
    """The device whose instruction of that name adds by another model of a dot unit."""
    return changed(chip, {f"dot_units.{instruction(chip, name).unit}": model})


def not_ieee(format: str) -> tuple[float, float]:
    """Shares of elements of single instructions that are not the exact sum rounded once; nor an IEEE chain's."""
    chip = load(A100)
    name = chip.native[format]
    one = instruction(chip, name)
    rng = np.random.default_rng(0)
    shapes = ((one.m, one.k), (one.k, one.n), (one.m, one.n))
    a, b, c = (rng.uniform(-1, 1, (INSTRUCTIONS, *shape)).astype(np.float32) for shape in shapes)
    a, b = (typed(rounded(x, format), format) for x in (a, b))
    exact = with_unit(chip, name, {"model": "exact", "terms": one.k, "rounding": "RNE"})
    chain = with_unit(chip, name, {"model": "fma_chain", "rounding": "RNE"})
    d = chip.mma(name, a, b, c)
    return tuple(float(np.mean(d != other.mma(name, a, b, c))) for other in (exact, chain))  # type: ignore[return-value]


def wrong_products(device: str, format: str, rng: np.random.Generator) -> int:
    """Results of dot products with one term that are not the exact product, which FP64 holds."""
    chip = load(device)
    name = chip.native[format]
    p, q = (rounded(rng.uniform(-1, 1, PAIRS).astype(np.float32), format) for _ in range(2))
    depth = instruction(chip, name).k
    a, b = (np.zeros((PAIRS, depth), np.float32) for _ in range(2))
    at = np.arange(PAIRS), np.arange(PAIRS) % depth
    a[at], b[at] = p, q
    zero = np.zeros(PAIRS, format_of(instruction(chip, name).c).dtype_name)
    return int((chip.dot(name, a, b, zero).astype(np.float64) != p.astype(np.float64) * q).sum())


def added(device: str, format: str, c: float, product: tuple[float, float]) -> float:
    """c plus one product by the device's unit, in FP64."""
    chip = load(device)
    name = chip.native[format]
    a, b = (np.array([[x]], np.float32) for x in product)
    total = chip.dot(name, a, b, np.array([c], format_of(instruction(chip, name).c).dtype_name))
    return float(np.asarray(total, np.float64).ravel()[0])


def square(seed: int = 0) -> tuple[Array, Array]:
    """FP32 matrices, uniform on [-1, 1)."""
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(-1, 1, (EDGE, EDGE)).astype(np.float32) for _ in range(2))
    return a, b


def successive_calls() -> int:
    """Elements of tf32x3 that differ from three TF32 products, each with the result of the one before as C."""
    a, b = square()
    (a1, a2), (b1, b2) = (_words(x) for x in (a, b))
    c = hwsim.matmul(a1, b1, device=A100, format="tf32")
    for left, right in ((a1, b2), (a2, b1)):
        c = hwsim.matmul(left, right, c, device=A100, format="tf32")
    return int((c != hwsim.matmul(a, b, device=A100, scheme="tf32x3")).sum())


def _words(x: Array) -> tuple[Array, Array]:
    high = rounded(x, "tf32")
    return high, rounded(x - high, "tf32")


def unconverted() -> dict[str, Quantity]:
    """Elements by which the product of the FP32 words as they are differs from that of words converted before."""
    a, b = square()
    words = hwsim.matmul(a.view(np.uint32), b.view(np.uint32), device=A100, format="tf32", input_format="tf32")
    counts: dict[str, Quantity] = {}
    for rounding in ("RNE", "RNA", "RZ"):
        before = hwsim.matmul(*(rounded(x, "tf32", rounding) for x in (a, b)), device=A100, format="tf32")
        counts[rounding.lower()] = int((words != before).sum())
    return counts


def products_computed() -> float:
    """tf32x3 of (1 + 3 * 2^-13) squared, less 1."""
    a = np.zeros((16, 16), np.float32)
    a[0, 0] = 1 + 3 * 2.0**-13
    return float(hwsim.matmul(a, a, device=A100, scheme="tf32x3")[0, 0].astype(np.float64) - 1)


def measure(scale: Scale) -> Found:
    """Single instructions, and small products beside calls one after the other."""
    fp16, tf32 = not_ieee("fp16"), not_ieee("tf32")
    calls = unconverted()
    measured: dict[str, dict[str, Quantity]] = {
        "sec2-1-not-ieee": {
            "fp16_not_rounded": fp16[0],
            "tf32_not_rounded": tf32[0],
            "fp16_not_chain": fp16[1],
            "tf32_not_chain": tf32[1],
        },
        "sec2-2-dropped-product": {"kept": products_computed()},
        "fig2-accumulation": {"wrong": successive_calls()},
        "fig1-tf32-products-exact": {"wrong": wrong_products(A100, "tf32", np.random.default_rng(0))},
        "fig1-tf32-accumulator": {
            "last_bit": added(A100, "tf32", 1.0, (1.0, 2.0**-23)) - 1,
            "below": added(A100, "tf32", 1.0, (1.0, 2.0**-25)) - 1,
            "largest": added(A100, "tf32", 2.0**127, (0.0, 0.0)) / 2.0**127,
        },
        "fig1-tf32-hardware-conversion": calls,
        "fig1-tf64-products-exact": {"wrong": wrong_products(TF64, "fp32", np.random.default_rng(0))},
        "fig1-tf64-accumulator": {
            "last_bit": added(TF64, "fp32", 1.0, (2.0**-26, 2.0**-26)) - 1,
            "below": added(TF64, "fp32", 1.0, (2.0**-27, 2.0**-27)) - 1,
        },
    }
    note = (
        "The words reach the unit as they are (codes of tf32), which leaves out their 13 low bits: toward zero. A "
        "library's TF32 product of FP32 matrices, 1xTF32 here, rounds them to nearest even before."
    )
    return Found(measured, {"fig1-tf32-hardware-conversion": note})


EXPERIMENTS = (Experiment("instructions", CLAIMS, measure, {"quick": 2.0, "full": 2.0}),)
