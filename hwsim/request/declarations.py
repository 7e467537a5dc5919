"""All options of a GEMM, collected from where each is declared: what `hwsim.run` and the command line accept.

The options of the problem, the epilogue and the machine are declared here; a mapping's by the dataflows, a scheme's by
the schemes. The module knows declarations, no device and no value.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from hwsim.dataflows.registry import dataflows
from hwsim.devices.variants import checked_clock
from hwsim.errors import InputError, nearest
from hwsim.gemm.option_types import (
    ARRAY,
    INDICES,
    MAPPING,
    NAME_OR_FILE,
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
from hwsim.schemes import Scheme, schemes

DEFAULT_SIZE = 1024
MOST_SIZE = 10**9


def _clock(value: Any) -> float:
    try:
        return checked_clock(value)
    except InputError as error:
        raise ValueError(str(error).rpartition("allowed: ")[2]) from None


MHZ = OptionType("own", _clock, NUMBER.parse, "MHZ", "float")
DEFAULT_DEVICE, DEFAULT_SCHEME, AUTO = "ascend910a", "native", "auto"


def _size(name: str, what: str) -> Option:
    return Option(name, WHOLE, None, what, least=1, most=MOST_SIZE, default_text="from the matrices, else 1024")


PROBLEM = (
    _size("m", "rows of A and C"),
    Option(
        "n", WHOLE, None, "columns of B and C", least=1, most=MOST_SIZE, default_text="from the matrices, else 1024"
    ),
    Option(
        "k",
        WHOLE,
        None,
        "columns of A, rows of B",
        least=1,
        most=MOST_SIZE,
        default_text="from the matrices, else 1024",
    ),
    Option(
        "conv",
        MAPPING,
        None,
        "a convolution instead of m, n and k, as an implicit GEMM, with exact=False: channels, height, width, filters, "
        "r, s, and batch, stride, padding, dilation, groups (pairs as JSON)",
    ),
    Option(
        "input_format",
        TEXT,
        None,
        "format of the elements of A and B, where the arrays are codes; with exact=False, of operands of which only "
        "the sizes are known",
        default_text="the arrays'; with exact=False `format`",
    ),
    Option("seed", WHOLE, 0, "seed of random matrices, N(0, 1)", least=0),
)
SCHEME = (
    Option(
        "error_target",
        NUMBER,
        None,
        "with scheme=auto: largest predicted error, relative, Frobenius norm; the fastest such scheme is used",
    ),
    Option(
        "format",
        TEXT,
        None,
        "operand format of schemes that accept native formats",
        default_text="the operands' own if the device has a unit for it, else the device file's default_format",
    ),
)
EPILOGUE = (
    Option("c", ARRAY, None, "C of alpha A B + beta C: (..., m, n), typed, or codes of the output format"),
    Option("alpha", NUMBER, None, "factor of the product", default_text="1"),
    Option("beta", NUMBER, None, "factor of C", default_text="1 where a C is given, else 0"),
    Option("bias", ARRAY, None, "(n,) values, one added to each column"),
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
        MAPPING,
        None,
        "order of summation over K: the fields of hwsim.gemm.schedule.Schedule",
        default_text="one chain in order of K, or the dataflow's",
    ),
)
LIBRARY = (
    Option(
        "library",
        NAME_OR_FILE,
        None,
        "GEMM library whose kernel, order of summation and epilogue are taken, as PyTorch 2.11 calls it; or a file "
        "that `hwsim library record` wrote",
        default_text="none: the device's own order",
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
    Option("exact", TRUTH, True, "compute the bits; false: cycles only, for operands already in `format`"),
    Option("timing", TRUTH, True, "compute the cycles; false: bits only"),
    Option(
        "functional",
        TRUTH,
        None,
        "compute the bits by executing the device's program (true) or by the direct evaluator (false); same bits",
        default_text="the direct evaluator",
    ),
    Option(
        "clock_mhz",
        MHZ,
        None,
        "core clock, for a single run with L2 empty",
        unit="MHz",
        default_text="the device file's; its clock under load in a series of runs, where given",
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
    """One option with its owners, as help shows them: "epilogue", "dataflow sm90", "scheme ape"."""

    option: Option
    kind: str
    owners: tuple[str, ...]


def own() -> dict[str, Option]:
    """The options declared in this module, by name."""
    return {option.name: option for options in OWN.values() for option in options}


def declared() -> list[Declared]:
    """Every option of a run: the ones declared here, then those of the dataflows, then those of the schemes.

    Options of one name that several dataflows or schemes declare are one entry, with the first one's text.
    """
    found = [Declared(option, kind, (kind,)) for kind, options in OWN.items() for option in options]
    taken = {entry.option.name for entry in found}
    found += _merged("mapping", dataflows().options().items(), taken)
    taken |= {entry.option.name for entry in found}
    return found + _merged("scheme", ((x.name, x.options) for x in schemes().values()), taken)


def _merged(kind: str, groups: Iterable[tuple[str, Iterable[Option]]], taken: set[str]) -> list[Declared]:
    found: dict[str, Declared] = {}
    for owner, options in groups:
        for option in options:
            if option.name in taken:
                continue
            known = found.get(option.name)
            owners = (*known.owners, owner) if known is not None else (owner,)
            found[option.name] = Declared(known.option if known is not None else option, kind, owners)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The options that a caller gave, sorted by owner.

    own: all options declared here, validated, with defaults filled in. mapping: options of dataflows, not validated,
    without None. scheme: options of the scheme, not validated.
    """

    own: dict[str, Any]
    mapping: dict[str, Any]
    scheme: dict[str, Any]


def sort_by_owner(given: Mapping[str, Any], scheme: Scheme | None) -> GivenOptions:
    """Sort `given` by owner. scheme: None where scheme="auto" still has to select one.

    Raises InputError for a value that is not allowed and for a name that nobody declares.
    """
    known = _own()
    mapping_names = {option.name for options in dataflows().options().values() for option in options}
    scheme_names = {option.name for option in scheme.options} if scheme is not None else set()
    mine: dict[str, Any] = {}
    mapping: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in given.items():
        if name in known:
            mine[name] = value
        elif name in mapping_names and name not in scheme_names:
            if value is not None:
                mapping[name] = value
        elif scheme is None or name in scheme_names or name in _of_schemes():
            rest[name] = value
        else:
            names = sorted({*known, *mapping_names, *scheme_names})
            own_options = ", ".join(sorted(scheme_names)) or "none"
            raise InputError(
                f"no option {name!r}: scheme {scheme.name} has {own_options}; for the others see `hwsim run --help`"
                f"{nearest(name, names)}"
            )
    checked = {name: option.check(mine.get(name)) for name, option in known.items()}
    return GivenOptions(checked, mapping, rest)


@cache
def _own() -> dict[str, Option]:
    """`own`, made once."""
    return own()


def _of_schemes() -> set[str]:
    return {option.name for scheme in schemes().values() for option in scheme.options}


def describe(function: Any, text: str) -> None:
    """Give `function` a docstring and a signature with every option there is, from the declarations."""
    entries = declared()
    lines = [text.rstrip(), "", "Options (hwsim.request.declarations):"]
    for entry in entries:
        option = entry.option
        default = option.default_text or ("" if option.default is None else str(option.default))
        said = f" (default: {default})" if default else ""
        who = "" if entry.kind in OWN else f" [{', '.join(entry.owners)}]"
        lines.append(f"    {option.name}: {option.help}{said}{who}")
    function.__doc__ = "\n".join(lines) + "\n"
    signature = inspect.signature(function)
    positional = [x for x in signature.parameters.values() if x.kind is not inspect.Parameter.VAR_KEYWORD]
    rest = [x for x in signature.parameters.values() if x.kind is inspect.Parameter.VAR_KEYWORD]
    shown = {x.name for x in positional}
    more = [
        inspect.Parameter(
            entry.option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=entry.option.default,
            annotation=entry.option.type.annotation,
        )
        for entry in entries
        if entry.option.name not in shown
    ]
    function.__signature__ = signature.replace(parameters=[*positional, *more, *rest])
