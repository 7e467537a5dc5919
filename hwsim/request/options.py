"""The options that a caller gave, sorted by owner: a frozen record each, from names and values to types.

It knows declarations; it knows no device, no array's contents and no plan. Behind it nothing looks options up by name
but their owners: the scheme and the dataflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwsim.dataflows.options import A_LAYOUT, B_LAYOUT
from hwsim.dataflows.registry import dataflows
from hwsim.errors import InputError, nearest
from hwsim.request.declarations import OWN
from hwsim.request.option_records import (
    EpilogueOptions,
    LibraryOptions,
    MachineOptions,
    OrderOptions,
    ProblemOptions,
    RegionOptions,
    SchemeOptions,
)
from hwsim.request.values import with_program
from hwsim.schemes import Scheme, schemes

#: The owners of declarations: the field of CallOptions, the record, and the options.
RECORDS = tuple(
    (kind.split()[0], record, OWN[kind])
    for kind, record in (
        ("problem", ProblemOptions),
        ("scheme", SchemeOptions),
        ("epilogue", EpilogueOptions),
        ("order of summation", OrderOptions),
        ("library", LibraryOptions),
        ("region", RegionOptions),
        ("machine", MachineOptions),
    )
)
DEFAULTS: Mapping[str, Any] = {field: record() for field, record, _ in RECORDS}
OWNERS = {option.name: field for field, _, options in RECORDS for option in options}
FORMAT = "format"  # of the scheme, and declared for all schemes
FORMAT_B = "format_b"  # of schemes that multiply two formats
INPUT_FORMAT = "input_format"


@dataclass(frozen=True, slots=True)
class MappingOptions:
    """The options of a dataflow that a caller gave, without None. The dataflow checks their values."""

    values: Mapping[str, Any]

    @property
    def layouts(self) -> tuple[str, str]:
        """The storage orders of A and B."""
        a, b = (self.values.get(option.name) or "rows" for option in (A_LAYOUT, B_LAYOUT))
        return str(a), str(b)


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of one call by owner. of_scheme: the scheme's own ones that were given; the scheme checks them."""

    problem: ProblemOptions
    scheme: SchemeOptions
    epilogue: EpilogueOptions
    order: OrderOptions
    library: LibraryOptions
    region: RegionOptions
    machine: MachineOptions
    mapping: MappingOptions
    of_scheme: Mapping[str, Any]

    @property
    def is_of_a_part(self) -> bool:
        """Whether a part of the result is asked for, or the operands are a part of a product's."""
        region = self.region
        return any(part is not None for part in (region.rows, region.cols, region.shape, region.at))


def sort_by_owner(values: Mapping[str, Any], scheme: Scheme | None) -> CallOptions:
    """Sort `values` by owner. scheme: None where scheme="auto" still has to select one.

    Raises InputError for a value that is not allowed, for a name that nobody declares, and for an option that the
    scheme's object has, too.
    """
    plain = _with_operands({name: value for name, value in values.items() if name in OWNERS}, scheme)
    mapping, rest = _of_owners({name: value for name, value in values.items() if name not in OWNERS}, scheme)
    if scheme is not None and scheme.values:
        plain, rest = _with_carried(scheme, plain, rest)
    records, asked = dict(DEFAULTS), {OWNERS[name] for name in plain}
    for field, record, options in RECORDS:
        if field in asked:
            records[field] = record(**{option.name: option.check(plain.get(option.name)) for option in options})
    records["machine"] = with_program(records["machine"])
    return CallOptions(mapping=MappingOptions(mapping), of_scheme=rest, **records)


def _with_operands(plain: dict[str, Any], scheme: Scheme | None) -> dict[str, Any]:
    """The options with a format that the scheme has no choice of as the operands' format.

    Raises InputError where that is none of several that it takes, or input_format is another one.
    """
    asked, named = plain.get(FORMAT), plain.get(INPUT_FORMAT)
    if scheme is None or asked is None or scheme.has_choice_of_format:
        return plain
    if not scheme.takes_operands_of(asked):
        if len(scheme.input_formats) > 1 and scheme.quantizes is None:
            taken = ", ".join(scheme.input_formats)
            raise InputError(f"format = {asked!r}: of scheme {scheme.name} it is the operands'; allowed: {taken}")
        return plain
    if named not in (None, asked):
        raise InputError(
            f"format = {asked!r} beside input_format = {named!r}: of scheme {scheme.name} both are the operands' "
            "format; leave one out"
        )
    return plain | {FORMAT: None, INPUT_FORMAT: asked}


def _of_owners(values: Mapping[str, Any], scheme: Scheme | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of dataflows, and of the scheme. Raises InputError for a name that nobody declares."""
    mapping: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    if not values:  # looking for dataflows takes longer than most calls need
        return mapping, rest
    of_mapping = {option.name for options in dataflows().options().values() for option in options}
    of_this_scheme = {option.name for option in scheme.options} if scheme is not None else set()
    for name, value in values.items():
        if name in of_mapping and name not in of_this_scheme:
            if value is not None:
                mapping[name] = value
        elif scheme is None or name in of_this_scheme or name in _of_schemes():
            rest[name] = value
        else:
            names = sorted({*OWNERS, *of_mapping, *of_this_scheme})
            has = ", ".join(sorted(of_this_scheme)) or "none"
            raise InputError(
                f"no option {name!r}: scheme {scheme.name} has {has}; for the others see `hwsim run --help-all`"
                f"{nearest(name, names)}"
            )
    return mapping, rest


def _with_carried(scheme: Scheme, plain: dict[str, Any], rest: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both, with the options that the scheme's object carries."""
    twice = [name for name in scheme.values if plain.get(name) is not None or rest.get(name) is not None]
    if twice:
        raise InputError(f"{', '.join(twice)}: the object of scheme {scheme.name} says it, too; leave one out")
    carried = dict(scheme.values)
    of_all = {FORMAT: carried.pop(FORMAT)} if FORMAT in carried else {}
    return plain | of_all, rest | carried


def option_names() -> set[str]:
    """The names of the options of all owners: calls, dataflows and schemes."""
    return {*OWNERS, *_of_schemes(), *(option.name for options in dataflows().options().values() for option in options)}


def _of_schemes() -> set[str]:
    return {option.name for scheme in schemes().values() for option in scheme.options}
