"""What each opcode reads, by role: an instruction's operands have names. The module knows opcodes; it knows no tile, no
device and no arithmetic.

An instruction reads the required operands of its opcode in the order of the table. Those of its optional ones that it
names follow. Immediates are numbers in the instruction itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, TypeVar

from hwsim.errors import ProgramError

Opcode = Literal[
    "copy",
    "mma",
    "cast",
    "add",
    "sub",
    "mul",
    "scale",
    "fill",
    "sync",
    "fma",
    "add_row",
    "ldexp",
    "extract",
    "exponent",
    "reduce_add",
    "reduce_max",
    "remainder",
    "places",
    "select",
    "mask",
    "reduce_largest",
    "reduce_lanes",
    "reduce_meet",
    "reduce_row",
    "halve_below",
    "square_below",
    "choose_above",
    "ex2_cubic",
    "or_zero",
    "or_one",
    "reciprocal",
    "divide",
    "log",
    "ex2",
    "lg2",
    "rcp",
    "exp",
]
KAxis = Literal["rows", "columns"]
_Operand = TypeVar("_Operand")


@dataclass(frozen=True, slots=True)
class Roles:
    """The operands of an opcode. required, optional: roles of the tiles that it reads. in_place: role of the tile that
    it writes, where it reads that too. immediates: by role, the field of the instruction with the number. writes: tiles
    that it writes.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    in_place: str | None = None
    immediates: Mapping[str, str] = field(default_factory=dict)
    writes: int = 1


_BINARY = ("left", "right")
ROLES: Mapping[Opcode, Roles] = MappingProxyType(
    {
        "copy": Roles(("source",)),
        "mma": Roles(
            ("a", "b"),
            ("scale_a", "scale_b", "metadata"),
            in_place="accumulator",
            immediates={"scale_d": "scale_exponent"},
        ),
        "cast": Roles(("source",)),
        "add": Roles(_BINARY, immediates={"scale_left": "scale_exponent"}),
        "sub": Roles(_BINARY),
        "mul": Roles(_BINARY),
        "scale": Roles(("source",), immediates={"factor": "scalar", "shift": "scale_exponent"}),
        "fill": Roles(immediates={"value": "scalar"}),
        "sync": Roles(writes=0),
        "fma": Roles(_BINARY, ("multiplier",), immediates={"factor": "scalar"}),
        "add_row": Roles(("left", "row")),
        "ldexp": Roles(("source", "exponent"), immediates={"factor": "scalar", "shift": "scale_exponent"}),
        "extract": Roles(("source",), immediates={"first_bit": "scale_exponent"}),
        "exponent": Roles(("source",)),
        "reduce_add": Roles(("source", "total")),
        "reduce_max": Roles(("source", "total")),
        "remainder": Roles(("source",), immediates={"modulus": "scale_exponent"}),
        "places": Roles(("source",), immediates={"bound": "scalar", "of_largest": "scale_exponent"}),
        "select": Roles(("condition", *_BINARY)),
        "mask": Roles(("source", "index", "limit"), immediates={"otherwise": "scalar"}),
        "reduce_largest": Roles(("source", "total")),
        "reduce_lanes": Roles(("source", "total")),
        "reduce_meet": Roles(("source",), immediates={"first_partner": "scale_exponent"}),
        "reduce_row": Roles(("source", "total")),
        "halve_below": Roles(("source",), immediates={"bound": "scalar"}),
        "square_below": Roles(("source", "argument"), immediates={"bound": "scalar"}),
        "choose_above": Roles(("argument", *_BINARY), immediates={"bound": "scalar"}),
        "ex2_cubic": Roles(("source",)),
        "or_zero": Roles(("source",)),
        "or_one": Roles(("source",)),
        "reciprocal": Roles(("source",)),
        "divide": Roles(_BINARY),
        "log": Roles(("source",)),
        "ex2": Roles(("source",)),
        "lg2": Roles(("source",)),
        "rcp": Roles(("source",)),
        "exp": Roles(("source",)),
    }
)
OPCODES: tuple[Opcode, ...] = tuple(ROLES)

#: Along what K runs in the operands of a matrix instruction.
K_AXES: Mapping[str, KAxis] = MappingProxyType(
    {"a": "columns", "b": "rows", "scale_a": "columns", "scale_b": "rows", "metadata": "columns"}
)


@lru_cache(maxsize=1024)
def roles_of(opcode: Opcode, optional: tuple[str, ...]) -> tuple[str, ...]:
    """The roles of the tiles that an instruction reads, in order. optional: those that it names."""
    return (*ROLES[opcode].required, *optional)


def in_order(opcode: Opcode, operands: Mapping[str, _Operand]) -> tuple[tuple[_Operand, ...], tuple[str, ...]]:
    """Operands by role as `reads` and `optional` of an instruction.

    Raises ProgramError for a role that is missing, or that the opcode does not have.
    """
    roles = ROLES[opcode]
    optional = tuple([role for role in roles.optional if role in operands])
    known = (*roles.required, *optional)
    if len(known) != len(operands) or any(role not in operands for role in known):
        raise ProgramError(
            f"{opcode} with operands {', '.join(operands) or 'none'}; it needs {', '.join(roles.required) or 'none'}"
            + (f"; allowed beside: {', '.join(roles.optional)}" if roles.optional else "")
        )
    return tuple([operands[role] for role in known]), optional
