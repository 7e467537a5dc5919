"""Functions on records that mappings of all families share: refusals, access, and the recording of choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.gemm import refusals
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Scalar, Tile
from hwsim.gemm.option_types import Option
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.record import By, Decision, Gemm
from hwsim.gemm.refusals import Refusal

#: Of the order of summation: what a main loop of one chain in order of K does not carry; what a scheduler deals with,
#: regions of C and slices of K; the merge of slices.
CHAIN = ("k_permutation", "remainder", "operand_rounding", "start", "sum")
REGIONS = ("regions",)
SLICES = ("split_k", "slice_k")
MERGE = ("merge_order", "partial_format", "merge_format", "merge_into")
#: Of the epilogue: fusions and roundings other than an elementwise unit's own.
ROUNDINGS = ("product_format", "output_rounding")
FUSIONS = ("contraction", *ROUNDINGS)


def carried(gemm: Gemm, family: str, parts: Sequence[Refusal]) -> Plan:
    """The record's plan, if all parts of the programs of `family` carry what the record asks for.

    Raises UnsupportedError that names what they do not carry.
    """
    if isinstance(gemm.plan, Mixed):
        raise UnsupportedError(f"scheme {gemm.scheme}: its blocks follow different plans; map the parts of the record")
    refused = refusals.of_parts(parts, gemm)
    if refused:
        raise UnsupportedError(f"programs of family {family} carry no {refused}")
    return gemm.plan


def check_carried(gemm: Gemm, family: str, *, epilogue: bool, layouts: bool, runs: bool = True) -> Plan:
    """The record's plan, if programs of `family` carry what the record asks for: one chain in order of K of one matrix.

    For a family whose parts do not answer themselves. epilogue: they support alpha, beta, C, bias and an output format;
    layouts: column-major operands; runs: promotion of partial sums outside the unit. Raises UnsupportedError that names
    what they do not support.
    """

    def refuses(gemm: Gemm) -> str:
        return refusals.joined(
            refusals.of_schedule(gemm.schedule, (*SLICES, *MERGE, *CHAIN, *REGIONS)),
            refusals.of_epilogue(gemm.epilogue, FUSIONS),
            refusals.stacks(gemm.problem),
            refusals.unusual_operands(gemm.problem),
            "" if epilogue else refusals.epilogue(gemm),
            "" if layouts else refusals.layouts(gemm.problem),
            "" if runs else refusals.runs(gemm),
        )

    return carried(gemm, family, (refuses,))


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
        there = "none" if mapping is None or not mapping.kernels else f"one of {mapping.dataflow}"
        raise InputError(f"gemm record: it needs a mapping of dataflow {family}, it has {there}")
    if needed is not None:
        for kernel in mapping.kernels:
            _check_settings(kernel, needed, possible)
    return mapping


def _check_settings(kernel: KernelMapping, needed: Sequence[Option], possible: Sequence[Option]) -> None:
    where = f"gemm record: kernel {kernel.name}: setting"
    known = {option.name: option for option in (*needed, *possible)}
    for setting in kernel.settings:
        if setting.name not in known:
            raise InputError(
                f"{where} {setting.name!r}; allowed: {', '.join(known)}{nearest(setting.name, list(known))}"
            )
        if setting.value is None:
            raise InputError(f"{where} {setting.name} = None; allowed: {known[setting.name].allowed}")
        known[setting.name].check(setting.value, where)
    names = [setting.name for setting in kernel.settings]
    missing = [option.name for option in needed if option.name not in names]
    if missing:
        raise InputError(f"gemm record: kernel {kernel.name} lacks the settings {', '.join(missing)}")


def whole(kernel: KernelMapping, name: str) -> int:
    """The value of an integer setting. Raises InputError where the record has none."""
    value = next((setting.value for setting in kernel.settings if setting.name == name), None)
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
