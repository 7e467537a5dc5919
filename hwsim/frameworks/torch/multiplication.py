"""One product of two tensors on a simulated device, as the settings of its layer and pass say, and its record.

The module knows settings and tensors; it knows no operator of PyTorch and no autograd.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hwsim.backend.by_name import CUDA
from hwsim.backend.by_name import chosen as chosen_engine
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.frameworks.product import NARROW, multiplied
from hwsim.frameworks.settings import PassName, PassSettings, Settings
from hwsim.frameworks.torch.depthwise_sums import DepthwiseSums
from hwsim.frameworks.torch.layer_record import Record, sample, sampled_operands
from hwsim.frameworks.torch.names import run_by_the_compiler
from hwsim.frameworks.torch.place import SCALED_GROUPED, Place
from hwsim.frameworks.torch.plain import plain_product
from hwsim.frameworks.torch.scale_tensors import PACKED, TensorScales, elements_of, scales_of
from hwsim.frameworks.torch.switches import NATIVE
from hwsim.frameworks.torch.tensors import FORMATS, AnyArray, array_of, format_name, gpu_array_of, layout, tensor_of
from hwsim.host.warned import warn_once
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.operands.operand import operand as operand_of
from hwsim.request.on_gpu import copied, work_of_host
from hwsim.request.operands import scaled_pair

if TYPE_CHECKING:
    from hwsim.gemm.record import Gemm

#: {key: (settings, the record that their products go to)} of everything that a compiled graph or a module may name.
_ACTIVE: dict[str, tuple[Settings, Record]] = {}
#: {operator: the library of its kernels}, where PyTorch calls none for it: GroupedBlas.cpp of PyTorch 2.11.
KERNELS_OF = {SCALED_GROUPED: "cutlass"}


IN_GRAPH = "#"  # between a key of settings and the number of the graph that names it


class _Entered(threading.local):
    """The settings and records of the contexts that a thread is in, by key, the innermost last."""

    def __init__(self) -> None:
        self.of: dict[str, list[tuple[Settings, Record]]] = {}


_ENTERED = _Entered()


def activate(settings: Settings, record: Record) -> None:
    """Make settings known by their key; products under them go to `record` from now on, but those of threads inside
    `activated`.
    """
    _ACTIVE[settings.key] = settings, record


@contextlib.contextmanager
def activated(settings: Settings, record: Record) -> Iterator[None]:
    """Inside, products of this thread under these settings go to `record`."""
    activate(settings, record)
    entered = _ENTERED.of.setdefault(settings.key, [])
    entered.append((settings, record))
    try:
        yield
    finally:
        entered.pop()


def active(key: str) -> tuple[Settings, Record]:
    """The settings of a key, also of one in a graph, and their record. Raises InputError for a key that this process
    does not know.
    """
    key = key.partition(IN_GRAPH)[0]
    entered = _ENTERED.of.get(key)
    current = entered[-1] if entered else _ACTIVE.get(key)
    if current is None:
        raise InputError(
            f"a compiled graph or module names hwsim settings {key} that this process has not made: enter "
            "hwsim.torch.emulate, or call hwsim.torch.swap, with the same arguments first"
        )
    return current


def multiply(
    place: Place,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None,
    alpha: float,
    beta: float,
    dtype: torch.dtype,
    library: LibraryOnDevice | None = None,
    is_known: bool = False,
    padding: int = 0,
    sums: DepthwiseSums | None = None,
    *,
    added_last: torch.Tensor | None = None,
    as_measured: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """alpha a b + beta c, of `dtype`. a (..., m, k), b (..., k, n), the same leading dimensions; c: (n,), a bias, or
    broadcast to the product. library: of a convolution whose product it is; None: that of the settings. is_known:
    whether the order of its kernel is. padding: how many of the products are of a convolution's padding, and no work.
    sums: of a depthwise kernel, c is its bias.
    added_last: a bias that PyTorch adds to the rounded result; c is None then. as_measured: gives rows (..., k) with K
    in the same order for all devices, for the record's errors; None: K has it already.
    """
    with torch._C.DisableTorchFunction():  # a gradient's own operations, and the record's, are not caught
        settings, record = active(place.key)
        chosen = settings.of(place.layer, place.stage)
        if chosen.arguments is None:
            record.left_plain(place.layer, prod((*a.shape, b.shape[-1])) - padding)
        if chosen.arguments is None or 0 in (*a.shape, b.shape[-1]):
            plain = plain_product(a, b, c, alpha, beta, dtype)
            return plain if added_last is None else plain + added_last
        start = time.perf_counter()
        taken = gpu_array_of if _stays_on_gpu(chosen, a, b) else array_of
        factors = sums.factors(a, b, c) if sums is not None and sums.begins_with_bias and c is not None else None
        more, is_added = _c_arguments(a, b, None if factors else c, alpha, beta, taken)
        output = format_name(dtype)
        if output in NARROW:
            more["output"] = output
        if settings.switches is not None:
            more |= settings.switches.arguments(chosen, place, format_name(a.dtype))
        if library is not None:
            more["library"] = library
        if {**chosen.arguments, **more}.get("library") is not None:
            more |= {"a_layout": layout(a), "b_layout": layout(b)}
        is_timed = record.timing and not place.is_timed_whole
        more |= {"timing": is_timed, "threads": chosen.arguments.get("threads") or torch.get_num_threads()}
        left, right = (taken(side) for side in factors or (a, b))
        if chosen.scale is not None and c is not None:  # the scaled product comes first
            more = {name: value for name, value in more.items() if name not in ("c", "bias", "beta")}
            is_added = True
        with _at(place, chosen):
            product, ready = multiplied(chosen, left, right, gradient=place.gradient, **more)
        macs, is_ordered = prod((*a.shape, b.shape[-1])) - padding, True
        if not is_known or ready.gemm.library is not None:
            is_ordered = _note_order(settings, record, place, format_name(a.dtype), ready.gemm, macs)
        if chosen.arguments.get("library") is not None:
            record.asked(macs, _confidence(ready.gemm), is_ordered=is_ordered)
        out = tensor_of(product, dtype, a.device)
        if sums is not None:
            out = sums.mended(out, a, b, c)
        if is_added and c is not None:
            out = out + (c if beta == 1 else beta * c).to(dtype)
        if added_last is not None:
            out = out + added_last
            c = added_last
        sampled = None
        if as_measured is not None and record.measures(place):
            rows, columns = sampled_operands(a, b)
            sampled = as_measured(rows), as_measured(columns.mT).mT
        seconds = time.perf_counter() - start
        record.product(place, a, b, c, alpha, beta, out, ready, seconds, padding, sampled=sampled)
        return out


def unknown_order(settings: Settings, place: Place, operand: str, gemm: Gemm) -> str:
    """What hwsim's own order stands for in a product whose kernel's order is not known, in words; "": it is known.

    operand: format of the tensors. gemm: the product's record.
    """
    if not gemm.is_order_known:
        arguments = settings.of(place.layer, place.stage).arguments or {}
        return f"{place.operation} of {arguments.get('format') or operand}"
    if gemm.library is not None or settings.switches is None:
        return ""
    return settings.switches.left_out(settings.of(place.layer, place.stage), place, operand)


@contextlib.contextmanager
def _at(place: Place, chosen: PassSettings) -> Iterator[None]:
    """Inside, what is not supported says at which layer, and how the model runs without it."""
    try:
        yield
    except UnsupportedError as error:
        where = f"layer {place.layer}" if place.layer else "a product outside of modules"
        assert chosen.arguments is not None
        device, pattern = chosen.arguments["device"].name, _pattern(place.layer)
        ways = [f'modules={{"{pattern}": {{"device": "{device}"}}}} for hwsim\'s own order']
        after = ""
        if chosen.arguments.get("library") != PYTORCH:
            of_pytorch = f'{{"device": "{device}", "library": "{PYTORCH}"}}'
            ways.insert(0, f'modules={{"{pattern}": {of_pytorch}}} for the kernels that PyTorch calls there')
            after = f". Layers without library={PYTORCH!r} have this CPU's norms, softmaxes and functions of elements"
        raise UnsupportedError(
            f"{where}, {place.operation}: {error}. To compute all products of {_those(place.layer)} otherwise, add "
            f'{", ".join(ways)}, or modules={{"{pattern}": "plain"}} for PyTorch\'s products by this CPU{after}'
        ) from error


def _pattern(layer: str) -> str:
    """A pattern for layers that are alike: any number stands for the numbers in the name. A name of numbers alone has
    none.
    """
    parts = layer.split(".")
    return layer if all(map(str.isdigit, parts)) else ".".join("*" if part.isdigit() else part for part in parts)


def _those(layer: str) -> str:
    if not layer:
        return "no module"
    return "such layers" if _pattern(layer) != layer else "this layer"


def _check_has_unit(chosen: PassSettings, place: Place, operand: str) -> None:
    """Raises UnsupportedError for a scaled product of a format that the device has no unit for: PyTorch's operators
    refuse such chips. Settings that name a format or another scheme than native say how it is computed.
    """
    assert chosen.arguments is not None
    device = chosen.arguments["device"]
    if chosen.arguments["scheme"].name != NATIVE or chosen.arguments.get("format") is not None:
        return
    if operand not in device.native:
        narrow = [name for name in device.native if format_of(name).bits <= 8 and not format_of(name).is_integer]
        has = f"its 8-bit floats are {', '.join(narrow)}" if narrow else "it has no 8-bit floats"
        raise UnsupportedError(
            f"{place.operator} of {operand} on {device.name}: {has}; take a device with {operand}, or give format=, "
            f"one of {', '.join(device.native)}"
        )


def _note_order(settings: Settings, record: Record, place: Place, operand: str, gemm: Gemm, macs: int) -> bool:
    """Count a product that hwsim's own order stands for; whether its order is known."""
    name = unknown_order(settings, place, operand, gemm)
    if name:
        (record.left_out if gemm.is_order_known else record.unordered)(name, macs, place.layer)
    return not name


def _confidence(gemm: Gemm) -> float | None:
    """The probability that a record's kernel is the library's; None where nobody gives one."""
    kernel = gemm.decided("kernel")
    return None if kernel is None else kernel.confidence


def _stays_on_gpu(chosen: PassSettings, a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether tensors of a GPU are multiplied where they are: by the engine cuda, where nothing reads operands on the
    host. A warning says once what does.
    """
    assert chosen.arguments is not None
    if not (a.is_cuda and b.is_cuda) or chosen_engine(chosen.arguments.get("engine")) != CUDA:
        return False
    what = "FP4 in pairs" if PACKED in (a.dtype, b.dtype) else work_of_host(chosen.arguments["scheme"], {})
    if what:
        warn_once(copied(what))
    return not what


def multiply_scaled(
    place: Place,
    operands: tuple[torch.Tensor, torch.Tensor],
    scale_a: Sequence[torch.Tensor],
    scale_b: Sequence[torch.Tensor],
    bias: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """The product of a (m, k) and b (k, n) with scales as of torch._scaled_mm, plus a bias (n,), of `dtype`."""
    with torch._C.DisableTorchFunction():
        a, b = operands
        settings, record = active(place.key)
        chosen = settings.of(place.layer, place.stage)
        scales = scales_of(a, b, scale_a, scale_b)
        if chosen.arguments is None:
            record.left_plain(place.layer, prod((*elements_of(a, -1).shape, b.shape[-1])))
            return plain_scaled_product(elements_of(a, -1), elements_of(b, -2), scales, bias, dtype)
        start = time.perf_counter()
        stays = _stays_on_gpu(chosen, a, b)
        left, right = (gpu_array_of(a), gpu_array_of(b)) if stays else (elements_of(a, -1), elements_of(b, -2))
        operand = format_name(a.dtype) if a.dtype in FORMATS else "e2m1"
        _check_has_unit(chosen, place, operand)
        more: dict[str, Any] = scales._asdict()
        more |= {"output": format_name(dtype)} if format_name(dtype) in NARROW else {}
        more |= {"bias": array_of(bias.contiguous())} if bias is not None else {}
        if settings.switches is not None:
            more |= settings.switches.arguments(chosen, place, operand)
        if {**chosen.arguments, **more}.get("library") is not None:
            more |= {"a_layout": layout(a), "b_layout": layout(b)}
            more |= {"library": KERNELS_OF[place.operator]} if place.operator in KERNELS_OF else {}
        more |= {"timing": record.timing, "threads": chosen.arguments.get("threads") or torch.get_num_threads()}
        with _at(place, chosen):
            product, ready = multiplied(chosen, left, right, **more)
        macs = prod((*left.shape, b.shape[-1]))
        is_ordered = _note_order(settings, record, place, operand, ready.gemm, macs)
        if chosen.arguments.get("library") is not None:
            record.asked(macs, _confidence(ready.gemm), is_ordered=is_ordered)
        out = tensor_of(product, dtype, a.device)
        seconds = time.perf_counter() - start
        whole_a, whole_b = (torch.empty(side.shape, device="meta") for side in (left, right))
        sampled: tuple[torch.Tensor, torch.Tensor] | None = None
        if stays and (record.observer is not None or record.measures(place)):
            left, right = elements_of(a, -1), elements_of(b, -2)
        if record.observer is not None:
            whole_a, whole_b = (values.float() for values in _multiplied_operands(left, right, scales))
        if record.measures(place):
            rows, columns = sample(*out.shape)
            some = _multiplied_operands(left, right, scales, (rows.numpy(), columns.numpy()))
            sampled = some[0].float(), some[1].float()
        record.product(place, whole_a, whole_b, bias, 1.0, 1.0, out, ready, seconds, sampled=sampled)
        return out


def plain_scaled_product(
    a: AnyArray, b: AnyArray, scales: TensorScales, bias: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    """The product of elements with scales in fp64, rounded to `dtype`."""
    left, right = _multiplied_operands(a, b, scales)
    product = left @ right
    return (product if bias is None else product + bias.double()).to(dtype)


def _multiplied_operands(
    a: AnyArray, b: AnyArray, scales: TensorScales, at: tuple[AnyArray, AnyArray] | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements of A and B times their scales, in fp64. at: rows of A and columns of B (None: all)."""
    sides = scaled_pair(operand_of("A", a), operand_of("B", b), *scales)
    if at is not None:
        sides = sides[0].picked(at[0], -1), sides[1].picked(at[1], -2)
    left, right = (side.multiplied_values(axis) for side, axis in zip(sides, (-1, -2), strict=True))
    return torch.from_numpy(left), torch.from_numpy(np.ascontiguousarray(right))


def _c_arguments(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None,
    alpha: float,
    beta: float,
    taken: Callable[[torch.Tensor], AnyArray],
) -> tuple[dict[str, Any], bool]:
    """alpha, beta, C and the bias as arguments of `hwsim.run`, and whether C has to be added afterwards. taken: makes
    an array of C.
    """
    more: dict[str, Any] = {} if alpha == 1 else {"alpha": alpha}
    if c is None or beta == 0:
        return more, False
    shape, n = (*a.shape[:-1], b.shape[-1]), b.shape[-1]
    if c.shape == (n,) and beta == 1 and alpha == 1:
        return {"bias": array_of(c.contiguous())}, False
    if c.dim() <= len(shape):
        return {**more, "c": taken(c.broadcast_to(shape).contiguous()), "beta": beta}, False
    return more, True


@run_by_the_compiler
def is_plain(key: str, layer: str, *stages: PassName) -> bool:
    """Whether the products of these passes of a layer are PyTorch's own."""
    settings, _ = active(key)
    return all(settings.of(layer, stage).arguments is None for stage in stages)


__all__ = ["activate", "activated", "active", "is_plain", "multiply", "multiply_scaled"]
