"""The text of a unit's kernels: its record as constants of C++, and which main loop takes it.

It knows units and the names of the C++ sources; it knows no GPU and no array.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from hwsim._kernels import dot
from hwsim.formats import format_of
from hwsim.host.places import kernel_sources
from hwsim.numerics.units import (
    BlockScaledUnit,
    CompositeUnit,
    DotSpec,
    ExactUnit,
    FmaChainUnit,
    FusedUnit,
    IntegerUnit,
    PairwiseUnit,
    TwoLevelUnit,
)

HEADERS = ("hw_format.h", "hw_dot.h", "hw_dot_terms.h")
OF_ELEMENTS = ("hw_convert.h", "hw_convert_lane.h", "hw_lanes.h")  # of elements.cuh
SUMS = '#include "sums.cuh"\n'  # the program that adds chains
STEPS = ("dot_sum.c", "dot_two_level.c", "dot_step.c")
MODEL_STEPS = (  # by the number of a model in hw_dot.h
    *("step_exact", "step_fma", "step_fused", "step_pairwise", "hw_step_two_level", "step_integer", "step_composite"),
    "step_block_scaled",
)
SCALAR_KERNEL = """
extern "C" __global__ void scalar(const Arguments *g, long long count, int all) { run_scalar(*g, count, all); }
"""
TILE_KERNELS = """
extern "C" __global__ __launch_bounds__(Tile<Unit>::THREADS, 1) void tiles(const Arguments *g) { run_tiles<Unit>(*g); }
extern "C" __global__ void sizes(int *found)
{
    found[0] = Unit::STAGES * sizeof(Shared<Unit>);
    found[1] = Tile<Unit>::THREADS;
    found[2] = Tile<Unit>::ROWS;
}
"""
TREE_TERMS = (1, 2, 4)  # of pairwise.cuh
MOST_TERMS = 64  # of a main loop: its stage of shared memory
TWO_LEVEL_TERMS = 16
MOST_EXPONENT_BITS = 8  # products of such operands are doubles
EDGES = ("saturate_operands", "saturate_overflow", "flush_operands", "flush_results")
LEAST_FLOOR, MOST_FLOOR = -1022, 1023 - 52  # of fused.cuh: 1.5 * 2^(floor + 52 - F) is a normal double
FP32_BITS = 24  # of a significand
INT32_LIMIT = 1 << 31
POWERS = "ue8m0"  # scales that are powers of two: they move exponents alone
#: Rows of a thread, warps of a block and places of K in a turn of the inner loop: what was tried on an H200 stands in
#: lab/docs/engine.md.
FEWER, MOST_TERMS_OF_FEWER = 4, 32  # blocks with fewer warps, and the longest step that they load
FUSED_ROWS, FUSED_WARPS, FUSED_AT_ONCE = 8, 16, 1
PACKED, MOST_BYTE = 4, 127  # elements of a dp4a, and the largest of them
DOUBLE_SUM_BITS = 51  # of a sum in a double that keeps its last place


@cache
def loop_of(spec: DotSpec, divided: bool = False) -> str | None:
    """The source of the main loop that takes a unit; None: the scalar steps do. divided: the accumulator is, before
    steps.
    """
    fields, unit = dot.spec_fields(spec), spec.unit
    if unit.terms > MOST_TERMS or MOST_TERMS % unit.terms:
        return None
    if any(not fields[side]["fraction_bits"] for side in "abcd"):  # numbers.cuh: code 0 of the others is zero
        return None
    if isinstance(unit, FusedUnit) and spec.scale_format in (None, POWERS):
        return "fused.cuh" if _takes_fused(spec, fields, unit) else None
    if isinstance(unit, CompositeUnit) and not divided and spec.scale_format is None:
        return "composite.cuh" if _takes_composite(spec, fields, unit) else None
    if isinstance(unit, BlockScaledUnit) and not divided:
        return "block_scaled.cuh" if _takes_block_scaled(spec, fields, unit) else None
    if divided or spec.scale_format is not None or fields["rounding"]:  # the others round to nearest even
        return None
    if isinstance(unit, IntegerUnit):
        return "integer.cuh" if spec.c == spec.d == "int32" and _fits_int32(spec) else None
    if not fields["ieee_zero"]:
        return None
    if isinstance(unit, FmaChainUnit):
        return "chain.cuh" if _takes_chain(spec, fields) else None
    if not spec.c == spec.d == "fp32" or _exponent_bits(fields) > MOST_EXPONENT_BITS:
        return None
    if isinstance(unit, ExactUnit):
        return None if fields["flush_operands"] or fields["flush_results"] else "exact.cuh"
    if isinstance(unit, TwoLevelUnit):
        return "two_level.cuh" if _takes_two_level(fields, unit) else None
    return "pairwise.cuh" if isinstance(unit, PairwiseUnit) and _takes_pairwise(spec, fields, unit) else None


def _takes_fused(spec: DotSpec, fields: dict[str, Any], unit: FusedUnit) -> bool:
    """Whether fused.cuh takes a unit. It says too large from the exponent bias + 1 on: FNUZ formats end before."""
    has_edges = any(fields[name] for name in EDGES) or fields["ieee_zero"]
    is_held = unit.rounding == "RZ" or (unit.rounding == "RNE" and fields["result"] == fields["d"])
    d = format_of(spec.d)
    is_reached = LEAST_FLOOR <= unit.floor_exponent <= MOST_FLOOR and d.max_exponent >= d.bias
    fits = _fits_double(unit.fraction_bits, unit.terms) and _exponent_bits(fields) <= MOST_EXPONENT_BITS
    return is_held and is_reached and fits and not has_edges


def _takes_composite(spec: DotSpec, fields: dict[str, Any], unit: CompositeUnit) -> bool:
    """Whether composite.cuh takes a unit: its parts are runs of places one after another, its inner steps are fused
    ones of the result format. Sums of fp16 numbers are exact doubles, which the inner rounding must round to nearest.
    """
    inner = fields["inner"]
    run = unit.modulus // len(unit.selections)
    parts = tuple(tuple(range(first, first + run)) for first in range(0, unit.modulus, run))
    are_whole = not unit.terms % unit.modulus and unit.inner.terms * len(parts) == unit.terms
    is_fp16 = spec.c == spec.d == "fp16" and unit.inner.rounding == "RNE"
    is_own = (spec.c == spec.d == "fp32" or is_fp16) and inner["result"] == fields["d"]
    has_edges = any(fields[name] for name in EDGES)
    inner_spec = DotSpec(unit.inner, unit.operand_format, unit.operand_format, spec.d, spec.d)
    return (
        parts == unit.selections
        and are_whole
        and is_own
        and not has_edges
        and _takes_fused(inner_spec, inner, unit.inner)
    )


def _takes_block_scaled(spec: DotSpec, fields: dict[str, Any], unit: BlockScaledUnit) -> bool:
    """Whether block_scaled.cuh takes a unit: its elements are bytes, groups share scales, empty groups are no matter.

    A term is below 4 * 2^(its exponent) * largest a * largest b * group, and exact but for the cut.
    """
    a, block = format_of(spec.a), int(spec.scale_block or 0)
    exponent, fraction = divmod(a.largest_magnitude, 1 << a.fraction_bits)
    units = (1 << a.fraction_bits | fraction) << max(exponent - 1, 0)  # the largest number, in least numbers
    largest = math.ldexp(units, a.min_exponent - a.fraction_bits)
    is_packed = spec.a == spec.b and spec.c == spec.d == "fp32" and a.nan == "none" and units <= MOST_BYTE
    are_groups = unit.group % PACKED == 0 and block % unit.group == 0 and unit.terms % block == 0
    bits = unit.fraction_bits + math.ceil(math.log2(4 * largest**2 * (unit.terms + 1)))
    edges = any(fields[name] for name in EDGES) or fields["ieee_zero"]
    fits = bits < DOUBLE_SUM_BITS and unit.zero_exponent <= unit.floor_exponent
    return is_packed and are_groups and fits and unit.rounding == "RZ" and fields["result"] == fields["d"] and not edges


def _takes_two_level(fields: dict[str, Any], unit: TwoLevelUnit) -> bool:
    """Whether two_level.cuh takes a unit of fp32 results."""
    is_simple = unit.terms <= TWO_LEVEL_TERMS and not (unit.interleaved and unit.terms % 2)
    bits = max(unit.product_fraction_bits, unit.sum_fraction_bits, unit.accumulator_fraction_bits)
    fits = _fits_double(bits, unit.terms) and unit.final_fraction_bits < DOUBLE_SUM_BITS
    return is_simple and fits and not any(fields[name] for name in EDGES)


def _takes_pairwise(spec: DotSpec, fields: dict[str, Any], unit: PairwiseUnit) -> bool:
    """Whether pairwise.cuh takes a unit of fp32 results. Products that are flushed must be exact: whether a GPU flushes
    what rounding makes normal is not known.
    """
    flushes = fields["flush_operands"], fields["flush_results"]
    bits = sum(format_of(name).precision for name in (spec.a, spec.b))
    is_simple = unit.terms in TREE_TERMS and flushes[0] == flushes[1] and (not flushes[0] or bits <= FP32_BITS)
    saturates = fields["saturate_operands"] or fields["saturate_overflow"]
    return is_simple and not saturates and _is_nan(fields)


def _takes_chain(spec: DotSpec, fields: dict[str, Any]) -> bool:
    """Whether chain.cuh takes a unit: its operands are numbers of the result format."""
    d = format_of(spec.d)
    is_own = spec.c == spec.d and spec.d in ("fp32", "fp64") and all(d.holds(format_of(x)) for x in (spec.a, spec.b))
    return is_own and not any(fields[name] for name in EDGES) and _is_nan(fields)


def _fits_double(fraction_bits: int, terms: int) -> bool:
    """Whether a sum of so many products above such a last place stays in the binade of 1.5 * 2^52 last places."""
    return fraction_bits + 2 + terms.bit_length() < DOUBLE_SUM_BITS


def _fits_int32(spec: DotSpec) -> bool:
    """Whether the products of a step add up within an int32."""
    product = math.prod(1 << format_of(name).bits - format_of(name).signed for name in (spec.a, spec.b))
    return product * spec.unit.terms < INT32_LIMIT


def _is_nan(fields: dict[str, Any]) -> bool:
    """Whether the code of NaN results is a NaN of an IEEE result format: the loops' own NaNs stay until the end."""
    bits, exponent_bits = int(fields["d"]["fraction_bits"]), int(fields["d"]["exponent_bits"])
    magnitude: int = fields["nan_code"] & (1 << bits + exponent_bits) - 1
    return magnitude > (1 << exponent_bits) - 1 << bits


def _nan_stays(fields: dict[str, Any]) -> bool:
    """Whether a NaN result is the result of all further steps: operands and accumulators are IEEE's, and no operand's
    NaN passes on.
    """
    has_edges = any(fields[name] for name in EDGES) or fields["d"]["special"] or fields["nan_order"][0]
    return not has_edges and _is_nan(fields)


def _exponent_bits(fields: dict[str, Any]) -> int:
    """The widest exponent field of operands, accumulator and result."""
    return max(int(fields[side]["exponent_bits"]) for side in "abcd")


def program_text(spec: DotSpec, divided: bool, fewer: int = 1) -> str:
    """The C++ program of a unit: its constants, the C steps, the scalar kernel and, where one takes it, a main loop.

    fewer: by which number a block of the main loop has fewer warps, and so fewer rows; 1 or FEWER.
    """
    fields = dot.spec_fields(spec)
    loop = loop_of(spec, divided)
    inner = fields["inner"]
    block = fields["scale_block"]
    terms = max(fields["terms"], 0 if inner is None else inner["terms"])
    pointer = "nullptr" if inner is None else "const_cast<hw_spec *>(&INNER)"
    lines = [
        "#define HW_ON_GPU 1",
        f"#define HAS_SCALES {int(bool(block))}",
        f"#define SCALE_BLOCK {max(block, 1)}",
        f"#define HAS_DIVISIONS {int(divided)}",
        f"#define NAN_STAYS {int(_nan_stays(fields))}",
        f"#define FEWER {fewer}",
        f"#define FUSED_ROWS {FUSED_ROWS}",
        f"#define FUSED_WARPS {FUSED_WARPS}",
        f"#define FUSED_AT_ONCE {FUSED_AT_ONCE}",
        f"enum {{ SCALES_PER_STEP = {max(1, fields['terms'] // block if block else 1)} }};",
        f"enum {{ HW_MAX_TERMS = {terms}, HW_MAX_EXACT_TERMS = {terms} }};",
        '#include "machine.cuh"',
        '#include "hw_dot.h"',
        *([] if inner is None else [f"__device__ constexpr hw_spec INNER = {_record(inner, 'nullptr')};"]),
        *(f"__device__ constexpr hw_format {side.upper()}_FORMAT = {_format(fields[side])};" for side in "abcd"),
        f"__device__ constexpr hw_spec SPEC = {_record(fields, 'nullptr')};",
        f"__device__ const hw_spec SCALAR_SPEC = {_record(fields, pointer)};",
        *(f'#include "{name}"' for name in STEPS),
    ]
    lines.append(f"#define step_of_unit {MODEL_STEPS[fields['model']]}")
    lines.append(f"#define STEP {'SPEC' if inner is None else 'INNER'}")
    lines += ['#include "scalar.cuh"', SCALAR_KERNEL]
    if loop is not None:
        lines += [f'#include "{loop}"', TILE_KERNELS]
    return "\n".join(lines) + "\n"


@cache
def sources() -> dict[str, str]:
    """The texts that programs include, by name."""
    folder = kernel_sources()
    parts = [("include", name) for name in (*HEADERS, *OF_ELEMENTS)] + [("src", name) for name in STEPS]
    texts = {name: (folder / part / name).read_text(encoding="utf-8") for part, name in parts}
    cuda = folder / "cuda"
    texts |= {file.name: file.read_text(encoding="utf-8") for file in cuda.iterdir() if file.name.endswith(".cuh")}
    return texts | dict.fromkeys(("stddef.h", "stdint.h", "string.h"), "")


def _format(fields: dict[str, Any]) -> str:
    names = ("storage_bits", "exponent_bits", "fraction_bits", "bias", "pad", "is_signed")
    return "{nullptr, " + ", ".join(str(int(fields[name])) for name in names) + f", (hw_special){fields['special']}}}"


def _record(fields: dict[str, Any], inner: str) -> str:
    """An initialiser of hw_spec: the mapping has its fields in order."""
    parts = []
    for name, value in fields.items():
        if name == "inner":
            parts.append(inner)
        elif isinstance(value, dict):
            parts.append(_format(value))
        elif isinstance(value, list):
            parts.append("{" + ", ".join(f"{x}u" if name == "selection" else str(x) for x in value) + "}")
        else:
            parts.append(f"{int(value)}" + ("ull" if name == "nan_code" else ""))
    return "{" + ", ".join(parts) + "}"
