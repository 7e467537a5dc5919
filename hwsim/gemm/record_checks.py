"""Whether the parts of a record fit together, as those of every record that the resolver makes do.

It checks indices, counts, names and bounds of problem, plan, schedule and mapping against one another; it knows no
device, no scheme and no file. What only a device or a dataflow can say (its instructions, its settings) is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from hwsim.errors import InputError, nearest
from hwsim.formats import Rounding, format_of
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Setting
from hwsim.gemm.mixed_plan import HYBRID, short_name
from hwsim.gemm.plan import ChineseRemainder, Depth, Expression, OperandSum, Plan, Scaled, Sum, Term, TermValue
from hwsim.gemm.plan import Mixed as MixedPlan
from hwsim.gemm.problem import SCALES, OperandDescription, Problem, Windows
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Range, Reduction

MOST_EXPONENT = 1023  # of a scaling by a power of two: fp64's largest
MOST_COUNT = (1 << 31) - 1  # of sizes, tiles, stages and other counts
MOST_FACTOR = (1 << 31) - 1  # of integer sums
MOST_MODULUS = 1 << 15  # of a residue
MOST_PARTS = 8  # of a weight of the Chinese remainder theorem
MOST_SLICE_BITS = 52  # of a slice, which is a whole number in fp64
SPARSE_GROUP = 4  # elements along K of which 2:4 sparsity stores two
DECIDE = "decide"  # strategy of a mixture
ROUNDINGS: tuple[str, ...] = get_args(Rounding)


def check_problem(problem: Problem, where: str) -> None:
    """Sizes of at least 1 and formats that exist. Raises InputError that names the place, as all of these checks do."""
    for name in "mnk":
        _count(getattr(problem, name), f"{where}.{name}")
    for index, extent in enumerate(problem.lead):
        _count(extent, f"{where}.lead[{index}]")
    if problem.short_form is None:
        for side, operand in zip("ab", problem.operands, strict=True):
            _check_operand(operand, problem.k, f"{where}.{side}")
    else:
        check_format(problem.input_format, f"{where}.input_format")
    if problem.bias is not None:
        check_format(problem.bias, f"{where}.bias")
    if problem.image is not None:
        for name in ("rows", "cols", "read"):
            _count(getattr(problem.image, name), f"{where}.image.{name}")
        _check_windows(problem.image.windows, problem, f"{where}.image.windows")


def _check_windows(windows: Windows, problem: Problem, where: str) -> None:
    """As many pixels and windows as the image and the problem have."""
    for name in ("batch", "height", "width"):
        _count(getattr(windows, name), f"{where}.{name}")
    for name in ("window", "places", "stride", "dilation"):
        for extent in getattr(windows, name):
            _count(extent, f"{where}.{name}")
    for extent in windows.padding:
        _between(extent, 0, MOST_COUNT, f"{where}.padding")
    assert problem.image is not None
    pixels = windows.batch * windows.height * windows.width
    rows = windows.batch * windows.places[0] * windows.places[1]
    taps = problem.image.cols * windows.window[0] * windows.window[1]
    if (pixels, rows, taps) != (problem.image.rows, problem.m, problem.k):
        raise InputError(
            f"{where}: {pixels} pixels, {rows} windows of {taps} elements; allowed: {problem.image.rows}, {problem.m} "
            f"and {problem.k}, as the image and the problem have"
        )


def _check_operand(operand: OperandDescription, k: int, where: str) -> None:
    """A format that exists, scales of a granularity and a format that SCALES lists, whole groups of four of K."""
    check_format(operand.format, f"{where}.format")
    scale = operand.scale
    if scale is not None:
        known = SCALES.get((scale.rows, scale.k))
        if known is None:
            allowed = ", ".join(f"rows = {rows} and k = {depth}" for rows, depth in SCALES)
            raise InputError(f"{where}.scale: rows = {scale.rows} and k = {scale.k}; allowed: {allowed}")
        _choice(scale.format, known[1], f"{where}.scale.format")
    if operand.sparsity is not None and k % SPARSE_GROUP:
        raise InputError(f"{where}.sparsity: 2:4 of K = {k}; allowed: multiples of {SPARSE_GROUP}")


def check_plan(plan: Plan, where: str) -> None:
    """Pieces and terms that are there, products of pieces that the plan has, a combination of its terms."""
    check_format(plan.input_format, f"{where}.input_format")
    check_format(plan.output_format, f"{where}.output_format")
    for name in ("a_pieces", "b_pieces"):
        pieces = getattr(plan, name)
        _some(pieces, f"{where}.{name}", "pieces")
        for index, piece in enumerate(pieces):
            place = f"{where}.{name}[{index}]"
            check_format(piece.format, f"{place}.format")
            _choice(piece.rounding, ROUNDINGS, f"{place}.rounding")
            _between(piece.scale_exponent, -MOST_EXPONENT, MOST_EXPONENT, f"{place}.scale_exponent")
            if (plan.split == "residues") != (piece.residue is not None):
                allowed = "a modulus" if plan.split == "residues" else "none, as the operand is not split into residues"
                raise InputError(f"{place}.residue: allowed: {allowed}")
            if piece.residue is not None:
                _between(piece.residue.modulus, 2, MOST_MODULUS, f"{place}.residue.modulus")
                _between(piece.residue.base, 1, MOST_MODULUS, f"{place}.residue.base")
    _some(plan.terms, f"{where}.terms", "terms")
    for index, term in enumerate(plan.terms):
        _check_term(term, plan, f"{where}.terms[{index}]")
    if plan.k_group is not None:
        _count(plan.k_group, f"{where}.k_group")
    if plan.split in ("slices", "signed_slices"):
        _between(plan.slice_bits, 1, MOST_SLICE_BITS, f"{where}.slice_bits")
    for index, length in enumerate(plan.k_parts):
        _count(length, f"{where}.k_parts[{index}]")
    _check_expression(plan.combine, len(plan.terms), f"{where}.combine")


def _check_term(term: Term, plan: Plan, where: str) -> None:
    _some(term.stages, f"{where}.stages", "stages")
    if isinstance(term.k_group, int):
        _count(term.k_group, f"{where}.k_group")
    for index, stage in enumerate(term.stages):
        place = f"{where}.stages[{index}]"
        _some(stage.products, f"{place}.products", "products")
        _between(stage.scale_exponent, 0, MOST_EXPONENT, f"{place}.scale_exponent")
        if stage.interleave is not None:
            _count(stage.interleave, f"{place}.interleave")
        for number, product in enumerate(stage.products):
            for side, piece, pieces in zip("ab", product, (plan.a_pieces, plan.b_pieces), strict=True):
                _between(piece, 0, len(pieces) - 1, f"{place}.products[{number}]: piece of {side.upper()}")


def _check_expression(expression: Expression, terms: int, where: str) -> None:
    """The terms that an expression names, and its powers of two, added up from the outside in."""
    left: list[tuple[Expression, int]] = [(expression, 0)]  # no recursion: sums of many slices are deep
    while left:
        node, exponent = left.pop()
        match node:
            case TermValue(term):
                _between(term, 0, terms - 1, f"{where}: term")
            case Sum(one, other):
                left += [(other, exponent), (one, exponent)]
            case Scaled(value, more):
                exponent += _between(more, -MOST_EXPONENT, MOST_EXPONENT, f"{where}: exponent")
                _between(exponent, -MOST_EXPONENT, MOST_EXPONENT, f"{where}: sum of exponents")
                left.append((value, exponent))
            case ChineseRemainder():
                _check_remainder(node, terms, where)
            case OperandSum(_, factor) | Depth(factor):
                _between(factor, -MOST_FACTOR, MOST_FACTOR, f"{where}: factor")


def _check_remainder(node: ChineseRemainder, terms: int, where: str) -> None:
    """Congruences of terms that are there, a weight for each, numbers in as many parts as the product."""
    _some(node.congruences, f"{where}.congruences", "congruences")
    parts = _between(len(node.product), 1, 2 if node.sum == "fp64" else MOST_PARTS, f"{where}.product: parts")
    _choice(node.format, ("fp32", "fp64"), f"{where}.format")
    _choice(node.sum, ("fp64", "exact"), f"{where}.sum")
    if len(node.weights) != len(node.congruences) or any(len(weight) != parts for weight in node.weights):
        raise InputError(f"{where}.weights: allowed: one for each congruence, in {parts} parts as the product")
    for index, congruence in enumerate(node.congruences):
        place = f"{where}.congruences[{index}]"
        _between(congruence.modulus, 2, MOST_MODULUS, f"{place}.modulus")
        _choice(congruence.format, ("int8", "int16", "int32"), f"{place}.format")
        _some(congruence.terms, f"{place}.terms", "terms")
        if len(congruence.terms) != len(congruence.factors):
            raise InputError(f"{place}: {len(congruence.factors)} factors; allowed: one for each term")
        for term, factor in zip(congruence.terms, congruence.factors, strict=True):
            _between(term, 0, terms - 1, f"{place}: term")
            _between(factor, -MOST_MODULUS, MOST_MODULUS, f"{place}: factor")


def check_mixed(mixed: MixedPlan, where: str) -> None:
    """A range for each plan but the last, blocks of at least 1, a strategy of this mixture."""
    _some(mixed.plans, f"{where}.plans", "plans")
    for index, plan in enumerate(mixed.plans):
        check_plan(plan, f"{where}.plans[{index}]")
        if plan.input_format != mixed.plans[0].input_format or plan.output_format != mixed.plans[0].output_format:
            raise InputError(f"{where}.plans[{index}]: its formats differ from plans[0]; allowed: the same")
    if len(mixed.ranges) != len(mixed.plans) - 1:
        raise InputError(
            f"{where}.ranges: {len(mixed.ranges)} of them; allowed: {len(mixed.plans) - 1}, one per plan but the last"
        )
    for name, extent in zip("mnk", mixed.block, strict=True):
        _count(extent, f"{where}.block: {name}")
    names = [short_name(mixed, plan) for plan in mixed.plans]
    if len(set(names)) != len(names):
        raise InputError(f"{where}.plans: schemes {', '.join(names)}; allowed: each once")
    _choice(mixed.strategy, (HYBRID, DECIDE, *names), f"{where}.strategy")
    _choice(mixed.decided, ("", HYBRID, *names), f"{where}.decided")
    if mixed.wide_percent is not None:
        _between(mixed.wide_percent, 0, 100, f"{where}.wide_percent")
    if mixed.blocks and len(mixed.blocks) != len(mixed.plans):
        raise InputError(f"{where}.blocks: {len(mixed.blocks)} counts; allowed: none, or one per plan")
    for index, count in enumerate(mixed.blocks):
        if count < 0:
            raise InputError(f"{where}.blocks[{index}] = {count}; allowed: at least 0")
    digits = {str(index) for index in range(len(mixed.plans))}
    for name in ("a_types", "b_types"):
        lines = getattr(mixed, name)
        if bool(lines) != bool(mixed.a_types) or any(not line or set(line) - digits for line in lines):
            raise InputError(
                f"{where}.{name}: allowed: texts of the digits {', '.join(sorted(digits))}, or no text in both"
            )
    if mixed.blocks and not any(mixed.blocks):
        raise InputError(f"{where}.blocks: all 0; allowed: at least one block product")


def check_schedule(schedule: Schedule, problem: Problem, where: str) -> None:
    """Slices and written-out sums that fit the problem."""
    slices = schedule.slice_lengths(problem.k)
    if min(slices) < 1:
        raise InputError(f"{where}: slices of K of {slices}; allowed: lengths of at least 1")
    if isinstance(schedule.merge_order, tuple) and len(schedule.merge_order) != len(slices):
        raise InputError(f"{where}.merge_order: {len(schedule.merge_order)} slices; K is cut into {len(slices)}")
    if schedule.epilogue.beta is None:
        raise InputError(f"{where}.epilogue: beta is left open; allowed in a record: a number")
    if schedule.sum is not None:
        _check_sum(schedule.sum, problem.k, f"{where}.sum")
    m, n = schedule.shape or (problem.m, problem.n)  # of the whole product, of which the problem may be a part
    for index, region in enumerate(schedule.regions):
        place = f"{where}.regions[{index}]"
        _check_range(region.rows, m, f"{place}.rows")
        _check_range(region.cols, n, f"{place}.cols")
        _check_sum(region.sum, problem.k, f"{place}.sum")


def _check_sum(written: Chain | Reduction, k: int, where: str) -> None:
    """Ranges within K, parts that are there, an order that names each part once."""
    left = [written]
    while left:
        node = left.pop()
        if isinstance(node, Chain):
            for part in node.ranges:
                _check_range(part, k, where)
            continue
        _some(node.parts, where, "parts")
        if isinstance(node.order, tuple) and sorted(node.order) != list(range(len(node.parts))):
            raise InputError(
                f"{where}: order of {len(node.order)} indices; allowed: each of {len(node.parts)} parts once"
            )
        if node.order == "halving" and len(node.parts) & (len(node.parts) - 1):
            raise InputError(f"{where}: order = 'halving' of {len(node.parts)} parts; allowed: a power of two of them")
        left += node.parts


def _check_range(part: Range, extent: int, where: str) -> None:
    if part.stop > extent:
        raise InputError(f"{where}: a range to {part.stop}; allowed: at most {extent}")


def check_mapping(mapping: GemmMapping, terms: int, where: str) -> None:
    """Kernels that compute each term once, with tiles, warps and counts of at least 1. terms: of the plan."""
    _some(mapping.kernels, f"{where}.kernels", "kernels")
    for index, kernel in enumerate(mapping.kernels):
        _check_kernel(kernel, terms, f"{where}.kernels[{index}]")
    computed = sorted(term for kernel in mapping.kernels for term in kernel.terms)
    if computed != list(range(terms)):
        raise InputError(f"{where}.kernels: they compute the terms {computed}; allowed: each of 0 to {terms - 1} once")


def _check_kernel(kernel: KernelMapping, terms: int, where: str) -> None:
    _some(kernel.terms, f"{where}.terms", "terms")
    for term in kernel.terms:
        _between(term, 0, terms - 1, f"{where}.terms: term")
    for side in "mnk":
        _count(getattr(kernel.tile, side), f"{where}.tile.{side}")
    for name in ("stages", "accumulators", "cta_group"):
        _count(getattr(kernel, name), f"{where}.{name}")
    for name in ("warp", "cluster"):
        for extent in getattr(kernel, name) or ():
            _count(extent, f"{where}.{name}")
    _between(kernel.swizzle, 0, MOST_COUNT, f"{where}.swizzle")
    check_settings(kernel.settings, f"{where}.settings")


def check_settings(settings: Sequence[Setting], where: str) -> None:
    """Each name once."""
    names = [setting.name for setting in settings]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(f"{where}[{index}]: {name} is there twice; allowed: once")


def _some(items: Sequence[object], where: str, what: str) -> None:
    if not items:
        raise InputError(f"{where}: there are no {what}; allowed: at least one")


def _count(value: int, where: str) -> None:
    _between(value, 1, MOST_COUNT, where)


def _between(value: int, least: int, most: int, where: str) -> int:
    if not least <= value <= most:
        shown = value if abs(value) <= 1 << 64 else f"{value:.0e}" if abs(value) < 10**300 else "a longer number"
        allowed = f"at least {least}" if value < least else f"at most {most}"
        raise InputError(f"{where} = {shown}; allowed: {allowed}")
    return value


def _choice(value: str, allowed: Iterable[str], where: str) -> None:
    names = tuple(allowed)
    if value not in names:
        raise InputError(
            f"{where} = {value!r}; allowed: {', '.join(repr(name) for name in names)}{nearest(value, names)}"
        )


def check_format(name: str, where: str) -> None:
    """A format that exists."""
    try:
        format_of(name)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
