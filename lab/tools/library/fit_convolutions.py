"""Fit the trees that say which kernel cuDNN takes for a convolution, to kernels recorded by name.

    python lab/tools/library/fit_convolutions.py names_h100.json.gz names_h200.json.gz --out choices.csv

A file is what lab/tools/record/convolutions.py writes. A tree is grown for each direction and format on classes of
kernels that add alike; a leaf names the kernel that its calls had most often. `right` of a leaf is the share of calls
with a right order of summation among calls that other trees, grown without them, gave such a kernel. Calls whose
kernel cuBLAS chooses are left out.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwsim.gemm.convolution import conv_shape
from hwsim.libraries.convolution_call import ConvolutionCall
from hwsim.libraries.cudnn.choices import KernelChoice, sizes_of
from hwsim.libraries.cudnn.orders import schedule_of
from hwsim.libraries.cudnn.provider import CUDNN
from hwsim.libraries.protocol import LibraryRequest

DIRECTIONS = {"fprop": "forward", "dgrad": "backward_input", "wgrad": "backward_weight"}
FORMATS = ("bf16", "fp16", "tf32", "fp32")
#: Kernels that convert, pad or fill, around the one that adds.
AROUND = re.compile(
    "nchwToNhwc|nhwcToNchw|direct_copy|elementwise|AddPadding|Memset|tensorTransform|convertTensor|Transpose|SliceC|"
    "init_device|Folded|scalePacked|scaleTensor|kernel_helper|precompute_ind|vectorized|nchw_to_nhwc"
)
FOLDS, DEPTH, FEWEST = 5, 30, 12  # FEWEST: calls of a kind for a share of their own
MOST_SEGMENTS = 4  # of K, where no second kernel adds them
HEADER = (
    *("operation", "format", "node", "size", "at_most", "otherwise", "kernel"),
    *("tile_m", "tile_n", "tile_k", "slices", "right", "calls"),
)
RULES = CUDNN.on(LibraryRequest(device="h100"))


class Ran(NamedTuple):
    """A call, the kernel that ran for it, and how that adds: calls with equal orders add alike."""

    call: ConvolutionCall
    kernel: KernelChoice
    order: tuple[Any, ...]


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


def order_class(call: ConvolutionCall, kernel: KernelChoice) -> tuple[Any, ...]:
    """How a kernel adds, so that equal classes give equal bits."""
    row = RULES.row_of(kernel.name)
    rounding = RULES.rounding_of(kernel.name) if call.format == "tf32" and row.instruction is None else None
    unit = (row.instruction or row.operand or call.format, rounding)
    step, channels, taps = 32 * 8 // (32 if "32" in unit[0] else 16), call.k_channels, call.taps
    if schedule_of(row, channels, taps, step, kernel.tile_k, kernel.slices) is None:
        return ("unknown",)
    way = (row.k_order if channels > 1 else "rsc", row.backwards) if taps > 1 else ()
    count = -(-channels // kernel.tile_k) if kernel.tile_k else 1
    if row.rule in ("lanes", "interleaved"):
        return (*unit, row.rule, *way)
    if row.rule == "segments" and kernel.slices > 1:
        return (*unit, row.rule, kernel.tile_k, kernel.slices, row.slice_order, *way)
    slices = min(kernel.slices, count) if row.rule == "dealt" else 1
    if slices > 1 or row.warps > 1:
        return (*unit, "dealt", kernel.tile_k, slices, row.warps, row.slice_order, *way)
    if row.rule in ("dealt", "blocks", "segments") and taps > 1:
        if channels > kernel.tile_k:
            return (*unit, "blocks", kernel.tile_k, *way)
        if channels % step:
            return (*unit, "taps", *way)
    return (*unit, "in_order", *way)


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
        calls.append(Ran(call, kernel, order_class(call, kernel)))
    return calls


def call_of(shape: list[Any]) -> ConvolutionCall:
    """The call of a recorded shape. Layouts: nhwc, nchw, and nchw+, whose 1 x 1 filters are stored as NCHW too."""
    operation, format, b, c, h, w, o, r, s, stride, padding, dilation, groups, layout = shape
    sizes = conv_shape(
        (b, c, h, w), (o, c // groups, r, s), stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    is_nchw = layout == "nchw+" or (layout == "nchw" and r * s > 1)
    return ConvolutionCall(shape=sizes, format=format, direction=DIRECTIONS[operation], is_nchw=is_nchw)


def grow(x: np.ndarray, y: np.ndarray, depth: int, least: int) -> Any:
    """A tree of (size, at most, left, right), and counts of classes at its leaves; by the Gini index."""
    counts = np.bincount(y)
    if depth == 0 or (counts > 0).sum() == 1 or len(y) < 2 * least:
        return counts
    best, chosen = 1e-9, None
    of_class = np.eye(len(counts))[y]
    whole = len(y) - (counts**2).sum() / len(y)
    for size in range(x.shape[1]):
        order = np.argsort(x[:, size], kind="stable")
        values, sums = x[order, size], of_class[order].cumsum(0)
        places = np.nonzero(values[1:] != values[:-1])[0]
        places = places[(places + 1 >= least) & (len(y) - places - 1 >= least)]
        if not len(places):
            continue
        left = sums[places]
        right, count = sums[-1] - left, left.sum(1)
        rest = len(y) - count
        gain = whole - (count - (left**2).sum(1) / count) - (rest - (right**2).sum(1) / rest)
        if gain.max() > best:
            best, chosen = float(gain.max()), (size, int(values[places[gain.argmax()]]))
    if chosen is None:
        return counts
    size, at_most = chosen
    below = x[:, size] <= at_most
    return size, at_most, grow(x[below], y[below], depth - 1, least), grow(x[~below], y[~below], depth - 1, least)


def asked(tree: Any, sizes: np.ndarray) -> int:
    """The class that a tree gives."""
    while isinstance(tree, tuple):
        size, at_most, left, right = tree
        tree = left if sizes[size] <= at_most else right
    return int(tree.argmax())


def kind_of(order: tuple[Any, ...]) -> str:
    """A class of orders without its numbers, for shares."""
    return "-".join(str(word) for word in order if not isinstance(word, int) or isinstance(word, bool))


def fit(calls: list[Ran], least: int) -> tuple[list[list[Any]], float]:
    """The rows of a tree, and the share of calls with a right order that trees grown without them gave."""
    names = tuple(sizes_of(calls[0].call))
    x = np.array([[sizes_of(ran.call)[name] for name in names] for ran in calls])
    orders = sorted({ran.order for ran in calls}, key=repr)
    y = np.array([orders.index(ran.order) for ran in calls])
    fold = np.random.default_rng(0).integers(0, FOLDS, len(calls))
    given = np.zeros(len(calls), int)
    for at in range(FOLDS):
        tree = grow(x[fold != at], y[fold != at], DEPTH, least)
        given[fold == at] = [asked(tree, sizes) for sizes in x[fold == at]]
    is_right = (given == y) & np.array([orders[at] != ("unknown",) for at in given])
    shares: dict[str, list[bool]] = defaultdict(list)
    for at, right in zip(given, is_right, strict=True):
        shares[kind_of(orders[at])].append(bool(right))
    rows: list[list[Any]] = []

    def write(tree: Any, members: np.ndarray) -> None:
        place = len(rows)
        rows.append([])
        if isinstance(tree, tuple):
            size, at_most, left, right = tree
            below = x[members, size] <= at_most
            write(left, members[below])
            otherwise = len(rows)
            write(right, members[~below])
            rows[place] = [place, names[size], at_most, otherwise, "", "", "", "", "", "", ""]
            return
        best = int(tree.argmax())
        kernel = Counter(calls[at].kernel for at in members if y[at] == best).most_common(1)[0][0]
        of_kind = shares[kind_of(orders[best])]
        share = np.mean(of_kind if len(of_kind) >= FEWEST else is_right)
        numbers = (kernel.tile_m, kernel.tile_n, kernel.tile_k, kernel.slices)
        rows[place] = [place, "", "", "", kernel.name, *numbers, f"{share:.2f}", len(members)]

    write(grow(x, y, DEPTH, least), np.arange(len(calls)))
    return rows, float(is_right.mean())


def main() -> None:
    """Fit all trees and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--least", type=int, default=4, help="fewest calls of a leaf")
    arguments = parser.parse_args()
    calls = [ran for path in arguments.files for ran in read(path)]
    with arguments.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for direction in DIRECTIONS.values():
            for format in FORMATS:
                chosen = [ran for ran in calls if (ran.call.direction, ran.call.format) == (direction, format)]
                rows, right = fit(chosen, arguments.least)
                writer.writerows([direction, format, *row] for row in rows)
                known = sum(ran.order != ("unknown",) for ran in chosen)
                print(f"{direction} {format}: {len(chosen)} calls, {known} of a known order, right {right:.3f}")


if __name__ == "__main__":
    main()
