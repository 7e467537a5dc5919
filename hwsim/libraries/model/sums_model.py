"""The schema of a file of sums: which kernels have which rule of summation, and the tables that the rules read.

It knows numbers as a library's answers have them; neither calls nor sums.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from hwsim.datafiles.base import Name, StrictRecord

Pair = tuple[PositiveInt, PositiveInt]
#: Rules of sums, by their names (hwsim.libraries.cublas.orders).
RuleName = Literal[
    "whole_tiles",
    "rest_first",
    "segments",
    "interleaved",
    "one_chain",
    "sgemm_largek",
    "vector_slices",
    "gemm_sn",
    "gemv",
    "dot_product",
]


class FamilyModel(StrictRecord):
    """Kernels of one or more algorithm numbers of cuBLASLt, and the rule of their sums."""

    algorithms: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    name: str  # as profilers have it
    rule: RuleName
    instruction: str | None = None  # by which they add (FP64: the device's own); null: the device's, or the rule's
    operands: tuple[Name, ...] = ()  # formats that the rule is for; none: any
    order_by_m: Literal["no", "lanes", "shared_tiles"] = "no"  # on what of m the order depends beyond the answer
    names_m_first: bool = False  # in the kernels' names a tile is (m, n) of the row-major product, not (n, m)
    mn_major_b_first: bool = False  # a B by rows is the kernel's own A, and its tile lies across
    # cuBLASLt's reductions with which a kernel of its own merges slices and rounds the sum to a 16-bit result before
    # cublasLtMatmul's epilogue adds a bias
    merges: tuple[PositiveInt, ...] | Literal["any"] = ()
    rounded_before_c: bool = False  # without slices, the sum is so rounded before a C is added ("badd")


class GemvRow(StrictRecord):
    """Variants of a matrix-vector kernel that add alike. options: their custom options."""

    options: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]


class HalvingRow(GemvRow):
    """Lanes joined by halving. elements: that a lane takes at once; None: its share of a slice."""

    lanes: PositiveInt
    elements: PositiveInt | None = None


class FewerLanesModel(StrictRecord):
    """Where a result has fewer lanes: elements of so many bytes, and least to most results; odd_blocks_of: of these,
    where they are an odd number of blocks of so many (the last one may not be full).
    """

    lanes: PositiveInt
    element_bytes: PositiveInt
    least_results: PositiveInt
    most_results: PositiveInt | None = None
    odd_blocks_of: PositiveInt | None = None


class WarpRow(GemvRow):
    """A warp per result, joined by halving: its lanes, elements that one takes at once, and where there are fewer."""

    lanes: PositiveInt
    elements: PositiveInt
    fewer: dict[Name, FewerLanesModel]


class InTurnRow(GemvRow):
    """Lanes that take elements in turn, joined in ascending order. closed_tiles: after so many elements of a lane its
    sum is closed and another one begins.
    """

    lanes: PositiveInt
    closed_tiles: PositiveInt


class PartsRow(GemvRow):
    """Contiguous parts of a slice, in ascending order. closed: elements after which the sum of one is closed."""

    parts: PositiveInt
    closed: PositiveInt


class GemvModel(StrictRecord):
    """Matrix-vector kernels by custom option. share_bytes: the most that a lane takes at once where it takes its share
    of a slice; least_bytes: of an element, which counts as so many then. one_lane: variants of one chain.
    """

    share_bytes: PositiveInt
    least_bytes: PositiveInt
    halving: dict[Name, HalvingRow]
    warp: WarpRow
    in_turn: dict[Name, InTurnRow]
    parts: dict[Name, PartsRow]
    one_lane: GemvRow

    @model_validator(mode="after")
    def _each_once(self) -> GemvModel:
        rows = (*self.halving.values(), self.warp, *self.in_turn.values(), *self.parts.values(), self.one_lane)
        counts = Counter(option for row in rows for option in row.options)
        twice = sorted(option for option, count in counts.items() if count > 1)
        if twice:
            message = f"custom options {', '.join(map(str, twice))} stand in several rows; allowed: each in one"
            raise PydanticCustomError("rule", message)
        return self


class JoinCostModel(StrictRecord):
    """What joining parts of K costs, in steps of K. tiles: sides of the tile, the shorter first. levels[i]: where the
    tree of sums has i + 1 levels; part: per part.
    """

    tiles: Annotated[tuple[Pair, ...], Field(min_length=1)]
    levels: tuple[PositiveFloat, PositiveFloat, PositiveFloat, PositiveFloat, PositiveFloat]
    part: PositiveFloat


class SharingModel(StrictRecord):
    """When tiles are shared. whole_k: K up to which none was; shared_k: from which all were. join: cost by tile; of
    other tiles it is 0.
    """

    whole_k: PositiveInt
    shared_k: PositiveInt
    join: dict[Name, JoinCostModel]


class ClustersModel(StrictRecord):
    """Chips with so many SMs, in GPCs of at most gpc_sms. at_once: (CTAs of a cluster, clusters that run at once)."""

    sms: PositiveInt
    gpcs: PositiveInt
    gpc_sms: PositiveInt
    at_once: Annotated[tuple[Pair, ...], Field(min_length=1)]


class SharedKModel(StrictRecord):
    """Kernels whose CTAs share the K of the last tiles. step: K of a tile, elements. most_parts: of one tile.

    narrow: up to so many tiles of C along m, or along n, columns are walked whatever the cluster's shape. after_waves,
    alone: where whole waves of clusters went before, and where none did. chips: by any name.
    """

    step: PositiveInt
    most_parts: PositiveInt
    narrow: Pair
    after_waves: SharingModel
    alone: SharingModel
    chips: dict[Name, ClustersModel]


class LibrarySums(StrictRecord):
    """The sums of one version of a library."""

    schema_version: Literal[1]
    library: Name
    version: Name
    families: Annotated[dict[Name, FamilyModel], Field(min_length=1)]
    gemv: GemvModel
    shared_k: SharedKModel

    @model_validator(mode="after")
    def _each_algorithm_once(self) -> LibrarySums:
        counts = Counter(number for row in self.families.values() for number in row.algorithms)
        if twice := sorted(number for number, count in counts.items() if count > 1):
            message = f"algorithms {', '.join(map(str, twice))} stand in several families; allowed: each in one"
            raise PydanticCustomError("rule", message)
        return self
