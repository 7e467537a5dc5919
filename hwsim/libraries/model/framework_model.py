"""The schema of a framework file: how a framework calls a library for a matrix product.

It knows formats by name, functions and bytes; no choice of a library.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from hwsim.datafiles.base import Name, NameList, StrictRecord


class FrameworkCallModel(StrictRecord):
    """One way of calling. It is for operands of these formats (none: any), with a bias (null: with or without), and n
    and k of at least so many.

    function: cublasLtMatmul has a bias in its epilogue, cublasGemmEx as its C. workspace_bytes: what the library may
    use. no_bias: why the call takes none ("": it does).
    """

    operands: tuple[Name, ...] = ()
    bias: bool | None = None
    least_n: PositiveInt = 1
    least_k: PositiveInt = 1
    function: Literal["cublasLtMatmul", "cublasGemmEx"]
    workspace_bytes: NonNegativeInt
    no_bias: str = ""


class ReductionsModel(StrictRecord):
    """In which type slices of K may be reduced. narrow: formats of operands and result of which the accumulator's alone
    is allowed; of all others any.
    """

    narrow: NameList


class OutputsModel(StrictRecord):
    """Formats of results: where nothing else is asked for, and with a bias."""

    plain: Name
    biased: tuple[Name, ...] = ()


class Framework(StrictRecord):
    """A framework's calls: the first that fits holds. outputs: by format of the operands."""

    schema_version: Literal[1]
    framework: Name
    version: Name
    title: str
    calls: Annotated[dict[Name, FrameworkCallModel], Field(min_length=1)]
    reductions: ReductionsModel
    outputs: Annotated[dict[Name, OutputsModel], Field(min_length=1)]

    @model_validator(mode="after")
    def _last_fits_all(self) -> Framework:
        last = list(self.calls.values())[-1]
        if last.operands or last.bias is not None or (last.least_n, last.least_k) != (1, 1):
            raise PydanticCustomError("rule", "the last of calls has a condition; allowed: none, so that it fits all")
        return self
