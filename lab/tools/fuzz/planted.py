"""Faults planted in the evaluator, one per layer, that the campaign against the integer reference must see.

python lab/tools/fuzz/planted.py [--first 10000000] [--most 400]

For each fault the first case that sees it is looked for and printed; lab/tests/fuzz/test_reference.py runs these again.
It knows the evaluator's inner functions and replaces them in this process alone.
"""

import argparse
import sys
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import reference

from hwsim.arithmetic import exact_sum, instruction_order
from hwsim.arithmetic.lanes import Lanes
from hwsim.backend.cpu import CPU
from hwsim.evaluate import (
    chains,
    epilogue,
    explicit,
    explicit_term,
    join,
    mixed,
    product,
    row_block,
    slice_merge,
    specials,
    split,
)
from hwsim.gemm.schedule import KPartition, Schedule
from hwsim.resolve import resolver


def of_split(whole):
    """The last piece of a split toward zero, as if its rounding were forgotten."""

    def faulty(x, steps, **given):
        last, rounding = steps[-1], {"RNE": "RZ", "RZ": "RNE"}
        return whole(x, [*steps[:-1], (last[0], rounding.get(last[1], "RNE"), *last[2:])], **given)

    return faulty


def of_slices(whole):
    """The exponent of each row one too large."""

    def faulty(given, pieces, side, bits, backend):
        codes, exponents = whole(given, pieces, side, bits, backend)
        return codes, exponents + (exponents > 0)

    return faulty


def of_bytes(whole):
    """The other kind of low byte: its sign is not what the plan says."""
    return lambda given, pieces, is_signed: whole(given, pieces, not is_signed)


def of_gemm(whole):
    """The elements of K backwards."""

    def faulty(spec, operands, **given):
        a, b = operands.a, operands.b
        if not isinstance(operands.scale_d, int) or a.shape[-1] < 2:
            return whole(spec, operands, **given)
        backwards = np.ascontiguousarray(a[..., ::-1]), np.ascontiguousarray(b[..., ::-1, :])
        return whole(spec, operands._replace(a=backwards[0], b=backwards[1]), **given)

    return faulty


def of_products(whole):
    """The products of a stage in the other order."""
    return lambda pieces, span, step, permutation, axis: whole(pieces[::-1], span, step, permutation, axis)


def of_runs(whole):
    """Promotion after twice as much of K."""
    return lambda runs, group, by_span=False: whole(runs, 2 * group, by_span)


def of_layout(whole):
    """Promoted runs that go on with the next one: one chain a slice."""

    def faulty(self, k):
        found = whole(self, k)
        slices = [tuple(((runs[0][0][0], runs[-1][-1][1]),) for _ in (0,)) for runs in found.slices]
        return KPartition(tuple(slices))

    return faulty


def of_lengths(whole):
    """Slices of K cut down to whole blocks, not up."""

    def faulty(self, k):
        if self.split_k == 1 or self.slice_k is not None:
            return whole(self, k)
        multiple = self.slice_multiple or 64
        length = max(k // multiple // self.split_k, 1) * multiple
        return tuple(min(length, k - at) for at in range(0, k, length))

    return faulty


def of_order(whole):
    """Slices always in ascending order."""
    return lambda slices, order: list(slices)


def unchanged(whole):
    """A rounding to a narrower format left out."""
    return lambda lanes, values, fmt: values


def of_store(whole):
    """The output always to nearest even."""
    return lambda self, values, fmt, rounding, threads=1: whole(self, values, fmt, "RNE", threads)


def with_other(attribute, changed):
    """A method that sees another value of an attribute: changed(own value)."""

    def of_method(whole):
        def faulty(self, *given, **more):
            kept = getattr(self, attribute)
            setattr(self, attribute, changed(kept))
            try:
                return whole(self, *given, **more)
            finally:
                setattr(self, attribute, kept)

        return faulty

    return of_method


def of_fused(whole):
    """alpha * acc + beta * C in two roundings."""

    def faulty(self, factor, values, addend, **given):
        return self.add(self.multiply(factor, values), addend)

    return faulty


def of_epilogue(whole):
    """The contraction of one slice for merged ones, and the other way round."""
    return lambda self, acc, c, slices, lanes=None: whole(self, acc, c, 3 - min(slices, 2), lanes)


def of_bias(whole):
    """The bias left out."""
    return lambda self, value, lanes, bias, threads: whole(self, value, lanes, None, threads)


def of_whole(whole):
    """Integers that saturate in the output's format."""

    def faulty(self, acc, c, bias):
        codes = whole(self, acc, c, bias)
        wide = np.abs(acc.astype(np.int64)) > 127
        return np.where(wide, np.asarray(127, codes.dtype), codes) if codes.dtype == np.uint8 else codes + wide

    return faulty


def nothing(whole):
    """Infinities and NaNs of the operands left to the unit."""
    return lambda self, a, b, k: None


def of_halves(whole):
    """Halving as pairs of neighbours."""
    return lambda count: explicit._neighbours(count)


def of_regions(whole):
    """Regions without their step."""
    return lambda index, part: np.nonzero((index >= part.start) & (index < part.stop))[0]


def of_permutation(whole):
    """K not permuted."""
    return lambda piece, span, step, permutation, axis: whole(piece, span, step, None, axis)


def of_division(whole):
    """The accumulator not divided between stages."""
    return lambda spec, operands, rule, **given: whole(spec, operands._replace(scale_d=0), rule, **given)


def of_places(whole):
    """The same, on the way that computes many short runs at once."""

    def faulty(self, term, length, has_start):
        found = whole(self, term, length, has_start)
        return None if found is None else np.zeros_like(found)

    return faulty


def of_scales(whole):
    """Terms scaled by half of what the plan says."""

    def faulty(expression, steps):
        done = whole(expression, steps)
        steps[:] = [("scale", 2 * step[1]) if step[0] == "scale" and step[1] < 1 else step for step in steps]
        return done

    return faulty


def of_exact(whole):
    """Terms of exact sums scaled by twice what the plan says."""
    return lambda self, exponent: whole(self, exponent + 1)


def of_types(whole):
    """Each block by the next plan."""

    def faulty(values, block, ranges, zeros_fit=True):
        return np.minimum(whole(values, block, ranges, zeros_fit) + 1, len(ranges)).astype(np.int8)

    return faulty


def of_start(whole):
    """A chain that forgets C."""
    return lambda self, term, run, a, b, start, threads: whole(self, term, run, a, b, None, threads)


without_alpha = with_other("epilogue", lambda own: replace(own, alpha=1.0))
with_whole_c = with_other("beta", lambda own: 1.0 if own else 0.0)
saturating = with_other("_overflow", lambda own: "saturate")
#: name: (where the function is, its name, what makes the faulty one).
PLANTED = {
    "split: rounding of the last piece": (CPU, "split", of_split),
    "split: exponents of slices": (split, "_slices", of_slices),
    "split: low bytes": (split, "_bytes", of_bytes),
    "chain: K backwards": (CPU, "gemm", of_gemm),
    "chain: order of products": (chains, "in_instruction_order", of_products),
    "chain: K permuted": (instruction_order, "whole", of_permutation),
    "chain: accumulator divided": (chains, "scaled_gemm", of_division),
    "chain: divided in runs": (chains.Chains, "_new_divisions", of_places),
    "chain: start from C": (chains.Chains, "chain", of_start),
    "promotion: a term's own": (row_block, "in_groups", of_runs),
    "promotion: the schedule's": (Schedule, "k_partition", of_layout),
    "slices: lengths": (Schedule, "slice_lengths", of_lengths),
    "slices: order of merging": (slice_merge, "ordered", of_order),
    "slices: stored and merged narrow": (slice_merge, "narrowed", unchanged),
    "written sums: halving": (explicit, "_halves", of_halves),
    "written sums: stored narrow": (explicit_term, "narrowed", unchanged),
    "regions: step": (product, "_within", of_regions),
    "join: scale of terms": (join, "_program", of_scales),
    "join: exact sums": (exact_sum.ExactSum, "scaled", of_exact),
    "specials: patched by a chain": (specials.SpecialsPatch, "find", nothing),
    "mixed: plan of a block": (mixed, "types_of", of_types),
    "epilogue: alpha": (epilogue.EpilogueEvaluator, "scaled_sum", without_alpha),
    "epilogue: beta": (epilogue.EpilogueEvaluator, "scaled_sum", with_whole_c),
    "epilogue: contraction": (epilogue.EpilogueEvaluator, "scaled_sum", of_epilogue),
    "epilogue: fused": (Lanes, "fused", of_fused),
    "epilogue: bias": (epilogue.EpilogueEvaluator, "biased_codes", of_bias),
    "epilogue: integers": (epilogue.EpilogueEvaluator, "_whole", of_whole),
    "epilogue: product format": (epilogue, "narrowed", unchanged),
    "output: rounding": (Lanes, "store", of_store),
    "output: overflow": (Lanes, "store", saturating),
}


@contextmanager
def planted(name):
    """The evaluator with this fault, and nothing kept that was made without it, nor afterwards with it."""
    place, attribute, faulty = PLANTED[name]
    whole = getattr(place, attribute)
    setattr(place, attribute, faulty(whole))
    resolver._CACHE.entries.clear()
    try:
        yield
    finally:
        setattr(place, attribute, whole)
        resolver._CACHE.entries.clear()


def is_seen(name, number):
    """Whether a case sees the fault, which it passes without."""
    try:
        with planted(name):
            reference.case(number)
    except AssertionError:
        reference.case(number)  # raises where it fails by itself
        return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=10_000_000)
    parser.add_argument("--most", type=int, default=400, help="cases that are tried for each fault")
    parser.add_argument("names", nargs="*", help="faults (default: all)")
    given = parser.parse_args()
    unseen = 0
    for name in given.names or PLANTED:
        numbers = range(given.first, given.first + given.most)
        found = next((number for number in numbers if is_seen(name, number)), None)
        unseen += found is None
        print(f'    "{name}": {found},', flush=True)
    sys.exit(1 if unseen else 0)


if __name__ == "__main__":
    main()
