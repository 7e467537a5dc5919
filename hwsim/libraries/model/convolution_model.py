"""The schema of a file on kernels of convolutions: how each adds over K, and where the file of choices is.

It knows names of kernels and rules; not what follows from them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hwsim.datafiles.base import Name, NameList, StrictRecord

Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_*]+$")]
Patterns = Annotated[tuple[Pattern, ...], Field(min_length=1)]
KOrder = Literal["rsc", "crs"]
SumRule = Literal["in_order", "rest_first", "interleaved", "blocks", "dealt", "segments", "unknown"]


class KernelSumsModel(StrictRecord):
    """How kernels of these names (patterns as of fnmatch) add over K.

    k_order: "rsc": K runs over the filter's rows, their columns, then channels; "crs": over channels first. operand,
    instruction: of the products; None: the call's format, the unit's own.

    rule: "in_order": all of K as one chain. "rest_first": the rest of K before whole tiles. "interleaved": of every two
    instructions' elements of K, each instruction takes every other quarter of its own length. "blocks": blocks of
    channels as long as the tile's K, in each the filter's elements in turn. "dealt": such blocks, dealt out to the
    slices in turn, which are added in order. "segments": neighbouring blocks to each slice, added in pairs.
    """

    names: Patterns
    rule: SumRule
    k_order: KOrder = "rsc"
    operand: Name | None = None
    instruction: Name | None = None


class ChoicesModel(StrictRecord):
    """The file of choices: a decision tree for each direction and format."""

    file: Name


class ConvolutionKernels(StrictRecord):
    """Kernels of convolutions of a version of a library. devices: chips on which it was asked. families: of chips for
    which its choices are assumed. right: by format, the share of calls that the choices were not fitted to whose order
    of summation is right. ties_away: kernels that round fp32 operands to TF32 with ties away from zero.
    """

    schema_version: Literal[1]
    library: Name
    version: Name
    choices: ChoicesModel
    devices: NameList
    families: NameList
    right: dict[Name, float]
    ties_away: Patterns
    kernels: Annotated[dict[Name, KernelSumsModel], Field(min_length=1)]
