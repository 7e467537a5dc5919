"""Times of LE-GEMM beside the kernels of rocWMMA and WMMA: Table 6, Fig. 8, 9 and 14, and the abstract's speed.

Which kernel stands for which baseline follows from the paper's text, and was settled before any ratio was seen:

* Plain rocWMMA and WMMA: Section 5.2 calls them simple and direct, without a data loading pipeline and regardless of
  the levels of memory; Section 5.4 says the same of Markidis's and Ootomo's. That is hwsim's staging=none, the kernel
  of the vendors' samples (simple_wmma_gemm of CUDA's cudaTensorCoreGemm, simple_hgemm of rocWMMA): 4 x 4 warps a CTA,
  one fragment of C each, every fragment of A and B from global memory for every step of K.
* Fragments of 16 x 16 x 16 on both devices, as in both samples: Section 5.3 says that the programs of the two platforms
  differ in the interface's name alone, and WMMA has no square fragment but this.
* Markidis and Ootomo: the same kernel on FP16 halves (Table 5), which a pass has made before, since WMMA loads FP16
  fragments; the pass counts, as LE-GEMM's split does. All products of a step are in one kernel: four into one
  accumulator, or three into two.
* Nothing spills: the paper says so of no baseline, and one fragment a warp needs few registers.

LE-GEMM and SGEMM are those of `speed`. Without a cache between L2 and registers in the device files, warps that load
the same fragment read it from L2 once each; WITHOUT_REPEATS is the what-if with no such reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import hwsim
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.gemm.plan import Plan
from hwsim.gemm.problem import Problem
from hwsim.result import Result
from hwsim.schemes import scheme_of
from hwsim.schemes.scheme import Scheme
from hwsim_lab.papers.cells import Cell, CellCall, call
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.le_gemm import runs
from hwsim_lab.papers.le_gemm.runs import A800_TILE, DEVICES, NAMES
from hwsim_lab.papers.le_gemm.speed import EVERY, FAMILIES, LABELS, VECTOR, shape

#: As the claims count them.
OVER = ("blas", "plain", "mark", "ooto")
METHODS = ("le", *OVER)
SAMPLES: dict[str, Any] = {"staging": "none", "warp": (16, 16)}
#: One warp a CTA: no fragment is loaded twice within it, and a CTA is as small as a fragment of 64 x 64.
WITHOUT_REPEATS: dict[str, Any] = {"staging": "none", "warp": (64, 64), "tile": {"m": 64, "n": 64, "k": 16}}
ROOFLINE, LARGEST, BEFORE_DROP = 8192, 10240, 7168
#: Sizes of means over n, and the large size of the claims that compare all methods there, by scale.
MEANS: dict[Scale, tuple[int, ...]] = {"quick": (1024, 2048, 4096), "full": EVERY}
ALL_AT: dict[Scale, int] = {"quick": 4096, "full": LARGEST}
SHARED = {"mi210": ("LDS_RF", "RF_LDS"), "a800": ("SMEM_RF", "GM_SMEM", "RF_SMEM")}


def passed(options: Mapping[str, Any], problem: Problem) -> Plan:
    """Ootomo's plan with halves that a pass makes."""
    plan = scheme_of("ootomo-fp16").plan(options, problem)
    assert isinstance(plan, Plan)
    return replace(plan, split_in="pass")


@cache
def ootomo() -> Scheme:
    """Ootomo's scheme for kernels that load FP16 fragments."""
    return replace(scheme_of("ootomo-fp16"), name="ootomo-wmma", plan=passed)


@cache
def fragment_device(name: str) -> Device:
    """The device whose FP16 products are fragments of 16 x 16: the MI210 with its MFMA of that shape."""
    if name != "mi210":
        return load(name)
    return hwsim.device(runs.variant(name, "fragments", {"native": {"fp16": "v_mfma_f32_16x16x16f16"}}))


@cache
def _sampled(method: str, device: str, m: int, n: int, k: int, *, repeats: bool) -> Result:
    given = dict(runs.SCHEMES[method])
    if method != "plain":
        given["input_format"] = "fp32"
    if method == "ooto":
        given["scheme"] = ootomo()
    chip = fragment_device(device) if repeats else load(device)
    return hwsim.run(device=chip, m=m, n=n, k=k, exact=False, **given, **(SAMPLES if repeats else WITHOUT_REPEATS))


def timed(method: str, device: str, m: int, n: int, k: int, *, repeats: bool = True) -> Result:
    """The timed run of a method. repeats: whether warps read the fragments that they share from L2 once each."""
    if method in ("le", "blas"):
        return runs.timed(method, device, m, n, k)
    return _sampled(method, device, m, n, k, repeats=repeats)


@Cell
def rate(method: str, device: str, family: str, n: int, *, repeats: bool = True) -> float:
    """TFLOPS by Eq. 18."""
    sizes = shape(family, n)
    found = timed(method, device, *sizes, repeats=repeats).seconds
    assert found is not None
    return runs.operations(*sizes) / found / 1e12


def gain(device: str, over: str, family: str, n: int) -> float:
    """LE-GEMM's speed over a baseline's."""
    return rate("le", device, family, n) / rate(over, device, family, n)


def mean_gain(device: str, over: str, family: str, scale: Scale) -> float:
    """The arithmetic mean over n."""
    return float(np.mean([gain(device, over, family, n) for n in MEANS[scale]]))


# --- Table 6, Fig. 8 and 9 -------------------------------------------------------------------------------------------

SMALL, TREND = (1024, 2048, 3072, 4096), (1024, 2048, 4096, 8192)
DROP = (BEFORE_DROP, 8192, 9216, LARGEST)


def measure_baselines(scale: Scale) -> Found:
    """Table 6 without SGEMM, Fig. 8 and 9, and the abstract's speed."""
    mean = {(d, o, f): mean_gain(d, o, f, scale) for d in DEVICES for o in OVER for f in FAMILIES}
    all_of = {d: [mean[d, o, f] for o in OVER for f in FAMILIES] for d in DEVICES}
    large = {d: [gain(d, o, f, ALL_AT[scale]) for f in FAMILIES for o in OVER] for d in DEVICES}
    api = {"mi210": "rocwmma", "a800": "wmma"}
    rows = {
        f"table6-{d}-{api[d] if o == 'plain' else o}": [mean[d, o, f] for f in FAMILIES]
        for d in DEVICES
        for o in OVER[1:]
    }
    square = [mean["a800", o, "square"] for o in OVER]
    drop = [rate("plain", "a800", "deep", n) for n in DROP]
    alike = {d: [rate("mark", d, "square", n) / rate("ooto", d, "square", n) for n in MEANS[scale]] for d in DEVICES}
    measured: dict[str, dict[str, Quantity]] = {
        "abstract-speed": {d: all_of[d] for d in DEVICES},
        "fig8-mean-speedup": {
            name: float(np.mean([mean["mi210", o, f] for f in FAMILIES]))
            for name, o in (("rocblas", "blas"), ("mark", "mark"), ("ooto", "ooto"))
        },
        "fig8-rocwmma": {"speedup": rows["table6-mi210-rocwmma"]},
        "fig8-small-n": {"le_over_rocwmma": [gain("mi210", "plain", f, n) for f in ("square", "wide") for n in SMALL]},
        "fig8-large-n": {"speedup": large["mi210"]},
        "fig8-trend": {
            **{f: [gain("mi210", "plain", f, n) for n in TREND] for f in FAMILIES},
            "blas": [gain("mi210", "blas", "square", n) for n in TREND],
        },
        "fig9-square": {"speedup": square},
        "fig9-wide": {"speedup": [mean["a800", o, "wide"] for o in OVER]},
        "fig9-small-n": {
            "small": [gain("a800", o, "square", n) for o in OVER[:2] for n in SMALL[:2]],
            "large": [gain("a800", o, "square", TREND[-1]) for o in OVER[:2]],
        },
        "fig9-large-n": {
            "speedup": large["a800"], "gain": [gain("a800", "blas", "square", n) for n in (SMALL[0], LARGEST)]
        },
        "fig9-skewed": {"speedup": [mean["a800", o, f] for f in FAMILIES[1:] for o in OVER]},
        "fig9-wmma-drop": {"wmma": drop},
        "fig9-wmma-drop-shape": {
            "ratio": [
                rate("plain", "a800", f, LARGEST) / rate("plain", "a800", f, BEFORE_DROP) for f in FAMILIES
            ]
        },
        "fig9-mark-ooto-alike": {"ratio": [float(np.mean(alike[d])) for d in DEVICES]},
        **{claim: {"speedup": values} for claim, values in rows.items()},
    }  # fmt: skip
    return Found(measured, _notes(tuple(measured), scale), tuple(_figure(d, MEANS[scale]) for d in DEVICES))


def _notes(claims: tuple[str, ...], scale: Scale) -> dict[str, str]:
    what = {"mi210": "MI210", "a800": "A800"}
    n = 4096
    limits = {}
    for d in DEVICES:
        le, own, once = (rate("le", d, "square", n), *(rate("plain", d, "square", n, repeats=x) for x in (True, False)))
        found = timed("plain", d, n, n, n)
        l2 = load(d).l2
        assert l2 is not None and found.seconds is not None
        share = 100 * found.traffic_bytes["L2 read"] / (found.seconds * l2.bytes_per_second)
        line = 2 * SAMPLES["warp"][0]
        request = max(line, *(x.request_bytes for x in load(d).links.values() if (x.source, x.target) == ("GM", "RF")))
        limits[d] = (
            f"{what[d]}, n = {n}: the plain kernel runs at {own:.1f} TFLOPS, LE-GEMM at {le:.1f}. Its warps draw their "
            f"fragments from L2 at {share:.0f} % of its rate by bytes, in requests of {request} bytes for lines of "
            f"{line}. With no fragment drawn twice in a CTA (one warp of 64 x 64) it runs at {once:.1f}: hwsim has no "
            "L1 in which warps share fragments, and this assumption moves the ratio most."
        )
    half = f"Means over n = {', '.join(map(str, MEANS[scale]))} instead of all ten. " if scale == "quick" else ""
    notes = {}
    for claim in claims:
        devices = [d for d in DEVICES if d in claim] or (
            ["mi210"] if claim.startswith("fig8") else ["a800"] if claim.startswith("fig9") else list(DEVICES)
        )
        if claim == "fig9-mark-ooto-alike":
            devices = list(DEVICES)
        start = half
        if claim in ("fig8-large-n", "fig9-large-n") and scale == "quick":
            start = f"All methods at n = {ALL_AT[scale]} instead of {LARGEST}. "
        elif claim in ("fig8-small-n", "fig8-trend", "fig9-small-n"):
            start = ""
        notes[claim] = start + " ".join(limits[d] for d in devices)
        if "a800" in devices:
            notes[claim] += f" {A800_TILE}"
        if claim in ("fig8-mean-speedup", "abstract-speed", "fig8-large-n", "fig8-trend"):
            notes[claim] += f" {VECTOR}"
    steady = (
        "The plain kernel's rate does not fall with n: L2's rate limits each step of K alike, however long K is. "
        "Why the paper's falls is not explained; hwsim has no TLB and no DRAM pages."
    )
    return notes | {claim: steady for claim in claims if claim.startswith("fig9-wmma-drop")}


def _figure(device: str, sizes: tuple[int, ...]) -> Series:
    columns: dict[str, list[object]] = {"line": [], "n": [], "tflops": []}
    for family in FAMILIES:
        for method in METHODS:
            columns["line"] += [f"{NAMES[method]} {LABELS[family]}"] * len(sizes)
            columns["n"] += list(sizes)
            columns["tflops"] += [rate(method, device, family, n) for n in sizes]
    return Series("fig8" if device == "mi210" else "fig9", columns, x="n", y="tflops", by="line")


# --- Fig. 14 ---------------------------------------------------------------------------------------------------------


def intensity(method: str, device: str) -> float:
    """Operations per byte of HBM traffic, relative to the ridge of the roofline."""
    found = timed(method, device, ROOFLINE, ROOFLINE, ROOFLINE).roofline
    hbm = load(device).hbm
    assert found is not None and hbm is not None
    return found.intensity / (found.peak * 1e12 / hbm.bytes_per_second)


def _shares(method: str, device: str) -> list[float]:
    """The shares of the bandwidths of HBM, L2 and shared memory in use."""
    found, chip = timed(method, device, ROOFLINE, ROOFLINE, ROOFLINE), load(device)
    assert found.seconds is not None and found.cycles is not None and chip.hbm is not None and chip.l2 is not None
    moved, links = found.traffic_bytes, SHARED[device]
    shares = [
        sum(moved.get(f"{level} {way}", 0) for way in ("read", "write")) / (found.seconds * one.bytes_per_second)
        for level, one in (("HBM", chip.hbm), ("L2", chip.l2))
    ]
    shared = sum(moved.get(link, 0) for link in links)
    return [*shares, shared / (found.cycles * chip.cores * chip.links[links[0]].bytes_per_cycle)]


def bandwidth_use(method: str, device: str) -> float:
    """The mean over HBM, L2 and shared memory of the share of the level's bandwidth in use, per cent."""
    return 100 * float(np.mean(_shares(method, device)))


def measure_roofline(scale: Scale) -> Found:
    """Fig. 14: intensities and the use of bandwidths at n = 8192."""
    others = ("mark", "ooto", "plain")
    measured: dict[str, dict[str, Quantity]] = {
        f"fig14-{d}-region": {"le": intensity("le", d), "others": [intensity(m, d) for m in others]} for d in DEVICES
    }
    use = {d: {m: bandwidth_use(m, d) for m in ("le", *others)} for d in DEVICES}
    measured["fig14-bandwidth-use"] = {
        "le": [use[d]["le"] for d in DEVICES], "others": [max(use[d][m] for m in others) for d in DEVICES]
    }  # fmt: skip
    columns: dict[str, list[object]] = {"line": [], "intensity": [], "tflops": []}
    for d in DEVICES:
        for m in METHODS:
            point = timed(m, d, ROOFLINE, ROOFLINE, ROOFLINE).roofline
            assert point is not None
            columns["line"].append(f"{d}, {NAMES[m]}")
            columns["intensity"].append(point.intensity)
            columns["tflops"].append(point.achieved)
    level = (
        "Over HBM traffic: L2 catches what the warps draw again and again, so that these kernels, too, lie right of "
        "the ridge; what holds them back is L2's rate, a level that the claim's roof leaves out."
    )
    of_l2 = {d: max(_shares(m, d)[1] for m in others) for d in DEVICES}
    use_note = (
        f"Of L2's rate the baselines use {100 * of_l2['mi210']:.0f} % (MI210) and {100 * of_l2['a800']:.0f} % (A800), "
        "of shared memory's nothing."
    )
    notes = {f"fig14-{d}-region": level for d in DEVICES} | {"fig14-bandwidth-use": use_note}
    notes["fig14-a800-region"] += f" {A800_TILE}"
    return Found(measured, notes, (Series("fig14", columns, "intensity", "tflops", "line", "xy"),))


def _cells(scale: Scale) -> list[CellCall]:
    points = [(m, d, f, n) for n in MEANS[scale] for m in METHODS for d in DEVICES for f in FAMILIES]
    at = ALL_AT[scale]
    points += [(m, d, f, at) for m in METHODS for d in DEVICES for f in FAMILIES]
    points += [(m, d, "square", n) for n in (*SMALL, *TREND) for m in METHODS for d in DEVICES]
    points += [("plain", "a800", f, n) for n in DROP for f in FAMILIES]
    return [call(rate, *one) for one in sorted(dict.fromkeys(points), key=lambda x: -x[3])]


EXPERIMENTS = (
    Experiment(
        "baselines",
        (
            "abstract-speed", "fig8-mean-speedup", "fig8-rocwmma", "fig8-small-n", "fig8-large-n", "fig8-trend",
            "fig9-square", "fig9-wide", "fig9-small-n", "fig9-large-n", "fig9-skewed", "fig9-wmma-drop",
            "fig9-wmma-drop-shape", "fig9-mark-ooto-alike", "table6-mi210-rocwmma", "table6-mi210-mark",
            "table6-mi210-ooto", "table6-a800-wmma", "table6-a800-mark", "table6-a800-ooto",
        ),
        measure_baselines,
        {"quick": 45.0, "full": 450.0},
        _cells,
    ),
    Experiment(
        "baselines-roofline",
        ("fig14-mi210-region", "fig14-a800-region", "fig14-bandwidth-use"),
        measure_roofline,
        {"quick": 5.0, "full": 5.0},
    ),
)  # fmt: skip
