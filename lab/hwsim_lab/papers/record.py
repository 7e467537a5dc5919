"""Base class for the records of published measurements."""

from pydantic import BaseModel, ConfigDict


class PaperRecord(BaseModel):
    """Base class of the records in files of measurements: unknown keys are errors, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
