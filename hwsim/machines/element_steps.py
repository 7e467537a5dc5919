"""The record of one instruction that made an element: its operands, and the element before and after.

It knows formats and names; it knows no program and computes no bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hwsim.formats import decode, format_of


@dataclass(frozen=True, slots=True)
class CodedValue:
    """The code of an element in a format. `float()` gives its value."""

    format: str
    code: int

    @property
    def value(self) -> float | int:
        """The number that the code stands for: an integer in integer formats, else a float."""
        fmt = format_of(self.format)
        exact = decode(fmt, self.code)
        if exact.kind != "finite":
            return math.copysign(math.inf if exact.kind == "infinity" else math.nan, -1.0 if exact.sign else 1.0)
        if fmt.is_integer:
            return int(exact.fraction)
        return math.copysign(float(exact.fraction), -1.0 if exact.sign else 1.0)

    @property
    def hex(self) -> str:
        """The code as hexadecimal text with all its digits: 0x3c00."""
        return f"0x{self.code:0{-(-format_of(self.format).bits // 4)}x}"

    def __float__(self) -> float:
        return float(self.value)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the value, the code as text, the format."""
        return {"value": self.value, "code": self.hex, "format": self.format}


class ExecutedInstr(NamedTuple):
    """Which execution of which instruction. kernel: its number in the program. instr: the instruction's number in the
    kernel, as in a trace. turn: how often this core has executed it before.
    """

    kernel: int
    core: int
    instr: int
    turn: int


NOT_EXECUTED = ExecutedInstr(-1, -1, -1, 0)  # of a record that no machine made


@dataclass(frozen=True, slots=True)
class ElementStep:
    """One executed instruction that made an element of C.

    device: as a command takes it. kernel, core: where it ran. engine, opcode: as in the program. instruction: the
    device's name of the matrix instruction, None for other opcodes. operands: by role (hwsim.program.roles). Of mma: a
    and b, tuples of the row's and the column's elements, at most the instruction's K of each; scale_a and scale_b,
    tuples of the scales of their blocks; and accumulator. Of reductions source is a tuple. place: the buffer, or the
    array of global memory, and its slot, row and column that the element was written to. before: what the element's
    instructions last left in
    that place; None where they had left nothing. after: what this one left. scale_d: the accumulator, or the left
    operand of an addition, counted times 2^-scale_d; of scale, ldexp and extract the program's scale_exponent. scalar:
    of scale, fill, fma and ldexp. rounding: of cast. executed: where it stands in the program's execution.
    """

    device: str
    kernel: str
    core: int
    engine: str
    opcode: str
    instruction: str | None
    operands: Mapping[str, CodedValue | tuple[CodedValue, ...]]
    place: str
    before: CodedValue | None
    after: CodedValue
    scale_d: int = 0
    scalar: float | None = None
    rounding: str | None = None
    executed: ExecutedInstr = NOT_EXECUTED

    @property
    def command(self) -> str | None:
        """The command that shows a matrix instruction stage by stage; None for other opcodes."""
        if self.instruction is None:
            return None
        words = ["hwsim explain", self.device, self.instruction]
        flags = {"accumulator": "--c"}
        for role, operand in self.operands.items():
            flag = flags.get(role, f"--{role.replace('_', '-')}")
            codes = operand if isinstance(operand, tuple) else (operand,)
            words += [flag, ",".join([x.hex for x in codes])]
        words += ["--scale-d", str(self.scale_d)] if self.scale_d else []
        return " ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON once infinities and NaNs are replaced."""
        operands = {
            role: [x.to_dict() for x in operand] if isinstance(operand, tuple) else operand.to_dict()
            for role, operand in self.operands.items()
        }
        names = ("kernel", "core", "engine", "opcode", "instruction", "place", "scale_d", "scalar", "rounding")
        return {
            **{name: getattr(self, name) for name in names},
            "operands": operands,
            "before": None if self.before is None else self.before.to_dict(),
            "after": self.after.to_dict(),
            "command": self.command,
        }
