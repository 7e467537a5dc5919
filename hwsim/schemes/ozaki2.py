"""Ozaki scheme II: FP64 and FP32 from residues, whose products a matrix unit adds exactly, by the Chinese remainder
theorem. The module knows operands and plans; it knows no device.

Steps, moduli, constants and the exponents of fast and accurate mode are those of GEMMul8 2.0.9 (commit 71296f9). In
fast mode exponents depend on the size of the operands, so that results of small and large ones are wrong (arXiv
2606.29129). Mode "norms" takes the bound of that paper, with sums of squares of integers, the same in any order (ours).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from hwsim.errors import InputError
from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import ChineseRemainder, Congruence, Piece, Plan, Residue, chain
from hwsim.gemm.problem import Problem
from hwsim.operands.powers import exponents_beyond_norms
from hwsim.schemes.piece_notices import counted
from hwsim.schemes.scheme import AnyArray, Notice, Scheme, special_notices
from hwsim.schemes.span_notices import lost_elements

INT8_MODULI = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173)
FP8_MODULI = (1089, 1024, 961, 841, 625, 529, 511, 509, 503, 499, 491, 487, 481, 479, 467, 463, 461, 457, 449, 443)
SQUARES = 6  # of FP8's moduli: residues are high * root + low, three products of two pieces
KARATSUBA_BASE = 16  # of the others: three products of high, low and their sum
#: (log2(P - 1) - 1) / 2 of the product P of 2, 3, ... moduli, as fp32, with the roundings of GEMMul8's table.
LOG2_BOUNDS = {
    "int8": (
        7.4971876, 11.488673, 15.474444, 19.448627, 23.405073, 27.355507, 31.2876, 35.2072, 39.120476, 43.020924,
        46.9017, 50.76225, 54.580563, 58.391586, 62.187817, 65.97653, 69.72645, 73.46836, 77.18568,
    ),
    "fp8": (
        9.5443945, 14.4985895, 19.356571, 24.000427, 28.523989, 33.02258, 37.518337, 42.005547, 46.48699, 50.956783,
        55.420673, 59.875618, 64.32756, 68.7612, 73.18863, 77.612946, 82.03097, 86.43626, 90.83183,
    ),
}  # fmt: skip
LEAST_MODULI, MOST_MODULI, MOST_MODULI_FP32 = 2, 20, 13
FP64_DIGITS = 53
EXCEEDED = "moduli_exceeded"
MARGIN = 2.0**-20  # by which squares that are rounded in the input's type may be too small


@dataclass(frozen=True)
class _Backend:
    """Residues of one operand format. longest_k: the K over which sums of products stay exact. one_word: the most
    moduli with which FP64 results take weights of one fp64 number. moduli_fp64, moduli_fp32: defaults. bound_units:
    what the largest magnitude of a row is below in accurate mode.
    """

    moduli: tuple[int, ...]
    longest_k: int
    one_word: int
    moduli_fp64: int
    moduli_fp32: int
    congruence_format: str
    bound_units: int


KINDS = {
    "int8": _Backend(
        moduli=INT8_MODULI,
        longest_k=1 << 17,
        one_word=6,
        moduli_fp64=15,
        moduli_fp32=7,
        congruence_format="int8",
        bound_units=64,
    ),
    "fp8": _Backend(
        moduli=FP8_MODULI,
        longest_k=1 << 16,
        one_word=5,
        moduli_fp64=13,
        moduli_fp32=6,
        congruence_format="int16",
        bound_units=256,
    ),
}


def moduli_of(kind: str, options: Mapping[str, Any], output: str) -> int:
    """The number of moduli for results in the format `output`."""
    defaults = KINDS[kind]
    moduli: int = options["moduli"] or (defaults.moduli_fp64 if output == "fp64" else defaults.moduli_fp32)
    return moduli


@dataclass(frozen=True)
class _ResiduePlan:
    """A scheme's `plan`. An object, because results are pickled."""

    kind: str

    def __call__(self, options: Mapping[str, Any], problem: Problem) -> Plan:
        """One term a product of residues; each is a GEMM of its own."""
        kind, name = KINDS[self.kind], f"ozaki2-{self.kind}"
        output = options["result"] or problem.input_format
        count = moduli_of(self.kind, options, output)
        most = MOST_MODULI if output == "fp64" else MOST_MODULI_FP32
        if not LEAST_MODULI <= count <= most:
            wider = "" if output == "fp64" else "; operands of fp64 (input_format) have fp64 results"
            raise InputError(
                f"scheme {name}: moduli = {count}; allowed: {LEAST_MODULI} to {most} for {output} results{wider}"
            )
        if problem.k > kind.longest_k:
            raise InputError(
                f"scheme {name}: k = {problem.k}; allowed: at most {kind.longest_k}, else sums are inexact"
            )
        pieces, products, factors = _pieces(self.kind, kind.moduli[:count])
        terms = tuple(chain(pair) for of_modulus in products for pair in of_modulus)
        if options.get("accumulate") == "instruction":
            terms = tuple(replace(term, k_group="instruction") for term in terms)
        first, congruences = 0, []
        for modulus, of_modulus, of_terms in zip(kind.moduli[:count], products, factors, strict=True):
            numbers = tuple(range(first, first + len(of_modulus)))
            congruences.append(Congruence(numbers, of_terms, modulus, kind.congruence_format))
            first += len(of_modulus)
        if options["mode"] == "accurate":
            pieces += (Piece(pieces[0].format, "RU", residue=Residue(kind.bound_units, "bound")),)
            terms += (replace(terms[0], stages=chain((len(pieces) - 1,) * 2).stages),)
        words = 1 if output == "fp32" or count <= kind.one_word else 2
        return Plan(
            name,
            pieces,
            pieces,
            terms,
            remainder(tuple(congruences), None if options["sum"] == "exact" else words, output),
            input_format=problem.input_format,
            output_format=output,
            split="residues",
            bound_factor=bound_factor(kind.moduli[:count]) if options["mode"] == "norms" else 0.0,
            log2_bound=0.0 if options["mode"] == "norms" else log2_bound(self.kind, count),
            specials="fma_chain",
            arithmetic="fp64",
            calls=True,
        )


def _pieces(
    kind: str, moduli: tuple[int, ...]
) -> tuple[tuple[Piece, ...], list[tuple[tuple[int, int], ...]], list[tuple[int, ...]]]:
    """The pieces of an operand; for each modulus its products of pieces, and their factors in the product's residue."""
    if kind == "int8":
        pieces = tuple(Piece("int8", residue=Residue(modulus)) for modulus in moduli)
        return pieces, [((i, i),) for i in range(len(moduli))], [(1,)] * len(moduli)
    every: list[Piece] = []
    products: list[tuple[tuple[int, int], ...]] = []
    factors: list[tuple[int, ...]] = []
    for number, modulus in enumerate(moduli):
        high, low, both = (len(every) + i for i in range(3))
        if number < SQUARES:
            base = math.isqrt(modulus)
            every += [Piece("e4m3", residue=Residue(modulus, part, base)) for part in ("high", "low")]
            products.append(((high, low), (low, high), (low, low)))
            factors.append((base, base, 1))
            continue
        base = KARATSUBA_BASE
        every += [Piece("e4m3", residue=Residue(modulus, part, base)) for part in ("high", "low", "sum")]
        products.append(((high, high), (low, low), (both, both)))
        factors.append((base * base - base, 1 - base, base))
    return tuple(every), products, factors


def bound_factor(moduli: tuple[int, ...]) -> float:
    """2 / (P - 1) of the product P of all moduli, enlarged by what rounded squares may miss."""
    return float(Fraction(2, math.prod(moduli) - 1)) * (1 + MARGIN)


def log2_bound(kind: str, count: int) -> float:
    """GEMMul8's constant for so many moduli."""
    return float(np.float32(LOG2_BOUNDS[kind][count - LEAST_MODULI]))


def remainder(congruences: tuple[Congruence, ...], words: int | None, output: str) -> ChineseRemainder:
    """The node that joins congruences. words: fp64 numbers of a weight (None: as many as hold it exactly).

    All words of a weight but the last have so few bits that sums of their products with residues are exact.
    """
    moduli = [congruence.modulus for congruence in congruences]
    product = math.prod(moduli)
    weights = [product // p * pow(product // p, -1, p) for p in moduli]
    bits = (sum(p // 2 for p in moduli) - 1).bit_length()  # of a sum of residues
    if words is not None:  # the product is added last, and rounded to nearest
        high = float(product)
        parts = (-high, 0.0 - float(product - int(high)))[:words]
        cut = [_words(weight, weights, FP64_DIGITS - bits, words) for weight in weights]
        return ChineseRemainder(congruences, tuple(cut), parts, 1 / product, output)
    every, word_bits = [*weights, product], FP64_DIGITS - 1 - bits
    cut = [_words(number, every, word_bits, -(-product.bit_length() // word_bits)) for number in every]
    negative = tuple(0.0 - part for part in cut[-1])
    return ChineseRemainder(congruences, tuple(cut[:-1]), negative, 1 / product, output, "exact")


def _words(number: int, numbers: list[int], bits: int, words: int) -> tuple[float, ...]:
    """A number as a sum of words, each but the last cut to the same places in all `numbers`, `bits` of the largest."""
    place, parts = max(numbers).bit_length(), []
    for _ in range(words - 1):
        place -= bits
        part = number >> place << place if place > 0 else number
        parts.append(float(part))
        number -= part
    return (*parts, float(number))


def inspect(kind: str, a: AnyArray, b: AnyArray, options: Mapping[str, Any]) -> list[Notice]:
    """Notices: NaNs and infinities, elements below the integers that the moduli hold, and integers beyond these."""
    output = options["result"] or ("fp32" if a.dtype == b.dtype == np.float32 else "fp64")
    count = moduli_of(kind, options, output)
    product = math.prod(KINDS[kind].moduli[:count])
    places = log2_bound(kind, count) if options["mode"] == "fast" else 0.0
    (of_a, beyond_a), (of_b, beyond_b) = (_widths(x, axis, product, places) for x, axis in ((a, -1), (b, -2)))
    what = (
        "rows of A or columns of B have integers in fast mode that exceed the moduli, and their products may be wrong: "
        "mode accurate or norms holds them"
    )
    exceeded = counted((EXCEEDED, int(beyond_a.sum() + beyond_b.sum()), what))
    return special_notices(a, b) + lost_elements(a, b, (of_a, of_b), "moduli") + exceeded


def _widths(x: AnyArray, axis: int, product: int, log2_bound: float) -> tuple[AnyArray, AnyArray]:
    """Bits of each row's or column's integers, and whether sums of their products may exceed half the product of all
    moduli. log2_bound: of fast mode (0: the most bits with which they do not).
    """
    finite = np.where(np.isfinite(x), x, 0.0).astype(np.float64)
    top, above = exponents_beyond_norms(finite, axis, float(Fraction(2, product - 1)))
    most: AnyArray = -above.squeeze(axis)
    if not log2_bound:
        return most, np.zeros(most.shape, bool)
    squares = (np.ldexp(finite, -top) ** 2).sum(axis=axis)
    norm_log2 = np.log2(np.where(squares > 0, squares, 1.0)) / 2 + top.squeeze(axis)
    places = np.floor(log2_bound - 1.5 - np.maximum(1.0, norm_log2)).astype(np.int64) + 1  # as good as a notice needs
    return places, (places > most) & (squares > 0)


def _options(kind: str) -> tuple[Option, ...]:
    options: tuple[Option, ...] = (
        Option(
            "moduli",
            int,
            None,
            "number of moduli: more are more accurate, and more products",
            least=LEAST_MODULI,
            most=MOST_MODULI,
            default_text="int8: 15, and 7 for fp32 results; fp8: 13 and 6",
        ),
        Option(
            "mode",
            str,
            "fast",
            "powers of two of rows and columns; fast: by their norms, as GEMMul8, which is right for operands near 1; "
            "accurate: by one more product, of magnitudes, as GEMMul8; norms: by norms, whatever their size",
            choices=("fast", "accurate", "norms"),
        ),
        Option(
            "result",
            str,
            None,
            "format of the result: fp64 is DGEMM, fp32 is SGEMM",
            choices=("fp64", "fp32"),
            default_text="the operands'",
        ),
    )
    options += (
        Option(
            "sum",
            str,
            "fp64",
            "of residues; fp64: in one or two fp64 numbers, as GEMMul8; exact: in as many as hold it, rounded once",
            choices=("fp64", "exact"),
        ),
    )
    if kind == "int8":
        return options
    return (
        *options,
        Option(
            "accumulate",
            str,
            None,
            "chain: one chain over K; instruction: the sum of each instruction is added outside, for units whose sums "
            "of FP8 products keep few bits",
            choices=("chain", "instruction"),
            default_text="the first that is exact on the device",
        ),
    )


SCHEMES = tuple(
    Scheme(
        f"ozaki2-{kind}",
        f"FP64 or FP32 from residues in {kind.upper()}, by the Chinese remainder theorem",
        "Ozaki, Uchino and Imamura, arXiv 2504.08009; GEMMul8 2.0.9; scaling of arXiv 2606.29129",
        _options(kind),
        _ResiduePlan(kind),
        partial(inspect, kind),
        input_formats=("fp64", "fp32"),
        alternatives="accumulate" if kind == "fp8" else None,
    )
    for kind in KINDS
)
