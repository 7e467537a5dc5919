"""Errors of multiword TF32 on the A100 beside SGEMM and FP16 (Section 3.2, Fig. 4), and what makes the difference.

Errors are induced norms of the difference to the FP64 product over those of A and B (Section 3.1). The inputs' sizes
and ranges are those that the claims assume. The A100's Tensor Cores cut each sum toward zero; the what-ifs change that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hwsim
from hwsim.analysis import metrics
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.devices.query import instruction
from hwsim.devices.variants import changed
from hwsim.gemm.plan import Plan, TermValue, chain, sums
from hwsim.schemes import scheme_of
from hwsim.schemes.multiword import plan
from hwsim.schemes.scheme import Scheme
from hwsim_lab.papers.cells import CellCall, HeldCell, call
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.tf32_tf64.definitions import A100
from hwsim_lab.papers.tf32_tf64.instructions import with_unit
from hwsim_lab.papers.tf32_tf64.speed import words

Array = NDArray[Any]
ORDERS: dict[str, metrics.NormOrder] = {"l1": 1, "l2": 2, "linf": np.inf, "frobenius": "fro"}
POSITIVE, SIGNED = "[0, 1)", "[-1, 1)"
RANGES = {POSITIVE: (0.0, 1.0), SIGNED: (-1.0, 1.0)}
SIZES: dict[Scale, tuple[int, ...]] = {"quick": (128, 256, 512), "full": (128, 256, 512, 1024, 2048)}
SEEDS = 3
LARGE = 512  # from here on, quick takes one seed
ELABORATE = "elaborate"  # three products, summed outside the unit after each instruction
HALF_UNIT = "mma.m16n8k16.f16.f16.f16.f16"  # FP16 sums: HGEMM


@cache
def depth() -> int:
    """The depth k of one TF32 instruction of the device."""
    return instruction(load(A100), load(A100).native["tf32"]).k


def printed_plan(options: Mapping[str, Any], problem: Any) -> Plan:
    """The four calls of Fig. 2 as its listing prints them: A1 B1, A1 B2, A2 B2, A2 B2."""
    own = plan("tf32-printed", "tf32", "fp32", 4, options, problem)
    pairs = ((0, 0), (0, 1), (1, 1), (1, 1))
    return replace(own, terms=tuple(chain(pair) for pair in pairs), combine=sums(*map(TermValue, range(4))))


def printed() -> Scheme:
    """The scheme of the listing."""
    return replace(scheme_of("tf32x4"), name="tf32-printed", plan=printed_plan)


#: Method -> arguments of hwsim.matmul on the A100; "elaborate" takes the device's depth besides.
METHODS: dict[str, dict[str, Any]] = {
    "1xTF32": {"scheme": "tf32x1"},
    "3xTF32": {"scheme": "tf32x3"},
    "4xTF32": {"scheme": "tf32x4"},
    "SGEMM": {"format": "fp32"},
    "1xFP16": {"format": "fp16"},
    "HGEMM": {"format": "fp16", "schedule": {"instruction": HALF_UNIT}},
    "3xFP16": {"scheme": words("fp16", 3)},
    "Ootomo": {"scheme": "ootomo-fp16"},
    ELABORATE: {"scheme": "tf32x3"},
    "printed": {"scheme": printed()},
}


EVERY = ("1xTF32", "3xTF32", "4xTF32", "SGEMM", "1xFP16", "HGEMM", "3xFP16", "Ootomo", ELABORATE, "printed")
UNCONVERTED = "unconverted"  # FP32 words that the unit converts


@dataclass(frozen=True, slots=True)
class Case:
    """One pair of matrices: n = m = k, a range of the entries, a seed."""

    n: int
    span: str
    seed: int


@cache
def inputs(case: Case) -> tuple[Array, Array, Array]:
    """A, B and their FP64 product."""
    rng = np.random.default_rng(case.seed)
    a, b = (rng.uniform(*RANGES[case.span], (case.n, case.n)).astype(np.float32) for _ in range(2))
    return a, b, a.astype(np.float64) @ b.astype(np.float64)


@cache
def sizes_of(case: Case) -> dict[str, float]:
    """||A|| ||B|| in each norm."""
    a, b, _ = inputs(case)
    return {name: metrics.norm(a, order) * metrics.norm(b, order) for name, order in ORDERS.items()}


@lru_cache(maxsize=8)
def result(method: str, case: Case) -> Array:
    """The bits of a method's product; "as printed" leaves the conversion to the device, as Fig. 2's listing does."""
    a, b, _ = inputs(case)
    if method == UNCONVERTED:
        c = hwsim.matmul(a, b, device=A100, format="tf32")
        for left, right in ((a, b - b), (a - a, b)):
            c = hwsim.matmul(left, right, c, device=A100, format="tf32")
        return c
    options = METHODS[method] | ({"k_group": depth()} if method == ELABORATE else {})
    return hwsim.matmul(a, b, device=A100, **options)


@HeldCell
def errors(method: str, case: Case, against: str | None = None) -> dict[str, float]:
    """Errors of a method in every norm; against: the difference to another method's result instead."""
    reference = inputs(case)[2] if against is None else result(against, case)
    apart = reference.astype(np.float64) - result(method, case).astype(np.float64)
    return {name: metrics.norm(apart, order) / sizes_of(case)[name] for name, order in ORDERS.items()}


def _cells(scale: Scale) -> list[CellCall]:
    cases = [Case(n, span, seed) for n, span in points(scale) for seed in seeds(n, scale)]
    cases.sort(key=lambda case: -case.n)
    found = [call(errors, method, case) for case in cases for method in (*EVERY, UNCONVERTED)]
    return [*found, *(call(errors, "3xTF32", case, "SGEMM") for case in cases)]


def seeds(n: int, scale: Scale) -> range:
    """The seeds of a size."""
    return range(1 if scale == "quick" and n >= LARGE else SEEDS)


def points(scale: Scale) -> list[tuple[int, str]]:
    """(n, range): the sizes in ascending order for each range."""
    return [(n, span) for span in RANGES for n in SIZES[scale]]


def series(method: str, scale: Scale, norm: str = "l2", against: str | None = None) -> list[float]:
    """The means over seeds of an error, by point."""
    return [
        float(np.mean([errors(method, Case(n, span, seed), against)[norm] for seed in seeds(n, scale)]))
        for n, span in points(scale)
    ]


def ratio(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Element by element."""
    return [x / y for x, y in zip(over, under, strict=True)]


def measure(scale: Scale) -> Found:
    """Fig. 4 and what is concluded from it."""
    e = {m: np.array(series(m, scale)) for m in (*EVERY, UNCONVERTED)}
    by_norm = {(m, x): series(m, scale, x) for m in EVERY[:4] for x in ("l1", "linf")}
    apart = series("3xTF32", scale, against="SGEMM")
    three, four, one, sgemm = (list(e[m]) for m in ("3xTF32", "4xTF32", "1xTF32", "SGEMM"))
    close = {
        f"fig4-{x}": {
            "over_sgemm": ratio(by_norm["3xTF32", x], by_norm["SGEMM", x]),
            "over_four": ratio(by_norm["3xTF32", x], by_norm["4xTF32", x]),
        }
        for x in ("l1", "linf")
    }
    measured: dict[str, dict[str, Quantity]] = {
        "sec2-2-fourth-insignificant": {
            "share_of_gain": list(map(float, np.abs(e["3xTF32"] - e["4xTF32"]) / (e["1xTF32"] - e["3xTF32"])))
        },
        "fig2-third-call": {"ratio": ratio(list(e["printed"]), sgemm)},
        "fig2-no-software-cast": {"ratio": ratio(list(e[UNCONVERTED]), sgemm)},
        "fig4-tf32-over-fp16-hgemm": {"gain": ratio(list(e["HGEMM"]), one)},
        "fig4-tf32-over-fp16-mixed": {"gain": ratio(list(e["1xFP16"]), one)},
        "fig4-tf32-magnitude-spectral": {"tf32": one},
        "fig4-tf32-magnitude-frobenius": {"tf32": series("1xTF32", scale, "frobenius")},
        "fig4-tf32-not-enough": {"ratio": ratio(one, sgemm)},
        "fig4-4x-close-to-sgemm": {"ratio": ratio(four, sgemm)},
        "fig4-4x-below-one-product": {
            "over_tf32": ratio(one, four), "over_fp16": ratio(list(e["1xFP16"]), four)
        },
        "fig4-3x-close-to-sgemm": {"ratio": ratio(three, sgemm)},
        "fig4-fourth-product": {"ratio": ratio(three, four)},
        "fig4-difference-sgemm-3x": {"over_sgemm": ratio(apart, sgemm), "under_tf32": ratio(one, apart)},
        **close,  # type: ignore[dict-item]
        "fig4-gain-l1-linf": {x: ratio(by_norm["1xTF32", x], by_norm["4xTF32", x]) for x in ("l1", "linf")},
        "sec3-2-precision-against-simple-fp16": {"ratio": ratio(three, list(e["3xFP16"]))},
        "sec3-2-precision-against-best-fp16": {"ratio": ratio(three, list(e["Ootomo"]))},
        "sec5-accurate-simple": {"ratio": ratio(three, list(e[ELABORATE]))},
    }  # fmt: skip
    return Found(measured, _notes(tuple(measured), scale), _figures(scale))


# --- What would make 3xTF32 an SGEMM ---------------------------------------------------------------------------------

WHAT_IF_SIZE = 256


@cache
def what_if(name: str, span: str, method: str = "3xTF32", over: str = "SGEMM") -> float:
    """The l2 error of a TF32 scheme over that of another as it is, with another unit or other sums, seed 0."""
    case = Case(WHAT_IF_SIZE, span, 0)
    a, b, c = inputs(case)
    device, options = what_ifs()[name]
    found = hwsim.matmul(a, b, device=device, **METHODS[method], **options)
    own = metrics.norm(c - found.astype(np.float64), 2) / sizes_of(case)["l2"]
    return own / errors(over, case)["l2"]


AS_IT_IS, PAIRED, EXACT = "as it is", "8 products at once", "exact sum of 4 products rounded once"


@cache
def what_ifs() -> dict[str, tuple[Device, dict[str, Any]]]:
    chip = load(A100)
    name = chip.native["tf32"]
    unit = instruction(chip, name).unit
    to_nearest = changed(chip, {f"dot_units.{unit}.rounding": "RNE"})
    bits = int(chip.dot_units[unit].fraction_bits)  # type: ignore[union-attr]
    wider = changed(chip, {f"dot_units.{unit}.rounding": "RNE", f"dot_units.{unit}.fraction_bits": bits + 3})
    exact = with_unit(chip, name, {"model": "exact", "terms": 4, "rounding": "RNE"})
    ieee = with_unit(chip, name, {"model": "fma_chain", "rounding": "RNE"})
    found: dict[str, tuple[Device, dict[str, Any]]] = {
        AS_IT_IS: (chip, {}),
        PAIRED: (changed(chip, {f"dot_units.{unit}.terms": 2 * chip.dot_units[unit].terms}), {}),
        "result to nearest": (to_nearest, {}),
        "result to nearest, 3 bits more inside": (wider, {}),
        EXACT: (exact, {}),
        "IEEE multiply-adds": (ieee, {}),
    }
    for length in (8, 32, 128):
        found[f"sums outside every {length} of K"] = (chip, {"k_group": length})
    return found


def explanation(span: str) -> str:
    """The ratios of the what-ifs of a range, as text."""
    return "; ".join(f"{name} {what_if(name, span):.2f}" for name in what_ifs())


def _notes(claims: tuple[str, ...], scale: Scale) -> dict[str, str]:
    chosen = ""
    if scale == "quick":
        chosen = f"n = {', '.join(map(str, SIZES[scale]))} instead of up to 2048; from {LARGE} on one seed. "
    growing = {span: [x for x, (_, s) in zip(_over(scale), points(scale), strict=True) if s == span] for span in RANGES}
    why = (
        f"{chosen}The A100's unit cuts products toward zero where it aligns them, and each sum of 4 with the "
        "accumulator: on positive entries these errors have one sign and add up. 3xTF32 over SGEMM grows with n from "
        f"{growing[POSITIVE][0]:.1f} to {growing[POSITIVE][-1]:.1f} on {POSITIVE} and from "
        f"{growing[SIGNED][0]:.1f} to {growing[SIGNED][-1]:.1f} on {SIGNED}."
    )
    cure = (
        f"With another unit, or sums outside it, this ratio is at n = {WHAT_IF_SIZE}, seed 0, on {POSITIVE}: "
        f"{explanation(POSITIVE)}; on {SIGNED}: {explanation(SIGNED)}."
    )
    refer = "What would mend it: see fig4-3x-close-to-sgemm."
    notes = dict.fromkeys(claims, chosen.strip())
    truncated = (
        "fig4-4x-close-to-sgemm", "fig4-4x-below-one-product", "fig4-difference-sgemm-3x", "fig4-l1", "fig4-linf",
        "fig4-gain-l1-linf", "sec5-accurate-simple", "sec3-2-precision-against-best-fp16",
    )  # fmt: skip
    notes |= dict.fromkeys(truncated, f"{why} {refer}")
    notes["fig4-3x-close-to-sgemm"] = f"{why} {cure}"
    printed_exact, three_exact = (what_if(EXACT, SIGNED, m) for m in ("printed", "3xTF32"))
    notes["fig2-third-call"] = (
        f"{chosen}Without A2 B1 an error of the size of TF32's rounding of A remains on any unit: with exact sums the "
        f"ratio at n = {WHAT_IF_SIZE} on {SIGNED} is {printed_exact:.0f}, that of A1 B1 + A1 B2 + A2 B1 "
        f"{three_exact:.2f}."
    )
    notes["fig2-no-software-cast"] = (
        f"{chosen}With A1 = A in FP32, A2 is zero and only one TF32 product is left: 1xTF32, bit for bit."
    )
    pair = [what_if(name, SIGNED, over="3xFP16") for name in (AS_IT_IS, PAIRED)]
    notes["sec3-2-precision-against-simple-fp16"] = (
        f"{chosen}The FP16 unit adds 8 products before it cuts, the TF32 unit 4: at n = {WHAT_IF_SIZE} on {SIGNED} the "
        f"ratio is {pair[0]:.2f}, and {pair[1]:.2f} with a TF32 unit that adds 8."
    )
    notes["fig4-tf32-over-fp16-mixed"] = (
        f"{chosen}Both formats have 10 fraction bits, and the entries lie in FP16's range: the operands are the same "
        "numbers but for small ones, and only the number of products that are added at once (8, 4 for TF32) differs."
    )
    notes["fig4-tf32-over-fp16-hgemm"] = f"{chosen}Sums in FP16, by m16n8k16 with an FP16 accumulator."
    largest = _largest_sizes(scale)
    return notes | {claim: f"{chosen}{largest}" for claim in claims if "magnitude" in claim}


def _over(scale: Scale) -> list[float]:
    return ratio(series("3xTF32", scale), series("SGEMM", scale))


def _largest_sizes(scale: Scale) -> str:
    case = Case(WHAT_IF_SIZE, SIGNED, 0)
    a, b, c = inputs(case)
    toward = hwsim.matmul(a, b, device=A100, format="tf32", schedule={"operand_rounding": "RZ"})
    cut = metrics.norm(c - toward.astype(np.float64), 2) / sizes_of(case)["l2"]
    found = {x: dict(zip(points(scale), series("1xTF32", scale, x), strict=True)) for x in ("l2", "frobenius")}
    last = SIZES[scale][-1]
    return (
        f"On {SIGNED} the error is that of the operands' rounding: in spectral norms it is the same for every n "
        f"({found['l2'][last, SIGNED]:.1e} at {last}), in Frobenius norms it falls as the root of n "
        f"({found['frobenius'][last, SIGNED]:.1e}). On {POSITIVE} it is {found['l2'][last, POSITIVE]:.1e}, and the "
        f"unit's cuts stop its fall. With operands cut instead of rounded it would be {cut:.1e} for "
        f"{errors('1xTF32', case)['l2']:.1e} at n = {WHAT_IF_SIZE} on {SIGNED}, spectral. Sizes and ranges are assumed."
    )


def _figures(scale: Scale) -> tuple[Series, ...]:
    left: dict[str, list[object]] = {"line": [], "n": [], "range": [], "l1": [], "l2": [], "linf": []}
    for method in ("HGEMM", "1xFP16", "1xTF32", "3xTF32", "4xTF32", "SGEMM"):
        left["line"] += [f"{method}, {span}" for _, span in points(scale)]
        left["n"] += [n for n, _ in points(scale)]
        left["range"] += [span for _, span in points(scale)]
        for norm in ("l1", "l2", "linf"):
            left[norm] += series(method, scale, norm)
    right: dict[str, list[object]] = {"line": [], "n": [], "difference": []}
    right["line"] += [f"|SGEMM - 3xTF32|, {span}" for _, span in points(scale)]
    right["n"] += [n for n, _ in points(scale)]
    right["difference"] += series("3xTF32", scale, against="SGEMM")
    units: dict[str, list[object]] = {"unit": [], "range": [], "ratio": []}
    for name in what_ifs():
        for span in RANGES:
            units["unit"].append(name)
            units["range"].append(span)
            units["ratio"].append(what_if(name, span))
    return (
        Series("fig4-errors", left, x="n", y="l2", by="line", log="xy"),
        Series("fig4-difference", right, x="n", y="difference", by="line", log="xy"),
        Series("fig4-what-if", units),
    )


# --- Section 1: scales of the entries --------------------------------------------------------------------------------

SCALES = (-40, -30, -20, -10, 0, 10, 20, 30, 40)
SCALED_SIZE = 512
NOT_FINITE = 1e30  # the claim's number for a result that is not finite


def scaled_error(method: str, exponent: int, seed: int) -> float:
    """The l2 error with all entries times 2^exponent."""
    a, b, _ = inputs(Case(SCALED_SIZE, SIGNED, seed))
    a, b = (np.ldexp(x, exponent) for x in (a, b))
    found = hwsim.matmul(a, b, device=A100, **METHODS[method])
    error = metrics.norm_error(a, b, a.astype(np.float64) @ b.astype(np.float64), found)
    return error if np.isfinite(error) else NOT_FINITE


def measure_scales(scale: Scale) -> Found:
    """Section 1: 3xTF32 without scaling, for entries of any size."""
    over = range(1 if scale == "quick" else SEEDS)
    means = {
        m: [float(np.mean([scaled_error(m, s, seed) for seed in over])) for s in SCALES] for m in ("3xTF32", "SGEMM")
    }
    note = (
        f"{len(over)} seed(s). No scale loses anything, the ratio is that of s = 0: the unit's truncated sums, see "
        f"fig4-3x-close-to-sgemm. At n = {WHAT_IF_SIZE}: {explanation(SIGNED)}."
    )
    columns: dict[str, list[object]] = {"line": [], "s": [], "error": []}
    for method, values in means.items():
        columns["line"] += [method] * len(SCALES)
        columns["s"] += list(SCALES)
        columns["error"] += values
    id = "sec1-no-extra-operations"
    series = Series("scales", columns, x="s", y="error", by="line", log="y")
    return Found({id: {"ratio": ratio(means["3xTF32"], means["SGEMM"])}}, {id: note}, (series,))


CLAIMS = (
    "sec2-2-fourth-insignificant", "fig2-third-call", "fig2-no-software-cast", "fig4-tf32-over-fp16-hgemm",
    "fig4-tf32-over-fp16-mixed", "fig4-tf32-magnitude-spectral", "fig4-tf32-magnitude-frobenius",
    "fig4-tf32-not-enough", "fig4-4x-close-to-sgemm", "fig4-4x-below-one-product", "fig4-3x-close-to-sgemm",
    "fig4-fourth-product", "fig4-difference-sgemm-3x", "fig4-l1", "fig4-linf", "fig4-gain-l1-linf",
    "sec3-2-precision-against-simple-fp16", "sec3-2-precision-against-best-fp16", "sec5-accurate-simple",
)  # fmt: skip
EXPERIMENTS = (
    Experiment("single", CLAIMS, measure, {"quick": 20.0, "full": 900.0}, _cells),
    Experiment("scales", ("sec1-no-extra-operations",), measure_scales, {"quick": 4.0, "full": 12.0}),
)
