"""The library model: the kernels of a GEMM library, its rules for split-K, and what it was seen to do on chips.

Numbers are plain values here; where each comes from is kept beside them, by path (`Library.evidence`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from hwsim.datafiles.provenance import Level
from hwsim.datafiles.record import Name, Names, Provenance, StrictRecord

Extent = tuple[PositiveInt, PositiveInt]


class KernelModel(StrictRecord):
    """One kernel: its CTA tile, how the tile is shared out, and when the library uses it.

    tile: m, n of C, elements. k_bytes: of K in a stage, per row of an operand. warp: m, n of C that one warp owns, of
    which the tile has whole ones. accumulators: 2 where the epilogue of a tile runs beside the next tile's main loop
    (two CTAs of a core, two consumer warp groups in turn, two halves of TMEM). stages: of shared memory (None: as many
    as fit). cta_group: CTAs, one tile each in a column, whose matrix units multiply together (cta_group::2).
    Conditions, all of which hold where it is used. max_waves: the tiles of the grid fit in so many waves; max_k: K is
    at most so long, elements; mn_major: an operand is MN-major where the instruction takes K-major ones (None: either).
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
            said = f"tile {tile} is not made of whole warps of {warp}; allowed: multiples of the warp's m and n"
            raise PydanticCustomError("rule", said)
        return self


class KernelGroup(StrictRecord):
    """Kernels of one make.

    engine: "matrix": of the matrix unit, an operand may lie in shared memory; "registers": of the matrix unit, operands
    only in registers; "lanes": of the vector unit. bits: widths of operands that they are for, the widest one counting
    (none: all). instruction: what they are made of, as the library's names say it.
    """

    engine: Literal["matrix", "registers", "lanes"]
    bits: tuple[PositiveInt, ...] = ()
    instruction: str = ""
    rows: Annotated[dict[Name, KernelModel], Field(min_length=1)]


class SplitKModel(StrictRecord):
    """How the library cuts K in slices, where the number of slices is left to an estimate.

    counts: numbers of slices that it takes, from 1 up. min_slice: elements of K in a slice at least. advise_below: the
    estimated time with slices, over that with K in one piece, below which a run with K in one piece says so.
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
    """GEMMs of one operand format that ran as one chain in order of K by the native instruction, all that were seen.

    outputs: formats of D, without C; with_c: with C, and alpha and beta other than 1 and 0. least, most: of m, n and
    k. row_bytes: rows of A (k long) and of B (n long) are whole multiples; k_multiple: K is. tiles: C has at least so
    many of 128 x 128, or K is at most short_k. longest_k: K is no longer. promoted_k: so too with the sums of every so
    many k added outside the unit.
    """

    outputs: Names
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
    """What the library was seen to do on one chip. What is not here is assumed.

    in_order: by operand format. slice_multiple: where K is split, slices are whole multiples of it long.
    split_k_instructions: by operand format, what kernels that leave slices of K to another kernel are made of, if not
    of the chip's native instruction; the bits are the same. tile_counter_us: of a memset before kernels with more than
    tile_counter_tiles tiles a core.
    """

    in_order: dict[Name, InOrderModel] = {}
    slice_multiple: PositiveInt
    split_k_instructions: dict[Name, Name] = {}
    tile_counter_us: Annotated[float, Field(ge=0)] | None = None
    tile_counter_tiles: PositiveInt | None = None


class Library(StrictRecord):
    """One GEMM library. Raises ConfigError (from the loader) for whatever does not fit.

    families: of dataflows (hwsim.dataflows) that its kernels are written for. devices: on which they were seen to run
    (none: on none, they are assumed). kernels: groups in the order in which equals are chosen. observations: by the
    name under which a device file asks for them.
    """

    schema_version: Literal[1]
    name: Name
    title: str
    version: str = ""
    families: Names
    devices: tuple[Name, ...] = ()
    kernels: Annotated[dict[Name, KernelGroup], Field(min_length=1)]
    split_k: SplitKModel
    observations: dict[Name, ObservationModel] = {}

    _evidence: dict[str, Provenance] = PrivateAttr(default_factory=dict)
    _citations: dict[str, str] = PrivateAttr(default_factory=dict)
    _sha256: str = PrivateAttr(default="")

    @property
    def evidence(self) -> dict[str, Provenance]:
        """Provenance of every number, by dotted path ("kernels.wgmma.rows.256x128.tile")."""
        return self._evidence

    @property
    def citations(self) -> dict[str, str]:
        """The file's `sources:` table: short key -> full citation."""
        return self._citations

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of the validated model."""
        return self._sha256

    @cached_property
    def _levels(self) -> dict[str, Level]:
        return {}

    def level(self, path: str) -> Level:
        """Return the weakest evidence of the numbers at or below a dotted path. Raises KeyError where there is none."""
        if path not in self._levels:
            below = [x.evidence for at, x in self.evidence.items() if at == path or at.startswith(f"{path}.")]
            if not below:
                raise KeyError(f"no number under {path}")
            self._levels[path] = max(below, key=list(Level).index)
        return self._levels[path]


__all__ = ["InOrderModel", "KernelGroup", "KernelModel", "Library", "ObservationModel", "SplitKModel"]
