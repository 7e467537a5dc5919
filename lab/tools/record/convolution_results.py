"""Results of drawn convolutions and their gradients by PyTorch on this GPU, whose operands are drawn again elsewhere.

    python lab/tools/record/convolution_results.py record --seed 5001 --count 200 --seconds 40 --out blind.npz   # a GPU
    python lab/tools/record/convolution_results.py compare blind.npz --device h200                               # hwsim

`record` needs PyTorch with CUDA and NumPy. The calls are convolutions.py's, of at most MOST_PRODUCTS multiply-adds.
OUT: `meta` (JSON: the calls, and of each whether a second run gave other bits), "INDEX" (the bits that are `kept`).
`record` exits with 2 where its time was up before its calls; OUT has those that were run, and says how many there are.
`compare` computes whole calls by `hwsim.torch.emulate(library="pytorch")`; exit 1 where one differs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import convolutions
import numpy as np
import torch
from convolutions import OPERATIONS, TYPES, Shape

MOST_PRODUCTS, MOST_ELEMENTS, PLACES = 1e9, 2e6, 4096


def calls(seed: int, count: int) -> list[Shape]:
    """Drawn calls, small enough for a simulator."""
    rng = random.Random(f"results{seed}")
    convolutions.MOST_PRODUCTS, convolutions.MOST_ELEMENTS = MOST_PRODUCTS, MOST_ELEMENTS
    return [convolutions.drawn(rng, rng.choice(OPERATIONS), rng.choice(list(TYPES))) for _ in range(count)]


def operands(shape: Shape, seed: int, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The images, the filters and the gradient of the result, of normal numbers, as the call's layout stores them."""
    _, format, b, c, h, w, o, r, s, stride, padding, dilation, groups, layout = shape
    p, q = ((size + 2 * padding - dilation * (of - 1) - 1) // stride + 1 for size, of in ((h, r), (w, s)))
    rng, tensors = np.random.default_rng([seed, index]), []
    for sizes in ((b, c, h, w), (o, c // groups, r, s), (b, o, p, q)):
        n, channels, height, width = sizes
        values = torch.from_numpy(rng.standard_normal((n, height, width, channels), dtype=np.float32))
        x = values.to(TYPES[format]).permute(0, 3, 1, 2)
        tensors.append(x if layout == "nhwc" else x.contiguous())
    return tensors[0], tensors[1], tensors[2]


def run(shape: Shape, x: torch.Tensor, k: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """PyTorch's call."""
    operation, _, *_, stride, padding, dilation, groups, _ = shape
    if operation == "fprop":
        return torch.nn.functional.conv2d(x, k, None, stride, padding, dilation, groups)
    mask = [operation == "dgrad", operation == "wgrad", False]
    results = torch.ops.aten.convolution_backward(
        dy, x, k, None, [stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], groups, mask
    )
    return next(result for result, is_wanted in zip(results, mask, strict=True) if is_wanted)


def set_switch(shape: Shape) -> None:
    """PyTorch's switch for a call's format; hwsim reads it where `emulate` is entered."""
    torch.backends.cudnn.allow_tf32 = shape[1] != "fp32"


def kept(result: torch.Tensor, seed: int, index: int) -> np.ndarray:
    """The bits of PLACES elements at most, in the order (n, c, h, w)."""
    flat = result.cpu().contiguous().reshape(-1)
    if flat.numel() > PLACES:
        places = np.random.default_rng([seed, index, 1]).choice(flat.numel(), PLACES, replace=False)
        flat = flat[torch.from_numpy(np.sort(places))]
    return flat.view(torch.int32 if flat.dtype == torch.float32 else torch.int16).numpy()


def record(seed: int, count: int, seconds: float, out: Path) -> int:
    """The GPU's, until the time is up; returns how many calls are left."""
    start, arrays, entries = time.time(), dict[str, Any](), []
    for index, shape in enumerate(calls(seed, count)):
        if time.time() - start > seconds:
            break
        on_gpu = [x.cuda() for x in operands(shape, seed, index)]
        entry: dict[str, Any] = {"index": index, "shape": shape}
        set_switch(shape)
        try:
            first, second = (kept(run(shape, *on_gpu), seed, index) for _ in range(2))
        except RuntimeError as error:
            entry["error"] = str(error).splitlines()[0][:200]
        else:
            arrays[str(index)], entry["changes"] = first, not np.array_equal(first, second)
        entries.append(entry)
    meta = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
        "seed": seed, "count": count, "entries": entries,
    }  # fmt: skip
    np.savez_compressed(out, meta=np.array(json.dumps(meta)), **arrays)
    left = count - len(entries)
    print(f"{len(arrays)} of {count} calls, {left} left, {time.time() - start:.0f} s", flush=True)
    return left


def compare(path: Path, device: str) -> bool:
    """Prints how many calls are equal in all kept bits, by operation and format, and each that differs."""
    import hwsim.torch

    with np.load(path) as archive:
        meta = json.loads(str(archive["meta"]))
        bits = {int(name): archive[name] for name in archive.files if name != "meta"}
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for entry in meta["entries"]:
        index, shape = entry["index"], entry["shape"]
        if index not in bits:
            continue
        tensors = operands(shape, meta["seed"], index)
        set_switch(shape)
        with hwsim.torch.emulate(device=device, library="pytorch", measure_every=0):
            got = kept(run(shape, *tensors), meta["seed"], index)
        wrong = int((got != bits[index]).sum())
        for group in (f"{shape[0]} {shape[1]}", shape[0], "all"):
            counts[group][0] += not wrong
            counts[group][1] += 1
            counts[group][2] += bool(wrong) and entry["changes"]
        if wrong:
            print(
                "differs:", *shape, f"{wrong} of {bits[index].size}", "changes" if entry["changes"] else "", flush=True
            )
    for group, (equal, count, changing) in sorted(counts.items()):
        print(
            f"{group:12} {equal:4} of {count:4} equal in every bit; {changing} that differ change on the GPU",
            flush=True,
        )
    return counts["all"][0] == counts["all"][1]


def main() -> int:
    """Run a verb."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    recorder, comparer = verbs.add_parser("record"), verbs.add_parser("compare")
    recorder.add_argument("--seed", type=int, default=1)
    recorder.add_argument("--count", type=int, default=200)
    recorder.add_argument("--seconds", type=float, default=60)
    recorder.add_argument("--out", type=Path, required=True)
    comparer.add_argument("file", type=Path)
    comparer.add_argument("--device", default="h200")
    given = parser.parse_args()
    if given.verb == "record":
        return 2 if record(given.seed, given.count, given.seconds, given.out) else 0
    return 0 if compare(given.file, given.device) else 1


if __name__ == "__main__":
    sys.exit(main())
