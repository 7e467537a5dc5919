"""A product call: what `hwsim.run` was asked for, as one typed value with the record that it resolves to.

It connects options, operands, a request, a library's choice and the resolver; it computes no bit and no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from hwsim.analysis.inputs import NORMAL
from hwsim.devices import at_clock, at_power, load
from hwsim.devices.device import Device
from hwsim.errors import InputError
from hwsim.gemm.plan import Mixed
from hwsim.libraries.adopt import adopted
from hwsim.machines.l2_state import DEFAULT as DEFAULT_L2
from hwsim.operands.operand import common_format, formats_in_memory
from hwsim.request.declarations import AUTO, DEFAULT_SCHEME, OPERAND_DISTRIBUTION
from hwsim.request.operands import ProductOperands, operands_of
from hwsim.request.option_records import LibraryOptions
from hwsim.request.options import CallOptions, sort_by_owner
from hwsim.request.request import Request, by_instruction, request_of, rounded_first
from hwsim.resolve.choice.auto_scheme import SchemeChoice, choose
from hwsim.resolve.resolved import Resolved
from hwsim.resolve.resolver import resolve
from hwsim.schemes import Scheme, scheme_of

AnyArray = NDArray[Any]
Progress = Callable[[float], None]
DeviceLike = str | Path | Mapping[str, Any] | Device


@dataclass(frozen=True, slots=True)
class ProductCall:
    """A call with its record. choice: what scheme="auto" selected. device: before the clock or the power limit that the
    options ask for; None for a saved record's.
    """

    request: Request
    resolved: Resolved
    operands: ProductOperands
    options: CallOptions
    choice: SchemeChoice | None = None
    device: Device | None = None

    @property
    def is_for_one_pair(self) -> bool:
        """Whether the record is good for these operands alone, or only a part of the result is wanted."""
        machine = self.options.machine
        if self.choice is not None or self.options.is_of_a_part or machine.functional or not machine.exact:
            return True
        is_of_data = self.request.scheme.is_of_data(self.request.scheme_options) or isinstance(
            self.resolved.gemm.plan, Mixed
        )
        return is_of_data or self.operands.left is None

    def shown(self, sustained_mhz: float | None) -> dict[str, Any]:
        """The options as the result shows them: the scheme's, complete, with what was decided and what was asked for.

        sustained_mhz: the clock of the times, where that is not the device file's.
        """
        options, record, lead = self.options, self.resolved.gemm, self.operands.lead
        input_format = self.operands.format_before or record.problem.input_format
        shown = {**self.resolved.options, "input_format": input_format, **self.resolved.facts}
        if lead:
            one_for_all = self.resolved.has_stack_program
            how = "of one program for all" if one_for_all else "of one matrix, times their number"
            shown |= {"batch": list(lead), "batch_cycles": how}
        clock_mhz = options.machine.clock_mhz if sustained_mhz is None else sustained_mhz
        shown |= {} if clock_mhz is None else {"clock_mhz": clock_mhz}
        shown |= {} if options.machine.power_limit_w is None else {"power_limit_w": options.machine.power_limit_w}
        shown |= {} if options.machine.l2 == DEFAULT_L2 else {"l2": options.machine.l2}
        shown |= {"launch_overhead": True} if options.machine.launch_overhead else {}
        asked = options.problem.operand_distribution
        shown |= {OPERAND_DISTRIBUTION: asked} if self.operands.is_drawn and asked != NORMAL else {}
        shown |= {} if self.choice is None else {"choice": self.choice.to_dict()}
        shown |= {} if options.problem.conv is None else {"conv": dict(options.problem.conv)}
        return shown


def product_call(
    a: AnyArray | None,
    b: AnyArray | None,
    device: DeviceLike,
    scheme: str | Scheme,
    values: Mapping[str, Any],
    progress: Progress | None = None,
) -> ProductCall:
    """The call of `hwsim.run` with these arguments. values: all options, C among them. progress: called with shares
    of the call's work while a scheme is selected.

    Raises as `hwsim.run`.
    """
    unclocked = load(device)
    named = None if scheme == AUTO else scheme_of(scheme) if isinstance(scheme, str) else scheme
    options = sort_by_owner(values, named)
    chip = clocked(unclocked, options.machine.clock_mhz, options.machine.power_limit_w)
    choice: SchemeChoice | None = None
    if named is None or options.scheme.error_target is not None:
        choice = _choice(chip, named, a, b, options, _of_selecting(progress, options.machine.exact))
        chosen = dict(choice.taken.options)
        of_all = replace(options.scheme, format=chosen.pop("format", None))
        options, named = replace(options, scheme=of_all, of_scheme=chosen), scheme_of(choice.taken.scheme)
    operands = operands_of(a, b, options, named)
    return replace(resolved_call(chip, named.bare, options, operands, choice), device=unclocked)


def resolved_call(
    chip: Device,
    scheme: Scheme,
    options: CallOptions,
    operands: ProductOperands,
    choice: SchemeChoice | None = None,
) -> ProductCall:
    """The call of a scheme for these operands. Raises as `hwsim.run`."""
    request = request_of(chip, scheme, options, operands, is_chosen=choice is not None)
    if options.library.library is not None:
        request = adopted(request, options, operands.pair)
    else:
        _check_without_library(options)
    request, operands = rounded_first(by_instruction(request), options.scheme.format, operands)
    return ProductCall(request, resolve(request, operands.pair), operands, options, choice)


def _check_without_library(options: CallOptions) -> None:
    """Raise InputError for options of a library where there is none."""
    of_library = options.library
    beside = [name for name in LibraryOptions.__slots__ if getattr(of_library, name) is not None]
    if beside:
        raise InputError(f"{', '.join(beside)}: of a call of a library; give library= too, or leave it out")


@runtime_checkable
class Watcher(Protocol):
    """A callback of progress that also hears of the call, with its record, before its bits are computed."""

    def __call__(self, share: float) -> None: ...

    def resolved(self, call: ProductCall) -> None:
        """The call is resolved; computing begins."""


def of_computing(progress: Progress | None, call: ProductCall) -> Progress | None:
    """The callback for computing the bits: the second half, where a scheme was selected first. It hears of the call."""
    if isinstance(progress, Watcher):
        progress.resolved(call)
    if progress is None or call.choice is None:
        return progress
    return lambda share: progress((1 + share) / 2)


def _of_selecting(progress: Progress | None, is_exact: bool) -> Progress | None:
    """The callback for selecting a scheme: the first half, and all where no bits are computed."""
    if progress is None or not is_exact:
        return progress
    return lambda share: progress(share / 2)


def clocked(chip: Device, clock_mhz: float | None, power_limit_w: float | None = None) -> Device:
    """The device with its core clock set to `clock_mhz`, or its board's power to `power_limit_w` (None: unchanged).

    Raises InputError where both are given, and for a clock beside a device whose number for it was set.
    """
    base = chip.changed_from
    if clock_mhz is not None and base is not None and chip.clock_mhz != base.clock_mhz and chip.asked_mhz is None:
        raise InputError(
            f"clock_mhz = {clock_mhz:g}: the device's number clock_mhz was set to {chip.clock_mhz:g}, too; leave one "
            "of them out"
        )
    at_its_clock = chip if clock_mhz is None else at_clock(chip, clock_mhz)
    return at_its_clock if power_limit_w is None else at_power(at_its_clock, power_limit_w)


def _choice(
    chip: Device,
    named: Scheme | None,
    a: AnyArray | None,
    b: AnyArray | None,
    options: CallOptions,
    progress: Progress | None,
) -> SchemeChoice:
    """The scheme that scheme="auto" selects."""
    target = options.scheme.error_target
    if named is not None:
        raise InputError("error_target is for scheme='auto'; leave it out, or the scheme")
    if options.problem.conv is not None:
        raise InputError("scheme='auto' chooses for a matrix product; name a scheme beside conv")
    if target is None:
        raise InputError("scheme='auto' needs error_target, as 1e-6: relative to the product, Frobenius norm")
    of_schemes = {"format": options.scheme.format, **options.of_scheme}
    named_options = [name for name, value in of_schemes.items() if value is not None]
    if named_options:
        raise InputError(f"scheme='auto' chooses a scheme with its options; leave out {', '.join(named_options)}")
    operands = operands_of(a, b, options, scheme_of(DEFAULT_SCHEME))
    in_memory = options.problem.input_format
    input_format = common_format(*formats_in_memory(in_memory)) if in_memory else "fp32"
    return choose(chip, operands.sizes, target, operands.pair, input_format=input_format, progress=progress)
