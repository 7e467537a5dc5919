"""What a search is asked for: options of `hwsim.run` that are of the problem, and settings of the mapping that stay.

It knows the options' declarations and plans; it times nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.options import LAYOUT_OPTIONS, TILE_OPTION
from hwsim.errors import InputError
from hwsim.gemm.problem import Problem
from hwsim.request.declarations import LIBRARY, own_options
from hwsim.request.operands import scales_of_scheme
from hwsim.request.options import sort_by_owner
from hwsim.resolve.planning import plan_for

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.gemm.planned import Planned
    from hwsim.gemm.problem import OperandScale
    from hwsim.schemes import Scheme

#: Options of hwsim.run that a search takes, beside those of the mapping and the scheme.
TAKEN = ("m", "n", "k", "batch", "format", "input_format", "output")
#: Options of hwsim.run that a search does not take.
UNTAKEN = tuple(name for name in own_options() if name not in TAKEN)


#: Options of a library's call, whose kernel may stand beside a search.
OF_LIBRARY = tuple(option.name for option in LIBRARY)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneCall:
    """A search's problem: sizes m, n and k, the stack's leading dimensions, the plan, the format of C (None: the
    plan's), scales of A and B, and the options of the mapping that stay as given. of_run: the options of hwsim.run by
    name, with the format in memory, that all configurations share.
    """

    sizes: tuple[int, int, int]
    lead: tuple[int, ...]
    planned: Planned
    output: str | None
    scales: tuple[OperandScale | None, OperandScale | None]
    fixed: Mapping[str, Any]
    of_run: Mapping[str, Any]


def tune_call(chip: Device, scheme: Scheme, options: Mapping[str, Any]) -> TuneCall:
    """The problem of a search. options: m, n, k, and options of hwsim.run by name.

    Raises InputError for an option that a search does not take, and as hwsim.run for its value.
    """
    asked = {name: value for name, value in options.items() if value is not None}
    for name in (*UNTAKEN, TILE_OPTION.name):
        if name in asked:
            instead = f"{name}=" if name == TILE_OPTION.name else name
            raise InputError(f"{name}: a search does not take it; hwsim.run with {instead} times one configuration")
    sorted_options = sort_by_owner(asked, scheme)
    problem, named = sorted_options.problem, sorted_options.scheme.format
    sizes = problem.m or 0, problem.n or 0, problem.k or 0
    in_memory = problem.input_format or named or "fp32"
    planned = plan_for(chip, scheme.bare, Problem.of(in_memory, *sizes), named, sorted_options.of_scheme)
    return TuneCall(
        sizes=sizes,
        lead=() if problem.batch is None else (problem.batch,),
        planned=planned,
        output=sorted_options.epilogue.output,
        scales=scales_of_scheme(scheme),
        fixed=sorted_options.mapping.values,
        of_run=asked if scheme.quantizes is not None else asked | {"input_format": in_memory},
    )


def library_options(options: Mapping[str, Any], call: TuneCall) -> dict[str, Any]:
    """The options of a search that a library's call for its problem has, too: all but settings of the mapping."""
    return {name: value for name, value in options.items() if name not in call.fixed or name in LAYOUT_OPTIONS}
