"""Which library runs an operator of PyTorch on a family of chips, and by which kernel: data of configs/frameworks.

It knows operators, formats and families by name; no choice of a library and no order of summation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from hwsim.datafiles.provenance import LEVELS
from hwsim.gemm.softmax_sums import SoftmaxKernels
from hwsim.libraries.cublas.pytorch import FRAMEWORK
from hwsim.libraries.model.facts import framework_file, framework_of

if TYPE_CHECKING:
    from hwsim.libraries.model.framework_model import Framework, RouteModel

GEMM = "mm"  # an operator that no route names
RULES = {"mean": "row_sums", "sum": "row_sums"}  # rules in the file of kernels that have not their names


def pytorch(version: str = FRAMEWORK[1]) -> Framework:
    """The facts of a version. Raises InputError where there is no file of it."""
    return framework_of(FRAMEWORK[0], version)


@lru_cache(maxsize=256)
def evidence_of_kernel(name: str, chip: str, version: str = FRAMEWORK[1]) -> str:
    """The level behind the bits of a kernel without products: "softmax", "layer_norm", "mean", "sum", or a function's
    name. Of a chip whose results were compared, that comparison's; else the weakest of the kernel's rule.
    """
    file = framework_file(FRAMEWORK[0], version)
    compared, group = file.record.compared.get(chip), _group_of(name, version)
    rule = group or RULES.get(name, name)
    if compared is not None and rule in compared.rules:
        place = f"compared.{chip}."
    else:
        place = f"functions.{group}." if group else f"{rule}."
    levels = [about.evidence for path, about in file.evidence.items() if path.startswith(place)]
    return max(levels, key=LEVELS.index)


@lru_cache(maxsize=256)
def families_of_kernel(name: str, version: str = FRAMEWORK[1]) -> tuple[str, ...]:
    """The families of chips with the bits of a kernel without products, named as in `evidence_of_kernel`; none of one
    that is not known.
    """
    file, group = pytorch(version), _group_of(name, version)
    if group:
        return file.functions[group].families
    known = {
        "softmax": file.softmax.families,
        "layer_norm": file.layer_norm.families,
        "row_sums": file.row_sums.families,
    }
    return known.get(RULES.get(name, name), ())


@lru_cache(maxsize=16)
def softmax_kernels(version: str = FRAMEWORK[1]) -> SoftmaxKernels:
    """The sizes of PyTorch's kernels of softmax."""
    return SoftmaxKernels(**pytorch(version).softmax.model_dump(include=set(SoftmaxKernels._fields)))


def _group_of(name: str, version: str) -> str:
    """The group of functions of single elements that a name is in; "": none."""
    groups = pytorch(version).functions.items()
    return next((group for group, functions in groups if name in functions.names), "")


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
