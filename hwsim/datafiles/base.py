"""Base classes of the models that data files are validated against."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from hwsim.datafiles.provenance import Level

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\-]+$")]
NameList = Annotated[tuple[Name, ...], Field(min_length=1)]
Rate = Annotated[float, Field(gt=0)]


class StrictRecord(BaseModel):
    """Base class of all records in data files: unknown keys are errors, no type coercion, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True, defer_build=True)


class Provenance(StrictRecord):
    """Source and evidence of a number. `span`: the lowest and highest value that sources give, where they disagree.

    fitted_to: the measurement that it was fitted to, empty where it was not.
    """

    source: str
    evidence: Level
    fitted_to: str = ""
    span: tuple[float, float] | None = None
    note: str = ""
