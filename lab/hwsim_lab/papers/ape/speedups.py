"""Ape's Fig. 10 and section 5.2: speedups over native FP32 and over the earlier emulation, on three GPUs.

It knows devices, schemes and the sizes that stand in for those which the paper does not give.
"""

from __future__ import annotations

import math
from typing import Any

from hwsim.api import run
from hwsim.devices import changed, load
from hwsim_lab.papers.ape.rates import EDGES, ROWS
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.rates import tflops

CHIPS = ("a100", "v100", "t4")
EGEMM: dict[str, Any] = {"scheme": "egemm-tc"}
SPLITS = ("split_a", "split_b")
EDGE_OF_SPLIT = 2048
FALLBACK_EDGES = (2048, 3072, 4096, 6144, 8192, 12288)
CLAIMS = (
    "sec5-2-1024-rates", "sec5-2-1024-ratio", "fig10-a100-fp32f", "fig10-a100-fp32b",
    "fig10-a100-fp32f-and-fp32b-faster", "fig10-a100-fp32m", "fig10-v100-fp32f", "fig10-t4-fp32f", "fig10-v100-fp32m",
    "fig10-t4-fp32m", "fig10-device-ranking", "fig10-t4-egemm-small", "fig10-t4-egemm-large", "fig10-t4-bandwidth",
    "fig10-t4-split-share", "fig10-split-share-devices", "sec5-3-fallback-fp32-poor",
)  # fmt: skip
LAUNCHES = "A run of 1024^3 is of a few microseconds' kernels; no time from one kernel to the next is in it."


def faster(device: str, name: str, than: dict[str, Any], edges: tuple[int, ...] = EDGES) -> list[float]:
    """How many times as fast a row of ROWS is as other options, over square GEMMs."""
    return [tflops(device, n, n, n, **ROWS[name]) / tflops(device, n, n, n, **than) for n in edges]


def split_share(device: Any) -> float:
    """Per cent of FP32-F's time that the splits of A and B take."""
    n = EDGE_OF_SPLIT
    result = run(m=n, n=n, k=n, device=device, exact=False, scheme="ape-fp32-f")
    seconds = {str(phase["name"]): float(phase["seconds"]) for phase in result.phases}
    return 100 * sum(seconds[name] for name in SPLITS) / sum(seconds.values())


def bandwidth(device: str) -> float:
    """GB/s of the device's memory."""
    hbm = load(device).hbm
    return 0.0 if hbm is None else float(hbm.bytes_per_second) / 1e9


def measure(scale: Scale) -> Found:
    """Rates of every type on the three GPUs, each run once."""
    native = {chip: faster(chip, "FP32-F", ROWS["FP32"]) for chip in CHIPS}
    earlier = {chip: faster(chip, "FP32-F", ROWS["FP32-M"]) for chip in CHIPS}
    wide = faster("a100", "FP32-B", ROWS["FP32"])
    egemm = faster("t4", "FP32-F", EGEMM)
    small_f, small_b = (tflops("a100", 1024, 1024, 1024, **ROWS[name]) for name in ("FP32-F", "FP32-B"))
    double = changed(load("t4"), {"hbm.bytes_per_second": 2e9 * bandwidth("t4")})
    means = [math.exp(sum(map(math.log, native[chip])) / len(EDGES)) for chip in CHIPS]
    seconds = {name: [2e-12 * n**3 / tflops("a100", n, n, n, **ROWS[name]) for n in FALLBACK_EDGES] for name in ROWS}
    measured: dict[str, dict[str, Any]] = {
        "sec5-2-1024-rates": {"fp32f": small_f, "fp32b": small_b},
        "sec5-2-1024-ratio": {"ratio": 100 * small_b / small_f},
        "fig10-a100-fp32f": {"speedup": native["a100"]},
        "fig10-a100-fp32b": {"speedup": wide},
        "fig10-a100-fp32f-and-fp32b-faster": {"fp32f": native["a100"], "fp32b": wide},
        "fig10-a100-fp32m": {"speedup": earlier["a100"]},
        "fig10-v100-fp32f": {"speedup": native["v100"]},
        "fig10-t4-fp32f": {"speedup": native["t4"]},
        "fig10-v100-fp32m": {"speedup": earlier["v100"]},
        "fig10-t4-fp32m": {"speedup": earlier["t4"]},
        "fig10-device-ranking": {"speedups": means},
        "fig10-t4-egemm-small": {"speedup": egemm[:3]},
        "fig10-t4-egemm-large": {"speedup": egemm[3:], "small": egemm[0]},
        "fig10-t4-bandwidth": {"bandwidth": [bandwidth(chip) for chip in ("t4", "v100", "a100")]},
        "fig10-t4-split-share": {"share": split_share("t4")},
        "fig10-split-share-devices": {
            "share": [split_share(chip) for chip in ("t4", "v100", "a100")], "half": split_share(double),
        },
        "sec5-3-fallback-fp32-poor": {
            "fp32": seconds["FP32"], "fp32b": seconds["FP32-B"], "fp32f": seconds["FP32-F"],
        },
    }  # fmt: skip
    same = "Both have hwsim's pipelined kernel here, four products against three; the paper's kernels differ by more."
    notes = dict.fromkeys(("sec5-2-1024-rates", "sec5-2-1024-ratio"), LAUNCHES)
    notes |= dict.fromkeys(("fig10-t4-egemm-small", "fig10-t4-egemm-large"), same)
    rows = [(chip, n, x) for chip in CHIPS for n, x in zip(EDGES, native[chip], strict=True)]
    device, edge, speedup = (list(column) for column in zip(*rows, strict=True))
    columns = {"device": device, "m = n = k": edge, "FP32-F over FP32": speedup}
    return Found(
        measured, notes, (Series("fig10", columns, x="m = n = k", y="FP32-F over FP32", by="device", log="x"),)
    )


EXPERIMENTS = (Experiment("speedups", CLAIMS, measure, {"quick": 40, "full": 40}),)
