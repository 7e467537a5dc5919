"""All options of a GEMM, collected from where each is declared: what `hwsim.run` and the command line accept.

The options of the problem, the epilogue and the machine are declared here; a mapping's by the dataflows, a scheme's by
the schemes. The module knows declarations, no device and no value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from hwsim.analysis.inputs import HELP, NORMAL, checked_distribution
from hwsim.backend.by_name import NAMES as ENGINES
from hwsim.dataflows.registry import dataflows
from hwsim.devices.variants import checked_clock
from hwsim.errors import InputError
from hwsim.gemm.option_types import (
    ADDED,
    ARRAY,
    ELEMENTS,
    INDICES,
    MAPPING,
    NUMBER,
    PAIR,
    PLACES,
    TEXT,
    TRUTH,
    WHOLE,
    Option,
    OptionType,
)
from hwsim.host.threads import MOST as MOST_THREADS
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.machines.l2_state import DEFAULT as DEFAULT_L2
from hwsim.machines.l2_state import STATES
from hwsim.schemes import Scheme, schemes

DEFAULT_SIZE = 1024
#: Lines of the short help that several options share.
CLOCK_BRIEF = "core clock, or the power it follows from"
HOST_BRIEF = "host threads (all), or cuda: its GPU (cpu)"
RANDOM = "random A and B: seed (0), normal or other"
SCALES = "scales of blocks, and of all of A and B"
MOST_SIZE = 10**9
SPARSITY = "sparsity"
OPERAND_DISTRIBUTION = "operand_distribution"


def _clock(value: Any) -> float:
    try:
        return checked_clock(value)
    except InputError as error:
        raise ValueError(str(error).rpartition("allowed: ")[2]) from None


def _library(value: Any) -> str | LibraryOnDevice:
    if isinstance(value, str | LibraryOnDevice):
        return value
    if isinstance(value, Path):
        return str(value)
    raise ValueError("a name, a file of answers, or what hwsim.library gives")


def _factors(value: Any) -> Any:
    if isinstance(value, str) or not hasattr(value, "__len__") or len(value) != 2:
        raise ValueError("two numbers: the factor of A and the factor of B")
    return tuple(float(factor) for factor in value)


def _parse_factors(text: str) -> Any:
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError("two numbers with a comma, as 0.5,2") from None
    return first, second


FACTORS = OptionType("own", _factors, _parse_factors, "A,B", "Sequence[float]")
MHZ = OptionType("own", _clock, NUMBER.parse, "MHZ", "float")
SCHEDULE = replace(MAPPING, annotation="Schedule | Mapping[str, Any]")
DISTRIBUTION = OptionType("named", checked_distribution, str, "NAME[:NUMBERS]", "str")
LIBRARY_NAME = OptionType("own", _library, str, "NAME|FILE", "str | Path | LibraryOnDevice")
DEFAULT_DEVICE, DEFAULT_SCHEME, AUTO = "ascend910a", "native", "auto"


def _size(name: str, what: str) -> Option:
    default = "from the matrices, else 1024"
    return Option(name, WHOLE, None, what, least=1, most=MOST_SIZE, default_text=default, brief=f"sizes ({default})")


PROBLEM = (
    _size("m", "rows of A and C"),
    _size("n", "columns of B and C"),
    _size("k", "columns of A, rows of B"),
    Option(
        "batch",
        WHOLE,
        None,
        "matrices of a stack, as many of A as of B: as many products in one call, where A and B are not given",
        least=1,
        most=MOST_SIZE,
        default_text="one matrix, no stack",
        brief="matrices of a stack of A and of B (no stack)",
    ),
    Option(
        "conv",
        MAPPING,
        None,
        "a convolution instead of m, n and k, as an implicit GEMM, with exact=False: channels, height, width, filters, "
        "r, s, and batch, stride, padding, dilation, groups (pairs as JSON)",
        brief="a convolution's sizes, with --no-exact",
    ),
    Option(
        "input_format",
        TEXT,
        None,
        "format of the elements of A and B in memory, where the arrays are bit patterns; with exact=False, of operands "
        "of which only the sizes are known; two with a comma are A's and B's: e4m3,e5m2",
        default_text="the arrays'; with exact=False `format`, else fp32",
        brief="format of A and B in memory",
    ),
    Option("seed", WHOLE, 0, "seed of random matrices", least=0, brief=RANDOM),
    Option(
        OPERAND_DISTRIBUTION,
        DISTRIBUTION,
        NORMAL,
        f"distribution of random matrices: {HELP}",
        brief=RANDOM,
    ),
    Option(
        "scale_a",
        ARRAY,
        None,
        "scales of A: fp32 (m or ceil(m/128) or 1, blocks of 128 of K or 1), or codes (uint8): ue8m0 by 32 of K, "
        "ue4m3 by 16",
        brief=SCALES,
    ),
    Option(
        "scale_b",
        ARRAY,
        None,
        "scales of B, a row for each column: (n or ceil(n/128) or 1, blocks of K)",
        brief=SCALES,
    ),
    Option(
        "tensor_scales",
        FACTORS,
        None,
        "fp32 factors of all of A and all of B, beside scales or without any (NVFP4's global scales)",
        brief=SCALES,
    ),
    Option(
        SPARSITY,
        TEXT,
        None,
        "2:4: of four elements of A along K at most two are not zero (32 bits: one of two); hwsim.prune makes that",
        choices=("2:4",),
        default_text="A is dense",
        brief="two of four elements of A are zero",
    ),
)
SCHEME = (
    Option(
        "error_target",
        NUMBER,
        None,
        "with scheme=auto: largest predicted error, relative, Frobenius norm; the fastest such scheme is used",
        brief="largest error, for --scheme auto",
    ),
    Option(
        "format",
        TEXT,
        None,
        "operand format of schemes that accept native formats",
        default_text="the operands' own if the device has a unit for it, else the device file's default_format",
        brief="operand format of native products",
    ),
)
EPILOGUE = (
    Option(
        "c",
        ADDED,
        None,
        "C of alpha A B + beta C: (..., m, n), typed, or bit patterns of the output format; true: any, of cycles alone",
    ),
    Option("alpha", NUMBER, None, "factor of the product", default_text="1"),
    Option("beta", NUMBER, None, "factor of C", default_text="1 where a C is given, else 0"),
    Option("bias", ADDED, None, "(n,) values, one added to each column; true: any, for cycles alone"),
    Option(
        "output",
        TEXT,
        None,
        "format of the result; rounded to nearest even at the end",
        default_text="the scheme's, or what the unit gives",
    ),
)
ORDER = (
    Option(
        "schedule",
        SCHEDULE,
        None,
        "order of summation over K: the fields of hwsim.gemm.schedule.Schedule",
        default_text="one chain in order of K, or the dataflow's",
    ),
    Option(
        "scale_order",
        TEXT,
        None,
        "order of factors outside the unit: joined (A's times B's first), a (the sum times A's, then B's), b (B's "
        "first)",
        choices=("joined", "a", "b"),
        default_text="joined; with `library` its kernel's",
    ),
)
LIBRARY = (
    Option(
        "library",
        LIBRARY_NAME,
        None,
        "GEMM library whose kernel, order of summation and epilogue are taken, as PyTorch 2.11 calls it; or a file "
        "that `hwsim library record` wrote, or what hwsim.library gave for this device",
        default_text="none: the device's own order",
    ),
    Option(
        "reductions",
        TEXT,
        None,
        "type in which `library` may add slices of K: compute (the accumulator's) or any (16 bits too), as PyTorch's "
        "allow_bf16_reduced_precision_reduction and fp16's let it; none: kernels without slices (allow_splitk=False)",
        choices=("any", "compute", "none"),
        default_text="as `library` is called: cublas compute for 16-bit results, pytorch any",
    ),
    Option(
        "workspace_bytes",
        WHOLE,
        None,
        "bytes of workspace that `library` may use, by cublasGemmEx",
        least=0,
        unit="bytes",
        default_text="as PyTorch gives it",
    ),
    Option(
        "lt_workspace_bytes",
        WHOLE,
        None,
        "the same by cublasLtMatmul (products with a bias, 8-bit operands)",
        least=0,
        unit="bytes",
        default_text="as PyTorch gives it",
    ),
)
REGION = (
    Option("rows", INDICES, None, "only these rows of the result, with the bits they have in the whole"),
    Option("cols", INDICES, None, "only these columns of the result, with the bits they have in the whole"),
    Option(
        "shape",
        PAIR,
        None,
        "(m, n) of the whole product, where A and B hold some of its rows and columns",
        default_text="the matrices' own",
    ),
    Option("at", PLACES, None, "which rows and columns of the whole product A's rows and B's columns are"),
)
MACHINE = (
    Option(
        "exact",
        TRUTH,
        True,
        "compute the bits; false: cycles only, for operands in `input_format`, else in `format`, else in fp32",
    ),
    Option("timing", TRUTH, True, "compute the cycles; false: bits only"),
    Option(
        "functional",
        TRUTH,
        None,
        "compute the bits by executing the device's program (true), or directly, without it (false); same bits",
        default_text="false",
        brief="same bits, by the device's program",
    ),
    Option(
        "values",
        ELEMENTS,
        None,
        "elements of C as (row, column): the result names the instructions that made them, with values; in a stack of "
        "its first matrix, unless the matrix's indices come first",
        brief="follow these elements of C",
    ),
    Option(
        "l2",
        TEXT,
        DEFAULT_L2,
        "L2 before the timed run: series, as the same call left it; warm, the same with results in HBM; cold, empty",
        choices=tuple(STATES),
        brief=f"L2 before the run ({DEFAULT_L2})",
    ),
    Option(
        "clock_mhz",
        MHZ,
        None,
        "core clock; it stays, whatever the load",
        unit="MHz",
        default_text="the device's under this load, where its file gives clocks under load, else the file's",
    ),
    Option(
        "power_limit_w",
        NUMBER,
        None,
        "power that the board may draw, at most its own limit: the clock under load follows from it",
        unit="W",
        default_text="the board's own",
        brief=CLOCK_BRIEF,
    ),
    Option("launch_overhead", TRUTH, False, "seconds include the device's launch overhead of every kernel"),
    Option(
        "threads",
        WHOLE,
        None,
        "host threads for the bits; no influence on the result",
        least=1,
        most=MOST_THREADS,
        default_text="all",
        brief=HOST_BRIEF,
    ),
    Option(
        "engine",
        TEXT,
        None,
        "what computes the bits: this machine's processors, or its NVIDIA GPU; no influence on the result",
        choices=ENGINES,
        default_text="HWSIM_ENGINE, else cpu",
        brief=HOST_BRIEF,
    ),
)
#: Options of `hwsim.run` that neither a scheme nor a dataflow declares, by owner.
OWN: Mapping[str, tuple[Option, ...]] = {
    "problem": PROBLEM,
    "scheme": SCHEME,
    "epilogue": EPILOGUE,
    "order of summation": ORDER,
    "library": LIBRARY,
    "region": REGION,
    "machine": MACHINE,
}


@dataclass(frozen=True, slots=True)
class Declared:
    """One declaration of an option with its owners, as help shows them: "epilogue", "dataflow sm90", "scheme ape"."""

    option: Option
    kind: str
    owners: tuple[str, ...]

    @property
    def default(self) -> str:
        """The default in words; empty where it is left open or false."""
        option = self.option
        is_open = option.default is None or option.default is False
        return option.default_text or ("" if is_open else str(option.default))

    @property
    def text(self) -> str:
        """The meaning, allowed values and default; in brackets the owners, where they are dataflows or schemes."""
        facts = [self.option.limits] if self.option.limits else []
        facts += [f"default: {self.default}"] if self.default else []
        owners = "" if self.owners == (self.kind,) else f" [{', '.join(self.owners)}]"
        beside = f" ({'; '.join(facts)})" if facts else ""
        return f"{self.option.help}{beside}{owners}"


def own_options() -> dict[str, Option]:
    """The options declared in this module, by name."""
    return {option.name: option for options in OWN.values() for option in options}


def declared(more: Iterable[Scheme] = ()) -> list[Declared]:
    """Every declaration of a run's options: this module's, then those of the dataflows, then those of the schemes.

    more: schemes beside those that are registered, such as one of a file.
    Owners that declare an option alike are one entry. Owners that declare it differently have an entry each, and the
    entries of one name stand together.
    """
    entries: dict[str, dict[Option, Declared]] = {}
    for kind, owner, options in _by_owner(more):
        for option in options:
            of_name = entries.setdefault(option.name, {})
            known = of_name.get(option)
            owners = (owner,) if known is None else (*known.owners, owner)
            of_name[option] = Declared(option, kind if known is None else known.kind, owners)
    return [entry for of_name in entries.values() for entry in of_name.values()]


def declared_by_name(more: Iterable[Scheme] = ()) -> dict[str, list[Declared]]:
    """The entries of `declared`, by the option's name."""
    return {name: list(entries) for name, entries in groupby(declared(more), key=lambda entry: entry.option.name)}


def _by_owner(more: Iterable[Scheme]) -> Iterator[tuple[str, str, Iterable[Option]]]:
    """Kind of owner, owner, and what it declares."""
    yield from ((kind, kind, options) for kind, options in OWN.items())
    yield from (("mapping", family, options) for family, options in dataflows().options().items())
    yield from (("scheme", scheme.name, scheme.options) for scheme in (*schemes().values(), *more))


def describe(function: Any, text: str) -> None:
    """Give `function` a docstring that lists every declaration of an option."""
    lines = [text.rstrip(), "", "Options:"]
    lines += [f"    {entry.option.name}: {entry.text}" for entry in declared()]
    function.__doc__ = "\n".join(lines) + "\n"
