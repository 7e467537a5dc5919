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
HYBRID_EDGES = (2048, 3072, 4096, 6144, 8192, 12288)
SHARES = tuple(range(0, 101, 10))  # per cent of block products in FP32-B
WIDE_OF_FIG16 = 40
WRITTEN_BACK, SMALL_L2 = 2048, 1 << 20
EDGES = (1024, 2048, 4096, 8192, 12288, 16384)
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
    whole = {n: [sum(hybrid(n, share).values()) for share in SHARES] for n in HYBRID_EDGES}
    narrow, wide = ([pure(n, strategy) for n in HYBRID_EDGES] for strategy in ("fp32-f", "fp32-b"))
    hybrids = list(whole.values())
    measured: dict[str, dict[str, Any]] = {
        "fig8-best-type-changes": {"hybrid": hybrids, "fp32b": wide},
        "fig8-hybrid-falls": {"rate": [[2e-12 * n**3 / seconds for seconds in whole[n]] for n in HYBRID_EDGES]},
        "fig8-fp32f-fastest": {"fp32f": narrow, "fp32b": wide, "hybrid": hybrids},
    }
    crossings = [
        next((share for share, one in zip(SHARES, whole[n], strict=True) if one > pure(n, "fp32-b")), None)
        for n in HYBRID_EDGES
    ]
    where = " It is slower than FP32-B alone from these per cent on, by size: " + ", ".join(
        f"{n}: {'never' if share is None else share}" for n, share in zip(HYBRID_EDGES, crossings, strict=True)
    )
    largest = HYBRID_EDGES[-1]
    rows: list[tuple[str, int, float]] = [
        ("hybrid", share, seconds) for share, seconds in zip(SHARES, whole[largest], strict=True)
    ]
    for name, seconds in (("FP32-F", narrow[-1]), ("FP32-B", wide[-1])):
        rows += [(name, share, seconds) for share in SHARES]
    columns: dict[str, list[Any]] = {
        "type": [row[0] for row in rows],
        "FP32-B blocks (%)": [row[1] for row in rows],
        "TFLOP/s": [2e-12 * largest**3 / row[2] for row in rows],
    }
    series = Series("fig8", columns, x="FP32-B blocks (%)", y="TFLOP/s", by="type")
    return Found(measured, dict.fromkeys(FIG8, f"{SPREAD}{where}."), (series,))


def model(scale: Scale) -> Found:
    """Section 5.3: the linear model beside the simulated kernels, and what it picks."""
    by_size = [_predicted(n) for n in HYBRID_EDGES]
    measured = {claim: {name: [one[claim][name] for one in by_size] for name in by_size[0][claim]} for claim in MODEL}
    note = "Splits of the operands are in all times; the mask scan, made before any choice, is in none. " + SPREAD
    return Found(measured, dict.fromkeys(MODEL, note))


def _predicted(n: int) -> dict[str, dict[str, list[float]]]:
    """Quantities of MODEL's claims at a size: the linear model's times and choices beside the simulated kernels'."""
    narrow, wide = pure(n, "fp32-f"), pure(n, "fp32-b")
    predicted = [narrow + (wide - narrow) * share / 100 for share in SHARES]
    kernels = [sum(hybrid(n, share).values()) - hybrid(n, share)["overhead"] for share in SHARES]
    picked, best = [], []
    for share, by_model, simulated in zip(SHARES, predicted, kernels, strict=True):
        allowed = [(by_model, simulated), (wide, wide)] + ([(narrow, narrow)] if share == 0 else [])
        picked.append(min(allowed)[1])
        best.append(min(time for _, time in allowed))
    return {
        "sec5-3-model-predicts": {"predicted": predicted[1:-1], "simulated": kernels[1:-1]},
        "sec5-3-decider-picks-best": {"picked": picked, "best": best},
    }


def figure16(scale: Scale) -> Found:
    """Fig. 16: what masks cost where 40 % of block products are FP32-B."""
    edges = EDGES
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
    said = "Share of the masks over the sizes: " + ", ".join(f"{share:.1f}" for share in shares) + " %. "
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
    Experiment("hybrid over shares", FIG8, figure8, {"quick": 10, "full": 10}),
    Experiment("hybrid's model", MODEL, model, {"quick": 5, "full": 5}),
    Experiment("hybrid's overhead", FIG16, figure16, {"quick": 5, "full": 5}),
)
