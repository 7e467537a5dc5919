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

LE-GEMM and SGEMM are those of `speed`. Warps of a CTA that load the same fragment read it from L1 once each;
WITHOUT_REPEATS is the what-if with no such reads.
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
ROOFLINE, BEFORE_DROP = (4096, 5120, 6144, 7168, 8192, 10240), 7168
#: Sizes of means over n by scale, and the large sizes of the claims that compare all methods there.
MEANS: dict[Scale, tuple[int, ...]] = {"quick": (1024, 2048, 3072, 4096, 6144, 8192), "full": EVERY}
LARGE = (5120, 6144, 7168, 8192, 9216, 10240)
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
    """The timed run of a method. repeats: whether warps read the fragments that they share once each."""
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

SMALL, TREND = (1024, 1536, 2048, 2560, 3072, 4096), (1024, 2048, 3072, 4096, 6144, 8192)
TO_2048 = (512, 768, 1024, 1280, 1536, 2048)
DROP = (7680, 8192, 8704, 9216, 9728, 10240)  # above 7168


def measure_baselines(scale: Scale) -> Found:
    """Table 6 without SGEMM, Fig. 8 and 9, and the abstract's speed."""
    mean = {(d, o, f): mean_gain(d, o, f, scale) for d in DEVICES for o in OVER for f in FAMILIES}
    all_of = {d: [mean[d, o, f] for o in OVER for f in FAMILIES] for d in DEVICES}
    large = {d: [[gain(d, o, f, n) for f in FAMILIES for o in OVER] for n in LARGE] for d in DEVICES}
    api = {"mi210": "rocwmma", "a800": "wmma"}
    rows = {
        f"table6-{d}-{api[d] if o == 'plain' else o}": [mean[d, o, f] for f in FAMILIES]
        for d in DEVICES
        for o in OVER[1:]
    }
    square = [mean["a800", o, "square"] for o in OVER]
    alike = {d: [rate("mark", d, "square", n) / rate("ooto", d, "square", n) for n in MEANS[scale]] for d in DEVICES}
    measured: dict[str, dict[str, Any]] = {
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
            **{
                f"small_{name}": [gain("a800", o, "square", n) for n in TO_2048]
                for name, o in (("blas", "blas"), ("wmma", "plain"))
            },
            "large": [gain("a800", o, "square", TREND[-1]) for o in OVER[:2]],
        },
        "fig9-large-n": {
            "speedup": large["a800"],
            "gain": [[gain("a800", "blas", "square", x) for x in (SMALL[0], n)] for n in LARGE],
        },
        "fig9-skewed": {"speedup": [mean["a800", o, f] for f in FAMILIES[1:] for o in OVER]},
        "fig9-wmma-drop": {
            "before": rate("plain", "a800", "deep", BEFORE_DROP),
            "after": [rate("plain", "a800", "deep", n) for n in DROP],
        },
        "fig9-wmma-drop-shape": {
            "ratio": [
                [rate("plain", "a800", f, n) / rate("plain", "a800", f, BEFORE_DROP) for f in FAMILIES] for n in DROP
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
        assert l2 is not None and found.seconds is not None and found.cycles is not None
        read, drawn = (found.traffic_bytes.get(name, 0) for name in ("L2 read", "GM_RF"))
        shares = [
            100 * read / (found.seconds * l2.bytes_per_second),
            100 * drawn / (found.cycles * load(d).cores * load(d).links["GM_RF"].bytes_per_cycle),
        ]
        limits[d] = (
            f"{what[d]}, n = {n}: the plain kernel runs at {own:.1f} TFLOPS, LE-GEMM at {le:.1f}. Its warps load their "
            f"fragments from L1 at {shares[1]:.0f} % of its rate, and L1 from L2 at {shares[0]:.0f} % of L2's. With no "
            f"fragment loaded twice in a CTA (one warp of 64 x 64) it runs at {once:.1f}."
        )
    half = f"Means over n = {', '.join(map(str, MEANS[scale]))} instead of all ten. " if scale == "quick" else ""
    notes = {}
    for claim in claims:
        devices = [d for d in DEVICES if d in claim] or (
            ["mi210"] if claim.startswith("fig8") else ["a800"] if claim.startswith("fig9") else list(DEVICES)
        )
        if claim == "fig9-mark-ooto-alike":
            devices = list(DEVICES)
        is_of_named_n = claim in ("fig8-large-n", "fig9-large-n", "fig8-small-n", "fig8-trend", "fig9-small-n")
        start = "" if is_of_named_n else half
        notes[claim] = start + " ".join(limits[d] for d in devices)
        if "a800" in devices:
            notes[claim] += f" {A800_TILE}"
        if claim in ("fig8-mean-speedup", "abstract-speed", "fig8-large-n", "fig8-trend"):
            notes[claim] += f" {VECTOR}"
    steady = (
        "The plain kernel's rate does not fall with n: the rate of L1 limits each step of K alike, however long K is. "
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


def intensity(method: str, device: str, n: int) -> float:
    """Operations per byte of HBM traffic, relative to the ridge of the roofline."""
    found = timed(method, device, n, n, n).roofline
    hbm = load(device).hbm
    assert found is not None and hbm is not None
    return found.intensity / (found.peak * 1e12 / hbm.bytes_per_second)


def _shares(method: str, device: str, n: int) -> list[float]:
    """The shares of the bandwidths of HBM, L2 and shared memory in use."""
    found, chip = timed(method, device, n, n, n), load(device)
    assert found.seconds is not None and found.cycles is not None and chip.hbm is not None and chip.l2 is not None
    moved, links = found.traffic_bytes, SHARED[device]
    shares = [
        sum(moved.get(f"{level} {way}", 0) for way in ("read", "write")) / (found.seconds * one.bytes_per_second)
        for level, one in (("HBM", chip.hbm), ("L2", chip.l2))
    ]
    shared = sum(moved.get(link, 0) for link in links)
    return [*shares, shared / (found.cycles * chip.cores * chip.links[links[0]].bytes_per_cycle)]


def bandwidth_use(method: str, device: str, n: int) -> float:
    """The mean over HBM, L2 and shared memory of the share of the level's bandwidth in use, per cent."""
    return 100 * float(np.mean(_shares(method, device, n)))


def measure_roofline(scale: Scale) -> Found:
    """Fig. 14: intensities and the use of bandwidths."""
    others = ("mark", "ooto", "plain")
    measured: dict[str, dict[str, Any]] = {
        f"fig14-{d}-region": {
            "le": [intensity("le", d, n) for n in ROOFLINE],
            "others": [[intensity(m, d, n) for m in others] for n in ROOFLINE],
        }
        for d in DEVICES
    }
    measured["fig14-bandwidth-use"] = {
        "le": [[bandwidth_use("le", d, n) for d in DEVICES] for n in ROOFLINE],
        "others": [[max(bandwidth_use(m, d, n) for m in others) for d in DEVICES] for n in ROOFLINE],
    }
    columns: dict[str, list[object]] = {"line": [], "intensity": [], "tflops": []}
    largest = ROOFLINE[-1]
    for d in DEVICES:
        for m in METHODS:
            point = timed(m, d, largest, largest, largest).roofline
            assert point is not None
            columns["line"].append(f"{d}, {NAMES[m]}")
            columns["intensity"].append(point.intensity)
            columns["tflops"].append(point.achieved)
    level = (
        "Over HBM traffic: L1 and L2 catch what the warps load again and again, so that these kernels, too, lie right "
        "of the ridge; what holds them back is the rate of L1, a level that the claim's roof leaves out."
    )
    of_l2 = {d: max(_shares(m, d, largest)[1] for m in others) for d in DEVICES}
    use_note = (
        f"Of L2's rate the baselines use {100 * of_l2['mi210']:.0f} % (MI210) and {100 * of_l2['a800']:.0f} % (A800) "
        f"at n = {largest}, of shared memory's nothing."
    )
    notes = {f"fig14-{d}-region": level for d in DEVICES} | {"fig14-bandwidth-use": use_note}
    notes["fig14-a800-region"] += f" {A800_TILE}"
    return Found(measured, notes, (Series("fig14", columns, "intensity", "tflops", "line", "xy"),))


def _cells(scale: Scale) -> list[CellCall]:
    points = [(m, d, f, n) for n in MEANS[scale] for m in METHODS for d in DEVICES for f in FAMILIES]
    points += [(m, d, f, n) for n in LARGE for m in METHODS for d in DEVICES for f in FAMILIES]
    points += [(m, d, "square", n) for n in (*SMALL, *TREND, *TO_2048) for m in METHODS for d in DEVICES]
    points += [("plain", "a800", f, n) for n in (BEFORE_DROP, *DROP) for f in FAMILIES]
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
        {"quick": 120.0, "full": 200.0},
        _cells,
    ),
    Experiment(
        "baselines-roofline",
        ("fig14-mi210-region", "fig14-a800-region", "fig14-bandwidth-use"),
        measure_roofline,
        {"quick": 12.0, "full": 12.0},
    ),
)  # fmt: skip
