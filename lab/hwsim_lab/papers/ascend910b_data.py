"""Published measurements of the Ascend 910B family: lab/hwsim_lab/configs/measured/ascend910b.yaml, as a record."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError

from hwsim.datafiles.yaml_text import common_yaml
from hwsim.errors import InputError
from hwsim_lab.papers import measured
from hwsim_lab.papers.record import PaperRecord


def _span(value: object) -> object:
    return value if isinstance(value, list) else (value, value)


Spread = Annotated[tuple[float, float], BeforeValidator(_span)]  # the ends of a range; one number is both
Pipe = Literal["M", "MTE1", "MTE2", "FIX"]


class HuaweiGemm(PaperRecord):
    """Huawei's 8192^3 FP16 GEMM: times of a core and of the whole task, busy times of pipes; calibration: pipes that
    set a number.
    """

    source: str
    core: Spread
    task: Spread
    busy: dict[Pipe, Spread]
    unit_flag_fix: Spread
    calibration: tuple[Pipe, ...]


class PtoGemm(PaperRecord):
    """One GEMM of the PTO library: a core's time, and the shares of it that pipes are busy."""

    us: float
    busy: dict[Pipe, float]


class PtoCases(PaperRecord):
    """The PTO library's GEMMs, by m = n = k."""

    source: str
    cases: dict[int, PtoGemm]


class GuideCase(PaperRecord):
    """One case of the tuning guide: device and its changes, grid of cores, blocks of K per packet, and the measured
    times.
    """

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
    """The cases of Huawei's tuning guide."""

    source: str
    cases: tuple[GuideCase, ...]


class TorchThroughput(PaperRecord):
    """PyTorch's TFLOP/s by format and m = n = k; calibration: "FORMAT SIZE" of those that set a number."""

    source: str
    tflops: dict[str, dict[int, Spread]]
    calibration: tuple[str, ...]


class PaperThroughput(PaperRecord):
    """The paper's TFLOP/s of native fp32."""

    source: str
    tflops: Spread


class PublishedTimes(PaperRecord):
    """The contents of the file. why: reasons for points that are missed, by group and quantity."""

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
    """The file as a record. Raises InputError for invalid content, and where there is none."""
    file = measured.path("ascend910b.yaml")
    try:
        return PublishedTimes.model_validate(common_yaml(file.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{file}: {error}") from None
