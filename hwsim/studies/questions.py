"""Questions that the command line answers, from Python: which blocking is best, why a bit is set, where two ways part.

Thin fronts of hwsim.studies and hwsim.report.explain that take names and arrays; the answers are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim.analysis.inputs import NORMAL
from hwsim.api import run
from hwsim.backend.environment import in_default_environment
from hwsim.compute.call import clocked
from hwsim.devices import dot_spec, load
from hwsim.errors import InputError
from hwsim.formats import array_dtype, code_dtype, codes_of, format_of
from hwsim.host.arrays import given_array
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.machines.l2_state import DEFAULT as DEFAULT_L2
from hwsim.numerics.dot_operands import DotOperands
from hwsim.operands.sparse import prune
from hwsim.report import explain as explained
from hwsim.report.text.explain_text import explain_text
from hwsim.request.declarations import DEFAULT_SCHEME, SPARSITY
from hwsim.resolve import library_on_device
from hwsim.schemes import Scheme, scheme_of
from hwsim.studies import diff as compared
from hwsim.studies import tune as searched
from hwsim.studies.diff_operands import operands_text, random_operands
from hwsim.studies.diff_result import Difference
from hwsim.studies.diff_sides import Variant
from hwsim.studies.landscape import Landscape, LibraryKernel
from hwsim.studies.tune import BUDGET
from hwsim.studies.tune_call import OF_LIBRARY, library_options, tune_call

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.schemes import Scheme

DIFF_SIZE = 256  # m = n = k of random operands
VARIANT_FIELDS = ("scheme", "format", "schedule", "output", "library")
AnyDevice = Any  # a name, the path of a YAML file, a mapping, or a Device


def tune(
    device: AnyDevice,
    m: int,
    n: int,
    k: int,
    *,
    scheme: str | Scheme = DEFAULT_SCHEME,
    format: str | None = None,
    output: str | None = None,
    objective: str = "time",
    chooser: str = "search",
    exhaustive: bool = False,
    budget: int = BUDGET,
    progress: Callable[[float], None] | None = None,
    library: str | Path | LibraryOnDevice | None = None,
    l2: str = DEFAULT_L2,
    clock_mhz: float | None = None,
    power_limit_w: float | None = None,
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
        output: the format of C, as of hwsim.run.
        objective: what is made least: "time", "cycles", "traffic" (bytes of HBM) or "energy" (joules).
        chooser: "search", or a paper's formula.
        exhaustive: every configuration, not tiles first.
        budget: configurations that are timed, at most.
        progress: called with shares of the work, 0 to 1.
        library: what it runs stands beside (`library` of the result).
        l2: the state of L2 before each timed run, as of hwsim.run.
        clock_mhz: core clock, as of hwsim.run.
        power_limit_w: of the board, as of hwsim.run.
        options: the scheme's, `input_format` and `batch` as of hwsim.run, and options of the mapping: every
            configuration has these, a storage order (b_layout="columns") or split_k=1 for example.

    Raises:
        InputError: arguments that do not fit.
        UnsupportedError: what the device cannot do.
    """
    chip, beside = clocked(load(device), clock_mhz, power_limit_w), None
    machine = {"clock_mhz": clock_mhz, "power_limit_w": power_limit_w, "l2": l2}
    named = {"m": m, "n": n, "k": k, "format": format, "output": output}
    options |= {name: value for name, value in named.items() if value is not None}
    plain = {name: value for name, value in options.items() if library is None or name not in OF_LIBRARY}
    call = tune_call(chip, scheme_of(scheme), plain)
    if library is not None:
        beside = library_kernel(library, device=device, scheme=scheme, **machine, **library_options(options, call))
    landscape = searched.tune(
        chip,
        call.planned.plan,
        call.sizes,
        objective=objective,
        chooser=chooser,
        exhaustive=exhaustive,
        budget=budget,
        output=call.output,
        scales=call.scales,
        lead=call.lead,
        fixed=call.fixed,
        l2=l2,
        progress=progress,
    )
    shared = {
        "device": str(device) if isinstance(device, str | Path) else chip.file or chip.name,
        "scheme": landscape.scheme,
        **call.of_run,
        **machine,
        "exact": False,
    }
    of_run = {name: value for name, value in shared.items() if value is not None}
    return replace(landscape, library=beside, call=of_run, scheme_options=call.planned.options)


def library_kernel(library: str | Path | LibraryOnDevice, *, device: AnyDevice, **call: Any) -> LibraryKernel:
    """The kernel that a library runs for a GEMM, with its program's cycles and the library's time.

    call: as of hwsim.run (scheme, m, n, k, format, options); B is by columns where the library takes operands of that
    format no other way. Raises what that raises.
    """
    chosen, format = library_on_device.library(library, device=device), call.get("format")
    _, b_layout = ("rows", "rows") if format is None else chosen.layouts(format, ("rows", "rows"))
    layout: dict[str, Any] = {} if b_layout == "rows" else {"b_layout": b_layout}
    result = run(library=library, device=device, exact=False, timing=True, **{**layout, **call})
    assert result.gemm is not None
    kernel, slices = (result.gemm.decided(choice) for choice in ("kernel", "split_k"))
    assert kernel is not None and slices is not None
    times = result.times
    return LibraryKernel(
        str(library),
        kernel.value,
        int(slices.value),
        times.cycles,
        times.program_seconds,
        times.seconds,
        is_fitted=times.by_library,
    )


@in_default_environment
def diff(
    a: Any = None,
    b: Any = None,
    left: AnyDevice | Variant | None = None,
    right: AnyDevice | Variant | None = None,
    *,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    seed: int = 0,
    distribution: str = NORMAL,
    element: tuple[int, int] | None = None,
    input_format: str | None = None,
    rows: Any = None,
    cols: Any = None,
    first: int = 10,
    threads: int = 1,
    progress: Callable[[float], None] | None = None,
    **settings: Any,
) -> Difference:
    """One product in two ways: which elements differ, from which k on, and what the units did there.

    hwsim.diff(left="h100", right="b200", m=256, n=256, k=256, format="e4m3") needs no arrays.

    Args:
        a: (m, k), as hwsim.run takes it; None: random, as `distribution` says, in the format that is multiplied.
        b: (k, n), as hwsim.run takes it.
        left: a device, a Variant (device, scheme, format, schedule, output, options, library), or a mapping of
            arguments of hwsim.run with `device` among them.
        right: as `left`.
        m: rows of random operands (default 256), or those of `a`.
        n: columns of B.
        k: columns of A.
        seed: of random operands.
        distribution: of random operands: "normal", "log-uniform:-20:20", ..., as `operand_distribution` of hwsim.run.
        element: (row, column) whose first difference in K is searched; the largest difference by default.
        input_format: the format of arrays that are codes.
        rows: compare only these rows of C.
        cols: compare only these columns of C.
        first: number of differing elements that are listed.
        threads: of this machine.
        progress: called with shares of the work, 0 to 1.
        settings: scheme, format, schedule, output, library and options of hwsim.run, of each side that is no Variant.

    Raises:
        InputError: arguments that do not fit, results of two formats; and as hwsim.run.
    """
    if left is None or right is None:
        raise InputError("diff: two ways are needed: left=, right=, each a device or a hwsim.Variant")
    sides = [_variant(side, settings) for side in (left, right)]
    sizes = {"m": m, "n": n, "k": k}
    if (a is None) != (b is None):
        raise InputError("diff: got one of A and B; give both, or neither for random ones")
    words = ""
    if a is None:
        whole = {name: DIFF_SIZE if size is None else size for name, size in sizes.items()}
        for name, size in whole.items():
            if not isinstance(size, int | np.integer) or size < 1:
                raise InputError(f"diff: {name} = {size!r}; allowed: an integer of at least 1")
        fmt = _drawn_format(sides)
        fmt_b = sides[0].options.get("format_b") if fmt == sides[0].format else None
        a, b = random_operands(**whole, seed=seed, distribution=distribution, format=fmt)
        if fmt_b is not None:
            b = random_operands(**whole, seed=seed, distribution=distribution, format=str(fmt_b))[1]
        if any(side.options.get(SPARSITY) is not None for side in sides):
            a = prune(a)
        words = operands_text(seed, distribution, fmt) + (f" and {fmt_b}" if fmt_b is not None else "")
    else:
        of_arrays = dict(zip("mkn", (*np.shape(a)[-2:], *np.shape(b)[-1:]), strict=False))
        for name, asked in sizes.items():
            if asked not in (None, of_arrays.get(name)):
                raise InputError(
                    f"diff: {name} = {asked}, but the matrices give {name} = {of_arrays.get(name)}; leave it out"
                )
    return compared.diff(
        a,
        b,
        *sides,
        element=element,
        input_format=input_format,
        rows=rows,
        cols=cols,
        first=first,
        threads=threads,
        progress=progress,
        operands=words,
    )


def _variant(side: AnyDevice | Variant, settings: Mapping[str, Any]) -> Variant:
    """A side with the settings of both. Raises InputError for settings beside a Variant."""
    if isinstance(side, Variant):
        if settings:
            raise InputError(f"diff: {', '.join(settings)} beside a Variant; say it in the Variant")
        return side
    arguments = {**settings, "device": side}
    if isinstance(side, Mapping) and "device" in side:  # no device file has that key
        arguments = {**settings, **side}
    fields = {name: arguments.pop(name) for name in ("device", *VARIANT_FIELDS) if name in arguments}
    return Variant(**fields, options=arguments)


def _drawn_format(sides: list[Variant]) -> str:
    """The format in which random operands need no rounding on either side, where there is one; else fp32, or the
    format of the schemes' operands.
    """
    asked = {side.format if _is_of_operands(side) else None for side in sides}
    asked_format = asked.pop() if len(asked) == 1 else None
    if asked_format is not None:
        return format_of(str(asked_format)).name
    taken = {_scheme(side).input_formats[0] for side in sides}
    return taken.pop() if len(taken) == 1 else "fp32"


def _is_of_operands(side: Variant) -> bool:
    """Whether the format that a side asks for is its operands'."""
    scheme = _scheme(side)
    return scheme.name == DEFAULT_SCHEME or scheme.takes_operands_of(side.format)


def _scheme(side: Variant) -> Scheme:
    return scheme_of(side.scheme) if isinstance(side.scheme, str) else side.scheme


class Explanation(dict[str, Any]):
    """One element of an instruction, stage by stage: the mapping of `hwsim explain --json`, which prints as text."""

    def __str__(self) -> str:
        return explain_text(self)


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
) -> Explanation:
    """One element of a matrix instruction, stage by stage, as `hwsim explain --json` gives it; it prints as text.

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
    operands = DotOperands(row, column, start[0], scales[0], scales[1], scale_d)
    return Explanation(explained.explain(chip, instruction, operands))


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


__all__ = ["Explanation", "Variant", "diff", "explain", "library_kernel", "tune"]
