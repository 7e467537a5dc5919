"""Seconds of a library's call: what its kernel was seen to take, and never less than the chip needs for the work.

It knows calls, times of programs and least times; it chooses nothing and resolves nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hwsim.analysis.program_times import Times
from hwsim.devices.least_time import LeastTime, least_time
from hwsim.errors import UnsupportedError
from hwsim.formats import format_of

if TYPE_CHECKING:
    from hwsim.analysis.run_records import Phase
    from hwsim.devices.device import Device
    from hwsim.gemm.record import Gemm
    from hwsim.libraries.call import LibraryCall
    from hwsim.libraries.gemm_call import GemmCall
    from hwsim.libraries.kernel_choice import KernelTimes


MERGE = "merge_"  # before a kernel's name: the kernel that adds its slices of K


def library_times(call: LibraryCall, gemm: Gemm, chip: Device, times: Times, *, launches: bool = False) -> Times:
    """The times of a program with the recorded ones of a library's kernels; as they are without some.

    times: of the program of `gemm`, the kernel's own or the scheme's. Of a scheme each kernel of a product takes what
    the library's takes; the others take their part of the program. chip: at the clock of its device file. launches:
    whether fitted times get a launch for each call, and one of the device's for each other kernel of a scheme.

    Raises UnsupportedError for launches where no time of one is known.
    """
    if call.times is None or not call.has_times_of(gemm):
        return times
    others, of_product, passes = 0.0, times.seconds or 0.0, 0
    if call.is_of_a_scheme:
        if times.seconds is None:
            return times
        kernels = [] if gemm.mapping is None else [kernel.name for kernel in gemm.mapping.kernels]
        phases = _phases_of(times, {*kernels, *(f"{MERGE}{name}" for name in kernels)})
        of_products, passes = sum(phase.seconds for phase in phases), len(times.phases) - len(phases)
        others, of_product = times.seconds - of_products, of_products / call.count
    seconds = others + call.count * kernel_seconds(chip, call.gemm, call.times, of_product)
    without = _at_seconds(times, seconds, call, chip)
    return _with_launches(without, call, _launch_seconds(call, chip, passes)) if launches else without


def _launch_seconds(call: LibraryCall, chip: Device, passes: int) -> float:
    """Seconds of the launches of a library's calls, and of the other kernels of a scheme."""
    launch_us = None if call.times is None else call.times.launch_us
    if launch_us is None or (passes and chip.launch_overhead_us is None):
        whose = "the library's" if launch_us is None else f"{chip.name}'s"
        raise UnsupportedError(f"launch_overhead: no time of {whose} launches is known; leave launch_overhead out")
    return (call.count * launch_us + passes * (chip.launch_overhead_us or 0.0)) * 1e-6


def _with_launches(times: Times, call: LibraryCall, launch_seconds: float) -> Times:
    """A library's times with its launches; the clock is that of its kernels."""
    gemm, before = call.gemm, times.seconds or 0.0
    seconds = before + launch_seconds
    share = None if times.peak_fraction is None else times.peak_fraction * before / seconds
    tflops = 2 * gemm.batch * gemm.m * gemm.n * gemm.k / seconds / 1e12
    return replace(
        times, seconds=seconds, tflops=tflops, peak_fraction=share, launches=True, launch_seconds=launch_seconds
    )


def kernel_seconds(chip: Device, call: GemmCall, times: KernelTimes, program_seconds: float = 0.0) -> float:
    """Seconds of one call beyond a launch: what is known of its kernel, at least what the chip needs for the work."""
    least = least_of(chip, call)
    return max(times.seconds(program_seconds * 1e6, least), least.us * 1e-6)


def least_of(chip: Device, call: GemmCall) -> LeastTime:
    """The least time of a call in a series of the same one, by the chip's fastest instruction for its operands."""
    m, n, k = call.sizes
    a, b, d = (format_of(name).bits / 8 for name in (call.format, call.format_b or call.format, call.result))
    moved = m * k * a + k * n * b + m * n * d * (2 if call.has_c else 1)
    return least_time(chip, chip.native.get(call.format), call.batch * m * n * k, call.batch * moved, is_series=True)


def _phases_of(times: Times, kernels: set[str]) -> list[Phase]:
    """The phases of these kernels of a program."""
    return [phase for phase in times.phases if phase.name.rpartition(".")[2] in kernels]


def _at_seconds(times: Times, seconds: float, call: LibraryCall, chip: Device) -> Times:
    """The times with a library's seconds. The clock is at least that at which the unit can compute the products."""
    gemm = call.gemm
    work_us = least_of(chip, gemm).products_us * call.count
    clock_mhz = times.clock_mhz
    if not seconds:
        return replace(times, seconds=seconds, tflops=None, peak_fraction=None, by_library=True)
    if clock_mhz is not None:
        clock_mhz = max(clock_mhz, round(chip.clock_mhz * work_us / (seconds * 1e6), 1))
    tflops = 2 * gemm.batch * gemm.m * gemm.n * gemm.k / seconds / 1e12
    fraction = times.peak_fraction
    if fraction is not None:
        fraction = work_us / (seconds * 1e6) * (chip.clock_mhz / (clock_mhz or chip.clock_mhz))
    return replace(times, seconds=seconds, tflops=tflops, peak_fraction=fraction, clock_mhz=clock_mhz, by_library=True)
