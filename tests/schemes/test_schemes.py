"""Options, plans and what a scheme says about the data."""

from __future__ import annotations

import numpy as np
import pytest

from hwsim.errors import InputError
from hwsim.gemm.plan import Scaled, Sum, TermValue
from hwsim.gemm.problem import Problem
from hwsim.schemes import scheme_of, schemes


def notices(x, **options):
    scheme = scheme_of("sgemm-cube")
    return {
        n.code: n.count for n in scheme.inspect(np.float32(x), np.zeros((1, 1), np.float32), scheme.complete(options))
    }


def test_plan_of_sgemm_cube():
    scheme = scheme_of("sgemm-cube")
    plan = scheme.plan(scheme.complete({"scaling_exponent": "6"}), Problem.of("fp32", 8, 8, 8))
    assert plan.products == 3
    assert [term.products for term in plan.terms] == [((0, 0),), ((0, 1),), ((1, 0),)]
    assert plan.combine == Sum(TermValue(0), Scaled(Sum(TermValue(1), TermValue(2)), -6))
    assert [(p.format, p.rounding, p.scale_exponent) for p in plan.a_pieces] == [("fp16", "RNE", 0), ("fp16", "RNE", 6)]


def test_eq6_counts():
    # sb = 12: exponents -14 .. 15 keep 22 bits without overflow (Eq. 6)
    assert notices([[1.0, 2.0**-14, 2.0**15, 0.0]]) == {}
    assert notices([[2.0**-15]]) == {"eq6_low": 1}
    assert notices([[2.0**-15]], scaling_exponent=13) == {}
    assert notices([[2.0**-2]], scaling_exponent=0) == {}
    assert notices([[2.0**-3, -(2.0**-3)]], scaling_exponent=0) == {"eq6_low": 2}
    assert notices([[2.0**14]], scaling_exponent=13) == {}
    assert "eq6_high" in notices([[2.0**15]], scaling_exponent=13)


def test_pieces_that_vanish_or_overflow():
    assert notices([[2.0**-25]])["high_piece_zero"] == 1
    assert "high_piece_zero" not in notices([[np.nextafter(np.float32(2.0**-25), np.float32(1))]])
    assert notices([[65520.0]])["high_piece_overflow"] == 1
    assert "high_piece_overflow" not in notices([[np.nextafter(np.float32(65520), np.float32(0))]], scaling_exponent=0)
    assert notices([[32784.0]]) == {"low_piece_overflow": 1}  # allowed by Eq. 6, overflows all the same
    assert notices([[32784.0]], scaling_exponent=11) == {}


def test_specials_are_counted():
    found = notices([[np.nan, np.inf, -np.inf, 1.0]])
    assert found["nan_input"] == 1
    assert found["infinite_input"] == 2


def pieces(scheme, x, **options):
    chosen = scheme_of(scheme)
    return {n.code for n in chosen.inspect(np.float32([[x]]), np.zeros((1, 1), np.float32), chosen.complete(options))}


@pytest.mark.parametrize(("scheme", "options"), [("le-gemm", {}), ("markidis", {}), ("egemm-tc", {"rounding": "RZ"})])
def test_pieces_that_are_cut(scheme, options):
    """Cut, the high piece vanishes below 2^-24 and overflows from 2^16 on; what is in between is 65504 and a rest."""
    below = np.nextafter(np.float32(2.0**-24), np.float32(0))
    assert pieces(scheme, below, **options) == {"high_piece_zero"}
    assert pieces(scheme, 2.0**-24, **options) == set()
    assert pieces(scheme, 65535, **options) == set()
    assert pieces(scheme, 65536, **options) == {"high_piece_overflow"}


@pytest.mark.parametrize(("scheme", "low"), [("markidis", set()), ("ape-fp32-f", {"low_piece_overflow"})])
def test_pieces_that_are_rounded(scheme, low):
    options = {"rounding": "RNE"} if scheme == "markidis" else {}
    assert "high_piece_zero" in pieces(scheme, 2.0**-25, **options)
    assert pieces(scheme, 65520, **options) == {"high_piece_overflow"}
    assert pieces(scheme, 32784, **options) == low


@pytest.mark.parametrize(
    ("accumulation", "option"), [("fastf32", "k_group"), ("bands", "k_group"), ("termwise", "promotion_interval")]
)
def test_bf16x9_refuses_what_it_would_not_read(accumulation, option):
    scheme = scheme_of("bf16x9")
    with pytest.raises(InputError, match=f"{option} is not for accumulation='{accumulation}'"):
        scheme.plan(scheme.complete({"accumulation": accumulation, option: 2}), Problem.of("fp32", 8, 8, 8))


@pytest.mark.parametrize("name", ["ape-fp32-f", "ape-fp32-b", "markidis", "egemm-tc"])
def test_products_that_are_calls_do_not_interleave(name):
    scheme = scheme_of(name)
    with pytest.raises(InputError, match="interleave is not for accumulation='termwise'"):
        scheme.plan(scheme.complete({"accumulation": "termwise", "interleave": "k"}), Problem.of("fp32", 8, 8, 8))


def test_native_needs_no_split_of_its_own_format():
    scheme = scheme_of("native")
    plan = scheme.plan(scheme.complete({"format": "fp16"}), Problem.of("fp16", 8, 8, 8))
    assert plan.products == 1
    assert plan.a_pieces[0].format == "fp16"
    beyond = scheme.inspect(np.float32([[65504.0, 65536.0]]), np.zeros((1, 1), np.float32), {"format": "fp16"})
    assert [(n.code, n.count) for n in beyond] == [("operand_overflow", 1)]


def test_unknown_scheme_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'sgemm-cube'"):
        scheme_of("sgem-cube")
    assert {"native", "sgemm-cube"} <= set(schemes())
