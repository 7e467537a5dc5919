"""Predicts the error of a plan from the exponents of its operands, without computing the product.

Three contributions, by the papers' rules:

* the residuals of the split (hwsim.resolve.choice.split_residuals);
* the products of pieces that the plan leaves out;
* the additions: sqrt(S) unit roundoffs of the largest partial sum for S steps that round to nearest, S for units that
  truncate, whose errors all have one sign; promoted runs of K count separately.

Errors of elements are taken as independent, so they add up like random numbers, unless the split truncates. The result
is relative to C in the Frobenius norm, and is meant to overestimate. The module knows plans and dot units, no scheme by
name.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.devices import dot_spec, find, instruction_for
from hwsim.evaluate.defaults import first_unit, with_result_formats
from hwsim.formats import format_of
from hwsim.gemm.plan import SLICED, ChineseRemainder, Mixed, Plan, Term
from hwsim.gemm.schedule import Schedule
from hwsim.resolve.choice.split_residuals import Floats, residuals_of, residue_units

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.numerics.units import DotSpec
    from hwsim.operands.operand import Operand

SAMPLE = 192  # rows of A and columns of B that are looked at; the largest and the least element are of all
PREFIXES = 16  # sums over the first 1/16, 2/16, ... of K
DIGITS = {"fp32": 24, "fp64": 53}
SEED = 1
CHUNK = 512  # rows at a time
MEAN_CUT = 0.375  # of a unit in the last place, relative: a half at the low end of a binade, a quarter at the high


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of the operands: some rows of A (fp64, NaN and infinity as 0) and columns of B, with statistics of their
    product.

    format: of the operands. result: root mean square of C. peak: the largest one of sums over the first part of K.
    energy: sqrt of the sum over k of mean a^2 times mean b^2: the size of C if signs were random. coherence: peak over
    that of |A| |B|, 1 where all products have one sign.
    a_top, b_top: largest magnitude of all of A, of all of B.
    """

    a: Floats
    b: Floats
    format: str
    result: float
    peak: float
    energy: float
    coherence: float
    a_top: float
    b_top: float


def sample_of(a: Operand, b: Operand) -> Sample:
    """The sample of two operands, (..., m, k) and (..., k, n)."""
    left = _rows(a.values().reshape(-1, a.shape[1]))
    right = _rows(np.swapaxes(b.values(), -1, -2).reshape(-1, b.shape[0])).T
    return _sampled(left, right, a.format, (_top(a.values()), _top(b.values())))


def normal_sample(k: int, format: str) -> Sample:
    """The sample for operands from N(0, 1), with K = k."""
    rng = np.random.default_rng(SEED)
    a, b = rng.standard_normal((64, k)), rng.standard_normal((k, 64))
    return _sampled(a, b, format, (_top(a), _top(b)))


def _rows(x: NDArray[Any]) -> Floats:
    picked = x[np.unique(np.linspace(0, len(x) - 1, SAMPLE).astype(int))]
    with np.errstate(invalid="ignore"):
        wide = picked.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0.0)


def _top(x: NDArray[Any]) -> float:
    """The largest finite magnitude."""
    rows, top = x.reshape(-1, x.shape[-1]), 0.0
    for start in range(0, len(rows), CHUNK):
        with np.errstate(invalid="ignore"):  # signalling NaNs
            part = np.abs(rows[start : start + CHUNK].astype(np.float64))
        top = max(top, float(part.max(initial=0.0, where=np.isfinite(part))))
    return top


def _sampled(a: Floats, b: Floats, fmt: str, tops: tuple[float, float]) -> Sample:
    k = a.shape[1]
    total, peak = np.zeros((a.shape[0], b.shape[1])), 0.0
    edges = np.unique(np.linspace(0, k, PREFIXES + 1).astype(int))
    with np.errstate(all="ignore"):
        for start, stop in pairwise(edges):
            total += a[:, start:stop] @ b[start:stop]
            peak = max(peak, _rms(total))
        most = _rms(np.abs(a) @ np.abs(b))
        coherence = peak / most if most else 0.0
        energy = _rms_of_sum(a**2, b**2)
        return Sample(
            a=a,
            b=b,
            format=fmt,
            result=_rms(total),
            peak=peak,
            energy=energy,
            coherence=coherence,
            a_top=tops[0],
            b_top=tops[1],
        )


def _rms(x: Floats) -> float:
    return math.sqrt(float(np.mean(x * x))) if x.size else 0.0


def _rms_of_sum(a_squares: Floats, b_squares: Floats) -> float:
    """Root mean square of a sum over k of independent products, from the squares of their factors."""
    with np.errstate(all="ignore"):
        return math.sqrt(float(a_squares.mean(axis=0) @ b_squares.mean(axis=1)))


def _of_remainders(plan: Plan, sample: Sample) -> float:
    """Absolute error of the Chinese remainder theorem in fp64: of the last word of the sum of residues; infinite where
    sums are beyond what the moduli hold.
    """
    node = plan.combine
    assert isinstance(node, ChineseRemainder)
    rests = np.array([congruence.modulus for congruence in node.congruences]) / math.sqrt(12)  # uniformly distributed
    words = np.array(node.weights)
    is_exact = abs(node.product[0]) * rests.sum() * 2 < 2.0 ** DIGITS["fp64"] and len(node.product) == 1
    size = float(np.sqrt(((words[:, -1] * rests) ** 2).sum()))
    error = 0.0 if is_exact else math.sqrt(len(rests)) * size * 2.0 ** -DIGITS["fp64"]
    of_a, of_b = (residue_units(x, plan, axis) for x, axis in ((sample.a, 1), (sample.b, 0)))
    if 2 * np.abs((sample.a / of_a) @ (sample.b / of_b)).max(initial=0.0) > abs(node.product[0]):
        return math.inf
    return error * _rms(of_a) * _rms(of_b)


# --- the additions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Roundoff:
    """Rounding errors of one step of a unit, relative to the largest partial sum.

    random: of either sign. biased: mean of truncation of the sum toward zero. aligned: mean of truncation of products
    at alignment, where all have the sign of the sum.
    """

    random: float
    biased: float
    aligned: float


def roundoff_of(spec: DotSpec) -> tuple[Roundoff, int]:
    """The rounding errors of one step of the unit, and its products per step."""
    unit: Any = spec.unit
    if unit.model == "integer":
        return Roundoff(0.0, 0.0, 0.0), 1
    if unit.model == "composite":
        inner, terms = roundoff_of(dataclasses.replace(spec, unit=unit.inner))
        return inner, max(1, terms // len(unit.selections))
    terms = max(1, int(unit.terms))
    digits = format_of(getattr(unit, "result_format", None) or spec.d).precision
    cut = MEAN_CUT * 2.0 ** (1 - digits)
    random, biased, aligned = 0.0, 0.0, 0.0
    least_bits = min(
        (getattr(unit, name) for name in ("fraction_bits", "accumulator_fraction_bits") if hasattr(unit, name)),
        default=None,
    )
    if unit.rounding not in ("RZ", "RD", "RU"):
        random = 2.0**-digits
    elif least_bits is None or least_bits >= digits:
        biased = cut
    else:
        biased = cut / 8  # nothing is left to cut but at a carry
    if least_bits is not None:
        random += math.sqrt(terms) * 2.0**-least_bits
        aligned = terms * MEAN_CUT * 2.0**-least_bits
    if unit.model == "pairwise" and terms > 1:
        random *= 1 + math.log2(terms)
    return Roundoff(random, biased, aligned), terms


def _sums(plan: Plan, term: Term, device: Device, sample: Sample, share: float, of_k: float) -> float:
    """Absolute error of the additions of one term whose size is `share` of C's; of_k: share of K that it covers."""
    i, j = term.products[-1]
    name = instruction_for(device, plan.a_pieces[i].format, plan.b_pieces[j].format)
    spec, model = dot_spec(device, name), find(device, name)
    assert model is not None
    k = math.ceil(sample.a.shape[1] * of_k)
    run = plan.k_group if term.k_group is None else term.k_group
    length = min(k, model.k if run == "instruction" else int(run or k))
    step, terms = roundoff_of(spec)
    if plan.split in SLICED and 2 * plan.slice_bits + math.log2(length) <= format_of(spec.d).precision:
        return 0.0  # every sum is exact
    steps = -(-length // terms) * _large_products(term)
    groups = -(-k // length)
    size = (sample.peak + sample.energy if groups > 1 else max(sample.peak, sample.energy)) * share
    error: float = (
        steps * (step.biased + step.aligned * sample.coherence) * size + math.sqrt(steps) * step.random * size
    )
    digits = DIGITS.get(plan.arithmetic)
    if groups > 1 and digits is not None:
        error += math.sqrt(groups) * 2.0**-digits * max(sample.peak, sample.energy) * share
    if not format_of(spec.d).is_integer:
        error += math.sqrt(k) * 2.0 ** (format_of(spec.d).min_exponent - format_of(spec.d).fraction_bits)
    return error


def _large_products(term: Term) -> int:
    """Number of products added while the accumulator holds its full sum: from the stage of the largest product on."""
    order = [min(sum(pair) for pair in stage.products) for stage in term.stages]
    first = order.index(min(order))
    return sum(len(stage.products) for stage in term.stages[first:])


# --- a plan ----------------------------------------------------------------------------------------------------------


def predicted_error(plan: Plan | Mixed, device: Device, sample: Sample, of_k: float = 1.0) -> float:
    """The predicted ||C - A B|| / ||A B||, Frobenius norms; infinite where a piece overflows.

    of_k: share of K that the plan covers. For a mixture: the errors of each plan on its elements, weighted by its
    share.
    """
    if isinstance(plan, Mixed):
        return math.hypot(
            *(predicted_error(plan_of_part, device, part, share) for plan_of_part, part, share in _parts(plan, sample))
        )
    plan = with_result_formats(plan, dot_spec(device, first_unit(plan, Schedule(), device)))
    a = residuals_of(sample.a, plan, "a", sample.format, device, sample.a_top)
    b = residuals_of(sample.b, plan, "b", sample.format, device, sample.b_top)
    if not (np.isfinite(a.after).all() and np.isfinite(b.after).all()):
        return math.inf
    if not sample.result:
        return 0.0 if not sample.energy else math.inf
    squares = _rms_of_sum(a.after**2, sample.b**2) ** 2 + _rms_of_sum(sample.a**2, b.after**2) ** 2
    for rest, other, is_left in ((a.mean, sample.b, True), (b.mean, sample.a, False)):
        if rest is not None:
            squares += _rms(rest @ other if is_left else other @ rest) ** 2
    if plan.split == "residues":
        squares += _of_remainders(plan, sample) ** 2
        last = 2.0 ** -format_of(plan.output_format).precision
        return (math.sqrt(squares) + last * max(sample.peak, sample.result)) / sample.result
    formed = {pair for term in plan.terms for pair in term.products}
    missing = sorted(
        ((i, j) for i in range(len(a.before)) for j in range(len(b.before)) if (i, j) not in formed), key=sum
    )
    missed = 0.0
    for i, j in missing:  # no sum(): its last bit depends on Python's version, and choices on this
        missed += _rms_of_sum(a.before[i] ** 2, b.before[j] ** 2) ** 2
    squares += missed
    if missing and (a.mean is not None or b.mean is not None):
        # Cut pieces have the operands' signs. Those left out that are largest are alike, the others far below.
        i, j = missing[0]
        alike = sum(sum(pair) == i + j for pair in missing)
        pieces = (np.copysign(rest / 2, x) for rest, x in ((a.before[i], sample.a), (b.before[j], sample.b)))
        squares += (alike * _rms(np.matmul(*pieces))) ** 2
    for term in plan.terms:
        share = max(
            _rms_of_sum(a.before[i] ** 2, b.before[j] ** 2) / sample.energy if sample.energy else 0.0
            for i, j in term.products
        )
        squares += _sums(plan, term, device, sample, min(share, 1.0), of_k) ** 2
    return (math.sqrt(squares) + _joins(plan) * max(sample.peak, sample.result)) / sample.result


def _joins(plan: Plan) -> float:
    """Number of roundings in the combination of the terms and of the result."""
    digits = DIGITS.get(plan.arithmetic)
    result = format_of(plan.output_format)
    last = 0.0 if result.is_integer else 2.0**-result.precision
    return last if digits is None else last + math.sqrt(max(len(plan.terms) - 1, 0)) * 2.0**-digits


def _parts(mixed: Mixed, sample: Sample) -> list[tuple[Plan, Sample, float]]:
    """Each plan that is needed, with the elements that it handles (the others as 0) and its share of the products."""
    blocks = dict(zip((plan.scheme for plan in mixed.plans), mixed.blocks or (1,) * len(mixed.plans), strict=True))
    total, strategy = sum(blocks.values()), mixed.strategy
    parts = []
    for number, plan in enumerate(mixed.plans):
        low, high = mixed.ranges[number] if number < len(mixed.ranges) else (0.0, math.inf)
        clipped = [np.where((np.abs(x) >= low) & (np.abs(x) <= high), x, 0.0) for x in (sample.a, sample.b)]
        tops = [float(np.abs(x).max(initial=0)) for x in clipped]
        if plan.scheme == f"{mixed.scheme}-{strategy}" or plan.scheme == strategy:
            return [(plan, sample, 1.0)]
        if blocks[plan.scheme]:
            part = dataclasses.replace(sample, a=clipped[0], b=clipped[1], a_top=tops[0], b_top=tops[1])
            parts.append((plan, part, blocks[plan.scheme] / total))
    return parts
