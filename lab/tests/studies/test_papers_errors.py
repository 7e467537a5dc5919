"""Underflow of SGEMM-cube's low piece, LE-GEMM's distances, BF16x9's signal-to-noise ratio: small versions."""

from __future__ import annotations

import json
from functools import partial

import pytest

from hwsim.api import fma_chain, matmul
from hwsim.cli import main
from hwsim_lab.papers import underflow
from hwsim_lab.papers.paper_errors import distances, distances_markdown, snr, snr_markdown


def test_probabilities_are_a_distribution():
    assert sum(map(underflow.zeros_probability, range(-3, 20))) == pytest.approx(1, abs=1e-15)
    for exponent in range(-30, 20):
        whole, any_ = (underflow.underflow_probability(exponent, gradual=gradual) for gradual in (False, True))
        assert whole == underflow.underflow_probability(exponent + 10, gradual=True) <= any_


def test_what_the_paper_says_of_fig2():
    """More than 10 % gradual at 2^0; whole underflow matters below 2^-10, nearly all below 2^-12."""
    whole, any_ = (partial(underflow.underflow_probability, gradual=gradual) for gradual in (False, True))
    assert any_(0) > 0.1 > any_(1)
    assert whole(-10) > 0.1 > whole(-9)
    assert whole(-13) > 0.999


def test_formula_is_what_is_counted():
    for point in underflow.points():
        assert point.counted == pytest.approx(point.formula, abs=2e-4)
        for sb, bits in point.bound.items():
            if (sb, point.exponent) == (12, 15):  # some low pieces overflow, though Eq. 6 allows them
                assert (bits, point.worst_bits[sb]) == (22, 0)
            else:
                assert bits <= point.worst_bits[sb] < bits + 0.3
    worst_bits = {point.exponent: point.worst_bits for point in underflow.points((-14, -2))}
    assert worst_bits[-2][0] == worst_bits[-14][12] == 22  # Rule 1: scaling moves the range by 12


def test_distances():
    found = {(x.device, x.method): x for x in distances(matmul, fma_chain, (256,))}
    for device in ("mi210", "a800"):
        half, ours = found[device, "FP16"], found[device, "LE-GEMM"]
        assert half.mred > 100 * ours.mred and half.max_error > 20 * ours.max_error
        assert found[device, "Markidis"].mred > 1.5 * ours.mred
    assert found["any", "FP32 chain"].mred == 0 < found["any", "FP32 chain"].double
    assert "| a800 | Ootomo | 256 |" in distances_markdown(found.values())


def test_snr():
    """bf16x9 is above FP32 for normal and subnormal operands."""
    found = {(x.a, x.b): x for x in snr(matmul, fma_chain, exponents=(-140, 40))}
    assert set(found) == {(-140, 40), (40, -140), (40, 40)}  # -280 is nothing in FP32
    for noise in found.values():
        assert noise.scheme is not None and noise.chain is not None
        assert noise.scheme > 130 and noise.scheme > noise.chain + 5
    assert snr_markdown(found.values()).count("\n") == 4


def test_commands(capsys):
    assert main(["reproduce", "sgemm-cube", "fig2"]) == 0
    assert "| 0 | 12.49 % | 12.49 % |" in capsys.readouterr().out
    assert main(["reproduce", "le-gemm", "--size", "32", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert len(points) == 9 and {x["method"] for x in points} >= {"LE-GEMM", "FP32 chain"}
