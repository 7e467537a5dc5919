"""Functions on records that mappings of all families share: refusals, access, and the recording of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Scalar, Tile
from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.record import By, Decision, Gemm
from hwsim.gemm.schedule import Epilogue, Schedule

# Of schedule and epilogue: what programs of one chain in order of K do not carry.
_SUMMATION = (
    *("split_k", "slice_k", "merge_order", "partial_format", "merge_format", "merge_into", "k_permutation"),
    *("remainder", "operand_rounding", "start", "sum", "regions"),
)
_SLICES = ("split_k", "slice_k")
_EPILOGUE = ("contraction", "product_format", "output_rounding")


def check_carried(
    gemm: Gemm, family: str, *, epilogue: bool, layouts: bool, runs: bool = True, slices: bool = False
) -> Plan:
    """The record's plan, if programs of `family` support everything that the record asks for.

    epilogue: they support alpha, beta, C, bias and an output format; layouts: column-major operands; runs: promotion of
    partial sums outside the unit; slices: slices of K, added in order in the unit's result format. Raises
    UnsupportedError that names what they do not support.
    """
    if isinstance(gemm.plan, Mixed):
        raise UnsupportedError(f"scheme {gemm.scheme}: its blocks follow different plans; map the parts of the record")
    problem, schedule, plain = gemm.problem, gemm.schedule, Schedule()
    found = [name for name in _SUMMATION if getattr(schedule, name) != getattr(plain, name)]
    if slices:
        found = [name for name in found if name not in _SLICES]
    found += [name for name in _EPILOGUE if getattr(gemm.epilogue, name) != getattr(Epilogue(), name)]
    if problem.matrices > 1:
        found.append("stacks of matrices")
    if not epilogue:
        found += _epilogue(gemm)
    if not layouts:
        found += [name for name in ("a_layout", "b_layout") if getattr(problem, name) != "rows"]
    if not runs and (schedule.promotion_k is not None or any(term.k_group is not None for term in gemm.plan.terms)):
        found.append("runs of K added outside the unit")
    if found:
        raise UnsupportedError(f"programs of family {family} carry no {', '.join(found)}")
    return gemm.plan


def refuse_epilogue(gemm: Gemm, family: str) -> None:
    """Raise UnsupportedError for a record whose epilogue does more than store the product of one matrix."""
    found = [*_epilogue(gemm), *(["stacks of matrices"] if gemm.problem.matrices > 1 else [])]
    if found:
        raise UnsupportedError(f"programs of family {family} carry no {', '.join(found)}")


def _epilogue(gemm: Gemm) -> list[str]:
    """The names of the epilogue's features that the record uses."""
    asked = {
        "alpha": gemm.epilogue.alpha != 1,
        "beta": bool(gemm.epilogue.beta),
        "c": gemm.problem.has_c,
        "bias": gemm.problem.bias is not None,
        "output": gemm.output != gemm.single.output_format,
    }
    return [name for name, is_asked in asked.items() if is_asked]


def plan_of(gemm: Gemm) -> Plan:
    """The plan of a mapped record (not a mixture)."""
    if isinstance(gemm.plan, Mixed):
        raise UnsupportedError(
            f"scheme {gemm.scheme}: its blocks follow different plans; lower the parts of the record"
        )
    return gemm.plan


def mapping_of(
    gemm: Gemm, family: str, needed: Sequence[Option] | None = None, possible: Sequence[Option] = ()
) -> GemmMapping:
    """The record's mapping. needed, possible: the settings that each of its kernels has, and may have (None: any).

    Raises InputError where there is no mapping, or another dataflow's, and for settings that are missing, unknown or
    out of range.
    """
    mapping = gemm.mapping
    if mapping is None or mapping.dataflow != family or not mapping.kernels:
        found = "none" if mapping is None or not mapping.kernels else f"one of {mapping.dataflow}"
        raise InputError(f"gemm record: it needs a mapping of dataflow {family}, it has {found}")
    if needed is not None:
        for kernel in mapping.kernels:
            _check_settings(kernel, needed, possible)
    return mapping


def _check_settings(kernel: KernelMapping, needed: Sequence[Option], possible: Sequence[Option]) -> None:
    where = f"gemm record: kernel {kernel.name}: setting"
    known = {option.name: option for option in (*needed, *possible)}
    for one in kernel.settings:
        if one.name not in known:
            raise InputError(f"{where} {one.name!r}; allowed: {', '.join(known)}{nearest(one.name, list(known))}")
        if one.value is None:
            raise InputError(f"{where} {one.name} = None; allowed: {known[one.name].allowed}")
        known[one.name].check(one.value, where)
    names = [one.name for one in kernel.settings]
    missing = [option.name for option in needed if option.name not in names]
    if missing:
        raise InputError(f"gemm record: kernel {kernel.name} lacks the settings {', '.join(missing)}")


def whole(kernel: KernelMapping, name: str) -> int:
    """The value of an integer setting. Raises InputError where the record has none."""
    value = next((one.value for one in kernel.settings if one.name == name), None)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"gemm record: kernel {kernel.name}: setting {name} = {value!r}; allowed: an integer")
    return value


def tile_text(tile: Tile, order: tuple[str, str, str]) -> str:
    """A tile as users write it: m=128,n=256,k=64."""
    return ",".join(f"{side}={getattr(tile, side)}" for side in order)


def decision(options: Mapping[str, Any], name: str, value: Scalar, by: By, why: str = "") -> Decision:
    """The decision on one option: the user's where `options` sets it, otherwise by `by`, with the reason `why`."""
    if options.get(name) is not None:
        return Decision(name, str(value), "user")
    return Decision(name, str(value), by, why=why)
