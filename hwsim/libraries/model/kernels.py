"""The library model: the validated schema of a library file, with kernels, split-K rules and observations on chips.

Numbers are plain values here; where each comes from is kept separately, by path (`Library.evidence`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from hwsim.datafiles.base import Name, NameList, SourcedFile, StrictRecord
from hwsim.datafiles.provenance import Level

Extent = tuple[PositiveInt, PositiveInt]


class KernelModel(StrictRecord):
    """One GEMM kernel: its CTA tile, warp tile and stages, and the conditions under which the library uses it.

    tile: m, n of C, elements. k_bytes: bytes of K per stage and row of an operand. warp: m, n of the warp tile; the CTA
    tile is a multiple of it. accumulators: 2 where the epilogue of a tile overlaps the next tile's main loop (two CTAs
    per SM, two consumer warp groups in ping-pong, two halves of TMEM). stages: of shared memory (None: as many as fit).
    cta_group: number of CTAs, one tile each in a column, whose matrix units multiply together (cta_group::2).
    Conditions, all of which must hold. max_waves: the grid has at most so many waves; max_k: K is at most so long,
    elements; mn_major: an operand is MN-major while the instruction needs K-major ones (None: either).
    """

    tile: Extent
    k_bytes: PositiveInt
    warp: Extent
    accumulators: Literal[1, 2] = 1
    stages: PositiveInt | None = None
    cta_group: PositiveInt = 1
    max_waves: PositiveInt | None = None
    max_k: PositiveInt | None = None
    mn_major: bool | None = None

    @model_validator(mode="after")
    def _whole_warps(self) -> KernelModel:
        if any(extent % part for extent, part in zip(self.tile, self.warp, strict=True)):
            tile, warp = ("x".join(map(str, extent)) for extent in (self.tile, self.warp))
            message = f"tile {tile} is not made of whole warps of {warp}; allowed: multiples of the warp's m and n"
            raise PydanticCustomError("rule", message)
        return self


class KernelGroup(StrictRecord):
    """Kernels built on the same instruction.

    engine: "matrix": the matrix unit, an operand may be read from shared memory; "registers": the matrix unit, operands
    only from registers; "lanes": the vector unit. bits: operand widths that they are for, by the wider operand (empty:
    all). instruction: the instruction, as the library's kernel names give it.
    """

    engine: Literal["matrix", "registers", "lanes"]
    bits: tuple[PositiveInt, ...] = ()
    instruction: str = ""
    rows: Annotated[dict[Name, KernelModel], Field(min_length=1)]


class SplitKModel(StrictRecord):
    """The library's rules for split-K where the number of slices is left to an estimate.

    counts: numbers of slices that it considers, ascending. min_slice: minimum length of a slice, elements of K.
    advise_below: estimated time with split-K over that without, below which a run without split-K gives advice.
    """

    counts: tuple[PositiveInt, ...]
    min_slice: PositiveInt
    advise_below: Annotated[float, Field(gt=0, le=1)]

    @model_validator(mode="after")
    def _ascending(self) -> SplitKModel:
        if self.counts[:1] != (1,) or list(self.counts) != sorted(set(self.counts)):
            raise PydanticCustomError("rule", "counts ascend from 1, each once")
        return self


class InOrderModel(StrictRecord):
    """The range of GEMMs of one operand format that were all observed to run as one chain in order of K by the native
    instruction.

    outputs: formats of D, without C; with_c: with C, and alpha and beta other than 1 and 0. least, most: bounds of m, n
    and k. row_bytes: rows of A (k long) and of B (n long) are multiples of it; k_multiple: K is. tiles: C has at least
    so many tiles of 128 x 128, or K is at most short_k. longest_k: the largest K. promoted_k: the same holds with
    promotion of the partial sum every so many k.
    """

    outputs: NameList
    with_c: tuple[Name, ...] = ()
    least: PositiveInt
    most: PositiveInt
    row_bytes: PositiveInt
    k_multiple: PositiveInt | None = None
    tiles: PositiveInt
    short_k: PositiveInt | None = None
    longest_k: PositiveInt | None = None
    promoted_k: PositiveInt | None = None


class ObservationModel(StrictRecord):
    """What was observed of the library on one chip. What is absent is assumed.

    in_order: by operand format. slice_multiple: with split-K, slice lengths are multiples of it. split_k_instructions:
    by operand format, the instruction of kernels that leave the reduction of slices to another kernel, where it is not
    the chip's native one; the bits are the same. tile_counter_us: time of a memset before kernels with more than
    tile_counter_tiles tiles per core.
    """

    in_order: dict[Name, InOrderModel] = {}
    slice_multiple: PositiveInt
    split_k_instructions: dict[Name, Name] = {}
    tile_counter_us: Annotated[float, Field(ge=0)] | None = None
    tile_counter_tiles: PositiveInt | None = None


class CallRuleModel(StrictRecord):
    """Which kernels a call runs, where the library was not asked: the first rule that fits holds.

    operands: formats that it is for. row_bytes: rows of A, B and D are multiples of it in memory. accumulate: of 8-bit
    floats, what the rule is for (empty: all). algorithm: cuBLASLt's number of the kernels, which says how they add over
    K (`families` of its sums file); sliced_algorithm: where K is in slices (None: the same). name: of the
    kernels, where it is another one than that algorithm's on Hopper. tile_k: K of a stage, elements; 0: one that the
    kernels' names leave out; None: that of the estimated tile. in_slices: may K be cut. slice_tiles: a slice has more
    than so many tiles of K of 128 bytes.
    """

    operands: Annotated[NameList, Field(min_length=1)]
    row_bytes: PositiveInt = 1
    accumulate: tuple[Literal["fast", "promoted"], ...] = ()
    algorithm: PositiveInt
    sliced_algorithm: PositiveInt | None = None
    name: str = ""
    tile_k: Annotated[int, Field(ge=0)] | None = None
    in_slices: bool = True
    slice_tiles: PositiveInt | None = None


class CallsModel(StrictRecord):
    """What calls of a library run on chips with these kernels, where it was not asked
    (hwsim.libraries.cublas.answers.estimated).

    library, version: whose calls. needs: instructions, one of which a chip has that this version runs on (empty: all
    do); needs_text: what that means. rules: by name, in order. sliced_batches: may K be cut in batches. Where kernels
    add over K as on Hopper (cuBLASLt's numbers mean the same), but: promotes: are 8-bit floats without fast
    accumulation closed every 128 of K. known_options, open_options: custom options of matrix-vector kernels whose order
    is known here (None: those that are on Hopper), and those of one lane whose sum is not closed. published: what is
    published of the order of sums there, in words.
    """

    library: Name
    version: str
    needs: tuple[Name, ...] = ()
    needs_text: str = ""
    rules: Annotated[dict[Name, CallRuleModel], Field(min_length=1)]
    sliced_batches: bool = True
    promotes: bool = True
    known_options: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    open_options: tuple[Annotated[int, Field(ge=0)], ...] = ()
    published: str = ""


class Library(SourcedFile):
    """One GEMM library: its kernels, rules and observations. Raises ConfigError (from the loader) for invalid data.

    families: dataflow families (hwsim.dataflows) that its kernels are written for. devices: where they were seen to run
    (empty: nowhere, they are assumed). kernels: groups, in order of preference among equals. calls: what calls of a
    library run by such kernels, where its choices are not known (None: nothing is said of any). observations: by the
    name under which a device file refers to them.
    """

    schema_version: Literal[1]
    name: Name
    title: str
    version: str = ""
    families: NameList
    devices: tuple[Name, ...] = ()
    kernels: Annotated[dict[Name, KernelGroup], Field(min_length=1)]
    split_k: SplitKModel
    calls: CallsModel | None = None
    observations: dict[Name, ObservationModel] = {}

    @cached_property
    def _levels(self) -> dict[str, Level]:
        return {}

    def level(self, path: str) -> Level:
        """The weakest evidence level of the numbers at or below a dotted path. Raises KeyError where there are none."""
        if path not in self._levels:
            below = [about.evidence for at, about in self.evidence.items() if at == path or at.startswith(f"{path}.")]
            if not below:
                raise KeyError(f"no number under {path}")
            self._levels[path] = max(below, key=list(Level).index)
        return self._levels[path]


__all__ = [
    "CallRuleModel",
    "CallsModel",
    "InOrderModel",
    "KernelGroup",
    "KernelModel",
    "Library",
    "ObservationModel",
    "SplitKModel",
]
