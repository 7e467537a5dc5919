"""Names and grids of the kernels that PyTorch runs for drawn convolutions and their gradients on this GPU.

    python lab/tools/record/convolutions.py --seed 1 --count 4000 --seconds 120 --out names.json.gz

Needs a GPU and PyTorch with CUDA; nothing of hwsim. OUT: `shapes` (operation, format, batch, channels, height, width,
filters, rows and columns of the filter, stride, padding, dilation, groups, layout), `names` of kernels, `answers`: of a
shape's index, (index of a name, grid) in order. lab/tools/library/fit_convolutions.py takes it. Layouts: nhwc, nchw,
nchw+ (1 x 1 filters stored as NCHW too).
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}
OPERATIONS = ["fprop", "dgrad", "wgrad"]
TOGETHER = 400  # calls whose kernels are recorded in one go
FEW = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 112, 128, 144, 160, 192, 240, 256, 288, 320, 384, 480,
       512, 576, 640, 672, 768, 960, 1024, 1280, 2048)  # fmt: skip
USUAL = (16, 32, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1024)
SIZES = (4, 7, 8, 10, 12, 14, 16, 20, 24, 27, 28, 32, 33, 40, 48, 56, 64, 80, 96, 112, 128, 224, 256)
BATCHES = (1, 1, 2, 2, 2, 3, 4, 4, 6, 8, 8, 16, 16, 32, 64)
MOST_PRODUCTS, MOST_ELEMENTS = 2e10, 6e7
Shape = list[Any]


def drawn_window(rng: random.Random) -> tuple[int, int, int, int, int, str]:
    """Rows and columns of a filter, stride, padding, dilation and a kind: "", "patch", "depthwise", "groups"."""
    kind = rng.random()
    if kind < 0.18:
        return 1, 1, rng.choice([1, 1, 1, 1, 2, 2]), 0, 1, ""
    if kind < 0.62:
        return 3, 3, rng.choice([1, 1, 1, 2]), rng.choice([1, 1, 1, 0]), 1, ""
    if kind < 0.67:
        dilation = rng.choice([2, 2, 4])
        return 3, 3, 1, rng.choice([dilation, dilation, 0]), dilation, ""
    if kind < 0.80:
        r, stride = rng.choice([(5, 1), (5, 1), (5, 2), (7, 1), (7, 2), (7, 2)])
        return r, r, stride, rng.choice([r // 2, r // 2, 0]), 1, ""
    if kind < 0.90:
        r = rng.choice([2, 2, 4, 4, 8, 14, 16, 16, 32])
        return r, r, r, 0, 1, "patch"
    if kind < 0.93:
        return *rng.choice([(1, 3), (3, 1), (1, 5), (1, 7), (7, 1), (1, 8), (1, 16)]), 1, 0, 1, ""
    if kind < 0.97:
        r = rng.choice([3, 3, 5, 7])
        return r, r, rng.choice([1, 1, 2]), r // 2, 1, "depthwise"
    r = rng.choice([3, 3, 1])
    return r, r, 1, r // 2, 1, "groups"


def drawn(rng: random.Random, operation: str, format: str) -> Shape:
    """One call that fits into memory and runs in a moment."""
    while True:
        r, s, stride, padding, dilation, kind = drawn_window(rng)
        c, o = (rng.choice(USUAL if rng.random() < 0.5 else FEW) for _ in range(2))
        if rng.random() < 0.15 or (kind == "patch" and rng.random() < 0.5):
            c = rng.choice([1, 3, 3, 3, 4])
        b, h, groups = rng.choice(BATCHES), rng.choice(SIZES), 1
        w = h if rng.random() < 0.85 else rng.choice(SIZES)
        if kind == "patch":
            h = w = r * rng.choice([4, 7, 8, 14, 16, 28, 32])
        if kind == "depthwise":
            o = groups = c
        if kind == "groups":
            groups = rng.choice([2, 4, 8, 16, 32])
        if (
            c % groups
            or o % groups
            or min(h + 2 * padding - dilation * (r - 1), w + 2 * padding - dilation * (s - 1)) < 1
        ):
            continue
        p, q = ((size + 2 * padding - dilation * (of - 1) - 1) // stride + 1 for size, of in ((h, r), (w, s)))
        if b * p * q * o * c // groups * r * s <= MOST_PRODUCTS and b * max(c * h * w, o * p * q) <= MOST_ELEMENTS:
            layout = "nchw+" if r * s == 1 and rng.random() < 0.25 else rng.choice(["nhwc", "nchw"])
            return [operation, format, b, c, h, w, o, r, s, stride, padding, dilation, groups, layout]


def tensor(sizes: tuple[int, int, int, int], dtype: torch.dtype, layout: str) -> torch.Tensor:
    """A tensor of whatever was there."""
    n, c, h, w = sizes
    if layout == "nchw+":
        return torch.empty(sizes, dtype=dtype, device="cuda")
    last = torch.empty((n, h, w, c), dtype=dtype, device="cuda").permute(0, 3, 1, 2)
    return last if layout == "nhwc" else last.contiguous()


def run(shape: Shape) -> None:
    """PyTorch's call."""
    operation, format, b, c, h, w, o, r, s, stride, padding, dilation, groups, layout = shape
    torch.backends.cudnn.allow_tf32 = format != "fp32"
    x, k = tensor((b, c, h, w), TYPES[format], layout), tensor((o, c // groups, r, s), TYPES[format], layout)
    if operation == "fprop":
        torch.nn.functional.conv2d(x, k, None, stride, padding, dilation, groups)
        return
    p, q = ((size + 2 * padding - dilation * (of - 1) - 1) // stride + 1 for size, of in ((h, r), (w, s)))
    dy, mask = tensor((b, o, p, q), TYPES[format], layout), [operation == "dgrad", operation == "wgrad", False]
    torch.ops.aten.convolution_backward(
        dy, x, k, None, [stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], groups, mask
    )


def kernels_of(runs: list[Callable[[], None]]) -> list[list[tuple[str, Any]]]:
    """(name, grid) of the kernels of each run, in order. A run that fails has none."""
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for call in runs:
            torch.cuda._sleep(100)  # its kernel stands between two runs
            try:
                call()
            except RuntimeError:
                torch.cuda.empty_cache()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    lists: list[list[tuple[str, Any]]] = []
    kernels = (event for event in events if event.get("cat") in ("kernel", "gpu_memset"))
    for event in sorted(kernels, key=lambda event: event["ts"]):
        if "spin_kernel" in event["name"]:
            lists.append([])
        elif lists:
            lists[-1].append((event["name"][:400], event.get("args", {}).get("grid")))
    return lists if len(lists) == len(runs) else [[] for _ in runs]


def main() -> int:
    """Run until the time is up, and write what came out so far. The exit code: 2 where calls are left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--operations", nargs="+", default=OPERATIONS, choices=OPERATIONS)
    parser.add_argument("--formats", nargs="+", default=list(TYPES), choices=list(TYPES))
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rng, start = random.Random(arguments.seed), time.time()
    shapes = [
        drawn(rng, rng.choice(arguments.operations), rng.choice(arguments.formats)) for _ in range(arguments.count)
    ]
    names: dict[str, int] = {}
    answers: list[tuple[int, list[tuple[int, Any]]]] = []
    run(["fprop", "bf16", 1, 8, 8, 8, 8, 3, 3, 1, 1, 1, 1, "nhwc"])
    left = len(shapes)
    for at in range(0, len(shapes), TOGETHER):
        if time.time() - start > arguments.seconds:
            break
        left = max(0, len(shapes) - at - TOGETHER)
        part = shapes[at : at + TOGETHER]
        for place, kernels in enumerate(kernels_of([lambda shape=shape: run(shape) for shape in part])):
            if kernels:
                answers.append((at + place, [(names.setdefault(name, len(names)), grid) for name, grid in kernels]))
    with gzip.open(arguments.out, "wt") as file:
        about = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "cudnn": torch.backends.cudnn.version(),
        }
        json.dump({**about, "shapes": shapes, "names": list(names), "answers": answers}, file)
    print(f"{len(answers)} of {len(shapes)} calls named, {left} left, {time.time() - start:.0f} s")
    return 2 if left else 0


if __name__ == "__main__":
    sys.exit(main())
