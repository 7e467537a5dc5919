"""Base classes of the models that data files are validated against."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

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


class SourcedFile(StrictRecord):
    """Base class of the record of a whole file: its numbers are plain values, where each comes from is kept beside
    them. The file's loader fills both in.
    """

    _evidence: dict[str, Provenance] = PrivateAttr(default_factory=dict)
    _citations: dict[str, str] = PrivateAttr(default_factory=dict)
    _sha256: str = PrivateAttr(default="")

    @property
    def evidence(self) -> dict[str, Provenance]:
        """Provenance of every number, by dotted path ("links.GM_L1.bytes_per_cycle")."""
        return self._evidence

    @property
    def citations(self) -> dict[str, str]:
        """The file's `sources:` table: short key -> full citation."""
        return self._citations

    @property
    def sha256(self) -> str:
        """SHA-256 of the canonical JSON of the expanded, validated model."""
        return self._sha256
