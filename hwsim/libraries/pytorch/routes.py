"""Which library runs an operator of PyTorch on a family of chips, and by which kernel: data of configs/frameworks.

It knows operators, formats and families by name; no choice of a library and no order of summation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from hwsim.datafiles.provenance import LEVELS
from hwsim.libraries.cublas.pytorch import FRAMEWORK
from hwsim.libraries.model.facts import framework_file, framework_of

if TYPE_CHECKING:
    from hwsim.libraries.model.framework_model import Framework, RouteModel

GEMM = "mm"  # an operator that no route names


def pytorch(version: str = FRAMEWORK[1]) -> Framework:
    """The facts of a version. Raises InputError where there is no file of it."""
    return framework_of(FRAMEWORK[0], version)


@lru_cache(maxsize=256)
def evidence_of_kernel(name: str, version: str = FRAMEWORK[1]) -> str:
    """The weakest level behind the rule of a kernel without products: "softmax" or "layer_norm"."""
    facts = framework_file(FRAMEWORK[0], version).evidence
    levels = [about.evidence for path, about in facts.items() if path.startswith(f"{name}.")]
    return max(levels, key=LEVELS.index)


@lru_cache(maxsize=256)
def route_of(operator: str, format: str, chip: str, family: str, version: str = FRAMEWORK[1]) -> RouteModel:
    """The first route of a version of PyTorch that fits. operator: aten's name. format: of the operands.

    chip, family: of the device, by name. Raises InputError for a version that there is no file of.
    """
    routes = pytorch(version).routes.values()
    return next(
        route
        for route in routes
        if (not route.operators or operator in route.operators)
        and (not route.operands or format in route.operands)
        and (not route.families or family in route.families)
        and (not route.chips or chip in route.chips)
    )


def is_of_gemms(operator: str, format: str, chip: str, family: str) -> bool:
    """Whether an operator is a call of the library that runs plain products on the chip."""
    return route_of(operator, format, chip, family).library == route_of(GEMM, format, chip, family).library
