"""The instructions by which a device computes the products of a plan: which, with what formats, and what fits together.

The module knows plans and devices. It computes nothing, and knows no K and no schedule but the instruction it asks for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from hwsim.devices import dot_spec, find, instruction_taking
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.plan import SIDES
from hwsim.numerics.units import DotSpec
from hwsim.operands.operand import Operand

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.devices.model import InstructionModel
    from hwsim.evaluate.split import Pieces
    from hwsim.gemm.plan import Plan, Side, Stage, Term

MOST_UNITS = 512  # whose continued form is remembered


@dataclass(frozen=True, slots=True, eq=False)
class ProductInstruction:
    """The instruction of one product. spec: its dot unit and formats. continued: the same, where a chain goes on: its
    accumulator has the format of its results. model: its row of the device file.
    """

    name: str
    spec: DotSpec
    continued: DotSpec
    model: InstructionModel


@dataclass(frozen=True, slots=True, eq=False)
class ProductInstructions:
    """The instructions of all products of one plan on one device.

    by_formats: by the formats of the pieces of A and B. wider: by side, the formats of pieces that an instruction takes
    as wider ones, with these. Products by one instruction have one object.
    """

    plan: Plan
    device: Device
    by_formats: Mapping[tuple[str, str], ProductInstruction]
    wider: Mapping[Side, Mapping[str, str]]

    @property
    def names(self) -> list[str]:
        """Names of the instructions, starting with that of the first product."""
        return list(dict.fromkeys(instruction.name for instruction in self.by_formats.values()))

    def of(self, product: tuple[int, int]) -> ProductInstruction:
        """The instruction of a product: of piece i of A and piece j of B."""
        i, j = product
        return self.by_formats[self.plan.a_pieces[i].format, self.plan.b_pieces[j].format]

    def spec(self, term: Term) -> DotSpec:
        """The dot unit and formats of a term's first product; the term's results are in its format d."""
        return self.of(term.products[0]).spec

    def step(self, term: Term) -> int:
        """The K of one instruction of a term."""
        return self.of(term.products[0]).model.k

    def taken(self, side: Side, of_plan: Pieces, backend: Backend) -> Pieces:
        """The pieces in the formats that the instructions take: an instruction asked for may be for wider floats."""
        wide = self.wider[side]
        if not wide:
            return of_plan
        pieces = self.plan.a_pieces if side == "a" else self.plan.b_pieces
        codes = tuple(
            Operand(codes, piece.format).converted(wide.get(piece.format, piece.format), backend).codes
            for codes, piece in zip(of_plan.codes, pieces, strict=True)
        )
        return dataclasses.replace(of_plan, codes=codes)


def instructions_of(plan: Plan, device: Device, wanted: str | None = None) -> ProductInstructions:
    """The instructions of a plan's products. wanted: the schedule's instruction.

    Raises UnsupportedError where the device lacks an instruction for a product, or scale-input-d, or where one
    accumulator would take unlike results.
    """
    by_formats: dict[tuple[str, str], ProductInstruction] = {}
    by_name: dict[str, ProductInstruction] = {}
    for term in plan.terms:
        for i, j in term.products:
            pair = (plan.a_pieces[i].format, plan.b_pieces[j].format)
            if pair not in by_formats:
                name = instruction_taking(device, *pair, wanted)
                by_formats[pair] = by_name[name] = by_name.get(name) or _instruction(device, name)
    wider: dict[Side, Mapping[str, str]] = {
        side: {
            pair[index]: taken
            for pair, instruction in by_formats.items()
            if (taken := (instruction.spec.a, instruction.spec.b)[index]) != pair[index]
        }
        for index, side in enumerate(SIDES)
    }
    instructions = ProductInstructions(plan, device, by_formats, wider)
    for term in plan.terms:
        _check(instructions, term)
    return instructions


def _instruction(device: Device, name: str) -> ProductInstruction:
    model = find(device, name)
    assert model is not None
    spec = dot_spec(device, name)
    return ProductInstruction(name, spec, spec if spec.c == spec.d else _continued(spec), model)


@lru_cache(MOST_UNITS)
def _continued(spec: DotSpec) -> DotSpec:
    """The unit with its result format as the accumulator's. Repeated calls return one object, by which backends may
    remember what they made of it.
    """
    return dataclasses.replace(spec, c=spec.d)


def _check(instructions: ProductInstructions, term: Term) -> None:
    scheme = instructions.plan.scheme
    taken = [instructions.of(product) for product in term.products]
    if len({(instruction.spec.d, instruction.model.k) for instruction in taken}) != 1:
        names = ", ".join(sorted({instruction.name for instruction in taken}))
        raise UnsupportedError(
            f"scheme {scheme}: one accumulator takes the results of instructions with unlike results or K: {names}"
        )
    for stage in term.stages:
        _check_scale(instructions, stage)
        if stage.interleave is not None and stage.interleave % taken[0].model.k:
            raise InputError(
                f"scheme {scheme}: interleave = {stage.interleave}; allowed: multiples of {taken[0].model.k}, the K of "
                f"{taken[0].name}"
            )


def _check_scale(instructions: ProductInstructions, stage: Stage) -> None:
    """Raise UnsupportedError where the unit does not scale its accumulator as the stage says."""
    first = instructions.of(stage.products[0])
    most = first.model.scale_input_d
    if stage.scale_exponent > (most or 0):
        has = f"up to 2^-{most}" if most else "not at all"
        raise UnsupportedError(
            f"scheme {instructions.plan.scheme}: the unit must scale its accumulator by 2^-{stage.scale_exponent} "
            f"(scale_input_d); instruction {first.name} of {instructions.device.name} does so {has}"
        )
