"""Fit the trees that say which kernel cuDNN takes for a convolution, to kernels recorded by name.

    python lab/tools/library/fit_convolutions.py names_h100.json.gz names_h200.json.gz --out choices.npz

A file is what lab/tools/record/convolutions.py writes. Trees are grown for each direction, those of bf16 and fp16
together. They vote for kernels, and kernels that add alike for a call share their votes. `right` says how often an
order with so many tenths of the votes is right, for calls of shapes that the trees were grown without. Calls whose
kernel cuBLAS chooses are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import zlib
from collections import Counter, defaultdict
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from grow import grow, packed

from hwsim.gemm.convolution import conv_shape
from hwsim.libraries.convolution_call import ConvolutionCall
from hwsim.libraries.cublas.answers.tree import Tree
from hwsim.libraries.cudnn.choices import KernelChoice, KernelForest, sizes_of
from hwsim.libraries.cudnn.provider import CUDNN
from hwsim.libraries.protocol import LibraryRequest

DIRECTIONS = {"fprop": "forward", "dgrad": "backward_input", "wgrad": "backward_weight"}
FORMATS = ("bf16", "fp16", "tf32", "fp32")
#: Kernels that convert, pad or fill, around the one that adds.
AROUND = re.compile(
    "nchwToNhwc|nhwcToNchw|direct_copy|elementwise|AddPadding|Memset|tensorTransform|convertTensor|Transpose|SliceC|"
    "init_device|Folded|scalePacked|scaleTensor|kernel_helper|precompute_ind|vectorized|nchw_to_nhwc"
)
TREES, LEAST, FEATURES = 40, 2, 0.7  # LEAST: calls of a leaf; FEATURES: share of them that a tree is grown on
FOLDS, SHARES = 2, 10
NARROW = ("bf16", "fp16")
MOST_SEGMENTS = 4  # of K, where no second kernel adds them
RULES = CUDNN.on(LibraryRequest(device="h100"))


class Ran(NamedTuple):
    """A call, the kernel that ran for it, and how that adds (None: it is not known)."""

    call: ConvolutionCall
    kernel: KernelChoice
    order: tuple[object, ...] | None


def short_name(name: str) -> str:
    """A kernel's name without its parameters."""
    name = re.sub(r"^void ", "", name)
    typed = re.search(r"cutlass__5x_cudnn6KernelINS.*GemmShapeILi(\d+)ELi(\d+)ELi(\d+)", name)
    if typed:
        operation = re.search(r"Conv2d(Wgrad|Fprop|Dgrad)", name)
        iterator = re.search(r"TileAccessIterator(\w+?)INS", name)
        kind = "_".join(part.group(1) if part else "" for part in (operation, iterator))
        return f"cutlassT_{kind}_{'x'.join(typed.groups())}"
    inner = re.search(r"<(cutlass_[a-z0-9_]+)", name)
    name = re.sub("<.*", "", (inner.group(1) if inner else name).split("(")[0])
    for text, other in (
        ("_execute_kernel__5x_cudnn", ""), ("_implicit_gemm", ""), ("cudnn::engines_precompiled::", ""),
        ("_kernel__5x_cudnn", ""), ("xmma__5x_cudnn::", ""), ("warpgroupsize", "wg"), ("tilesize", "t"),
        ("warpsize", "w"), ("_t1r3s3", ""),
    ):  # fmt: skip
        name = name.replace(text, other)
    return name


def tile_of(name: str) -> tuple[int, int, int]:
    """The tile in a kernel's name; zeros: it has none that its sums depend on."""
    if "ffma" in name or "simt" in name:
        return 0, 0, 0
    found = (
        re.search(r"_t(\d+)x(\d+)x(\d+)", name)
        or re.search(r"_(\d+)x(\d+)_(\d+)x\d+", name)
        or re.search(r"_(\d+)x(\d+)x(\d+)$", name)
    )
    if not found:
        return 0, 0, 0
    m, n, k = map(int, found.groups())
    return (n, m, k) if "nvjet" in name else (m, n, k)


def family_of(name: str) -> str:
    """A kernel's name without tile, stages and warps; with the warps that share K."""
    if "nvjet" in name:
        return "nvjet"
    warps = re.search(r"_w\d+x\d+x(\d+)", name)
    name = re.sub(r"_t\d+x\d+x\d+|_\d+x\d+_\d+x\d+|(?<=\w)_\d+x\d+x\d+$", "", name)
    name = re.sub(r"_(stage|g)\d+|_(w|wg|tensor)\d+x\d+x\d+|_cgasize\w+?x\dx\d|_execute", "", name)
    if "wo_smem" in name:
        name = re.sub(r"_alignc\d$", "", name)
    return f"{name}_warps{warps.group(1)}" if warps and warps.group(1) != "1" and "wgrad" in name else name


def segments_of(call: ConvolutionCall, tile: tuple[int, int, int], grid: list[int], is_cut: bool) -> int:
    """How many slices of K a grid of CTAs has: its rows run over groups of tiles. is_cut: a second kernel adds them."""
    m, n, _ = call.gemm
    taps = call.shape.r * call.shape.s if call.direction == "backward_weight" else 1
    tiles = -(-m // tile[0]), -(-(n // taps) // tile[1]) * taps
    if is_cut or grid[1] == 1:
        slices = max(1, math.prod(grid) // math.prod(tiles))
        return slices if is_cut else min(slices, MOST_SEGMENTS)
    wide, high = (-(-count // grid[1]) * grid[1] * other for count, other in (tiles, tiles[::-1]))
    return max(1, math.prod(grid) // min(wide, high))


def kernel_of(kernels: list[tuple[str, list[int] | None]], call: ConvolutionCall) -> KernelChoice:
    """What ran for a call, from the names and grids of its kernels."""
    real = [(short_name(name), grid) for name, grid in kernels if not AROUND.search(name)]
    if not real:
        return KernelChoice("none", 0, 0, 0, 1)
    name, grid = real[0]
    family, tile, slices = family_of(name), tile_of(name), 1
    is_cut = any(word in other for other, _ in real for word in ("split_k", "splitK", "reduce_wgrad"))
    if "sm90_xmma" in name and "gemm" not in name and "_segment_k_on" in name and grid and tile[2]:
        slices = segments_of(call, tile, grid, is_cut)
        family = family.replace("_segment_k_on", "_split_k") if is_cut else family
    elif "nvjet" in name or "gemm" in name or "cutlass_tensorop" in name:
        family += "_split_k" if is_cut or (grid and grid[2] > 1 and call.direction == "backward_weight") else ""
    elif grid and ("nhwckrsc_nchw" in name if call.direction == "forward" else "sm80" in name or "cutlassT" in name):
        slices = grid[2] if call.direction != "forward" or tile == (64, 32, 64) else 1
    if slices > 1 and call.direction == "forward":
        slices = min(slices, -(-call.k_channels // tile[2]))
    return KernelChoice(family, *tile, slices)


def read(path: Path) -> list[Ran]:
    """The calls of a file whose kernel cuDNN chose itself."""
    with gzip.open(path, "rt") as file:
        recorded = json.load(file)
    calls = []
    for at, kernels in recorded["answers"]:
        call = call_of(recorded["shapes"][at])
        if call.is_pointwise and call.format in RULES.kernels.pointwise.formats:
            continue
        kernel = kernel_of([(recorded["names"][name], grid) for name, grid in kernels], call)
        calls.append(Ran(call, kernel, RULES.order_key(call, kernel)))
    return calls


def call_of(shape: list[Any]) -> ConvolutionCall:
    """The call of a recorded shape. Layouts: nhwc, nchw, and nchw+, whose 1 x 1 filters are stored as NCHW too."""
    operation, format, b, c, h, w, o, r, s, stride, padding, dilation, groups, layout = shape
    sizes = conv_shape(
        (b, c, h, w), (o, c // groups, r, s), stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    is_nchw = layout == "nchw+" or (layout == "nchw" and r * s > 1)
    return ConvolutionCall(shape=sizes, format=format, direction=DIRECTIONS[operation], is_nchw=is_nchw)


def forest(x: np.ndarray, y: np.ndarray, seed: int) -> list[Tree]:
    """Trees of values (features, samples) and labels, each on drawn samples and drawn features."""
    rng = np.random.default_rng(seed)
    trees = []
    for _ in range(TREES):
        own = np.sort(rng.choice(len(x), round(FEATURES * len(x)), replace=False))
        samples = rng.integers(0, len(y), len(y))
        tree = grow(x[own][:, samples], y[samples], LEAST)
        tree = replace(tree, feature=np.where(tree.feature >= 0, own[tree.feature], -1))
        trees.append(packed(tree, np.zeros(len(tree.feature)), np.arange(y.max() + 1)))
    return trees


def kind_of(kernel: KernelChoice, format: str) -> tuple[Any, ...]:
    """What the trees tell apart: a kernel's name without the format, and what of its tile and slices its sums show."""
    name = kernel.name.replace("bf16", "@").replace("f16", "@") if format in NARROW else kernel.name
    rule = RULES.row_of(kernel.name).rule
    tile_k = kernel.tile_k if rule in ("dealt", "segments", "blocks", "rest_first") else 0
    return name, tile_k, kernel.slices if rule in ("dealt", "segments") else 1


def kernels_of(calls: list[Ran], kinds: list[tuple[Any, ...]]) -> list[dict[str, KernelChoice]]:
    """Of each kind the kernel that calls of a format had most often."""
    counts: dict[tuple[Any, ...], dict[str, Counter[KernelChoice]]] = defaultdict(lambda: defaultdict(Counter))
    for ran in calls:
        counts[kind_of(ran.kernel, ran.call.format)][ran.call.format][ran.kernel] += 1
    return [{format: own.most_common(1)[0][0] for format, own in counts[kind].items()} for kind in kinds]


def family_of_shape(call: ConvolutionCall) -> int:
    """A number of the shape but for batch, height and width: calls of one family are held back together."""
    shape = call.shape
    window = (shape.r, shape.s, shape.stride, shape.dilation, shape.groups)
    return zlib.crc32(repr((shape.channels, shape.filters, window)).encode())


def fit(calls: list[Ran], file: Written, direction: str, formats: tuple[str, ...]) -> None:
    """Grow the trees of a direction and write them; say how often trees grown without a shape's family are right."""
    kinds = sorted({kind_of(ran.kernel, ran.call.format) for ran in calls})
    y = np.array([kinds.index(kind_of(ran.kernel, ran.call.format)) for ran in calls])
    x = np.array([[float(size) for size in sizes_of(ran.call).values()] for ran in calls]).T
    fold = np.array([family_of_shape(ran.call) % FOLDS for ran in calls])
    shares, right, unknown = np.zeros(len(calls)), np.zeros(len(calls), bool), np.zeros(len(calls), bool)
    for at in range(FOLDS):
        rest = np.nonzero(fold != at)[0]
        grown = forest(x[:, rest], y[rest], at)
        held = KernelForest(tuple(grown), tuple(kernels_of([calls[i] for i in rest], kinds)), (0.0,))
        for i in np.nonzero(fold == at)[0]:
            order, shares[i], _ = RULES.elected(calls[i].call, held)
            right[i], unknown[i] = order == calls[i].order, order is None
    by_share = np.minimum((shares * SHARES).astype(int), SHARES - 1)
    table = [(right & ~unknown)[by_share == at] for at in range(SHARES)]
    whole = float((right & ~unknown).mean())
    file.add(direction, formats, forest(x, y, FOLDS), kernels_of(calls, kinds),
             [round(float((own.sum() + whole) / (len(own) + 1)), 2) for own in table])  # fmt: skip
    for format in formats:
        own = np.array([ran.call.format == format for ran in calls])
        known = np.array([ran.order is not None for ran in calls])
        parts = f"{own.sum()} calls, {(own & known).sum()} of a known order; held back: right {right[own].mean():.3f}"
        print(f"{direction} {format}: {parts}, right and known {(right & ~unknown)[own].mean():.3f}", flush=True)


@dataclass
class Written:
    """What the file of choices holds."""

    groups: list[dict[str, Any]] = field(default_factory=list)
    trees: list[bytes] = field(default_factory=list)

    def add(
        self,
        direction: str,
        formats: tuple[str, ...],
        trees: list[Tree],
        kernels: list[dict[str, KernelChoice]],
        right: list[float],
    ) -> None:
        """Trees of a direction and formats."""
        rows = [{format: list(astuple(kernel)) for format, kernel in own.items()} for own in kernels]
        places = [len(self.trees), len(self.trees) + len(trees)]
        self.groups.append(
            {"direction": direction, "formats": formats, "trees": places, "right": right, "kernels": rows}
        )
        self.trees += [tree.pack() for tree in trees]

    def write(self, path: Path) -> None:
        """As hwsim.libraries.cudnn.choices reads it."""
        about = np.frombuffer(json.dumps(self.groups, separators=(",", ":")).encode(), np.uint8)
        trees = np.frombuffer(b"".join(self.trees), np.uint8)
        np.savez_compressed(path, about=about, trees=trees, ends=np.cumsum([len(tree) for tree in self.trees]))


def main() -> None:
    """Grow all trees and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    calls = [ran for path in arguments.files for ran in read(path)]
    written = Written()
    for direction in DIRECTIONS.values():
        for formats in (NARROW, ("tf32",), ("fp32",)):
            chosen = [ran for ran in calls if ran.call.direction == direction and ran.call.format in formats]
            fit(chosen, written, direction, formats)
    written.write(arguments.out)


if __name__ == "__main__":
    main()
