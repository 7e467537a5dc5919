"""The schema of a version file: which files hold a library's choices, on which chips it was asked, what calls it takes.

It knows names, formats by name, and numbers of answers; neither a call nor chips beyond their names.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from hwsim.datafiles.base import Name, NameList, StrictRecord

#: Kinds of calls that a library may have been asked about on fewer chips than about others.
AskedKind = Literal["mixed_formats", "batched_vectors", "batched_columns", "biased"]


class VersionFiles(StrictRecord):
    """Files beside the version file: sums of kernels, fitted trees, own answers for weights of layers, times, what
    these are multiplied by, and shares of estimates that are right.
    """

    sums: Name
    trees: Name
    layers: Name
    times: Name
    factors: Name
    shares: Name


class AskedModel(StrictRecord):
    """Where the library was asked.

    version: of the library that was asked; where it is another one than the file's, its answers are an assumption.
    chips: numbers of SMs by the chips' names under `library.observations` in device files. alone: of kinds of calls
    that not all of them were asked about, those that were. mixed_formats: operands of two formats; batched_vectors:
    strided batches of matrix-vector products; batched_columns: batches with A by columns; biased: calls with a bias,
    where that changes the choice. same_with_c: formats of operands whose products with a C, alpha and beta ran the
    kernels of the products without.
    """

    version: Name
    chips: Annotated[dict[Name, PositiveInt], Field(min_length=1)]
    alone: dict[AskedKind, NameList]
    same_with_c: NameList


class RulesSeenModel(StrictRecord):
    """On which version of the library, and on which chips, the rules of its kernels' sums were found. Where that is
    another version than the file's, its orders of summation are an assumption. chips: as under `asked`.
    """

    version: Name
    chips: Annotated[NameList, Field(min_length=1)]


class MixedModel(StrictRecord):
    """Answers for operands of two formats, and how many of them differ from those for operands of the first one."""

    answers: PositiveInt
    differing: NonNegativeInt


class PairModel(StrictRecord):
    """Operands A and B of two formats. like: whose kernels multiply them. row_bytes: rows of A, B and C are whole."""

    a: Name
    b: Name
    like: Name
    row_bytes: PositiveInt


class WholeRowsModel(StrictRecord):
    """Rows of A and B, and of_result, of C, are whole row_bytes, for these operands, result and accumulation (null:
    any).
    """

    operand: Name
    output: Name | None = None
    accumulate: Literal["promoted"] | None = None
    row_bytes: PositiveInt
    of_result: bool = True


class TakenModel(StrictRecord):
    """The calls that a library takes. outputs: formats of results by that of the operands. k_major: operands that are
    taken by rows of A and columns of B alone. pairs: of two formats. whole_rows: the first that fits holds.
    """

    outputs: Annotated[dict[Name, NameList], Field(min_length=1)]
    k_major: tuple[Name, ...]
    pairs: dict[Name, PairModel]
    whole_rows: dict[Name, WholeRowsModel]

    @model_validator(mode="after")
    def _of_operands(self) -> TakenModel:
        likes = [pair.like for pair in self.pairs.values()]
        named = {*self.k_major, *likes, *(rule.operand for rule in self.whole_rows.values())}
        if unknown := sorted(named - set(self.outputs)):
            message = f"{', '.join(unknown)}: no results of such operands; allowed: {', '.join(self.outputs)}"
            raise PydanticCustomError("rule", message)
        return self


Share = Annotated[float, Field(gt=0, le=1)]


class NeighbourSharesModel(StrictRecord):
    """Shares of such answers that have the library's slices. both: of two neighbours that agree, one below and one
    above. one: of a single one, by how many tiles of K it is away at most, ascending.
    """

    both: Share
    one: tuple[tuple[PositiveInt, Share], ...]

    @model_validator(mode="after")
    def _in_order(self) -> NeighbourSharesModel:
        tiles = [most for most, _ in self.one]
        if tiles != sorted(set(tiles)):
            raise PydanticCustomError("rule", "the tiles of one are not in ascending order, each once")
        return self


class NeighboursModel(StrictRecord):
    """Where answers for weights of the same n and nearly the same k stand for those that were not asked for.

    span_tiles: where K passes whole so many tiles the slices change.
    """

    span_tiles: PositiveInt
    right: NeighbourSharesModel


class LibraryVersion(StrictRecord):
    """A version of a library whose choices are known. library: as `hwsim.library` names it. rules_seen: null where
    nobody found the rules of its kernels' sums. launch_us: of one call, which fitted times leave out; null: not
    known.
    """

    schema_version: Literal[1]
    library: Name
    version: Name
    title: str
    files: VersionFiles
    launch_us: Annotated[float, Field(gt=0)] | None = None
    asked: AskedModel
    rules_seen: RulesSeenModel | None = None
    mixed: MixedModel
    taken: TakenModel
    neighbours: NeighboursModel
