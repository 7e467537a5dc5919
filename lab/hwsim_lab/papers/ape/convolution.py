"""Ape's Fig. 12 and section 7.4: ResNet-18's convolutions by FP32-F beside FP32 on CUDA cores, on the A100.

It knows the layers of ResNet-18 and which schemes stand for cuDNN's calls; the time of a convolution is that of its
implicit GEMM (hwsim.run with conv).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.metrics import max_relative
from hwsim.api import matmul, run
from hwsim.errors import InputError
from hwsim.frameworks.numpy.convolution import conv2d
from hwsim.frameworks.numpy.windows import im2col
from hwsim.gemm.convolution import conv_of
from hwsim_lab.papers.ape.rates import CARD, DEVICE, EDGES, ROWS
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.rates import tflops

Sizes = dict[str, int]
Images = NDArray[np.float32]
BATCH = 64
#: Input channels, filters, window, stride, side of the image.
LAYERS = (
    (3, 64, 7, 2, 224), (64, 64, 3, 1, 56), (64, 128, 3, 2, 56), (64, 128, 1, 2, 56), (128, 128, 3, 1, 28),
    (128, 256, 3, 2, 28), (128, 256, 1, 2, 28), (256, 256, 3, 1, 14), (256, 512, 3, 2, 14), (256, 512, 1, 2, 14),
    (512, 512, 3, 1, 7),
)  # fmt: skip
#: Three library calls, the second and third added to what is there; and Ape's own kernel, one for all products.
CALLS: dict[str, Any] = {"scheme": "ape-fp32-f", "accumulation": "termwise"}
ONE_KERNEL: dict[str, Any] = {**ROWS["FP32-F"]}
FP32: dict[str, Any] = {**ROWS["FP32"]}
WINOGRAD = 36 / 16  # multiplications of a 3 x 3 window, one by one and by F(2 x 2, 3 x 3)
SEEDS: dict[Scale, int] = {"quick": 5, "full": 25}
TIMES = 10  # as the claim asks for
CLAIMS = ("fig12-maximum", "fig12-some-cases-faster", "sec7-4-convolution-below-gemm")


def sizes_of(layer: tuple[int, int, int, int, int], batch: int = BATCH) -> Sizes:
    """The sizes of a layer as hwsim.run's `conv` has them; its zeros keep the image's side where the stride is 1."""
    channels, filters, window, stride, side = layer
    image = {"batch": batch, "channels": channels, "height": side, "width": side}
    return image | {"filters": filters, "r": window, "s": window, "stride": stride, "padding": window // 2}


def seconds(layer: tuple[int, int, int, int, int], device: str = DEVICE, **options: Any) -> float:
    """The time of a layer's implicit GEMM, splits and additions included."""
    found = run(conv=sizes_of(layer), device=device, exact=False, **options).seconds
    if found is None:
        raise InputError(f"{device}: no time for a convolution, {options}")
    return found


def ratios(device: str, than: dict[str, Any], options: dict[str, Any]) -> list[float]:
    """How many times as fast each layer is by `options` as by `than`."""
    return [seconds(layer, device, **than) / seconds(layer, device, **options) for layer in LAYERS]


def times(scale: Scale) -> Found:
    """All eleven layers, at both scales."""
    ways = {"FP32": FP32, "FP32-F": CALLS, "FP32-F, one kernel": ONE_KERNEL}
    taken = {name: [seconds(layer, **options) for layer in LAYERS] for name, options in ways.items()}
    gains = [x / y for x, y in zip(taken["FP32"], taken["FP32-F"], strict=True)]
    joined = [x / y for x, y in zip(taken["FP32"], taken["FP32-F, one kernel"], strict=True)]
    gemm = [tflops(DEVICE, n, n, n, **ONE_KERNEL) / tflops(DEVICE, n, n, n, **FP32) for n in EDGES]
    other = ratios(CARD, FP32, CALLS)
    measured: dict[str, dict[str, Quantity]] = {
        "fig12-maximum": {"speedup": gains},
        "fig12-some-cases-faster": {"speedup": gains},
        "sec7-4-convolution-below-gemm": {"gemm": max(gemm), "convolution": max(gains)},
    }
    is_winograd = [layer[2:4] == (3, 1) for layer in LAYERS]
    reduced = [x / WINOGRAD if one else x for x, one in zip(gains, is_winograd, strict=True)]
    best = max(x for x, one in zip(reduced, is_winograd, strict=True) if one)
    note = (
        f"Largest {max(gains):.2f} with FP32 as an implicit GEMM and batch {BATCH}, {max(other):.2f} on a PCIe board, "
        f"{max(joined):.2f} with all three products in one kernel. What cuDNN chose is not said: Winograd's "
        f"{WINOGRAD:.2f} times fewer multiplications for FP32's 3 x 3 windows of stride 1 would leave {best:.2f} there "
        f"(reckoned, not simulated) and {max(reduced):.2f} for the strided ones. The rest is not explained."
    )
    split = (
        "Batch and layers are assumed. Strided 1 x 1 windows lose: the split of the image takes longer than they do."
    )
    notes = {"fig12-maximum": note, "fig12-some-cases-faster": split}
    notes["sec7-4-convolution-below-gemm"] = (
        f"The GEMM's gain is {max(gemm):.2f} here, the convolution's {max(gains):.2f}: the direction is that of the "
        "split and of three calls, which an implicit GEMM with few channels pays for and a large GEMM does not. " + note
    )
    named = ["x".join(map(str, layer)) for layer in LAYERS]
    work = [2 * float(np.prod(conv_of(sizes_of(layer)).gemm)) / 1e12 for layer in LAYERS]
    rows = [(x, way, w / t) for way in ways for x, w, t in zip(named, work, taken[way], strict=True)]
    columns: dict[str, list[Any]] = {
        "channels x filters x window x stride x side": [row[0] for row in rows],
        "method": [row[1] for row in rows],
        "TFLOP/s": [row[2] for row in rows],
    }
    return Found(
        measured,
        notes,
        (Series("fig12", columns, x="channels x filters x window x stride x side", y="TFLOP/s", by="method"),),
    )


def error(images: Images, filters: Images, **options: Any) -> float:
    """Largest relative error of a padded 3 x 3 convolution against FP64."""
    shape = conv_of(sizes_of(LAYERS[1], batch=len(images)))
    exact = im2col(images.astype(np.float64), shape) @ filters.reshape(shape.filters, -1).T.astype(np.float64)
    got = conv2d(images, filters, padding=1, device=DEVICE, **options)
    return max_relative(exact, np.moveaxis(got, 1, -1).reshape(exact.shape))


def errors_of(seed: int) -> dict[str, float]:
    """The claim's errors for one draw: of one image, all its outputs."""
    shape, rng = conv_of(sizes_of(LAYERS[1], batch=1)), np.random.default_rng(seed)
    m, n, k = shape.gemm
    images = rng.random((1, shape.channels, shape.height, shape.width), np.float32)
    filters = rng.random((shape.filters, shape.channels, shape.r, shape.s), np.float32)
    a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
    product = matmul(a, b, device=DEVICE, **ONE_KERNEL)
    return {
        "fp32f": error(images, filters, **ONE_KERNEL),
        "fp16": error(images, filters, format="fp16"),
        "gemm": max_relative(a.astype(np.float64) @ b.astype(np.float64), product),
        "calls": error(images, filters, **CALLS),
    }


def correctness(scale: Scale) -> Found:
    """The median over some draws, as one draw's largest error of FP16 is the luck of few elements."""
    draws = [errors_of(seed) for seed in range(SEEDS[scale])]
    found: dict[str, Quantity] = {
        name: float(np.median([one[name] for one in draws])) for name in ("fp32f", "fp16", "gemm")
    }
    calls = float(np.median([one["calls"] for one in draws]))
    ratios = [one["fp16"] / one["fp32f"] for one in draws]
    above = sum(ratio > TIMES for ratio in ratios)
    span = f"{min(ratios):.1f} to {max(ratios):.1f}"
    note = (
        f"Medians of {len(draws)} draws; FP16's error is {span} times FP32-F's, in {above} of them more than {TIMES} "
        "times: one draw alone may give either verdict. FP32-F's error is a GEMM's of the same length; products in "
        f"three calls make it {calls:.2g}."
    )
    return Found({"sec7-4-convolution-correct": found}, {"sec7-4-convolution-correct": note})


EXPERIMENTS = (
    Experiment("convolutions", CLAIMS, times, {"quick": 15, "full": 15}),
    Experiment("convolution-errors", ("sec7-4-convolution-correct",), correctness, {"quick": 7, "full": 35}),
)
