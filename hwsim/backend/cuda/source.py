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

HEADERS = ("hw_format.h", "hw_dot.h", "hw_dot_terms.h", "hw_convert.h", "hw_convert_lane.h", "hw_lanes.h")
STEPS = ("dot_sum.c", "dot_two_level.c", "dot_step.c")
MODEL_STEPS = (  # by the number of a model in hw_dot.h
    *("step_exact", "step_fma", "step_fused", "step_pairwise", "hw_step_two_level", "step_integer", "step_composite"),
    "step_block_scaled",
)
TREE_TERMS = (1, 2, 4)  # of pairwise.cuh
MOST_TERMS = 64  # of a main loop: its stage of shared memory
FUSED_ROWS, FUSED_WARPS = 8, 16
WORD_BITS = 51  # of a sum in a double that keeps its last place
RANGE_BITS = 1000  # exponents of products that doubles hold


@cache
def loop_of(spec: DotSpec, divided: bool = False) -> str | None:
    """The source of the main loop that takes a unit; None: the scalar steps do. divided: the accumulator is, before
    steps.
    """
    fields = dot.spec_fields(spec)
    unit, d = spec.unit, fields["d"]
    has_edges = fields["saturate_operands"] or fields["saturate_overflow"] or fields["flush_operands"]
    is_plain = not has_edges and not fields["flush_results"]
    is_fp32 = spec.c == spec.d == "fp32"
    is_nearest = fields["rounding"] == 0
    if unit.terms > MOST_TERMS or MOST_TERMS % unit.terms or (divided and not isinstance(unit, FusedUnit)):
        return None
    if spec.scale_format is not None and (spec.scale_format != "ue8m0" or not isinstance(unit, FusedUnit)):
        return None
    is_wide = max(fields[side]["exponent_bits"] for side in "abcd") > 8  # noqa: PLR2004
    if isinstance(unit, FusedUnit):
        takes = is_plain and not is_wide and not fields["ieee_zero"] and unit.rounding in ("RZ", "RNE")
        bits = unit.fraction_bits + 2 + unit.terms.bit_length()
        is_held = unit.rounding == "RZ" or fields["result"] == d
        return "fused.cuh" if takes and bits < WORD_BITS and is_held else None
    if isinstance(unit, ExactUnit):
        no_flush = not fields["flush_operands"] and not fields["flush_results"]
        return "exact.cuh" if no_flush and is_fp32 and is_nearest and not is_wide and fields["ieee_zero"] else None
    if isinstance(unit, TwoLevelUnit):
        takes = is_plain and is_fp32 and is_nearest and not is_wide and not unit.interleaved
        takes = takes and unit.accumulator_drop_bits is None and not fields["ieee_zero"] - 1
        return "two_level.cuh" if takes and unit.terms <= 16 else None  # noqa: PLR2004
    if isinstance(unit, PairwiseUnit):
        takes = fields["flush_operands"] == fields["flush_results"] and not fields["saturate_operands"]
        takes = takes and not fields["saturate_overflow"] and is_fp32 and is_nearest and fields["ieee_zero"]
        return "pairwise.cuh" if takes and unit.terms in TREE_TERMS else None
    if isinstance(unit, FmaChainUnit):
        takes = is_plain and spec.c == spec.d and spec.d in ("fp32", "fp64") and is_nearest and fields["ieee_zero"]
        return "chain.cuh" if takes else None
    if isinstance(unit, IntegerUnit):
        return "integer.cuh" if spec.c == spec.d == "int32" else None
    return None


def program_text(spec: DotSpec, divided: bool) -> str:
    """The C++ program of a unit: its constants, the C steps, the scalar kernel and, where one takes it, the main loop."""
    fields = dot.spec_fields(spec)
    loop = loop_of(spec, divided)
    inner = fields["inner"]
    block = fields["scale_block"]
    lines = [
        "#define HW_ON_GPU 1",
        f"#define HAS_SCALES {int(bool(block))}",
        f"#define SCALE_BLOCK {max(block, 1)}",
        f"#define HAS_DIVISIONS {int(divided)}",
        f"#define FUSED_ROWS {FUSED_ROWS}",
        f"#define FUSED_WARPS {FUSED_WARPS}",
        f"enum {{ SCALES_PER_STEP = {max(1, fields['terms'] // block if block else 1)} }};",
        f"enum {{ HW_MAX_TERMS = {_most_terms(fields)}, HW_MAX_EXACT_TERMS = {_most_terms(fields)} }};",
        '#include "machine.cuh"',
        '#include "hw_dot.h"',
    ]
    if inner is not None:
        lines.append(f"__device__ const hw_spec INNER = {_record(inner, 'nullptr')};")
    lines += [f"__device__ constexpr hw_format {side.upper()}_FORMAT = {_format(fields[side])};" for side in "abcd"]
    pointer = "nullptr" if inner is None else "const_cast<hw_spec *>(&INNER)"
    lines.append(f"__device__ constexpr hw_spec SPEC = {_record(fields, 'nullptr')};")
    lines.append(f"__device__ const hw_spec SCALAR_SPEC = {_record(fields, pointer)};")
    lines += [f'#include "{name}"' for name in STEPS]
    lines.append(f"#define step_of_unit {MODEL_STEPS[fields['model']]}")
    lines.append('#include "scalar.cuh"')
    lines.append(
        'extern "C" __global__ void scalar(const Arguments *g, long long count, int all) { run_scalar(*g, count, all); }'
    )
    if loop is not None:
        lines.append(f'#include "{loop}"')
        lines.append(
            'extern "C" __global__ __launch_bounds__(Loader<Unit>::THREADS, 1) void tiles(const Arguments *g) '
            "{ run_tiles<Unit>(*g); }"
        )
        lines.append(
            'extern "C" __global__ void sizes(int *found) '
            "{ found[0] = 2 * sizeof(Shared<Unit>), found[1] = Loader<Unit>::THREADS, found[2] = Tile<Unit>::ROWS; }"
        )
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


def _most_terms(fields: dict[str, Any]) -> int:
    inner = fields["inner"]
    return max(int(fields["terms"]), 0 if inner is None else int(inner["terms"]))


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
