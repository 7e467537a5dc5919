"""Times of Ape's hybrid GEMM (its Fig. 8, section 5.3, Fig. 16): two kernels by shares of block products, and masks.

It knows the scheme `ape` by name, the phases of its program, and the sizes that stand in for those not given.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hwsim.api import run
from hwsim.devices import changed, load
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series

DEVICE = "a100"
EDGE = 8192
SHARES = tuple(range(0, 101, 10))  # per cent of block products in FP32-B
WIDE_OF_FIG16 = 40
WRITTEN_BACK, SMALL_L2 = 2048, 1 << 20
EDGES: dict[Scale, tuple[int, ...]] = {"quick": (1024, 2048, 4096, 8192), "full": (1024, 2048, 4096, 8192, 16384)}
OVERHEAD = ("mask_", "count")  # beginnings of the names of the kernels that classify and count blocks
SPREAD = "The blocks of each type are spread evenly over C: in hwsim one kernel per type runs over its share of K."
FIG8 = ("fig8-best-type-changes", "fig8-hybrid-falls", "fig8-fp32f-fastest")
MODEL = ("sec5-3-model-predicts", "sec5-3-decider-picks-best")
FIG16 = ("fig16-overhead-negligible", "fig16-time-saved", "fig16-fp32b-part-larger")


@cache
def hybrid(edge: int, wide: int, l2_bytes: int | None = None) -> dict[str, float]:
    """Seconds of the masks ("overhead") and of each type's kernels, its splits among them ("fp32-f", "fp32-b").

    l2_bytes: capacity of L2 instead of the device's.
    """
    chip = load(DEVICE) if l2_bytes is None else changed(load(DEVICE), {"l2.capacity_bytes": l2_bytes})
    result = run(m=edge, n=edge, k=edge, device=chip, exact=False, scheme="ape", wide_percent=wide)
    found = {"overhead": 0.0, "fp32-f": 0.0, "fp32-b": 0.0}
    for phase in result.phases:
        name = str(phase["name"])
        found["overhead" if name.startswith(OVERHEAD) else name.split(".")[0]] += float(phase["seconds"])
    return found


@cache
def pure(edge: int, strategy: str) -> float:
    """Seconds of one type for all blocks, without masks."""
    result = run(m=edge, n=edge, k=edge, device=DEVICE, exact=False, scheme="ape", strategy=strategy)
    assert result.seconds is not None
    return float(result.seconds)


def figure8(scale: Scale) -> Found:
    """Fig. 8: the hybrid over shares of FP32-B, between the two pure types."""
    whole = [sum(hybrid(EDGE, share).values()) for share in SHARES]
    rate = [2 * EDGE**3 / seconds / 1e12 for seconds in whole]
    narrow, wide = pure(EDGE, "fp32-f"), pure(EDGE, "fp32-b")
    measured: dict[str, dict[str, Quantity]] = {
        "fig8-best-type-changes": {"hybrid": whole, "fp32b": wide},
        "fig8-hybrid-falls": {"rate": rate},
        "fig8-fp32f-fastest": {"fp32f": narrow, "fp32b": wide, "hybrid": whole},
    }
    crossing = next((share for share, one in zip(SHARES, whole, strict=True) if one > wide), None)
    where = f" It is slower than FP32-B alone from {crossing} % on." if crossing is not None else ""
    rows: list[tuple[str, int, float]] = [("hybrid", share, one) for share, one in zip(SHARES, rate, strict=True)]
    for name, seconds in (("FP32-F", narrow), ("FP32-B", wide)):
        rows += [(name, share, 2 * EDGE**3 / seconds / 1e12) for share in SHARES]
    columns: dict[str, list[Any]] = {
        "type": [row[0] for row in rows],
        "FP32-B blocks (%)": [row[1] for row in rows],
        "TFLOP/s": [row[2] for row in rows],
    }
    series = Series("fig8", columns, x="FP32-B blocks (%)", y="TFLOP/s", by="type")
    return Found(measured, dict.fromkeys(FIG8, SPREAD + where), (series,))


def model(scale: Scale) -> Found:
    """Section 5.3: the linear model beside the simulated kernels, and what it picks."""
    narrow, wide = pure(EDGE, "fp32-f"), pure(EDGE, "fp32-b")
    predicted = [narrow + (wide - narrow) * share / 100 for share in SHARES]
    kernels = [sum(hybrid(EDGE, share).values()) - hybrid(EDGE, share)["overhead"] for share in SHARES]
    picked, best = [], []
    for share, by_model, simulated in zip(SHARES, predicted, kernels, strict=True):
        allowed = [(by_model, simulated), (wide, wide)] + ([(narrow, narrow)] if share == 0 else [])
        picked.append(min(allowed)[1])
        best.append(min(time for _, time in allowed))
    measured: dict[str, dict[str, Quantity]] = {
        "sec5-3-model-predicts": {"predicted": predicted[1:-1], "simulated": kernels[1:-1]},
        "sec5-3-decider-picks-best": {"picked": picked, "best": best},
    }
    note = "Splits of the operands are in all times; the mask scan, made before any choice, is in none. " + SPREAD
    return Found(measured, dict.fromkeys(MODEL, note))


def figure16(scale: Scale) -> Found:
    """Fig. 16: what masks cost where 40 % of block products are FP32-B."""
    edges = EDGES[scale]
    parts = [hybrid(edge, WIDE_OF_FIG16) for edge in edges]
    whole = [sum(part.values()) for part in parts]
    overhead, narrow, wide = ([part[name] for part in parts] for name in ("overhead", "fp32-f", "fp32-b"))
    plain = [pure(edge, "fp32-b") for edge in edges]
    shares = [100 * one / total for one, total in zip(overhead, whole, strict=True)]
    measured: dict[str, dict[str, Quantity]] = {
        "fig16-overhead-negligible": {"share": shares},
        "fig16-time-saved": {"ratio": [slow / total for slow, total in zip(plain, whole, strict=True)]},
        "fig16-fp32b-part-larger": {"fp32f": narrow, "fp32b": wide, "overhead": overhead},
    }
    said = (
        "16384 is left out at this scale; the smallest sizes decide, where masks cost most. "
        if scale == "quick"
        else ""
    )
    said += "Share of the masks over the sizes: " + ", ".join(f"{share:.1f}" for share in shares) + " %. "
    said += (
        "hwsim's mask kernels read each operand once, without launch overhead. Runs follow one another: what is in L2 "
    )
    said += "from the run before helps at 1024, and hinders at 2048, where it is written back. "
    small = hybrid(WRITTEN_BACK, WIDE_OF_FIG16, SMALL_L2)
    share = 100 * small["overhead"] / sum(small.values())
    said += f"With an L2 of 1 MB the masks of {WRITTEN_BACK} take {share:.1f} %."
    notes = dict.fromkeys(FIG16, said)
    rows = [
        (name, edge, 1e3 * part[key])
        for name, key in (("overhead", "overhead"), ("FP32-F", "fp32-f"), ("FP32-B", "fp32-b"))
        for edge, part in zip(edges, parts, strict=True)
    ]
    rows += [("FP32-B alone", edge, 1e3 * seconds) for edge, seconds in zip(edges, plain, strict=True)]
    columns: dict[str, list[Any]] = {
        "part": [row[0] for row in rows], "m = n = k": [row[1] for row in rows], "ms": [row[2] for row in rows],
    }  # fmt: skip
    return Found(measured, notes, (Series("fig16", columns, x="m = n = k", y="ms", by="part", log="xy"),))


EXPERIMENTS = (
    Experiment("hybrid over shares", FIG8, figure8, {"quick": 5, "full": 5}),
    Experiment("hybrid's model", MODEL, model, {"quick": 5, "full": 5}),
    Experiment("hybrid's overhead", FIG16, figure16, {"quick": 1, "full": 8}),
)
