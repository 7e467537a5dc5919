"""Ape's kernels (its sections 6 and 7.5): where operands are split, and which tile and split of K is the fastest.

It knows devices and schemes by name, and the tiles that stand in for those which the paper does not give.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

from hwsim.api import run
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.plan import Plan
from hwsim.schemes import Scheme, scheme_of
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

SPLITS = (
    ("v100", "ape-fp32-f"),
    ("t4", "ape-fp32-f"),
    ("a100", "ape-fp32-f"),
    ("a100", "ape-fp32-t"),
    ("a100", "ape-fp32-b"),
)
SPLIT_EDGES = (1024, 2048, 3072, 4096, 6144, 8192)
TILES = ((64, 64, 32), (128, 64, 32), (128, 128, 32), (256, 128, 32))
SLICES = (1, 2, 4)
KERNELS = tuple((tile, slices) for tile in TILES for slices in SLICES)
EDGES = (1024, 2048, 4096, 8192, 12288, 16384)
NEAR = 1.1  # at quick scale the largest sizes run the kernels within this factor of the best at the size before
NEAR_FROM = 8192


def splitting_inside(name: str) -> Scheme:
    """The scheme whose GEMM kernel loads FP32 and splits it on the way to the unit."""
    own = scheme_of(name)

    def plan(options: Any, problem: Any) -> Plan:
        made = own.plan(options, problem)
        assert isinstance(made, Plan)
        return replace(made, split_in="kernel")

    return replace(own, plan=plan)


def seconds(device: str, edge: int, scheme: str | Scheme, **options: Any) -> float:
    """Of a square GEMM with its splits; infinite where the device has no such kernel."""
    try:
        found = run(m=edge, n=edge, k=edge, device=device, exact=False, scheme=scheme, **options).seconds
    except (InputError, UnsupportedError):
        return math.inf
    return math.inf if found is None else found


@cache
def kernel_seconds(edge: int, index: int) -> float:
    """Of one of KERNELS, FP32-F on the A100."""
    tile, slices = KERNELS[index]
    return seconds("a100", edge, "ape-fp32-f", tile=tile, split_k=slices)


def splits(scale: Scale) -> Found:
    """Section 6: the split in the GEMM kernel, and in a pass before it."""
    rows: list[tuple[str, int, float]] = []
    for device, scheme in SPLITS:
        for edge in SPLIT_EDGES:
            ratio = seconds(device, edge, splitting_inside(scheme)) / seconds(device, edge, scheme)
            rows.append((f"{device} {scheme.removeprefix('ape-').upper()}", edge, ratio))
    measured: dict[str, dict[str, Quantity]] = {"sec6-casting-in-or-out": {"ratio": [row[2] for row in rows]}}
    note = "Each kernel has the tile that hwsim's estimate finds best for it."
    columns: dict[str, list[Any]] = {
        "device, type": [row[0] for row in rows],
        "m = n = k": [row[1] for row in rows],
        "inside over before": [row[2] for row in rows],
    }
    series = Series("section6", columns, x="m = n = k", y="inside over before", by="device, type", log="x")
    return Found(measured, {"sec6-casting-in-or-out": note}, (series,))


def fastest(scale: Scale) -> Found:
    """Section 7.5: the fastest of the kernels at each size."""
    times: list[dict[int, float]] = []
    for edge in EDGES:
        tried = list(range(len(KERNELS)))
        if scale == "quick" and edge >= NEAR_FROM:
            before = times[-1]
            tried = [index for index in before if before[index] <= NEAR * min(before.values())]
        times.append({index: kernel_seconds(edge, index) for index in tried})
    best = [min(one, key=one.__getitem__) for one in times]
    names = [f"{'x'.join(map(str, KERNELS[index][0][:2]))}, split {KERNELS[index][1]}" for index in best]
    last = sorted(times[-1].values())
    note = "Fastest: " + "; ".join(f"{edge}: {name}" for edge, name in zip(EDGES, names, strict=True)) + "."
    if len(last) > 1:
        note += f" At 16384 the second one is {100 * (last[1] / last[0] - 1):.1f} % slower."
    if scale == "quick":
        note += f" From {NEAR_FROM} on only kernels within 10 % of the best at the size before are run: "
        note += " and ".join(str(len(one)) for edge, one in zip(EDGES, times, strict=True) if edge >= NEAR_FROM)
        note += f" of {len(KERNELS)}."
    rows = [(index, edge, one) for edge, found in zip(EDGES, times, strict=True) for index, one in found.items()]
    columns: dict[str, list[Any]] = {
        "kernel": [str(row[0]) for row in rows],
        "m = n = k": [row[1] for row in rows],
        "TFLOP/s": [2 * row[1] ** 3 / row[2] / 1e12 for row in rows],
    }
    series = Series("kernels", columns, x="m = n = k", y="TFLOP/s", by="kernel", log="x")
    return Found({"sec7-5-kernel-by-size": {"best": list(best)}}, {"sec7-5-kernel-by-size": note}, (series,))


EXPERIMENTS = (
    Experiment("place of the split", ("sec6-casting-in-or-out",), splits, {"quick": 6, "full": 6}),
    Experiment("fastest kernels", ("sec7-5-kernel-by-size",), fastest, {"quick": 4, "full": 100}),
)
