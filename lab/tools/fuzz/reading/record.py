"""One element of a resolved record's result: operands to pieces, their sum, specials, mixtures and the epilogue.

By the words of `hwsim.gemm`; what a caller gives are codes. It draws nothing and compares nothing.
"""

from dataclasses import replace

from hwsim.devices import dot_spec, find, instruction_taking
from hwsim.formats import decode, format_of
from hwsim.gemm.plan import Mixed, OperandSum, Scaled, Sum
from hwsim.gemm.schedule import Schedule
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec, FmaChainUnit, Specials
from reading.numbers import Conversions, Exactly, Floats, finite, wrapped
from reading.pieces import byte_pieces, converted, integer, rounded_pieces, slice_pieces
from reading.sums import Element, floats, is_all_ones


def conversions_of(device):
    """The device's conversions, by its vector unit."""
    specials = None if device.vector is None else device.vector.specials
    if specials is None:
        return Conversions(saturates=False, nan_is_zero=False)
    return Conversions(specials.overflow == "saturate", specials.operands == "saturate")


class Reading:
    """A record, and the caller's operands as codes: a[i][p], b[p][j] of `fmt`; c[i][j] (None: no C), bias[j] floats.

    c: codes of the format c_format.
    """

    def __init__(self, record, device, fmt, a, b, c=None, c_format=None, bias=None):
        self.record, self.device, self.conversions = record, device, conversions_of(device)
        self.c, self.c_format, self.bias = c, c_format, bias
        self.k = len(b)
        self.rows, self.columns = a, b
        self.fmt = fmt
        self._cache = {}

    def given(self, side, index):
        """The codes of one row of A or column of B, in the plan's input format."""
        key = "given", side, index
        if key not in self._cache:
            codes = self.rows[index] if side == "a" else [row[index] for row in self.columns]
            wanted = self.record.single.input_format
            first = self.record.problem.input_format
            self._cache[key] = [converted(converted(x, self.fmt, first), first, wanted) for x in codes]
        return self._cache[key]

    def pieces(self, plan, side, index, schedule, unit):
        """(exponent, codes of each piece along K)."""
        key = plan.scheme, side, index
        if key not in self._cache:
            codes = self.given(side, index)
            pieces = plan.a_pieces if side == "a" else plan.b_pieces
            exponent = 0
            if plan.split == "slices":
                exponent, each = slice_pieces(codes, plan, pieces)
            elif plan.split in ("bytes", "signed_bytes"):
                each = [byte_pieces(x, plan, pieces) for x in codes]
            else:
                word = find(self.device, unit).operand_rounding
                spec = dot_spec(self.device, unit)
                own = replace(self.conversions, all_ones=is_all_ones(spec, spec.d))
                each = [rounded_pieces(x, plan, pieces, own, schedule.operand_rounding, word) for x in codes]
            found = [[one[i] for one in each] for i in range(len(pieces))]
            self._cache[key] = (
                exponent,
                [
                    [converted(x, pieces[i].format, self.taken(plan, side, i, schedule)) for x in codes]
                    for i, codes in enumerate(found)
                ],
            )
        return self._cache[key]

    def taken(self, plan, side, piece, schedule):
        """The format in which an instruction takes a piece: one asked for may be for wider floats."""
        for term in plan.terms:
            for i, j in term.products:
                if piece == (i if side == "a" else j):
                    formats = plan.a_pieces[i].format, plan.b_pieces[j].format
                    spec = dot_spec(self.device, instruction_taking(self.device, *formats, schedule.instruction))
                    return spec.a if side == "a" else spec.b
        return (plan.a_pieces if side == "a" else plan.b_pieces)[piece].format

    def element(self, i, j):
        """The code of D[i, j] in the output format."""
        record = self.record
        if isinstance(record.plan, Mixed):
            return self.mixed(i, j)
        plan, schedule = record.plan, record.schedule
        node = schedule.sum
        for region in schedule.regions:
            if holds(region.rows, i) and holds(region.cols, j):
                node, schedule = region.sum, replace(schedule, split_k=1, slice_k=None)
        epilogue = Epilogue(self, i, j, self.unit_spec(plan, schedule))
        start = None
        if schedule.start == "c" and self.c is not None:
            start = epilogue.lanes.store(epilogue.source(), epilogue.spec.c)
            epilogue.from_c = True
        value, code, element = self.summed(plan, schedule, i, j, range(self.k), node, start)
        if plan.specials == "fma_chain" and self.is_special(i, j):
            name, chained = self.fma_chain(plan, i, j)
            if epilogue.is_plain and not narrows(epilogue.given.product_format, name) and record.output == name:
                return chained
            value = decode(format_of(name), chained)
            epilogue.working(name == "fp64")
            count = len(node.parts) if hasattr(node, "parts") else len(element.slices()) if node is None else 1
            return epilogue.apply(value, count if isinstance(element.arithmetic, Floats) else 1)
        if isinstance(value, list):
            return epilogue.in_turn(value)
        if plan.split == "slices":
            exponent = self.pieces(plan, "a", i, schedule, record.unit)[0]
            exponent += self.pieces(plan, "b", j, schedule, record.unit)[0]
            value, code = element.arithmetic.scaled(value, exponent), None
        if code is not None and epilogue.is_plain and record.output == epilogue.spec.d:
            return code
        if isinstance(element.arithmetic, Exactly):
            if value.kind == "finite" and not value.significand:
                value = replace(value, sign=0)  # no exact sum is -0
            if epilogue.is_plain:
                return exact_code(value, record.output, self.conversions)
            own = plan.output_format
            value = epilogue.lanes.settled(decode(format_of(own), exact_code(value, own, self.conversions)))
        count = 1
        if node is None:
            count = len(element.slices())
        elif hasattr(node, "parts"):
            count = len(node.parts)
        return epilogue.apply(value, count)

    def unit_spec(self, plan, schedule):
        i, j = plan.terms[0].products[0]
        formats = plan.a_pieces[i].format, plan.b_pieces[j].format
        return dot_spec(self.device, instruction_taking(self.device, *formats, schedule.instruction))

    def summed(self, plan, schedule, i, j, places, node=None, start=None):
        """(value, code or None, element) over these places of K."""
        unit = self.record.unit
        a, b = (self.pieces(plan, side, at, schedule, unit)[1] for side, at in (("a", i), ("b", j)))
        a, b = ([[codes[p] for p in places] for codes in side] for side in (a, b))
        sums = None
        if needs_sums(plan.combine):
            sums = [
                sum(integer(x, plan.input_format) for x in self.given(side, at)) for side, at in (("a", i), ("b", j))
            ]
        element = Element(plan, schedule, self.device, self.conversions, a, b, sums, start)
        value, code = element.result(node)
        return value, code, element

    def is_special(self, i, j):
        fmt = format_of(self.record.single.input_format)
        return any(decode(fmt, x).kind != "finite" for x in (*self.given("a", i), *self.given("b", j)))

    def fma_chain(self, plan, i, j):
        """(format, code): what a chain of fused multiply-adds gives, in fp64 for that output, else in fp32."""
        name = "fp64" if plan.output_format == "fp64" else "fp32"
        unit = FmaChainUnit(specials=Specials(zero="ieee", nan_code=(1 << format_of(name).bits - 1) - 1))
        spec = DotSpec(unit, name, name, name, name)
        a, b = ([converted(x, plan.input_format, name) for x in self.given(*side)] for side in (("a", i), ("b", j)))
        return name, reference.dot(spec, DotOperands(a, b, 0))

    # --- mixtures --------------------------------------------------------------------------------------------------

    def mixed(self, i, j):
        """Blocks of K by the plan that their block of A and of B need; the plans' sums added in order."""
        mixed = self.record.plan
        size_m, size_n, size_k = mixed.block
        whole = {plan.scheme.removeprefix(f"{mixed.scheme}-"): plan for plan in mixed.plans}
        one = whole.get(mixed.decided or mixed.strategy)
        starts = range(0, self.k, size_k)
        kinds = []
        for at in starts:
            of_k = range(at, min(at + size_k, self.k))
            rows = block_of(i, size_m, len(self.rows))
            columns = block_of(j, size_n, len(self.columns[0]))
            kinds.append(
                max(
                    self.kind(mixed, "a", rows, of_k),
                    self.kind(mixed, "b", columns, of_k),
                )
            )
        total = code = None
        last = mixed.plans[-1]
        spec = self.unit_spec(last, Schedule())
        lanes = floats(self.conversions, spec, last.output_format)
        for number, plan in enumerate(mixed.plans):
            places = [
                p
                for at, kind in zip(starts, kinds, strict=True)
                if kind == number
                for p in range(at, min(at + size_k, self.k))
            ]
            if one is not None:
                places = list(range(self.k)) if plan is one else []
            if not places:
                continue
            value, own, element = self.summed(plan, replace(Schedule(), slice_multiple=64), i, j, places)
            part = own if own is not None and element.spec.d == plan.output_format else None
            part = element.arithmetic.store(value, plan.output_format) if part is None else part
            value = lanes.settled(decode(format_of(plan.output_format), part))
            if total is None:
                total, code = value, part
            else:
                total = lanes.add(total, value)
                code = lanes.store(total, last.output_format)
        epilogue = Epilogue(self, i, j, spec)
        if epilogue.is_plain and self.record.output == last.output_format:
            return code
        return epilogue.apply(total, 1)

    def kind(self, mixed, side, index, of_k):
        """The index of the first plan that takes this block: by the least and the largest magnitude."""
        key = "kind", side, index[0], of_k[0]
        if key not in self._cache:
            known = format_of("fp32")
            fmt = mixed.plans[-1].input_format
            values = [decode(known, converted(self.given(side, at)[p], fmt, "fp32")) for at in index for p in of_k]
            found = len(mixed.ranges)
            if all(x.kind == "finite" for x in values):
                sizes = [x.significand * 2.0**x.exponent for x in values]
                if mixed.zeros_fit:
                    sizes = [x for x in sizes if x]
                least, largest = min(sizes, default=float("inf")), max(sizes, default=0.0)
                fits = [at for at, (low, high) in enumerate(mixed.ranges) if least >= low and largest <= high]
                found = fits[0] if fits else found
            self._cache[key] = found
        return self._cache[key]


class Epilogue:
    """D = alpha * acc + beta * C + bias for one element, in the words of `hwsim.gemm.schedule.Epilogue`."""

    def __init__(self, reading, i, j, spec):
        self.reading, self.i, self.j, self.spec = reading, i, j, spec
        self.given, self.output = reading.record.schedule.epilogue, reading.record.output
        self.plan = reading.record.single
        beta = self.given.beta
        self.beta = float(reading.c is not None) if beta is None else beta
        self.from_c = False
        arithmetic = self.plan.arithmetic
        if arithmetic in ("int32", "int64"):
            self.lanes = floats(reading.conversions, spec, "fp64" if format_of(self.output).bits > 32 else "fp32")
        else:
            own = self.plan.output_format if arithmetic == "exact" else arithmetic
            self.lanes = floats(reading.conversions, spec, "fp64" if own == "fp64" else "fp32")
            if arithmetic == "exact":
                self.lanes.all_ones = is_all_ones(spec, own)
        self.is_integer = arithmetic in ("int32", "int64") and format_of(self.output).is_integer

    def working(self, is_wide):
        """The type of values that replace the plan's own."""
        if self.plan.arithmetic == "exact":
            return
        if isinstance(self.lanes, Floats) and is_wide:
            self.lanes = Floats("fp64", self.lanes.conversions, self.lanes.all_ones)

    @property
    def is_plain(self):
        if narrows(self.given.product_format, self.lanes.format):
            return False
        return self.given.alpha == 1 and (not self.beta or self.from_c) and self.reading.bias is None

    def source_code(self):
        """The code of C in the output format."""
        reading = self.reading
        code, fmt = reading.c[self.i][self.j], reading.c_format
        if fmt == self.output:
            return code
        value = decode(format_of(fmt), code)
        if format_of(self.output).is_integer:
            return code_of_integer(integer(code, fmt), self.output)
        lanes = floats(reading.conversions, self.spec, self.spec.d if self.spec.d in ("fp32", "fp64") else "fp32")
        all_ones = is_all_ones(self.spec, self.spec.d)
        return lanes.conversions.code(value, self.output, all_ones=all_ones)

    def source(self):
        """C as the lanes read it."""
        value = decode(format_of(self.output), self.source_code())
        if value.kind == "finite":
            value = self.lanes.rounded(value)
        return self.lanes.settled(value)

    def apply(self, value, slices):
        """The code of D."""
        if self.is_integer:
            return self.whole(value)
        if isinstance(value, int):
            value = self.lanes.rounded(finite((value, 0)))
        return self.finished(self.scaled_sum(value, slices))

    def scaled_sum(self, value, slices):
        lanes, given, alpha, beta = self.lanes, self.given, self.given.alpha, self.beta
        narrow = given.product_format
        if not beta or self.from_c:
            value = value if alpha == 1 else lanes.multiply(alpha, value)
            return value if narrow is None else lanes.narrowed(value, narrow)
        c = self.source()
        how = given.contraction or ("alpha" if slices == 1 else "beta")
        if narrow is None and how == "alpha":
            return lanes.fused(alpha, value, lanes.multiply(beta, c))
        if narrow is None and how == "beta":
            return lanes.fused(beta, c, lanes.multiply(alpha, value))
        scaled = lanes.multiply(alpha, value)
        scaled = scaled if narrow is None else lanes.narrowed(scaled, narrow)
        return lanes.add(scaled, lanes.multiply(beta, c))

    def biased(self, value):
        if self.reading.bias is None:
            return value
        return self.lanes.add(value, self.lanes.factor(self.reading.bias[self.j]))

    def finished(self, value):
        return self.lanes.store(self.biased(value), self.output, self.given.output_rounding)

    def in_turn(self, values):
        """D from the first slice, then alpha times each later one added to it."""
        total = self.biased(self.scaled_sum(values[0], len(values)))
        for value in values[1:]:
            total = self.lanes.add(total, self.lanes.multiply(self.given.alpha, value))
        return self.lanes.store(total, self.output, self.given.output_rounding)

    def whole(self, value):
        """Integers, which wrap at the width of D."""
        value = value * int(self.given.alpha)
        if self.beta and not self.from_c:
            value += integer(self.source_code(), self.output) * int(self.beta)
        if self.reading.bias is not None:
            value += int(self.reading.bias[self.j])
        return code_of_integer(value, self.output)


def exact_code(value, fmt, conversions):
    """The code of an exact sum, rounded once: infinities stay, where lanes do not saturate."""
    if value.kind == "nan":
        return 0 if conversions.saturates else format_of(fmt).nan_code
    return conversions.code(value, fmt)


def narrows(wanted, fmt):
    """Whether rounding to a format changes values of another one."""
    return wanted is not None and format_of(wanted).bits < format_of(fmt).bits


def code_of_integer(value, fmt):
    return wrapped(value, format_of(fmt).bits) % (1 << format_of(fmt).bits)


def holds(part, index):
    """Whether a range of rows or columns has an index."""
    return part.start <= index < part.stop and (index - part.start) % part.step < part.block


def block_of(index, size, limit):
    first = index // size * size
    return range(first, min(first + size, limit))


def needs_sums(expression):
    left = [expression]
    while left:
        node = left.pop()
        if isinstance(node, OperandSum):
            return True
        if isinstance(node, Sum):
            left += [node.left, node.right]
        if isinstance(node, Scaled):
            left.append(node.value)
    return False
