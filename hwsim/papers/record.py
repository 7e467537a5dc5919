"""What the files of published measurements have in common: strict records."""

from pydantic import BaseModel, ConfigDict


class PaperRecord(BaseModel):
    """Base of the parts of a file of measurements: no unknown keys, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
