"""SGEMM-cube's claims on accuracy: Fig. 7 to 9, the terms of Eq. 7, and Ootomo and Yokota's sums on the A100.

It knows inputs, errors and variants of the scheme as plans; bits come from hwsim.matmul. The FP32 SGEMM of Fig. 8 and 9
is NumPy's BLAS in this process where that is OpenBLAS (the host's kernel, whose last bits depend on the machine), else
hwsim's plain FP32 chain; the other one's verdicts stand in the notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.analysis.inputs import offset_uniform
from hwsim.analysis.metrics import relative_frobenius
from hwsim.api import fma_chain, matmul
from hwsim.devices import load
from hwsim.devices.query import instruction
from hwsim.gemm.plan import Piece, Plan, Scaled, Sum, TermValue, chain
from hwsim.gemm.problem import Problem
from hwsim.schemes import Scheme, scheme_of
from hwsim_lab.papers.claims import read
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.sgemm_cube.host_blas import blas_name, has_openblas, sgemm
from hwsim_lab.papers.sgemm_cube.splitting import parts

Array = NDArray[Any]
Product = Callable[[Array, Array], Array]
DEVICE, SCHEME, ORIGINAL = "ascend910a", "sgemm-cube", "a100"
SEEDS = (0, 1, 2)
EDGE, DEPTH = 64, 2816
EXPONENTS = tuple(range(-14, 15, 2))
SOME = (-14, -12, -10, -4, -2, 0, 2, 14)  # of them at quick scale: those that claims name, and the largest
LOW, NEAR, HALVES = (-14, -12, -10), (-2, 0, 2), (-4, -2, 0, 2)
SIGNS = (True, False)  # symmetric, non-negative
SCALING = (0, 6, 12)
STEP = 16  # of K, after which elementwise adds the three terms
BLOCK_K = 64  # of the paper's tile (176, 64, 176): after a block of K, as a what-if
IN_BLOCKS = f"elementwise, sb = 12, b_k = {BLOCK_K}"
PANEL = 256  # of K, in a what-if
STORED = 64  # of K, after which a variant stores partial sums in FP16
TERM, ELEMENT = ({sb: f"{how}, sb = {sb}" for sb in SCALING} for how in ("termwise", "elementwise"))  # names in tables
IS_OPENBLAS = has_openblas()
OPENBLAS, CHAIN, HGEMM = "OpenBLAS FP32 SGEMM", "plain FP32 chain", "FP16 HGEMM"
SGEMM = OPENBLAS if IS_OPENBLAS else CHAIN
BY_HOST = True  # claims are judged by SGEMM as above, else by the chain
OTHER = CHAIN if IS_OPENBLAS else None
DRAWN = 16  # rows and columns of large products at quick scale
QUICK_SIZES = "At quick scale exponents -14, -12, -10, -4, -2, 0, 2, 14 and the first 32 rows and columns."


def termwise(k: int, sb: int = 12, scheme: str | Scheme = SCHEME) -> Product:
    """SGEMM-cube with each term summed over all of K in the cube."""
    return lambda a, b: matmul(a, b, device=DEVICE, scheme=scheme, scaling_exponent=sb, k_group=k)


def elementwise(sb: int = 12, step: int | None = None) -> Product:
    """SGEMM-cube with the terms combined after every `step` of K; None: STEP."""
    options: dict[str, Any] = {"scaling_exponent": sb, "accumulation": "elementwise", "k_group": step or STEP}
    return lambda a, b: matmul(a, b, device=DEVICE, scheme=SCHEME, **options)


def in_panels(a: Array, b: Array) -> Array:
    """FP32 chains over panels of K, added one after another: an order that BLAS libraries on CPUs have."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], PANEL):
        total += fma_chain(np.ascontiguousarray(a[:, k : k + PANEL]), np.ascontiguousarray(b[k : k + PANEL]))
    return total


def baselines() -> dict[str, Product]:
    """FP32 SGEMM by name: OpenBLAS where NumPy has it, and the chain."""
    return {OPENBLAS: sgemm, CHAIN: fma_chain} if IS_OPENBLAS else {CHAIN: fma_chain}


def by_the_other(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Notes by claim: who is SGEMM, and the verdict with the other baseline, whose quantities are given."""
    said = f"SGEMM is NumPy's {blas_name()} on this host, not the Kunpeng 920's kernel. "
    if OTHER is None:
        said = f"NumPy's BLAS is {blas_name()}, not OpenBLAS: SGEMM is one FP32 chain over all of K. "
    paper = read(SCHEME)
    return {
        name: said + ("" if OTHER is None else f"With the {OTHER}: {paper.claim(name).verdict(values)}. ")
        for name, values in measured.items()
    }


def hgemm_fp32(a: Array, b: Array) -> Array:
    """FP16 operands, FP32 sums and result."""
    return matmul(a, b, device=DEVICE, scheme="native", format="fp16")


def hgemm(a: Array, b: Array) -> Array:
    """FP16 operands and result, FP32 sums."""
    return matmul(a, b, device=DEVICE, scheme="native", format="fp16", output="fp16")


def variant(change: Callable[[Plan, int], Plan]) -> Scheme:
    """SGEMM-cube with another plan; change(plan, scaling exponent)."""
    own = scheme_of(SCHEME)

    def plan(options: Mapping[str, Any], problem: Problem) -> Plan:
        made = own.plan(options, problem)
        assert isinstance(made, Plan)
        return change(made, int(options["scaling_exponent"]))

    return replace(own, plan=plan)


def with_fourth(plan: Plan, sb: int) -> Plan:
    """The product of the low parts, 2^-sb of the other small ones, is added to them first."""
    small = Sum(Scaled(TermValue(3), -sb), Sum(TermValue(1), TermValue(2)))
    return replace(plan, terms=(*plan.terms, chain((1, 1))), combine=Sum(TermValue(0), Scaled(small, -sb)))


def truncated(plan: Plan, sb: int) -> Plan:
    """Both parts are converted toward zero."""
    pieces: tuple[Piece, ...] = tuple(replace(piece, rounding="RZ") for piece in plan.a_pieces)
    return replace(plan, a_pieces=pieces, b_pieces=pieces)


def large_first(plan: Plan, sb: int) -> Plan:
    """The small terms are added to the large one, one after the other: B's high part times A's low one first."""
    return replace(plan, combine=Sum(Sum(TermValue(0), Scaled(TermValue(2), -sb)), Scaled(TermValue(1), -sb)))


def stored_as_fp16(a: Array, b: Array) -> Array:
    """Termwise with each term's sum stored in FP16 after every 64 of K."""
    sb = 12
    split_a, split_b = (parts(x.astype(np.float64).ravel(), scaling_exponent=sb) for x in (a, b))
    high_a, low_a = (x.reshape(a.shape).astype(np.float16) for x in (split_a.high, split_a.low))
    high_b, low_b = (x.reshape(b.shape).astype(np.float16) for x in (split_b.high, split_b.low))

    def term(left: Array, right: Array) -> Array:
        total = np.zeros((a.shape[0], b.shape[1]), np.float16)
        for k in range(0, a.shape[1], STORED):
            block = slice(k, k + STORED)
            arguments: dict[str, Any] = {"device": DEVICE, "scheme": "native", "format": "fp16", "output": "fp16"}
            total = matmul(left[:, block], right[block], total, **arguments)
        return total.astype(np.float32)

    small = term(high_a, low_b) + term(low_a, high_b)
    return term(high_a, high_b) + small * np.float32(2.0**-sb)


def geometric(values: Sequence[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def error(
    products: Mapping[str, Product], sizes: tuple[int, int, int], exponent: int, symmetric: bool, part: int = 0
) -> dict[str, float]:
    """Errors by name: relative, Frobenius norm, against FP64; geometric mean over the seeds.

    part: of the result only so many rows and columns, drawn at random (0: all); OpenBLAS, whose order of summation
    depends on the sizes, multiplies the whole matrices.
    """
    m, n, k = sizes
    found: dict[str, list[float]] = {name: [] for name in products}
    for seed in SEEDS:
        a, b = offset_uniform(m, n, k, seed, exponent, symmetric=symmetric)
        whole = sgemm(a, b) if OPENBLAS in products else None
        if part:
            rng = np.random.default_rng(seed)
            rows = np.sort(rng.choice(m, min(part, m), replace=False))
            cols = np.sort(rng.choice(n, min(part, n), replace=False))
            a, b = np.ascontiguousarray(a[rows]), np.ascontiguousarray(b[:, cols])
            whole = whole if whole is None else whole[np.ix_(rows, cols)]
        exact = a.astype(np.float64) @ b.astype(np.float64)
        for name, product in products.items():
            own = whole if name == OPENBLAS and whole is not None else product(a, b)
            found[name].append(relative_frobenius(exact, own))
    return {name: geometric(values) for name, values in found.items()}


Errors = dict[tuple[bool, int], dict[str, float]]


@cache
def sweep(scale: Scale) -> Errors:
    """Fig. 8: errors of all schemes by (symmetric, offset exponent)."""
    products: dict[str, Product] = {**baselines(), HGEMM: hgemm}
    for sb in SCALING:
        products[TERM[sb]] = termwise(DEPTH, sb)
        products[ELEMENT[sb]] = elementwise(sb)
    products[IN_BLOCKS] = elementwise(12, BLOCK_K)
    edge, exponents = (EDGE // 2, SOME) if scale == "quick" else (EDGE, EXPONENTS)
    sizes = (edge, edge, DEPTH)
    return {(sign, e): error(products, sizes, e, sign) for sign in SIGNS for e in exponents}


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Fig. 8's errors as `sweep` gives them, and the numbers that its claims and notes speak of."""

    found: Errors
    exponents: Sequence[int]

    def ratio(self, over: str, under: str, among: Sequence[int] | None = None) -> list[float]:
        """Error of one over that of another at each sign and exponent (`among` them; None: all)."""
        exponents = self.exponents if among is None else among
        return [self.found[sign, e][over] / self.found[sign, e][under] for sign in SIGNS for e in exponents]

    def over_termwise(self, name: str) -> dict[bool, float]:
        """The mean over exponents of the error over termwise's, by sign."""
        return {
            sign: geometric([self.found[sign, e][name] / self.found[sign, e][TERM[12]] for e in self.exponents])
            for sign in SIGNS
        }

    def symmetric_over_non_negative(self, name: str) -> list[float]:
        """By exponent."""
        return [self.found[True, e][name] / self.found[False, e][name] for e in self.exponents]

    def series(self, sign: bool, panel: str) -> Series:
        """One of the figure's panels."""
        names = (HGEMM, *baselines(), *TERM.values(), *ELEMENT.values(), IN_BLOCKS)
        keys = [(e, name) for e in self.exponents for name in names]
        columns: dict[str, list[Any]] = {
            "offset exponent": [e for e, _ in keys],
            "relative error": [self.found[sign, e][name] for e, name in keys],
            "method": [name for _, name in keys],
        }
        return Series(panel, columns, "offset exponent", "relative error", "method", "y")

    def quantities(self, base: str) -> dict[str, dict[str, Any]]:
        """The measured quantities by claim; base: the FP32 SGEMM that schemes are compared with."""
        found, ratio = self.found, self.ratio
        others = [base, *TERM.values(), *ELEMENT.values()]
        signs = [one for name in (TERM[12], ELEMENT[12], base) for one in self.symmetric_over_non_negative(name)]
        return {
            "fig8-hgemm-symmetric": {"err": [found[True, e][HGEMM] for e in HALVES]},
            "fig8-hgemm-nonnegative": {"err": [found[False, e][HGEMM] for e in HALVES]},
            "fig8-hgemm-highest": {
                "ratio": [
                    found[sign, e][HGEMM] / max(found[sign, e][name] for name in others)
                    for sign in SIGNS
                    for e in HALVES
                ]
            },
            "fig8-cancellation": {"ratio": signs},
            "fig8-sb0-similar": {"ratio": ratio(ELEMENT[0], TERM[0])},
            "fig8-sb0-near-zero": {"ratio": ratio(ELEMENT[0], TERM[0], NEAR)},
            "fig8-sb0-trails": {"termwise": ratio(TERM[0], base), "elementwise": ratio(ELEMENT[0], base)},
            "fig8-sb12-gain": {
                "termwise": ratio(TERM[0], TERM[12], LOW),
                "elementwise": ratio(ELEMENT[0], ELEMENT[12], LOW),
            },
            "fig8-sb12-gain-low": {"low": ratio(TERM[0], TERM[12], LOW), "near_zero": ratio(TERM[0], TERM[12], NEAR)},
            "fig8-sb6": {"termwise": ratio(TERM[6], TERM[12], LOW), "elementwise": ratio(ELEMENT[6], ELEMENT[12], LOW)},
            "fig8-elementwise-comparable": {"ratio": ratio(ELEMENT[12], base)},
            "fig8-termwise-surpasses": {"ratio": ratio(base, TERM[12], LOW)},
            "fig8-recovers-fp32": {"ratio": ratio(TERM[12], base)},
            "fig8-termwise-beats-elementwise": {"ratio": ratio(ELEMENT[12], TERM[12])},
        }


def _offset_notes(offsets: _Offsets, said: str) -> dict[str, str]:
    """Notes by claim of Fig. 8; said: what each ends with."""
    products: dict[str, Product] = {"panels": in_panels, "termwise": termwise(DEPTH), "wide": hgemm_fp32}
    what_if = {sign: error(products, (EDGE // 2, EDGE // 2, DEPTH), 0, sign) for sign in SIGNS}
    panels = {sign: one["panels"] / one["termwise"] for sign, one in what_if.items()}
    apart, both, in_blocks = (offsets.over_termwise(name) for name in (SGEMM, ELEMENT[12], IN_BLOCKS))
    chain_note = (
        f"Over all exponents {SGEMM} has {apart[True]:.2f} (symmetric) and {apart[False]:.2f} (non-negative) times "
        f"termwise's error. A chain in panels of {PANEL} of K would have {panels[True]:.2f} and {panels[False]:.2f} "
        "times at exponent 0. "
    )
    joined = (
        f"With the terms added after each block of K of the paper's tile (b_k = {BLOCK_K}; three blocks of 176 x 176 "
        "do not fit L0C, so that such a kernel has bits and no time) elementwise's error is "
        f"{in_blocks[True]:.2f} (symmetric) and {in_blocks[False]:.2f} (non-negative) times termwise's. "
    )
    sums = (
        f"Elementwise's error is {both[True]:.2f} (symmetric) and {both[False]:.2f} (non-negative) times termwise's: "
        "both add FP32 sums over K in the cube's order, and the rounding of those sums is what is left with sb = 12. "
        f"{joined}"
    )
    by_chain = ("sb0-trails", "elementwise-comparable", "termwise-surpasses", "recovers-fp32")
    by_sums = ("sb0-similar", "sb0-near-zero", "termwise-beats-elementwise")
    by_other = offsets.quantities(CHAIN)
    notes = dict.fromkeys(by_other, said)
    named = ("cancellation", "hgemm-highest", *by_chain)
    compared = by_the_other({f"fig8-{name}": by_other[f"fig8-{name}"] for name in named})
    notes |= {f"fig8-{name}": chain_note + said for name in by_chain}
    notes |= {f"fig8-{name}": sums + said for name in by_sums}
    notes["fig8-elementwise-comparable"] = joined + notes["fig8-elementwise-comparable"]
    symmetric = {e: offsets.found[True, e] for e in (LOW[0], LOW[-1])}
    gains = {e: errors[TERM[0]] / errors[TERM[12]] for e, errors in symmetric.items()}
    notes["fig8-sb12-gain"] = (
        f"The lower the exponent, the more of the unscaled low part is lost: symmetric inputs gain {gains[LOW[0]]:.0f} "
        f"times at 2^{LOW[0]} and {gains[LOW[-1]]:.0f} at 2^{LOW[-1]}. " + said
    )
    notes["fig8-hgemm-symmetric"] = (
        "The result is compared as it comes, in FP16; with an FP32 result the error at exponent 0 is "
        f"{what_if[True]['wide']:.2e}. " + said
    )
    notes["fig8-cancellation"] = (
        "Non-negative sums of 2816 products grow, and the accumulator rounds each step to its own size. " + said
    )
    return notes | {name: text + notes[name] for name, text in compared.items()}


def measure_offsets(scale: Scale) -> Found:
    """Fig. 8's claims."""
    is_quick = scale == "quick"
    offsets = _Offsets(sweep(scale), SOME if is_quick else EXPONENTS)
    return Found(
        offsets.quantities(SGEMM if BY_HOST else CHAIN),
        _offset_notes(offsets, QUICK_SIZES if is_quick else ""),
        tuple(offsets.series(sign, panel) for sign, panel in zip(SIGNS, ("fig8a", "fig8b"), strict=True)),
    )


def measure_terms(scale: Scale) -> Found:
    """Eq. 7's fourth product, rounding of the split, FP16 sums, and the order in which terms are added."""
    edge = EDGE // 2 if scale == "quick" else EDGE
    sizes = (edge, edge, DEPTH)
    own: dict[str, Product] = {
        "three": termwise(DEPTH),
        "four": termwise(DEPTH, scheme=variant(with_fourth)),
        "truncated": termwise(DEPTH, scheme=variant(truncated)),
        "stored": stored_as_fp16,
    }
    at_zero = [error(own, sizes, 0, sign) for sign in SIGNS]
    orders: dict[str, Product] = {
        "small first": termwise(DEPTH),
        "large first": termwise(DEPTH, scheme=variant(large_first)),
    }
    low = [error(orders, sizes, e, sign) for sign in SIGNS for e in LOW]
    said = "m = n = 32. " if scale == "quick" else ""
    rounding = [one["truncated"] / one["three"] for one in at_zero]
    return Found(
        {
            "eq7-fourth-term": {"ratio": [one["three"] / one["four"] for one in at_zero]},
            "sec3-2-rn-over-rz": {"ratio": rounding},
            "sec3-2-fp32-sums": {"ratio": [one["stored"] / one["three"] for one in at_zero]},
            "fig7-small-first": {"ratio": [one["large first"] / one["small first"] for one in low]},
        },
        {
            "eq7-fourth-term": said,
            "sec3-2-rn-over-rz": said,
            "sec3-2-fp32-sums": said,
            "fig7-small-first": said + "The order changes the last addition of each element alone; the sums over K "
            "before it are the same, and have more error.",
        },
    )


def measure_sizes(scale: Scale) -> Found:
    """Fig. 9: errors at offset exponent 0 against m = n, k, and all three."""
    is_quick = scale == "quick"

    def at(m: int, n: int, k: int, sign: bool, part: int) -> dict[str, float]:
        own: dict[str, Product] = {
            "termwise": termwise(k), "elementwise": elementwise(), IN_BLOCKS: elementwise(12, BLOCK_K), **baselines(),
        }  # fmt: skip
        return error(own, (m, n, k), 0, sign, part)

    part = 2 * DRAWN if is_quick else 0
    panels = {
        "fig9a": [(n, n, DEPTH) for n in (64, 128, 256, 512)],
        "fig9b": [(EDGE, EDGE, k) for k in (704, 1408, 2816, 5632, 11264)],
        "fig9c": [(n, n, n) for n in (352, 704, 1408)],
    }
    limit = {"fig9a": part, "fig9b": DRAWN if is_quick else 0, "fig9c": part or EDGE}
    found = {
        (panel, sign, sizes): at(*sizes, sign, limit[panel])
        for panel, own in panels.items()
        for sign in SIGNS
        for sizes in own
    }
    series = []
    for panel in panels:
        names = ("termwise", "elementwise", IN_BLOCKS, *baselines())
        keys = [(key, name) for key in found if key[0] == panel for name in names]
        axis = "k" if panel == "fig9b" else "m"
        columns: dict[str, list[Any]] = {
            axis: [key[2][2 if panel == "fig9b" else 0] for key, _ in keys],
            "relative error": [found[key][name] for key, name in keys],
            "method": [f"{name}, {'symmetric' if key[1] else 'non-negative'}" for key, name in keys],
        }
        series.append(Series(panel, columns, axis, "relative error", "method", "xy"))

    def ratios(panel: str, over: str) -> list[float]:
        return [
            found[panel, sign, sizes][over] / found[panel, sign, sizes]["termwise"]
            for sign in SIGNS
            for sizes in panels[panel]
        ]

    def spread(name: str) -> list[float]:
        own = [[found["fig9a", sign, sizes][name] for sizes in panels["fig9a"]] for sign in SIGNS]
        return [max(values) / min(values) for values in own]

    def growth(name: str) -> list[float]:
        deepest, shallowest = panels["fig9b"][-1], panels["fig9b"][0]
        return [found["fig9b", sign, deepest][name] / found["fig9b", sign, shallowest][name] for sign in SIGNS]

    said = f"Errors on {part} (Fig. 9b: {DRAWN}) rows and columns drawn at random. " if is_quick else ""
    in_blocks = {panel: geometric(ratios(panel, IN_BLOCKS)) for panel in ("fig9b", "fig9c")}
    sums = {
        panel: "Both add FP32 sums in the cube's order; see fig8-termwise-beats-elementwise. With the terms added "
        f"after each block of K of the paper's tile (b_k = {BLOCK_K}) elementwise's error is {value:.2f} times "
        f"termwise's. {said}"
        for panel, value in in_blocks.items()
    }

    def quantities(base: str) -> dict[str, dict[str, Any]]:
        return {
            "fig9a-flat": {"termwise": spread("termwise"), "elementwise": spread("elementwise"), "sgemm": spread(base)},
            "fig9b-grows": {"elementwise": growth("elementwise"), "sgemm": growth(base)},
            "fig9b-termwise-sgemm": {"ratio": ratios("fig9b", base)},
            "fig9b-termwise-elementwise": {"ratio": ratios("fig9b", "elementwise")},
            "fig9c-termwise-sgemm": {"ratio": ratios("fig9c", base)},
            "fig9c-termwise-elementwise": {"ratio": ratios("fig9c", "elementwise")},
        }

    named = ("fig9a-flat", "fig9b-grows", "fig9b-termwise-sgemm", "fig9c-termwise-sgemm")
    compared = by_the_other({name: quantities(CHAIN)[name] for name in named})
    return Found(
        quantities(SGEMM if BY_HOST else CHAIN),
        {
            **{name: said + note for name, note in compared.items()},
            "fig9b-termwise-elementwise": sums["fig9b"],
            "fig9c-termwise-elementwise": sums["fig9c"],
        },
        tuple(series),
    )


def truncating_unit(device: str) -> float:
    """1 + 1.5 2^-24 in one instruction of the FP16 unit, and its mirror: the larger magnitude of the two, signed."""
    chip = load(device)
    name = chip.native["fp16"]
    model = instruction(chip, name)
    results = []
    for sign in (1.0, -1.0):
        a, b = np.zeros((model.m, model.k), np.float16), np.zeros((model.k, model.n), np.float16)
        a[0, 0], b[0, 0] = sign * 1.5 * 2.0**-12, 2.0**-12
        c = np.zeros((model.m, model.n), np.float32)
        c[0, 0] = sign
        results.append(sign * float(chip.mma(name, a, b, c)[0, 0]))
    return max(results)


def measure_tensor_cores(scale: Scale) -> Found:
    """Section 2 on Ootomo and Yokota: truncation in the unit, its bias, and FP32's accuracy."""

    def ootomo(leading: str) -> Product:
        return lambda a, b: matmul(a, b, device=ORIGINAL, scheme="ootomo-fp16", leading=leading)

    edge = EDGE // 2 if scale == "quick" else EDGE
    biases = {}
    for leading in ("unit", "outside"):
        errors = []
        for seed in SEEDS:
            a, b = offset_uniform(edge, edge, 4096, seed, 0, symmetric=False)
            exact = a.astype(np.float64) @ b.astype(np.float64)
            errors.append((ootomo(leading)(a, b) - exact) / exact)
        biases[leading] = float(abs(np.mean(errors)))
    ratios = []
    products: dict[str, Product] = {"ootomo": ootomo("outside"), "fp32": fma_chain}
    for k in (1024, 4096, 16384):
        found = error(products, (edge, edge, k), 0, True)
        ratios.append(found["ootomo"] / found["fp32"])
    said = "m = n = 32. " if scale == "quick" else ""
    return Found(
        {
            "sec2-tensor-core-rz": {"rz": truncating_unit(ORIGINAL)},
            "sec2-rz-bias": {"bias_inside": biases["unit"], "bias_outside": biases["outside"]},
            "sec2-ootomo-fp32-accuracy": {"ratio": ratios},
        },
        {
            "sec2-rz-bias": said,
            "sec2-ootomo-fp32-accuracy": said + "The leading product is added outside the unit after each 16 of K, so "
            "that it is rounded a sixteenth as often as the FP32 chain: better than FP32 where the ratio is below 1.",
        },
    )


EXPERIMENTS = (
    Experiment(
        "offsets",
        tuple(
            f"fig8-{name}"
            for name in (
                *("hgemm-symmetric", "hgemm-nonnegative", "hgemm-highest", "cancellation", "sb0-similar"),
                *("sb0-near-zero", "sb0-trails", "sb12-gain", "sb12-gain-low", "sb6", "elementwise-comparable"),
                *("termwise-surpasses", "recovers-fp32", "termwise-beats-elementwise"),
            )
        ),
        measure_offsets,
        {"quick": 20, "full": 90},
    ),
    Experiment(
        "terms",
        ("eq7-fourth-term", "sec3-2-rn-over-rz", "sec3-2-fp32-sums", "fig7-small-first"),
        measure_terms,
        {"quick": 5, "full": 8},
    ),
    Experiment(
        "sizes",
        (
            *("fig9a-flat", "fig9b-grows", "fig9b-termwise-sgemm", "fig9b-termwise-elementwise"),
            *("fig9c-termwise-sgemm", "fig9c-termwise-elementwise"),
        ),
        measure_sizes,
        {"quick": 25, "full": 150},
    ),
    Experiment(
        "tensor-cores",
        ("sec2-tensor-core-rz", "sec2-rz-bias", "sec2-ootomo-fp32-accuracy"),
        measure_tensor_cores,
        {"quick": 3, "full": 12},
    ),
)
