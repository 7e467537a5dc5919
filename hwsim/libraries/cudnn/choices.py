"""Which kernels cuDNN may take for a convolution: votes of the decision trees of its direction and format.

The trees are data (configs/libraries). It knows sizes of calls and names of kernels; not how these add.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file
from typing import Any

import numpy as np

from hwsim.host import places
from hwsim.libraries.convolution_call import ConvolutionCall
from hwsim.libraries.cublas.answers.tree import Tree, unpack


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel of cuDNN. name: without its tile. tile_m, tile_n, tile_k: of its GEMM, 0: not stated. slices: of K."""

    name: str
    tile_m: int
    tile_n: int
    tile_k: int
    slices: int


@dataclass(frozen=True, slots=True, eq=False)
class KernelForest:
    """Trees of a direction and some formats. kernels: of each label by format; a format without it was never seen to
    run it. right: of each tenth of the votes that an order of summation gets, the share of calls with that order, among
    calls of shapes that the trees were grown without.
    """

    trees: tuple[Tree, ...]
    kernels: tuple[Mapping[str, KernelChoice], ...]
    right: tuple[float, ...]

    def votes(self, call: ConvolutionCall) -> Mapping[KernelChoice, float]:
        """Kernels that ran for such calls, with their shares of the trees."""
        values = np.array([float(size) for size in sizes_of(call).values()])
        shares: dict[KernelChoice, float] = {}
        for tree in self.trees:
            kernel = self.kernels[tree.leaf(values)[0]].get(call.format)
            if kernel is not None:
                shares[kernel] = shares.get(kernel, 0.0) + 1 / len(self.trees)
        return shares

    def right_of(self, share: float) -> float:
        """How often an order with that share of the votes is right."""
        return self.right[min(int(share * len(self.right)), len(self.right) - 1)]


def formats_of(call: ConvolutionCall, file: str) -> tuple[str, ...]:
    """The formats with trees for a call's direction."""
    return tuple(format for direction, format in _forests(file) if direction == call.direction)


def forest_of(call: ConvolutionCall, file: str) -> KernelForest | None:
    """The trees for a call; None for a format without. file: of the trees, beside the library files."""
    return _forests(file).get((call.direction, call.format))


def sizes_of(call: ConvolutionCall) -> Mapping[str, int]:
    """What the trees ask about, by name. channels, filters: of one group. places: output pixels of an image. m, k: of
    the forward convolution's GEMM. weights, image: elements. channels_8: 1 where 8 divides the channels; others alike.
    """
    shape = call.shape
    m, n, k = shape.gemm
    channels = shape.channels // shape.groups
    divisible = {
        f"{name}_{by}": int(count % by == 0)
        for name, count in (("channels", channels), ("filters", n))
        for by in (8, 4, 2)
    }
    return {
        "is_nchw": int(call.is_nchw),
        "is_bf16": int(call.format == "bf16"),
        "channels": channels,
        "filters": n,
        "groups": shape.groups,
        "r": shape.r,
        "s": shape.s,
        "taps": shape.r * shape.s,
        "stride": shape.stride[0],
        "padding": shape.padding[0],
        "dilation": shape.dilation[0],
        "batch": shape.batch,
        "height": shape.height,
        "width": shape.width,
        "places": shape.out_height * shape.out_width,
        "m": m,
        "k": k,
        "m_n": m * n,
        "m_n_k": m * n * k,
        "weights": n * k,
        "image": shape.batch * shape.channels * shape.height * shape.width,
        **divisible,
    }


@cache
def _forests(file: str) -> Mapping[tuple[str, str], KernelForest]:
    with as_file(places.package_folder("libraries") / file) as path, np.load(path) as arrays:
        about: list[dict[str, Any]] = json.loads(arrays["about"].tobytes())
        data, stops = arrays["trees"].tobytes(), arrays["ends"].tolist()
    trees = [unpack(data[start:stop]) for start, stop in zip([0, *stops], stops, strict=False)]
    forests: dict[tuple[str, str], KernelForest] = {}
    for group in about:
        kernels = tuple({format: KernelChoice(*row) for format, row in kernel.items()} for kernel in group["kernels"])
        forest = KernelForest(tuple(trees[slice(*group["trees"])]), kernels, tuple(group["right"]))
        forests |= {(group["direction"], format): forest for format in group["formats"]}
    return forests
