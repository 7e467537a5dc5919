"""The library call that a request stands for, and what follows from it: the order of summation, format and decisions.

A request is called as PyTorch 2.11 calls cuBLAS: `mm` is cublasGemmEx with 32 MiB of workspace, products with a bias
are `F.linear` (cublasLtMatmul with 1 MiB), e4m3 is `_scaled_mm` (1 MiB), int8 `_int_mm` (none); reduced-precision
reductions are off. Found by asking cuBLASLt with each and comparing the kernels that ran: docs/library.md. It knows
libraries and requests; it computes no bit and no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.layouts import Order
from hwsim.gemm.record import Decision, LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.library_calls.choose import MIB, LibraryChoice, LibraryOnDevice, Reductions, library
from hwsim.library_calls.orders import is_rounded_before_bias

if TYPE_CHECKING:
    from hwsim.devices.device import Device

NARROW = ("fp16", "bf16")
#: Format of the fused multiply-adds that kernels without a matrix unit do, by the format of the operands.
LANES = {"fp16": "fp32", "bf16": "fp32", "tf32": "fp32", "fp32": "fp32", "fp64": "fp64"}


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """What a library's choice makes of a request.

    format: of the operands in the kernel; schedule: its order of summation; product_format: to which the sum is rounded
    before the bias is added, None: the sum's own. mapping: options of the dataflow that follow from the kernel.
    """

    id: LibraryId
    choice: LibraryChoice
    layouts: tuple[Order, Order]
    format: str
    schedule: Schedule
    product_format: str | None
    decisions: tuple[Decision, ...]
    mapping: dict[str, Any] = field(default_factory=dict, hash=False)


def called(
    name: str,
    chip: Device,
    sizes: tuple[int, int, int],
    *,
    format: str,
    output: str | None,
    accumulate: str | None,
    layouts: tuple[str, str],
    batch: int,
    has_bias: bool,
) -> LibraryCall:
    """The call for a product of these sizes. Raises UnsupportedError where the library has none, or its order of
    summation is not known.
    """
    m, n, k = sizes
    wide = output or _result_format(format)
    asked, reductions = library_for_call(name, chip, (n, k), format=format, output=wide, has_bias=has_bias)
    choice = asked.choose(
        m=m, n=n, k=k, format=format, output=wide, accumulate=accumulate, a_layout=layouts[0], b_layout=layouts[1],
        batch=batch, bias=has_bias, reductions=reductions,
    )  # fmt: skip
    used = LANES[format] if choice.computes == "lanes" else format
    schedule = choice.schedule
    if choice.computes not in ("lanes", "native"):
        schedule = replace(schedule, instruction=choice.computes)
    orders: tuple[Order, Order] = (_order(layouts[0]), _order(layouts[1]))
    is_lt = n > 1 and k > 1  # else PyTorch adds the bias as a C of cublasGemmEx
    is_rounded_twice = (
        has_bias
        and wide in NARROW
        and is_rounded_before_bias(choice.algorithm, choice.split_k, choice.reduction, is_lt)
    )
    product = wide if is_rounded_twice else None
    return LibraryCall(asked.id, choice, orders, used, schedule, product, tuple(_decisions(choice)), _mapping(choice))


def _mapping(choice: LibraryChoice) -> dict[str, Any]:
    """What a dataflow is told of the kernel, so that its cycles are the kernel's."""
    if choice.tile is None or choice.computes != "native" or not choice.tile_k:
        return {}
    m, n = choice.tile
    return {"tile": {"m": m, "n": n, "k": choice.tile_k}}


def library_for_call(
    name: str, chip: Device, sizes: tuple[int, int], *, format: str, output: str | None, has_bias: bool = False
) -> tuple[LibraryOnDevice, Reductions]:
    """The library as PyTorch asks it: with the workspace of the call, and in which type slices may be reduced.

    sizes: (n, k), which say whether a bias goes through cublasLtMatmul.
    """
    chosen = library(name, device=chip)
    n, k = sizes
    wide = output or _result_format(format)
    is_lt = format in ("e4m3", "int8") or (has_bias and n > 1 and k > 1)
    workspace = 0 if format == "int8" else MIB if is_lt else 32 * MIB
    reductions: Reductions = "compute" if wide in NARROW and format in NARROW else "any"
    return LibraryOnDevice(
        chosen.version, chosen.device, replace(chosen.preference, workspace_bytes=workspace)
    ), reductions


def _order(layout: str) -> Order:
    return "columns" if layout == "columns" else "rows"  # checked by then


def _result_format(format: str) -> str:
    return {"fp64": "fp64", "int8": "int32"}.get(format, "fp32")


def _decisions(choice: LibraryChoice) -> list[Decision]:
    sure = f"right with a probability of {choice.confidence:.2f}"
    found = [Decision("kernel", choice.kernel, "library", choice.evidence, f"algorithm {choice.algorithm}, {sure}")]
    found.append(Decision("split_k", str(choice.split_k), "library", choice.evidence, sure))
    if not choice.known:
        why = "how this kernel adds over K is not known; one chain in order of K stands for it"
        found.append(Decision("order of summation", "one chain in order of K", "default", "assumption", why))
    return found


def checked_against(own: Mapping[str, Any], mapping: Mapping[str, Any], scheme: str) -> None:
    """Raise where a request says what the library decides, or asks for what is no call of it."""
    said = [name for name in ("split_k", "tile", "instruction", "cluster", "stages") if mapping.get(name) is not None]
    said += ["schedule"] if own["schedule"] is not None else []
    if said:
        raise InputError(f"library = {own['library']!r} decides {', '.join(said)}; leave one of them out")
    if scheme != "native":
        raise UnsupportedError(
            f"library = {own['library']!r} is for scheme native; of scheme {scheme} run each product by itself"
        )
