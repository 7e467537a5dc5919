"""The schema of a version file: which files hold a library's choices, and on which chips it was asked.

It knows names and numbers of answers; neither calls nor chips beyond their names.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from hwsim.datafiles.record import Name, Names, StrictRecord

#: Kinds of calls that a library may have been asked about on fewer chips than about others.
AskedKind = Literal["mixed_formats", "batched_vectors", "batched_columns", "biased"]


class VersionFiles(StrictRecord):
    """Files beside the version file: fitted trees, own answers for weights of layers, times, what these are multiplied
    by, and shares of estimates that are right.
    """

    trees: Name
    layers: Name
    times: Name
    factors: Name
    shares: Name


class AskedModel(StrictRecord):
    """Where the library was asked.

    chips: numbers of SMs by the chips' names under `library.observations` in device files. alone: of kinds of calls
    that not all of them were asked about, those that were. mixed_formats: operands of two formats; batched_vectors:
    strided batches of matrix-vector products; batched_columns: batches with A by columns; biased: calls with a bias,
    where that changes the choice.
    """

    chips: Annotated[dict[Name, PositiveInt], Field(min_length=1)]
    alone: dict[AskedKind, Names]


class MixedModel(StrictRecord):
    """Answers for operands of two formats, and how many of them differ from those for operands of the first one."""

    answers: PositiveInt
    differing: NonNegativeInt


class LibraryVersion(StrictRecord):
    """A version of a library whose choices are known. library: as `hwsim.library` names it."""

    schema_version: Literal[1]
    library: Name
    version: Name
    title: str
    files: VersionFiles
    asked: AskedModel
    mixed: MixedModel
