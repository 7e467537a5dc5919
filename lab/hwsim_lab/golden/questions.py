"""Open questions about hardware arithmetic, as operands: their results, recorded on the hardware, give the answer.

Each question gives golden sets without results, and, where hwsim's units can express the possible answers, those as
candidates. Several dot products share a tile: product i of a case is in row i of A and column i of B, so its result is
element (i, i); the elements beside it are further dot products of the same operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from pathlib import Path
from types import MappingProxyType

import numpy as np

from hwsim.formats import FORMATS, Exact, Format, encode
from hwsim.golden.format import GoldenSet, Meta, UnsignedCodes, write_sets
from hwsim.golden.instructions import parse
from hwsim.numerics.units import (
    DotSpec,
    ExactUnit,
    FmaChainUnit,
    FusedUnit,
    PairwiseUnit,
    Specials,
    TwoLevelUnit,
    Unit,
)
from hwsim.operands.matrix_product import MatrixProduct

#: Codes of one dot product: a and b (at most K of them, the rest +0), and c.
Dot = tuple[Sequence[int], Sequence[int], int]


@dataclass(frozen=True, slots=True)
class Question:
    """One open question: what is not known, on which hardware it can be answered, and the possible answers.

    hardware: machine that can answer. recordable: whether the CUDA recorder can run it. candidates: answers as dot
    units.
    """

    name: str
    text: str
    hardware: str
    instruction: MatrixProduct
    sets: Mapping[str, tuple[Dot, ...]]
    candidates: Mapping[str, DotSpec] = field(default_factory=lambda: MappingProxyType({}))
    scale_d: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def recordable(self) -> bool:
        """Whether `hwsim golden record` can run it on an NVIDIA GPU; the others need their vendor's tools."""
        return self.instruction.name.startswith(("mma.", "wmma.", "wgmma.", "tcgen05."))

    def golden_sets(self) -> Iterator[GoldenSet]:
        """The operand sets, each padded to whole tiles of the instruction."""
        for name, dots in self.sets.items():
            scales = {"scale_d": np.array(self.scale_d[name], np.uint8)} if name in self.scale_d else {}
            a, b, c = tiles(self.instruction, dots)
            yield GoldenSet(self.instruction.name, f"{self.name}.{name}", a, b, c, None, MappingProxyType(scales))


def tiles(instruction: MatrixProduct, dots: Sequence[Dot]) -> tuple[UnsignedCodes, UnsignedCodes, UnsignedCodes]:
    """Codes a (cases, M, K), b (cases, N, K), c (cases, M, N) with min(M, N) dot products on each case's diagonal."""
    per_case = min(instruction.m, instruction.n)
    cases = -(-len(dots) // per_case)
    a, b, c = (np.zeros(instruction.shape(x, cases), instruction.dtype(x)) for x in "abc")
    for index, (row, column, start) in enumerate(dots):
        case, at = divmod(index, per_case)
        a[case, at, : len(row)], b[case, at, : len(column)], c[case, at, at] = row, column, start
    return a, b, c


def value(fmt: Format, significand: int, exponent: int) -> int:
    """The code of significand * 2^exponent, which the format must represent exactly."""
    return encode(fmt, Exact("finite", significand < 0, abs(significand), exponent))


def write_questions(path: Path, questions: Sequence[Question] | None = None) -> int:
    """Write the operands of questions (None: all) as a golden file of origin "operands". Returns the number of results
    to record.
    """
    chosen = questions if questions is not None else tuple(QUESTIONS().values())
    sets = [golden for question in chosen for golden in question.golden_sets()]
    return write_sets(path, sets, Meta("operands", note="; ".join(question.text for question in chosen)))


# Ascend's cube: numerics reference section 7. One fractal is 16 products of fp16.
ASCEND_FP16 = MatrixProduct("mmad.m16n16k16.f32.f16.f16", 16, 16, 16, "fp16", "fp16", "fp32", "fp32")
ASCEND_BF16 = MatrixProduct("mmad.m16n16k16.f32.bf16.bf16", 16, 16, 16, "bf16", "bf16", "fp32", "fp32")
ASCEND_HF32 = MatrixProduct("mmad.m16n16k8.f32.hf32.hf32", 16, 16, 8, "hf32", "hf32", "fp32", "fp32")


def ascend_candidates(fmt: str) -> Mapping[str, DotSpec]:
    """The presets of section 7 and variants with other step widths, as dot units."""
    units: dict[str, Unit] = {"fma_chain": FmaChainUnit()}
    for terms in (2, 4, 8, 16):
        units[f"exact{terms}"] = ExactUnit(terms)
        units[f"tree{terms}"] = PairwiseUnit(terms)
    for bits in (24, 25, 27):
        units[f"fused16_f{bits}"] = FusedUnit(16, bits, -133)
    return MappingProxyType({name: DotSpec(unit, fmt, fmt, "fp32", "fp32") for name, unit in units.items()})


def pair_positions(fmt: Format, terms: int) -> tuple[Dot, ...]:
    """Probes grouping and order of the additions: U and -U at every two positions, distinct powers of two elsewhere.

    The bits of the result are those terms that were not added while the sum held U. U = 2^30 in fp32 absorbs whatever
    is below 2^5.
    """
    big, one = value(fmt, 1, 15), value(fmt, 1, 0)
    dots = []
    for i, j in combinations(range(terms), 2):
        for sign in (1, -1):
            row = [value(fmt, 1, k - terms + 2) for k in range(terms)]
            column = [one] * terms
            row[i], row[j] = value(fmt, sign, 15), value(fmt, -sign, 15)
            column[i] = column[j] = big
            dots.append((row, column, 0))
    return tuple(dots)


def accumulator_pair(fmt: Format, terms: int) -> tuple[Dot, ...]:
    """Probes when the accumulator is added: C = 2^30 and one product -2^30 at each position."""
    fp32 = FORMATS["fp32"]
    dots = []
    for i in range(terms):
        row, column = [value(fmt, 1, k - terms + 2) for k in range(terms)], [value(fmt, 1, 0)] * terms
        row[i], column[i] = value(fmt, -1, 15), value(fmt, 1, 15)
        dots.append((row, column, value(fp32, 1, 30)))
    return tuple(dots)


def half_places(fmt: Format, terms: int) -> tuple[Dot, ...]:
    """Probes rounding per addition or once: 1 + n 2^-24, with the 1 as C or as the product at either end."""
    fp32, one, small = FORMATS["fp32"], value(fmt, 1, 0), value(fmt, 1, -12)
    dots: list[Dot] = []
    for n, sign in product(range(1, terms), (1, -1)):
        tail = [value(fmt, sign, -12)] * n
        dots.append((tail, [small] * n, value(fp32, 1, 0)))
        dots.append(([one, *tail], [one, *[small] * n], 0))
        dots.append(([*tail, *[0] * (terms - 1 - n), one], [*[small] * n, *[0] * (terms - 1 - n), one], 0))
    return tuple(dots)


def directions(fmt: Format) -> tuple[Dot, ...]:
    """Probes where terms are truncated, and in which direction: 1 - 2^-i - 2^-j and its variants in sign."""
    fp32, one = FORMATS["fp32"], value(fmt, 1, 0)
    dots = []
    for i, j, sign_i, sign_j, sign_c in product(range(22, 31), range(24, 37), (1, -1), (1, -1), (1, -1)):
        if i < j:
            row = [value(fmt, sign_i, -(i // 2)), value(fmt, sign_j, -(j // 2))]
            column = [value(fmt, 1, -(i - i // 2)), value(fmt, 1, -(j - j // 2))]
            dots.append(([*row, 0], [*column, one], value(fp32, sign_c, 0)))
    return tuple(dots)


def subnormal_operands(fmt: Format) -> tuple[Dot, ...]:
    """Probes subnormal operands: each power of two below the normal range, and one odd subnormal, times 1 and times
    itself.
    """
    one = value(fmt, 1, 0)
    last = fmt.min_exponent - fmt.fraction_bits
    codes = [value(fmt, sign, last + i) for i in range(fmt.fraction_bits + 1) for sign in (1, -1)]
    codes.append(value(fmt, (1 << fmt.fraction_bits) - 3, last))
    return tuple(dot for code in codes for dot in (([code], [one], 0), ([code], [code], 0)))


def overflows(fmt: Format) -> tuple[Dot, ...]:
    """Probes overflow: infinities, NaNs, the largest numbers as operands and accumulator; for wide formats, sums beyond
    fp32 and back.
    """
    fp32, one = FORMATS["fp32"], value(fmt, 1, 0)
    edges = [fmt.infinity_code(), fmt.infinity_code(1), fmt.nan_code, fmt.largest_code(), fmt.largest_code(1), 0]
    starts = [fp32.infinity_code(), fp32.infinity_code(1), fp32.nan_code, fp32.largest_code(), fp32.largest_code(1), 0]
    dots: list[Dot] = [([edge], [other], start) for edge, other, start in product(edges, (one, 0), starts)]
    if fmt.max_exponent > 64:
        top, two, small = value(fmt, 1, 127), value(fmt, 1, 1), value(fmt, 1, 100)
        for sign in (1, -1):
            up, down = value(fmt, sign, 127), value(fmt, -sign, 127)
            dots += [
                ([up, down], [two, two], 0),
                ([up, small, down], [two, one, two], 0),
                ([up], [two], 0),
                ([up, up, down, down], [one] * 4, 0),
                ([up], [one], value(fp32, sign, 127)),
                ([down, up, small], [two, two, one], value(fp32, sign, 127)),
                ([up], [top], 0),
            ]
    return tuple(dots)


def hf32_roundings() -> tuple[Dot, ...]:
    """Probes HF32's rounding: fp32 words around its last place, times 1: nearest even, ties away, or toward zero."""
    fp32 = FORMATS["fp32"]
    one = fp32.word(0, 127 << 23)
    words = [
        sign << 31 | 127 << 23 | odd << 12 | low | high << 20
        for sign, odd, low, high in product((0, 1), (0, 1), (0, 1, 0x7FF, 0x800, 0x801, 0xFFF), (0, 5, 7))
    ]
    return tuple(dot for word in words for dot in (([word], [one], 0), ([one], [word], 0)))


def nan_patterns(fmt: Format, c: Format) -> tuple[Dot, ...]:
    """Probes NaN results: NaNs of every sign, quiet and signalling, in each operand; infinity times zero; infinities of
    both signs.
    """

    def nans(f: Format) -> list[int]:
        if f.nan == "ieee":
            quiet = 1 << f.fraction_bits - 1
            return [f.word(sign, f.largest_magnitude + 1 + rest) for sign in (0, 1) for rest in (1, quiet, quiet + 3)]
        return [f.nan_code, f.nan_code ^ (1 << f.magnitude_bits if f.nan == "all_ones" else 0)]

    one, plus = value(fmt, 1, 0), value(c, 1, 0)
    dots: list[Dot] = []
    for code in nans(fmt):
        dots += [([code], [one], plus), ([one], [code], plus), ([code], [code], 0), ([one, code], [one, 0], 0)]
    dots += [([one], [one], code) for code in nans(c)]
    dots += [([first], [one], code) for first in nans(fmt) for code in nans(c)]
    if fmt.has_infinity:
        up, down = fmt.infinity_code(), fmt.infinity_code(1)
        dots += [
            ([up], [0], 0),
            ([down], [0], 0),
            ([up, down], [one, one], 0),
            ([up], [one], c.infinity_code(1)),
            ([down], [one], c.infinity_code()),
            ([down], [one], c.infinity_code(1)),
        ]
    return tuple(dots)


def zero_signs(fmt: Format, c: Format, terms: int) -> tuple[Dot, ...]:
    """Probes the sign of zero: signed zeros as operands and accumulator, exact cancellation, underflow to zero."""
    zeros = [fmt.zero_code(), fmt.zero_code(1)]
    one = value(fmt, 1, 0)
    least = value(fmt, 1, fmt.min_exponent - fmt.fraction_bits)
    starts = [c.zero_code(), c.zero_code(1)]
    dots: list[Dot] = []
    minus = value(fmt, -1, 0)
    for x, y, start in product([*zeros, one, minus], zeros, starts):
        dots += [([x], [y], start), ([x] * terms, [y] * terms, start)]
    for start in starts:
        dots += [
            ([one, minus], [one, one], start),
            ([minus, one], [one, one], start),
            ([least], [minus], start),
            ([value(fmt, -1, fmt.min_exponent - fmt.fraction_bits)], [least], start),
        ]
    dots += [([one], [one], value(c, -1, 0)), ([minus], [one], value(c, 1, 0))]
    return tuple(dots)


def tf32_low_bits() -> tuple[Dot, ...]:
    """Probes tf32 words that are NaN only in the 13 bits that the unit drops: infinity, or NaN."""
    fp32 = FORMATS["fp32"]
    one = value(fp32, 1, 0)
    words = [sign << 31 | 0xFF << 23 | low for sign in (0, 1) for low in (0, 1, 0x1000, 0x1FFF, 0x2000)]
    dots: list[Dot] = []
    for word in words:
        dots += [
            ([word], [one], 0),
            ([one], [word], 0),
            ([word], [0], 0),
            ([word], [one], fp32.infinity_code()),
            ([word], [one], fp32.infinity_code(1)),
            ([word], [word], one),
        ]
    return tuple(dots)


def scaled_accumulators(c: Format, operand: Format, scale: int) -> tuple[Dot, ...]:
    """Probes scale-input-d: accumulators whose value times 2^-scale is at or below the normal range: rounded first,
    truncated, or flushed.

    Alone, and beside one product at the last place of a subnormal (what the operands have that is closest).
    """
    last = c.min_exponent - c.fraction_bits
    small = max(last, 2 * (operand.min_exponent - operand.fraction_bits))
    half = max(small // 2, operand.min_exponent - operand.fraction_bits)
    beside: list[tuple[Sequence[int], Sequence[int]]] = [((), ())]
    if small - half <= operand.max_exponent:
        beside += [([value(operand, sign, half)], [value(operand, 1, small - half)]) for sign in (1, -1)]
    dots: list[Dot] = []
    for below, pattern, sign in product(range(-1, c.fraction_bits + 2), (0, 1, 2, 3), (0, 1)):
        fraction = (0, 1, (1 << c.fraction_bits) - 1, 0x555555 & ((1 << c.fraction_bits) - 1))[pattern]
        biased = 1 + scale - below
        code = c.word(sign, max(biased, 0) << c.fraction_bits | fraction)
        dots += [(row, column, code) for row, column in beside]
    return tuple(dots)


def _nan_candidates(unit: Callable[[Specials], Unit], fmt: str) -> Mapping[str, DotSpec]:
    """Variants of a unit with each NaN code and each sign of zero that hardware could give."""
    found = {}
    for code, zero in product((0x7FC00000, 0x7FFFFFFF, 0xFFC00000), ("ieee", "positive")):
        specials = Specials(nan_code=code, zero="ieee" if zero == "ieee" else "positive")
        found[f"nan {code:08x}, zero {zero}"] = DotSpec(unit(specials), fmt, fmt, "fp32", "fp32")
    return MappingProxyType(found)


def _ascend(name: str, instruction: MatrixProduct, hardware: str) -> Question:
    fmt = FORMATS[instruction.a]
    return Question(
        name,
        "Ascend's cube: width of a step, order, rounding, width of the alignment, subnormals, saturation",
        hardware,
        instruction,
        MappingProxyType(
            {
                "pair_positions": pair_positions(fmt, instruction.k),
                "accumulator": accumulator_pair(fmt, instruction.k),
                "half_places": half_places(fmt, instruction.k),
                "directions": directions(fmt),
                "subnormals": subnormal_operands(fmt),
                "overflow": overflows(fmt),
            }
        ),
        ascend_candidates(instruction.a),
    )


def _amd(name: str, instruction: MatrixProduct, hardware: str, unit: Callable[[Specials], Unit]) -> Question:
    fmt, c = FORMATS[instruction.a], FORMATS[instruction.c]
    return Question(
        name,
        "AMD: which NaN comes out, and which sign a zero has",
        hardware,
        instruction,
        MappingProxyType({"nan": nan_patterns(fmt, c), "zero": zero_signs(fmt, c, instruction.k)}),
        _nan_candidates(unit, instruction.a),
    )


def _scaled(instruction: str) -> Question:
    entry = parse(instruction)
    c, operand = FORMATS[entry.c], FORMATS[entry.a]
    sets = {f"scale_d{scale}": scaled_accumulators(c, operand, scale) for scale in range(16)}
    return Question(
        f"scale_input_d_{entry.a}_{entry.d}",
        "tcgen05 scale-input-d: what happens to D 2^-s below the normal range",
        "B200",
        entry,
        MappingProxyType(sets),
        scale_d=MappingProxyType({f"scale_d{s}": s for s in range(16)}),
    )


def QUESTIONS() -> Mapping[str, Question]:  # noqa: N802  (a table; built when asked for, it is not small)
    """Every question by its name."""
    amd = MatrixProduct("v_mfma_f32_32x32x8_f16", 32, 32, 8, "fp16", "fp16", "fp32", "fp32")
    fp8 = MatrixProduct("v_mfma_f32_16x16x32_fp8_fp8", 16, 16, 32, "e4m3fnuz", "e4m3fnuz", "fp32", "fp32")
    cdna1 = MatrixProduct("v_mfma_f32_32x32x8f16", 32, 32, 8, "fp16", "fp16", "fp32", "fp32")
    questions = [
        _ascend("ascend_fp16", ASCEND_FP16, "Ascend 910A, 910B"),
        _ascend("ascend_bf16", ASCEND_BF16, "Ascend 910B"),
        Question(
            "ascend_hf32",
            "HF32 mode 1: toward zero, or nearest with ties away (documents disagree)",
            "Ascend 910B",
            ASCEND_HF32,
            MappingProxyType({"roundings": hf32_roundings()}),
        ),
        *(
            Question(
                f"tf32_low_bits_{name.partition('.')[0]}",
                "tf32 words that are NaN in their 13 low bits only",
                hardware,
                parse(name),
                MappingProxyType({"low_bits": tf32_low_bits()}),
            )
            for name, hardware in (
                ("mma.m16n8k8.f32.tf32.tf32.f32", "Ampere and later"),
                ("wgmma.m64n8k8.f32.tf32.tf32", "Hopper"),
                ("tcgen05.mma.m128n16k8.tf32.f32.tf32.tf32", "B200"),
            )
        ),
        *(
            _scaled(f"tcgen05.mma.m128n16{rest}")
            for rest in ("k16.f16.f32.f16.f16", "k16.f16.f32.bf16.bf16", "k16.f16.f16.f16.f16", "k8.tf32.f32.tf32.tf32")
        ),
        _amd("cdna1_fp16", cdna1, "MI100", lambda specials: ExactUnit(4, specials=specials)),
        _amd("cdna2_fp16", cdna1, "MI210, MI250", lambda specials: PairwiseUnit(4, specials=specials)),
        _amd("cdna3_fp16", amd, "MI300X", lambda specials: TwoLevelUnit(8, specials=specials)),
        _amd(
            "cdna3_fp8",
            fp8,
            "MI300X",
            lambda specials: TwoLevelUnit(16, interleaved=True, accumulator_drop_bits=25, specials=specials),
        ),
    ]
    return MappingProxyType({question.name: question for question in questions})
