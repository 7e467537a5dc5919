"""The text of a unit's kernels: its record as constants of C++, and which main loop takes it.

It knows units and the names of the C++ sources; it knows no GPU and no array.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hwsim._kernels import dot
from hwsim.host.places import kernel_sources
from hwsim.numerics.units import (
    ExactUnit,
    FmaChainUnit,
    FusedUnit,
    IntegerUnit,
    PairwiseUnit,
    TwoLevelUnit,
)

if TYPE_CHECKING:
    from hwsim.numerics.units import DotSpec

HEADERS = ("hw_format.h", "hw_dot.h", "hw_dot_terms.h")
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
POWERS = "ue8m0"  # scales that are powers of two: they move exponents alone
#: Rows of a thread and warps of a block, the fastest of seven pairs for a Hopper unit on an H200 (lab/docs/engine.md).
FUSED_ROWS, FUSED_WARPS = 8, 16
WORD_BITS = 51  # of a sum in a double that keeps its last place


@cache
def loop_of(spec: DotSpec, divided: bool = False) -> str | None:
    """The source of the main loop that takes a unit; None: the scalar steps do. divided: the accumulator is, before
    steps.
    """
    fields, unit = dot.spec_fields(spec), spec.unit
    is_scaled = spec.scale_format is not None
    if unit.terms > MOST_TERMS or MOST_TERMS % unit.terms:
        return None
    if isinstance(unit, FusedUnit) and spec.scale_format in (None, POWERS):
        return "fused.cuh" if _takes_fused(spec, fields, unit) else None
    if divided or is_scaled or fields["rounding"]:  # the others round to nearest even
        return None
    has_zeros, is_fp32 = bool(fields["ieee_zero"]), spec.c == spec.d == "fp32"
    saturates = fields["saturate_operands"] or fields["saturate_overflow"]
    flushes = fields["flush_operands"], fields["flush_results"]
    is_narrow = _exponent_bits(fields) <= MOST_EXPONENT_BITS
    if isinstance(unit, ExactUnit):
        return "exact.cuh" if is_fp32 and is_narrow and has_zeros and not any(flushes) else None
    if isinstance(unit, TwoLevelUnit):
        is_simple = not unit.interleaved and unit.accumulator_drop_bits is None and unit.terms <= TWO_LEVEL_TERMS
        return (
            "two_level.cuh"
            if is_simple and is_fp32 and is_narrow and has_zeros and not (saturates or any(flushes))
            else None
        )
    if isinstance(unit, PairwiseUnit):
        is_tree = unit.terms in TREE_TERMS and flushes[0] == flushes[1]
        return "pairwise.cuh" if is_tree and is_fp32 and is_narrow and has_zeros and not saturates else None
    if isinstance(unit, FmaChainUnit):
        is_own = spec.c == spec.d and spec.d in ("fp32", "fp64")
        return "chain.cuh" if is_own and has_zeros and not (saturates or any(flushes)) else None
    return "integer.cuh" if isinstance(unit, IntegerUnit) and spec.c == spec.d == "int32" else None


def _takes_fused(spec: DotSpec, fields: dict[str, Any], unit: FusedUnit) -> bool:
    """Whether fused.cuh takes a unit."""
    has_edges = any(fields[name] for name in EDGES) or fields["ieee_zero"]
    is_held = unit.rounding == "RZ" or (unit.rounding == "RNE" and fields["result"] == fields["d"])
    bits = unit.fraction_bits + 2 + unit.terms.bit_length()
    return is_held and not has_edges and bits < WORD_BITS and _exponent_bits(fields) <= MOST_EXPONENT_BITS


def _exponent_bits(fields: dict[str, Any]) -> int:
    """The widest exponent field of operands, accumulator and result."""
    return max(int(fields[side]["exponent_bits"]) for side in "abcd")


def program_text(spec: DotSpec, divided: bool) -> str:
    """The C++ program of a unit: its constants, the C steps, the scalar kernel and, where one takes it, a main loop."""
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
        f"#define FUSED_ROWS {FUSED_ROWS}",
        f"#define FUSED_WARPS {FUSED_WARPS}",
        f"enum {{ SCALES_PER_STEP = {max(1, fields['terms'] // block if block else 1)} }};",
        f"enum {{ HW_MAX_TERMS = {terms}, HW_MAX_EXACT_TERMS = {terms} }};",
        '#include "machine.cuh"',
        '#include "hw_dot.h"',
        *([] if inner is None else [f"__device__ const hw_spec INNER = {_record(inner, 'nullptr')};"]),
        *(f"__device__ constexpr hw_format {side.upper()}_FORMAT = {_format(fields[side])};" for side in "abcd"),
        f"__device__ constexpr hw_spec SPEC = {_record(fields, 'nullptr')};",
        f"__device__ const hw_spec SCALAR_SPEC = {_record(fields, pointer)};",
        *(f'#include "{name}"' for name in STEPS),
    ]
    lines.append(f"#define step_of_unit {MODEL_STEPS[fields['model']]}")
    lines += ['#include "scalar.cuh"', SCALAR_KERNEL]
    if loop is not None:
        lines += [f'#include "{loop}"', TILE_KERNELS]
    return "\n".join(lines) + "\n"


@cache
def sources() -> dict[str, str]:
    """The texts that programs include, by name."""
    folder = kernel_sources()
    parts = [("include", name) for name in HEADERS] + [("src", name) for name in STEPS]
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
