"""Questions that the command line answers, from Python: which blocking is best, why a bit is set, where two ways part.

Thin fronts of hwsim.studies and hwsim.report.explain that take names and arrays; the answers are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim.api import run
from hwsim.backend.environment import in_default_environment
from hwsim.devices import dot_spec, load
from hwsim.errors import InputError
from hwsim.formats import array_dtype, code_dtype, codes_of, format_of
from hwsim.gemm.problem import Problem
from hwsim.host.arrays import given_array
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.numerics.dot_operands import DotOperands
from hwsim.report import explain as explained
from hwsim.request.declarations import DEFAULT_SCHEME
from hwsim.resolve import library_on_device
from hwsim.resolve.planning import plan_for
from hwsim.schemes import Scheme, scheme_of
from hwsim.studies import diff as compared
from hwsim.studies import tune as searched
from hwsim.studies.diff import Difference, Variant
from hwsim.studies.tune import BUDGET, Landscape, LibraryKernel

if TYPE_CHECKING:
    from hwsim.devices.device import Device

AnyDevice = Any  # a name, the path of a YAML file, a mapping, or a Device


def tune(
    device: AnyDevice,
    m: int,
    n: int,
    k: int,
    *,
    scheme: str | Scheme = DEFAULT_SCHEME,
    format: str | None = None,
    objective: str = "cycles",
    chooser: str = "search",
    exhaustive: bool = False,
    budget: int = BUDGET,
    progress: Callable[[float], None] | None = None,
    library: str | Path | LibraryOnDevice | None = None,
    **options: Any,
) -> Landscape:
    """The best blocking, order of tiles and instruction for C[m, n] = A[m, k] B[k, n]; see hwsim.studies.tune.tune.

    Args:
        device: a name, the path of a YAML file, a mapping, or a Device.
        m: rows of C.
        n: columns of C.
        k: columns of A.
        scheme: a name, FILE.py:NAME, or a Scheme.
        format: the operands', for native products.
        objective: what is made least: "cycles" and others of hwsim.studies.tune.tune.
        chooser: "search", or a paper's formula.
        exhaustive: every configuration, not tiles first.
        budget: configurations that are timed, at most.
        progress: called with shares of the work, 0 to 1.
        library: what it runs stands beside (`library` of the result).
        options: the scheme's.

    Raises:
        InputError: arguments that do not fit.
        UnsupportedError: what the device cannot do.
    """
    chip, beside = load(device), None
    if library is not None:
        call_options = options if format is None else {**options, "format": format}
        beside = library_kernel(library, device=device, scheme=scheme, m=m, n=n, k=k, **call_options)
    chosen = scheme_of(scheme)
    of_scheme = {**chosen.values, **options}
    format = of_scheme.pop("format", format)
    problem = Problem.of("fp32" if format is None else format, m, n, k)
    planned = plan_for(chip, chosen.bare, problem, format, of_scheme)
    landscape = searched.tune(
        chip,
        planned.plan,
        (m, n, k),
        objective=objective,
        chooser=chooser,
        exhaustive=exhaustive,
        budget=budget,
        progress=progress,
    )
    return replace(landscape, library=beside)


def library_kernel(library: str | Path | LibraryOnDevice, *, device: AnyDevice, **call: Any) -> LibraryKernel:
    """The kernel that a library runs for a GEMM, with its program's cycles.

    call: as of hwsim.run (scheme, m, n, k, format, options); B is by columns where the library takes operands of that
    format no other way. Raises what that raises.
    """
    chosen, format = library_on_device.library(library, device=device), call.get("format")
    _, b_layout = ("rows", "rows") if format is None else chosen.layouts(format, ("rows", "rows"))
    layout: dict[str, Any] = {} if b_layout == "rows" else {"b_layout": b_layout}
    result = run(library=library, device=device, exact=False, timing=True, **layout, **call)
    assert result.gemm is not None
    kernel, slices = (result.gemm.decided(choice) for choice in ("kernel", "split_k"))
    assert kernel is not None and slices is not None
    return LibraryKernel(str(library), kernel.value, int(slices.value), result.cycles)


@in_default_environment
def diff(a: Any, b: Any, left: AnyDevice | Variant, right: AnyDevice | Variant, **options: Any) -> Difference:
    """One product in two ways: which elements differ, from which k on, and what the units did there.

    Args:
        a: (m, k), as hwsim.run takes it.
        b: (k, n), as hwsim.run takes it.
        left: a device, or a Variant (device, scheme, format, schedule, output, options, library).
        right: a device, or a Variant.
        options: as of hwsim.studies.diff.diff (element, rows, cols, first, threads, progress).
    """
    sides = [_by_record(a, b, side if isinstance(side, Variant) else Variant(side)) for side in (left, right)]
    return compared.diff(a, b, *sides, **options)


def _by_record(a: Any, b: Any, side: Variant) -> Variant:
    """The variant, by its record where a library's kernel computes it."""
    if side.library is None or side.gemm is not None:
        return side
    settings: dict[str, Any] = {
        "device": side.device,
        "scheme": side.scheme,
        "format": side.format,
        "output": side.output,
    }
    # the record is of the whole product, whatever part of it is computed
    part: dict[str, Any] = {"rows": slice(0, 1), "cols": slice(0, 1), "timing": False}
    result = run(a, b, library=side.library, schedule=side.schedule, **settings, **part, **side.options)
    return replace(side, gemm=result.gemm)


def explain(
    device: AnyDevice,
    instruction: str,
    a: Any,
    b: Any,
    c: Any = 0,
    *,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_d: int = 0,
) -> Mapping[str, Any]:
    """One element of a matrix instruction, stage by stage, as `hwsim explain --json` gives it.

    hwsim.report.text.explain_text.explain_text makes text of it.

    Args:
        device: a name, the path of a YAML file, a mapping, or a Device.
        instruction: its name.
        a: (K',) a row of A, K' at most the instruction's: an array of the operand's dtype, or bit patterns as unsigned
            integers of its width.
        b: (K',) a column of B, in the same way.
        c: the accumulator, a bit pattern or an array of its dtype; +0 by default.
        scale_a: (K / block,) bit patterns of block scales.
        scale_b: (K / block,) bit patterns of block scales.
        scale_d: c is multiplied by 2^-scale_d.

    Raises:
        InputError: other dtypes; and what hwsim.report.explain.explain raises.
    """
    chip: Device = load(device)
    spec = dot_spec(chip, instruction)
    row, column, start = (
        _codes(name, x, fmt) for name, x, fmt in (("a", a, spec.a), ("b", b, spec.b), ("c", c, spec.c))
    )
    if len(start) != 1:
        raise InputError(f"explain: c has {len(start)} elements; allowed: one accumulator")
    scales = [None if x is None else [int(scale) for scale in np.ravel(x)] for x in (scale_a, scale_b)]
    return explained.explain(chip, instruction, DotOperands(row, column, start[0], scales[0], scales[1], scale_d))


def _codes(name: str, values: Any, fmt: str) -> list[int]:
    number_format = format_of(fmt)
    array = np.ravel(given_array(f"explain: {name}", values))
    if array.dtype == array_dtype(number_format) and array.dtype != code_dtype(number_format):
        array = codes_of(array, number_format)
    if array.dtype.kind not in "iu" or (array.astype(object) < 0).any() or (array.astype(object) >= 1 << 64).any():
        raise InputError(
            f"explain: {name} is {fmt}; allowed: an array of {array_dtype(number_format)}, or codes as unsigned "
            f"integers; got {np.asarray(values).dtype}"
        )
    return [int(x) for x in array.tolist()]


__all__ = ["Variant", "diff", "explain", "library_kernel", "tune"]
