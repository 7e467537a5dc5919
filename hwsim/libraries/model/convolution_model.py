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
SumRule = Literal["in_order", "one_tap", "rest_first", "interleaved", "blocks", "dealt", "segments", "lanes", "unknown"]
SliceOrder = Literal["ascending", "descending", "pairwise", "last_first"]


class KernelSumsModel(StrictRecord):
    """How kernels of these names (patterns as of fnmatch) add over K. Channels: those that K runs over, the filters of
    a group for the gradient of the images; of weights, K is images, rows and columns of pixels, all of them "channels".

    k_order: "rsc": K runs over the filter's rows, their columns, then channels; "crs": over channels first. backwards:
    the filter's elements from the last to the first (gradient of the images). operand, instruction: of the products;
    None: the call's format, the unit's own.

    rule: "in_order": all of K as one chain. "one_tap": the same, where one element of the filter meets a pixel; of
    several the order is not known. "rest_first": the rest of K before whole tiles. "interleaved": of every two
    instructions' elements of K, each instruction takes every other quarter of its own length. "blocks": blocks of
    channels as long as the tile's K, in each the filter's elements in turn. "dealt": such blocks, dealt out to the
    slices in turn. "segments": neighbouring stages (a block of one element of the filter) to each slice, as many to
    each; the last slices take the rest. "lanes": each of 32 lanes takes every 32nd element of K, lanes are added in
    halves. slice_order: how slices are added; "last_first": the last, then the others in order. warps: equal parts of
    each block, each a sum of its own, added in order.
    """

    names: Patterns
    rule: SumRule
    k_order: KOrder = "rsc"
    backwards: bool = False
    slice_order: SliceOrder = "ascending"
    warps: Annotated[int, Field(ge=1)] = 1
    operand: Name | None = None
    instruction: Name | None = None


class ChoicesModel(StrictRecord):
    """The file of choices: decision trees that vote, for each direction and format."""

    file: Name


class PointwiseModel(StrictRecord):
    """Convolutions that are products of matrices: of 1 x 1 filters without stride and padding, images stored pixel by
    pixel, in one group. The library of products chooses their kernels. workspace_bytes: what it may use. formats: for
    which this holds.
    """

    workspace_bytes: int
    formats: NameList


class ConvolutionKernels(StrictRecord):
    """Kernels of convolutions of a version of a library. devices: chips on which it was asked. families: of chips for
    which its choices are assumed. ties_away: kernels that round fp32 operands to TF32 with ties away from zero;
    truncating: towards zero.
    """

    schema_version: Literal[1]
    library: Name
    version: Name
    choices: ChoicesModel
    devices: NameList
    families: NameList
    pointwise: PointwiseModel
    ties_away: Patterns
    truncating: Patterns
    kernels: Annotated[dict[Name, KernelSumsModel], Field(min_length=1)]
