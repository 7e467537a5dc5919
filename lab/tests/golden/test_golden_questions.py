"""The open questions: their operands decide between the answers that the units can express."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from hwsim._kernels import gemm
from hwsim.formats import FORMATS, decode
from hwsim.golden.format import read_meta, read_sets
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.reference import dot
from hwsim.numerics.units import Specials
from hwsim_lab.golden.questions import QUESTIONS, tiles, write_questions

ALL = QUESTIONS()


@pytest.mark.parametrize("name", [name for name, question in ALL.items() if question.candidates])
def test_every_two_answers_differ(name: str) -> None:
    question = ALL[name]
    dots = [entry for entries in question.sets.values() for entry in entries]
    a, b, c = tiles(question.instruction, dots)
    places = [divmod(index, min(c.shape[1:])) for index in range(len(dots))]
    answers = {}
    for key, spec in question.candidates.items():
        d = gemm(spec, a, np.swapaxes(b, 1, 2), c)
        answers[key] = [int(d[case, at, at]) for case, at in places]
        for index in range(0, len(dots), 97):
            row, column, start = dots[index]
            padding = [0] * (question.instruction.k - len(row))
            assert answers[key][index] == dot(spec, DotOperands([*row, *padding], [*column, *padding], start))
    same = [pair for pair in combinations(answers, 2) if answers[pair[0]] == answers[pair[1]]]
    assert same == []


def test_saturation_shows_on_the_910a() -> None:
    """The same unit with saturating specials answers the overflow set differently."""
    question = ALL["ascend_fp16"]
    spec = question.candidates["exact16"]
    saturating = replace(spec, unit=replace(spec.unit, specials=Specials(operands="saturate", overflow="saturate")))
    dots = question.sets["overflow"]
    assert any(dot(spec, DotOperands(a, b, c)) != dot(saturating, DotOperands(a, b, c)) for a, b, c in dots)


def test_pair_positions_show_the_order() -> None:
    """With one rounding nothing is lost; a chain of single fmas keeps what comes after the pair has closed."""
    question = ALL["ascend_fp16"]
    every = sum(1 << 10 + k for k in range(16))  # products 2^(k - 14), in units of 2^-24
    for pair, (a, b, c) in zip(combinations(range(16), 2), question.sets["pair_positions"][::2], strict=True):
        whole, chain = (
            decode(FORMATS["fp32"], dot(question.candidates[name], DotOperands(a, b, c))).fraction * 2**24
            for name in ("exact16", "fma_chain")
        )
        assert whole == every - sum(1 << 10 + k for k in pair)
        before_or_after = sum(1 << 10 + k for k in range(16) if k > pair[1])
        assert chain == before_or_after


def test_scaled_accumulators_lie_around_the_normal_range() -> None:
    question = ALL["scale_input_d_fp16_fp16"]
    fmt = FORMATS["fp16"]
    for name, dots in question.sets.items():
        scale = question.scale_d[name]
        exponents = [
            exact.significand.bit_length() - 1 + exact.exponent - scale
            for _, _, c in dots
            if (exact := decode(fmt, c)).significand
        ]
        assert min(exponents) < fmt.min_exponent <= max(exponents)
    assert sorted(question.scale_d.values()) == list(range(16))


def test_operands_file(tmp_path: Path) -> None:
    path = tmp_path / "questions.npz"
    assert write_questions(path) > 10**6
    meta = read_meta(path)
    assert meta is not None
    assert meta.origin == "operands"
    sets = list(read_sets(path))
    assert len(sets) == sum(len(question.sets) for question in ALL.values())
    assert all(golden.d is None for golden in sets)
    scaled = [golden for golden in sets if "scale_d7" in golden.name]
    assert {int(golden.scales["scale_d"]) for golden in scaled} == {7}


def test_the_dots_stand_on_the_diagonal() -> None:
    question = ALL["tf32_low_bits_mma"]
    (golden,) = question.golden_sets()
    for index, (a, b, c) in enumerate(question.sets["low_bits"]):
        case, at = divmod(index, 8)
        assert golden.a[case, at].tolist()[: len(a)] == list(a)
        assert golden.b[case, at].tolist()[: len(b)] == list(b)
        assert int(golden.c[case, at, at]) == c


def test_what_cuda_can_record() -> None:
    assert {name for name, question in ALL.items() if question.recordable} == {
        name for name in ALL if name.startswith(("tf32", "scale"))
    }
