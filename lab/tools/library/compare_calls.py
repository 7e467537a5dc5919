"""hwsim's calls of PyTorch beside those that a GPU ran: how many come out to the bit, and how many choices are right.

    python lab/tools/library/compare_calls.py FILE.npz [--told] [--json]

FILE is what lab/tools/record/pytorch_calls.py wrote, or such a file cut to smaller blocks. --told takes cuBLASLt's own
answers in the file in place of hwsim's choice: orders of summation alone are compared. Exit 1 where one differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import hwsim
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.libraries.cublas.answer import Answer
from hwsim.libraries.cublas.answers.store import store
from hwsim.libraries.cublas.calls import CublasGemm
from hwsim.libraries.cublas.orders.families import NVJET, usual_tables
from hwsim.libraries.cublas.versions import version_of
from hwsim.libraries.recording.gemm_list import drawn_wide

DEVICE = "h100"
BLOCK = 64  # rows and columns that were recorded
DTYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32}
#: What the library is told in serving's batch-invariant mode; PyTorch's defaults are `library="pytorch"`'s.
SERVING = {"workspace_bytes": 1 << 17, "lt_workspace_bytes": 1 << 10}
#: What the library is told by PyTorch's switches: at their defaults, and with allow_splitk=False.
OF_SWITCHES: dict[str, dict[str, Any]] = {"default": {}, "whole": {"reductions": "none"}}
Entry = dict[str, Any]


@dataclass(frozen=True)
class Recording:
    """A file: its calls, and the bits of their blocks by index."""

    seed: int
    mode: str
    entries: tuple[Entry, ...]
    blocks: dict[int, np.ndarray]


def read(path: Path) -> Recording:
    """A recorded file."""
    with np.load(path) as archive:
        said = json.loads(str(archive["meta"]))
        entries = tuple(entry for entry in said["entries"] if f"{entry['index']}/d" in archive)
        blocks = {entry["index"]: archive[f"{entry['index']}/d"] for entry in entries}
    return Recording(said["seed"], said["mode"], entries, blocks)


def is_ragged(entry: Entry) -> bool:
    """Whether rows of an operand or of the result are not whole 16 bytes."""
    m, n, k = (entry[name] for name in "mnk")
    a, b = m if entry["a_layout"] == "columns" else k, n if entry["b_layout"] == "rows" else k
    return any(size % 8 for size in (a, b, n))


def told_of(entry: Entry, mode: str) -> dict[str, Any]:
    """Options of the library for a call in a mode."""
    if mode in OF_SWITCHES:
        return OF_SWITCHES[mode]
    return {**SERVING, "reductions": "compute" if entry["output"] == entry["format"] else "any"}


@lru_cache(maxsize=1)  # a call is compared twice: with the library's own answer, and as hwsim chooses
def _drawn(seed: int, index: int, m: int, n: int, k: int) -> tuple[np.ndarray, ...]:
    return drawn_wide(seed, index, m, n, k, BLOCK)


def operands(entry: Entry, seed: int, shape: tuple[int, int]) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Options of the block's product, its rows of A and its columns of B."""
    rows, columns, a, b, bias, c = _drawn(seed, entry["index"], entry["m"], entry["n"], entry["k"])
    high, wide = shape
    operand, result = DTYPES[entry["format"]], DTYPES[entry["output"]]
    options: dict[str, Any] = {"format": entry["format"], "output": entry["output"], "shape": (entry["m"], entry["n"])}
    options["at"] = rows[:high], columns[:wide]
    if entry["what"] == "linear":
        options["bias"] = bias[:wide].astype(result)
    if entry["what"] == "addmm":
        options |= {"c": c[:high, :wide].astype(result), "alpha": entry["alpha"], "beta": entry["beta"]}
    return options, a[:high].astype(operand), b[:, :wide].astype(operand)


def block(entry: Entry, recording: Recording, *, is_told: bool = False) -> np.ndarray:
    """The recorded block as hwsim has it."""
    options, a, b = operands(entry, recording.seed, recording.blocks[entry["index"]].shape)
    layouts = {name: entry[name] for name in ("a_layout", "b_layout")}
    if is_told:
        return hwsim.matmul(a, b, device=DEVICE, schedule=told_schedule(entry), **options)
    told = told_of(entry, recording.mode)
    if entry["batch"] > 1:  # all products of a batch have one schedule
        library = hwsim.library("pytorch", device=DEVICE)
        sizes = {name: entry[name] for name in ("m", "n", "k", "batch", "format", "output")}
        choice = library.choose(**sizes, **layouts, **told)
        return hwsim.matmul(a, b, device=DEVICE, schedule=choice.schedule, **options)
    return hwsim.matmul(a, b, device=DEVICE, library="pytorch", **layouts, **told, **options)


def told_schedule(entry: Entry) -> Schedule:
    """The order of summation that cuBLASLt's answer says."""
    number, tile, stages, slices, reduction, swizzle, custom, _, cluster = entry["answer"]
    trees, tables = store(version_of(None).path), usual_tables()
    call = CublasGemm(*(entry[x] for x in ("m", "n", "k", "format", "output", "a_layout", "b_layout")))
    answer = Answer(
        algorithm=number,
        tile_k=trees.stages.get(stages, (None, 0))[0],
        slices=slices,
        reduction=reduction,
        custom=0 if number == NVJET else custom,
        tile=trees.tiles.get(tile),
        cluster=trees.clusters.get(cluster),
        swizzle=swizzle,
    )
    family, is_lt = tables.families[number], entry["what"] == "linear" and min(entry["n"], entry["k"]) > 1
    is_added = entry["what"] == "linear" or (entry["what"] == "addmm" and entry["beta"] == 1)
    is_rounded = family.is_rounded_before_bias(max(slices, 1), reduction, is_lt)
    product = entry["output"] if is_added and is_rounded and entry["output"] != "fp32" else None
    return replace(tables.order_of(call, answer).schedule, epilogue=Epilogue(product_format=product))


def compared(recording: Recording, *, is_told: bool = False, every: int = 1) -> Iterator[tuple[Entry, int]]:
    """Each call (or each n-th), and how many results of its block differ."""
    for entry in recording.entries[::every]:
        yield entry, count_differing(entry, recording, is_told=is_told)


def count_differing(entry: Entry, recording: Recording, *, is_told: bool = False) -> int:
    """How many results of a call's block differ."""
    d = recording.blocks[entry["index"]]
    got = np.ascontiguousarray(block(entry, recording, is_told=is_told)).view(d.dtype)
    return int((got != d).sum())


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--told", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--device", default=DEVICE, help="hwsim's device of the GPU that was recorded")
    arguments = parser.parse_args()
    globals()["DEVICE"] = arguments.device
    recording = read(arguments.file)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    differing = []
    for entry, wrong in compared(recording, is_told=arguments.told):
        for group in ("all", f"{entry['what']}{', ragged' if is_ragged(entry) else ''}"):
            counts[group][0] += not wrong
            counts[group][1] += 1
        if wrong:
            differing.append({name: entry[name] for name in ("what", "m", "n", "k", "format", "output", "answer")})
    if arguments.json:
        print(json.dumps({"equal": dict(counts), "differing": differing}))
        return int(bool(differing))
    for group, (equal, count) in sorted(counts.items()):
        print(f"{group:16} {equal:5} of {count:5} equal in every bit, {100 * equal / count:.1f} %")
    for one in differing:
        print("differs:", *one.values())
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
