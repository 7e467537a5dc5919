"""One element of a plan's product under a schedule: chains in the unit, runs, slices, and how their values are joined.

By the words of `hwsim.gemm.plan`, `schedule` and `summation`. It knows pieces as codes and units by their data; it does
not know where the pieces come from, nor what follows the sum.
"""

import math
from dataclasses import replace

from hwsim.devices import dot_spec, find, instruction_taking
from hwsim.formats import decode, format_of, round_to
from hwsim.gemm.plan import Depth, OperandSum, Scaled, Sum, TermValue
from hwsim.gemm.summation import Chain
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from reading.numbers import Exactly, Floats, Integers, plus, raised


def is_all_ones(spec, fmt):
    """Whether the unit's NaN, in a result of this format, has all bits set but the sign."""
    specials = getattr(spec.unit, "specials", None)
    return specials is not None and specials.nan_code == (1 << format_of(fmt).bits - 1) - 1


def floats(device_conversions, spec, fmt):
    """The lanes beside a unit, in a float type."""
    return Floats(fmt, device_conversions, is_all_ones(spec, fmt if spec.d == fmt or fmt != "fp32" else spec.d))


class Element:
    """One element of C: pieces of a row of A and a column of B.

    a, b: for each piece the codes of K. sums: (sum of the row's, of the column's elements), where a plan needs them.
    start: the code of C that the accumulator starts from, in the unit's format, or None.
    """

    def __init__(self, plan, schedule, device, conversions, a, b, sums=None, start=None):
        self.plan, self.schedule, self.device, self.conversions = plan, schedule, device, conversions
        self.a, self.b, self.sums, self.start, self.k = a, b, sums, start, len(a[0])
        self.spec = self.unit(plan.terms[0].products[0])[0]
        if plan.arithmetic in ("int32", "int64"):
            self.arithmetic = Integers(plan.arithmetic)
        elif plan.arithmetic == "exact":
            self.arithmetic = Exactly(plan.output_format, conversions)
        else:
            self.arithmetic = floats(conversions, self.spec, plan.arithmetic)

    def unit(self, product):
        """(spec, K of an instruction, model) of a product of pieces."""
        i, j = product
        formats = self.plan.a_pieces[i].format, self.plan.b_pieces[j].format
        name = instruction_taking(self.device, *formats, self.schedule.instruction)
        model = find(self.device, name)
        return dot_spec(self.device, name), model.k, model

    # --- in the unit -----------------------------------------------------------------------------------------------

    def chain(self, term, spans, start=None):
        """The code that one accumulator holds after these spans of K, each a list of elements of K in order."""
        code, is_own = start, False
        for stage in term.stages:
            for index, span in enumerate(spans):
                scale = 0 if index else stage.scale_exponent
                _, step, _ = self.unit(stage.products[0])
                for block in self.instructions(span, step):
                    for product in stage.products:
                        spec, _, model = self.unit(product)
                        if is_own:
                            spec = replace(spec, c=spec.d)
                        code = self.instruction(spec, model, product, block, code, scale)
                        scale, is_own = 0, True
        return code

    def instructions(self, span, step):
        """The elements of K of each instruction; None: a zero."""
        permutation = self.schedule.k_permutation
        whole = step if permutation is None else math.lcm(step, len(permutation))
        filled = list(span) + [None] * (-len(span) % whole)
        if permutation is not None:
            size = len(permutation)
            filled = [filled[at + p] for at in range(0, len(filled), size) for p in permutation]
        return [filled[at : at + step] for at in range(0, len(filled), step)]

    def instruction(self, spec, model, product, block, code, scale):
        i, j = product
        x = [0 if p is None else self.a[i][p] for p in block]
        y = [0 if p is None else self.b[j][p] for p in block]
        scaled = 0
        if code is None:
            code = 0
        elif scale and model.scale_input_d_rule == "exact":
            scaled = scale
        elif scale:
            code = divided(code, format_of(spec.c), scale, model.scale_input_d_rule)
        return reference.dot(spec, DotOperands(x, y, code, scale_d=scaled))

    def loaded(self, code, term):
        """The value of a unit's result in the plan's arithmetic."""
        spec, _, _ = self.unit(term.products[0])
        value = decode(format_of(spec.d), code)
        if isinstance(self.arithmetic, Integers):
            return -value.significand if value.sign else value.significand
        if self.arithmetic.exact:
            return floats(self.conversions, spec, spec.d if spec.d == "fp64" else "fp32").settled(value)
        own = floats(self.conversions, spec, spec.d if spec.d in ("fp32", "fp64") else "fp32")
        value = own.settled(value)
        if own.format == "fp64" and self.arithmetic.format == "fp32" and value.kind == "finite":
            value = decode(format_of("fp32"), round_to(format_of("fp32"), value, "RNE", overflow="ieee"))
        return value

    # --- a term over some of K -------------------------------------------------------------------------------------

    def term(self, term, spans, length, start=None):
        """The value of a term: one chain, or sums of chains over `length` of K each, added outside the unit.

        Returns (value, code of the unit or None).
        """
        own = self.unit(term.products[0])[1] if term.k_group == "instruction" else term.k_group
        length = own or length
        if length is None:
            code = self.chain(term, spans, start)
            return self.loaded(code, term), code
        total = self.arithmetic.zero
        runs = cut(spans, length)
        if term.k_group == "instruction":
            runs = [run for span in spans for run in cut([span], length)]
        for run in runs:
            total = self.arithmetic.add(total, self.loaded(self.chain(term, run, start), term))
            start = None
        return total, None

    def slices(self):
        """The spans of each slice of K: those of a slice are one chain, each begins a new instruction."""
        schedule, found, at = self.schedule, [], 0
        for length in lengths(schedule, self.k):
            stop, rest = at + length, 0
            if schedule.remainder == "first":
                rest = length % schedule.tile_k
            if 0 < rest < length:
                found.append([range(at, at + rest), range(at + rest, stop)])
            else:
                found.append([range(at, stop)])
            at = stop
        return found

    # --- terms joined ----------------------------------------------------------------------------------------------

    def value_of(self, expression, values, length):
        """The value of an expression of terms over `length` of K."""
        arithmetic, later = self.arithmetic, []
        while isinstance(expression, Sum):  # sums of many slices are deeper than calls may be
            later.append(expression.right)
            expression = expression.left
        match expression:
            case TermValue(term):
                total = values[term]
            case Scaled(value, exponent):
                total = arithmetic.scaled(self.value_of(value, values, length), exponent)
            case OperandSum(side, factor):
                total = arithmetic.add(0, factor * self.sums[side == "b"])
            case Depth(factor):
                total = arithmetic.add(0, factor * length)
        for right in reversed(later):
            total = arithmetic.add(total, self.value_of(right, values, length))
        return total

    def result(self, node=None):
        """(value, code): of the whole sum before the epilogue; the code where it is a unit's own result, else None.

        Or, where D takes slice after slice (merge_into): ([values of the slices, in order], None). node: the sum as it
        is written out, if it is.
        """
        plan, schedule = self.plan, self.schedule
        if node is not None:
            found = [self.written(node, term) for term in plan.terms]
        else:
            slices = [self.of_slice(spans, index) for index, spans in enumerate(self.slices())]
            if len(slices) > 1 and schedule.merge_into == "output":
                return self.in_turn(slices)
            found = [self.merged([values[t][0] for values in slices]) for t in range(len(slices[0]))]
            if len(slices) == 1:
                found = slices[0]
        if plan.join == "group":
            return found[0]
        if len(found) == 1 and isinstance(plan.combine, TermValue):
            return found[0]
        return self.value_of(plan.combine, [value for value, _ in found], self.k), None

    def of_slice(self, spans, index):
        """(value, code) of each term over a slice; of a plan that joins groups that of the joined sum alone."""
        plan, group = self.plan, self.schedule.promotion_k
        start = self.start if index == 0 else None
        if plan.join == "end":
            return [self.term(term, spans, group, start) for term in plan.terms]
        total = self.arithmetic.zero
        for run in cut(spans, group) if group else [spans]:
            values = [self.term(term, run, None)[0] for term in plan.terms]
            joined = self.value_of(plan.combine, values, sum(map(len, run)))
            total = self.arithmetic.add(total, joined)
        return [(total, None)]

    def merged(self, values):
        """(value, None): sums of slices, stored, and added in the schedule's order."""
        schedule, own = self.schedule, self.arithmetic
        if not isinstance(own, Floats):
            return added(own, values), None
        if schedule.partial_format is not None:
            values = [own.narrowed(x, schedule.partial_format) for x in values]
        lanes, wanted = own, schedule.merge_format
        if wanted is not None and format_of(wanted).bits >= format_of(own.format).bits:
            lanes = Floats(wanted, self.conversions, own.all_ones)

        def add(x, y):
            if lanes is not own:
                return lanes.add(x, y)
            if wanted is None:
                return own.add(x, y)
            x, y = own.narrowed(x, wanted), own.narrowed(y, wanted)
            return own.narrowed(once(own, plus(x, y), wanted), wanted)

        if schedule.merge_order == "pairwise":
            while len(values) > 1:
                pairs = [add(values[i], values[i + 1]) for i in range(0, len(values) - 1, 2)]
                values = pairs + (values[-1:] if len(values) % 2 else [])
            total = values[0]
        else:
            values = ordered(values, schedule.merge_order)
            total = values[0]
            for value in values[1:]:
                total = add(total, value)
        return (total if lanes is own else own.rounded(total)), None

    def in_turn(self, slices):
        """Slices into D: of one term their values in order, else the sum of calls, each of which adds its slices."""
        if len(self.plan.terms) == 1 or self.plan.join == "group":
            return ordered([values[0][0] for values in slices], self.schedule.merge_order), None

        def parts(leaf):
            exponent = 0
            while isinstance(leaf, Scaled):
                exponent, leaf = exponent + leaf.exponent, leaf.value
            if not isinstance(leaf, TermValue):
                return None
            found = ordered([values[leaf.term][0] for values in slices], self.schedule.merge_order)
            return [self.arithmetic.scaled(x, exponent) if exponent else x for x in found]

        def whole(expression):
            own = parts(expression)
            if own is not None:
                return added(self.arithmetic, own)
            if isinstance(expression, Scaled):
                return self.arithmetic.scaled(whole(expression.value), expression.exponent)
            rest, leaf = expression.left, parts(expression.right)
            if leaf is None:
                rest, leaf = expression.right, parts(expression.left)
            return added(self.arithmetic, [whole(rest), *leaf])

        return whole(self.plan.combine), None

    def written(self, node, term):
        """(value, code) of a sum that is written out."""
        own = self.arithmetic
        if isinstance(node, Chain):
            spans = [range(*span) for part in node.ranges for span in spans_of(part)]
            if not spans:
                return own.zero, None
            return self.term(term, spans, self.schedule.promotion_k)
        if len(node.parts) == 1 and node.start == "first" and node.stored is None:
            return self.written(node.parts[0], term)  # nothing is added to it
        values = [self.written(part, term)[0] for part in node.parts]
        if node.stored is not None and isinstance(own, Floats):
            values = [own.narrowed(x, node.stored) for x in values]

        def add(x, y):
            if node.format in (None, own.format):
                return own.add(x, y)
            return own.narrowed(once(own, plus(x, y), node.format), node.format)

        values = ordered(values, node.order)
        if node.start == "zero":
            values[0] = add(own.zero, values[0])
        while node.order in ("pairwise", "halving") and len(values) > 1:
            if node.order == "pairwise":
                pairs = [add(values[i], values[i + 1]) for i in range(0, len(values) - 1, 2)]
                values = pairs + (values[-1:] if len(values) % 2 else [])
            else:
                half = 1
                while 2 * half < len(values):
                    half *= 2
                values = [
                    add(x, values[i + half]) if i + half < len(values) else x for i, x in enumerate(values[:half])
                ]
        total = values[0]
        for value in values[1:]:
            total = add(total, value)
        return total, None


def once(own, value, fmt):
    """An exact sum rounded to a narrower format in one step, as a value: not first to the working type."""
    if value.kind != "finite":
        return own.settled(value)
    code = own.conversions.code(value, fmt, all_ones=own.all_ones)
    return own.settled(decode(format_of(fmt), code))


def added(arithmetic, values):
    total = values[0]
    for value in values[1:]:
        total = arithmetic.add(total, value)
    return total


def ordered(values, order):
    if isinstance(order, tuple):
        return [values[i] for i in order]
    return list(values)[::-1] if order == "descending" else list(values)


def divided(code, fmt, scale, rule):
    """A code times 2^-scale: below the format's normal range by the instruction's rule."""
    value = decode(fmt, code)
    if value.kind != "finite" or not value.significand:
        return code
    lower = raised(value, -scale)
    is_normal = lower.significand.bit_length() - 1 + lower.exponent >= fmt.min_exponent
    if not is_normal and rule == "flush":
        return fmt.zero_code(value.sign)
    return round_to(fmt, lower, "RNE" if is_normal or rule == "RNE" else "RZ")


def lengths(schedule, k):
    """The lengths of the slices of K."""
    if isinstance(schedule.slice_k, tuple):
        return list(schedule.slice_k)
    if schedule.slice_k is not None:
        length = schedule.slice_k
    elif schedule.split_k == 1:
        length = k
    else:
        blocks = -(-k // schedule.slice_multiple)
        length = -(-blocks // schedule.split_k) * schedule.slice_multiple
    return [min(length, k - at) for at in range(0, k, length)]


def spans_of(part):
    """(start, stop) of each block of a range; blocks that touch are one."""
    if part.step == part.block:
        return [(part.start, part.stop)] if part.start < part.stop else []
    return [(at, min(at + part.block, part.stop)) for at in range(part.start, part.stop, part.step)]


def cut(spans, length):
    """Runs of `length` elements of K, counted from the first; a span that is cut goes on in the next run."""
    runs, room = [], 0
    for span in spans:
        left = span
        while len(left):
            if not room:
                runs.append([])
                room = length
            runs[-1].append(left[:room])
            taken = len(runs[-1][-1])
            left, room = left[taken:], room - taken
    return runs
