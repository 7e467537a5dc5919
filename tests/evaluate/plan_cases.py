"""Operands from bit fields, and a straight-line version of a plan over `Device.dot`, instruction by instruction."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hwsim.devices import dot_spec, find, instruction_for, load
from hwsim.evaluate import defaults
from hwsim.evaluate import evaluator as scheduled
from hwsim.evaluate.split import pieces_of
from hwsim.formats import FORMATS, code_dtype, decode, round_to
from hwsim.gemm.plan import Depth, OperandSum, Plan, Scaled, Sum, TermValue
from hwsim.gemm.schedule import Schedule
from hwsim.operands.operand import Operand

KS = (1, 3, 67)


def drawn(rng, fmt, shape, spread=3, specials=False):
    """Codes from fields: signs, exponents within `spread` binades of 1, extreme significands, subnormals, -0."""
    known = FORMATS[fmt]
    u64 = np.uint64
    exponent = rng.integers(max(known.bias - spread, 0), known.bias + spread + 1, shape).astype(u64)
    fraction = rng.integers(0, 1 << known.fraction_bits, shape).astype(u64)
    extreme = np.array([0, 1, (1 << known.fraction_bits) - 1], u64)
    fraction = np.where(rng.random(shape) < 0.3, rng.choice(extreme, shape), fraction)
    word = rng.integers(0, 2, shape).astype(u64) << u64(known.magnitude_bits) | exponent << u64(known.fraction_bits)
    word |= fraction
    word[rng.random(shape) < 0.04] = 1  # the smallest subnormal
    word[rng.random(shape) < 0.04] = u64(1 << known.magnitude_bits)  # -0
    if specials:
        word[rng.random(shape) < 0.01] = known.infinity_code(1)
        word[rng.random(shape) < 0.01] = known.nan_code + 1
    return (word << u64(known.ignored_bits)).astype(code_dtype(known))


def fractions(codes, fmt):
    """Exact values, an array of Fractions."""
    known = FORMATS[fmt]
    flat = [decode(known, int(code)).fraction for code in codes.ravel()]
    return np.array(flat, object).reshape(codes.shape)


def rounded(values, fmt, rounding="RNE", overflow="ieee"):
    """Codes of Fractions."""
    from hwsim.formats import Exact

    known = FORMATS[fmt]

    def one(value):
        value = Fraction(value)
        exact = Exact("finite", int(value < 0), abs(value.numerator), 1 - value.denominator.bit_length())
        return round_to(known, exact, rounding, overflow=overflow)

    return np.array([one(x) for x in values.ravel()], code_dtype(known)).reshape(values.shape)


def evaluate(plan: Plan, device: str, a: Operand, b: Operand, schedule: Schedule | None = None, **given):
    """Codes by hwsim's evaluator."""
    chip = load(device)
    full = defaults.resolved(schedule or Schedule(), plan, chip)
    left, right = (pieces_of(x, plan, side, chip) for x, side in ((a, "a"), (b, "b")))
    return scheduled.evaluate(plan, full, chip, left, right, **given)


class Straight:
    """The same, written down: for each run, stage, instruction and product one call of `Device.dot`."""

    def __init__(self, plan: Plan, device: str, a: list[np.ndarray], b: list[np.ndarray], sums=None) -> None:
        self.plan, self.chip, self.a, self.b, self.sums = plan, load(device), a, b, sums
        self.shape, self.k = (a[0].shape[0], b[0].shape[1]), a[0].shape[1]

    def unit(self, product):
        i, j = product
        return instruction_for(self.chip, self.plan.a_pieces[i].format, self.plan.b_pieces[j].format)

    def chain(self, term, start, stop):
        spec = dot_spec(self.chip, self.unit(term.products[0]))
        value = np.zeros(self.shape, code_dtype(FORMATS[spec.d]))
        for stage in term.stages:
            scale = stage.scale_exponent
            step = find(self.chip, self.unit(stage.products[0])).k
            for at in range(start, stop, step):
                for product in stage.products:
                    i, j = product
                    x, y = self.a[i][:, at : min(at + step, stop)], self.b[j][at : min(at + step, stop)]
                    value = self.chip.dot(self.unit(product), x[:, None], y.T[None], value, scale_d=scale)
                    scale = 0
        return value, spec.d

    def value(self, codes, fmt):
        wanted = {"fp32": np.float32, "fp64": np.float64, "int32": np.int32, "int64": np.int64}[self.plan.arithmetic]
        return codes.view(FORMATS[fmt].dtype_name).astype(wanted)

    def term(self, term, start, stop):
        group = term.k_group
        if group == "instruction":
            group = find(self.chip, self.unit(term.products[0])).k
        if group is None and self.plan.join == "end":
            group = self.plan.k_group
        if group is None:
            return self.value(*self.chain(term, start, stop))
        total = None
        for at in range(start, stop, group):
            part = self.value(*self.chain(term, at, min(at + group, stop)))
            total = np.zeros_like(part) + part if total is None else total + part
        return total

    def joined(self, expression, terms, start, stop):
        match expression:
            case TermValue(t):
                return terms[t]
            case Sum(x, y):
                return self.joined(x, terms, start, stop) + self.joined(y, terms, start, stop)
            case Scaled(x, e):
                value = self.joined(x, terms, start, stop)
                return value * value.dtype.type(2**e if e >= 0 else 2.0**e)
            case OperandSum(side, factor):
                x = self.sums[0] if side == "a" else self.sums[1]
                part = x[:, start:stop].sum(1, keepdims=True) if side == "a" else x[start:stop].sum(0, keepdims=True)
                return (factor * part).astype(terms[0].dtype)
            case Depth(factor):
                return terms[0].dtype.type(factor * (stop - start))
        raise AssertionError(expression)

    def result(self):
        plan = self.plan
        with np.errstate(all="ignore"):
            if plan.join == "end":
                terms = [self.term(term, 0, self.k) for term in plan.terms]
                return self.joined(plan.combine, terms, 0, self.k)
            total = None
            for at in range(0, self.k, plan.k_group or self.k):
                stop = min(at + (plan.k_group or self.k), self.k)
                part = self.joined(plan.combine, [self.term(term, at, stop) for term in plan.terms], at, stop)
                total = np.zeros_like(part) + part if total is None else total + part
            return total
