"""What was published of the Ascend 910B family: configs/measured/ascend910b.yaml, as a record."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError

from hwsim.errors import InputError
from hwsim.papers import measured
from hwsim.papers.record import PaperRecord


def _span(value: object) -> object:
    return value if isinstance(value, list) else (value, value)


Span = Annotated[tuple[float, float], BeforeValidator(_span)]  # the ends of a range; one number is both
Pipe = Literal["M", "MTE1", "MTE2", "FIX"]


class HuaweiGemm(PaperRecord):
    """8192^3 FP16: a core, the whole task, busy times of pipes; calibration: pipes that set a number."""

    source: str
    core: Span
    task: Span
    busy: dict[Pipe, Span]
    unit_flag_fix: Span
    calibration: tuple[Pipe, ...]


class PtoGemm(PaperRecord):
    """One GEMM: a core's time, and the shares of it that pipes are busy."""

    us: float
    busy: dict[Pipe, float]


class PtoCases(PaperRecord):
    """GEMMs by m = n = k."""

    source: str
    cases: dict[int, PtoGemm]


class GuideCase(PaperRecord):
    """One case: device and what is changed of it, grid of cores, blocks of K in a packet, and what was measured."""

    what: str
    device: str
    mnk: tuple[int, int, int]
    grid: tuple[int, int]
    packet: int
    core: float | None = None
    mte2: float | None = None
    unit_flag_core: float | None = None
    changes: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)


class TuningGuide(PaperRecord):
    """The tuning guide's cases."""

    source: str
    cases: tuple[GuideCase, ...]


class TorchThroughput(PaperRecord):
    """TFLOP/s by format and m = n = k; calibration: "FORMAT SIZE" of those that set a number."""

    source: str
    tflops: dict[str, dict[int, Span]]
    calibration: tuple[str, ...]


class PaperThroughput(PaperRecord):
    """TFLOP/s of native fp32."""

    source: str
    tflops: Span


class PublishedTimes(PaperRecord):
    """The file. why: reasons of points that are missed, by what and quantity."""

    schema_version: Literal[1]
    sources: dict[str, str]
    huawei: HuaweiGemm
    pto: PtoCases
    guide: TuningGuide
    torch: TorchThroughput
    paper: PaperThroughput
    why: dict[str, dict[str, str]]


@cache
def published() -> PublishedTimes:
    """The file's record. Raises InputError for what does not fit, and where the source tree is not there."""
    file = measured.path("ascend910b.yaml")
    try:
        return PublishedTimes.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{file}: {error}") from None
