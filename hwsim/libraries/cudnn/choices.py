"""Which kernel cuDNN takes for a convolution: the leaf of a decision tree, one for each direction and format.

The trees are data (configs/libraries). It knows sizes of calls and names of kernels; not how these add.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from hwsim.host import places
from hwsim.libraries.convolution_call import ConvolutionCall


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel of cuDNN. name: without its tile. tile_m, tile_n, tile_k: of its GEMM, 0: not stated. slices: of K.
    right: the share of calls with a right order of summation among calls that such a choice was not fitted to.
    """

    name: str
    tile_m: int
    tile_n: int
    tile_k: int
    slices: int
    right: float = 0.0


@dataclass(frozen=True, slots=True)
class Question:
    """A node of a tree: the next node holds where `size` is at most `at_most`, else the node numbered `otherwise`."""

    size: str
    at_most: int
    otherwise: int


KernelTree = tuple[Question | KernelChoice, ...]


def formats_of(call: ConvolutionCall, file: str) -> tuple[str, ...]:
    """The formats with a tree for a call's direction."""
    return tuple(format for direction, format in _trees(file) if direction == call.direction)


def chosen_kernel(call: ConvolutionCall, file: str) -> KernelChoice | None:
    """The kernel for a call; None for a format without a tree. file: of the trees, beside the library files."""
    tree = _trees(file).get((call.direction, call.format))
    if tree is None:
        return None
    sizes, at = sizes_of(call), 0
    while isinstance(node := tree[at], Question):
        at = at + 1 if sizes[node.size] <= node.at_most else node.otherwise
    return node


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
def _trees(file: str) -> Mapping[tuple[str, str], KernelTree]:
    trees: dict[tuple[str, str], list[Question | KernelChoice]] = {}
    text = places.text_of(places.package_folder("libraries") / file, "library")
    for row in csv.DictReader(text.splitlines()):
        node: Question | KernelChoice
        if row["size"]:
            node = Question(row["size"], int(row["at_most"]), int(row["otherwise"]))
        else:
            m, n, k, slices = (int(row[name]) for name in ("tile_m", "tile_n", "tile_k", "slices"))
            node = KernelChoice(row["kernel"], m, n, k, slices, float(row["right"]))
        trees.setdefault((row["operation"], row["format"]), []).append(node)
    return {key: tuple(nodes) for key, nodes in trees.items()}
