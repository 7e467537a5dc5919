"""PyTorch's switches, as they stand: which formats products of fp32 and fp16 tensors take, and what cuBLAS is told.

The module knows PyTorch's settings and the environment, and what they make of a product's arguments; it knows no
tensor and no kernel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from hwsim.devices import narrow_instruction
from hwsim.devices.device import Device
from hwsim.errors import InputError, UnsupportedError
from hwsim.frameworks.settings import PassSettings
from hwsim.frameworks.torch.place import CONVOLUTION, Place
from hwsim.gemm.schedule import Schedule
from hwsim.libraries.pytorch.routes import is_of_gemms, pytorch, route_of

KIB = 1024
NATIVE = "native"
#: {a precision of fp32 products, by PyTorch's name: the arguments of hwsim.run that compute so}
PRECISIONS: Mapping[str, Mapping[str, Any]] = {"ieee": {}, "tf32": {"format": "tf32"}}
BF16X9 = ("bfx9", "16x9")  # of products alone; versions after 2.13 have it
#: Options with which a caller says himself what a switch would.
OF_FORMATS = ("format", "format_b", "schedule")
OF_SUMS = ("accumulate", "k_group", "schedule")
OF_CHAINS = (*OF_FORMATS, *OF_SUMS, "split_k")
FP64_BITS = "CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT"
OF_LIBRARY = ("reductions", "workspace_bytes", "lt_workspace_bytes")
#: Switches of PyTorch's that are no arguments: what to do instead. Its names: torch.backends.cuda.matmul, 2.11.
REDUCED = 'give reductions="none" for no slices, or "compute" for slices that meet in fp32'
NO_ARGUMENTS = {
    "allow_splitk": 'give reductions="none"',
    "allow_bf16_reduced_precision_reduction": REDUCED,
    "allow_fp16_reduced_precision_reduction": REDUCED,
    "allow_fp16_accumulation": "set torch.backends.cuda.matmul.allow_fp16_accumulation before",
    "allow_tf32": 'give format="tf32", or set torch.backends.cuda.matmul.allow_tf32 before',
    "fp32_precision": 'give format="tf32", or set torch.backends.cuda.matmul.fp32_precision before',
}


@dataclass(frozen=True, slots=True)
class Switches:
    """PyTorch's switches at one moment.

    reductions: by format of the operands, in which type slices of K may be added: "any", "compute", "none" (no slices).
    products, convolutions: PyTorch's precision of fp32 ones ("ieee", "tf32", "16x9"). workspace_bytes:
    {"workspace_bytes": of cublasGemmEx, "lt_workspace_bytes": of cublasLtMatmul}, those that the environment says.
    alternative_fp16: rocBLAS's for fp16 products: "backward" (its default), "always", "never". fp64: the arguments of
    hwsim.run for fp64 products that cuBLAS emulates; empty where it does not. narrow_sums: fp16 products are added in
    fp16.
    """

    reductions: Mapping[str, str]
    products: str
    convolutions: str
    workspace_bytes: Mapping[str, int] = field(default_factory=dict)
    alternative_fp16: str = "backward"
    fp64: Mapping[str, Any] = field(default_factory=dict)
    narrow_sums: bool = False

    @property
    def text(self) -> str:
        """All of them in one line."""
        words = [f"reductions of {fmt} {value}" for fmt, value in self.reductions.items()]
        words += [f"fp32 products {self.products}", f"fp32 convolutions {self.convolutions}"]
        words += [f"{name} {value}" for name, value in self.workspace_bytes.items()]
        words += [f"alternative fp16 {self.alternative_fp16}"] if self.alternative_fp16 != "backward" else []
        words += [f"fp64 products {' '.join(map(str, self.fp64.values()))}"] if self.fp64 else []
        words += ["allow_fp16_accumulation"] if self.narrow_sums else []
        return "PyTorch's switches: " + ", ".join(words)

    def arguments(self, chosen: PassSettings, place: Place, operand: str) -> dict[str, Any]:
        """What the switches make of a product's arguments, where these do not say otherwise.

        chosen: of the product's pass. operand: format of the tensors.
        """
        arguments = chosen.arguments
        assert arguments is not None
        more: dict[str, Any] = {}
        device: Device = arguments["device"]
        if arguments["scheme"].name == NATIVE:
            if all(arguments.get(name) is None for name in OF_FORMATS):
                more |= self._precision(device, place, operand)
            if all(arguments.get(name) is None for name in OF_SUMS) and place.accumulate is not None:
                more |= {"accumulate": place.accumulate if device.family in pytorch().promoting.families else "fast"}
            if self.adds_narrow(device, place, operand) and all(arguments.get(name) is None for name in OF_CHAINS):
                # cuBLAS's kernels for it were never asked for: the unit's own order stands for theirs
                schedule = Schedule(instruction=narrow_instruction(device, operand))
                return more | {"schedule": schedule} | dict.fromkeys(("library", *OF_LIBRARY))
        if arguments.get("library") is None:
            return more
        is_fused = bool(place.stands_for or place.part_of)
        if is_fused or not is_of_gemms(place.operator, operand, device.name, device.family):
            return more | dict.fromkeys(("library", *OF_LIBRARY))
        if operand == "fp64" and self.fp64 and arguments["scheme"].name == NATIVE and place.operation != CONVOLUTION:
            return more | dict(self.fp64) | dict.fromkeys(("library", *OF_LIBRARY))
        told: dict[str, Any] = dict(self.workspace_bytes)
        if operand in self.reductions:
            told["reductions"] = self.reductions[operand]
        return more | {name: value for name, value in told.items() if arguments.get(name) is None}

    def left_out(self, chosen: PassSettings, place: Place, operand: str) -> str:
        """Which library's kernel or which switch is not followed for a product, although a library was asked for, in
        words; "": all is as PyTorch has it.
        """
        arguments = chosen.arguments
        assert arguments is not None
        if arguments.get("library") is None:
            return ""
        device: Device = arguments["device"]
        if place.stands_for:
            kernel = f"{place.stands_for} of {operand}"  # gradients have operands of both formats
            whose = kernel if place.stage == "forward" else f"the backward pass of {place.stands_for}"
            return f"{whose}, in the unit's own order"
        if place.part_of or is_of_gemms(place.operator, operand, device.name, device.family):
            if place.part_of or not self.adds_narrow(device, place, operand):
                return ""
            return f"{place.operator} of {operand} with allow_fp16_accumulation, sums in fp16 in the unit's own order"
        route = route_of(place.operator, operand, device.name, device.family)
        return "" if route.order else f"{place.operator} of {operand} by {route.library}, in the unit's own order"

    def adds_narrow(self, device: Device, place: Place, operand: str) -> bool:
        """Whether the library of products is told to add a product in its operands' format."""
        told = pytorch().narrow_sums
        is_product = not place.stands_for and is_of_gemms(place.operator, operand, device.name, device.family)
        return self.narrow_sums and operand == told.operand and device.family in told.families and is_product

    def _precision(self, device: Device, place: Place, operand: str) -> Mapping[str, Any]:
        """Another format than the operands', by a switch."""
        framework = pytorch()
        if operand == "fp32":
            wanted = self.convolutions if place.operation == CONVOLUTION else self.products
            if wanted in BF16X9 and place.operation != CONVOLUTION and device.family in framework.emulating_families:
                return {"scheme": "bf16x9"}
            if wanted not in PRECISIONS:
                raise UnsupportedError(
                    f"fp32_precision = {wanted!r} for a {place.operator} on {device.name}: PyTorch has "
                    f"{', '.join(PRECISIONS)}, and {BF16X9[-1]} for products on chips of "
                    f"{', '.join(framework.emulating_families)}; set another, or give format= or scheme="
                )
            return PRECISIONS[wanted] if device.family in framework.tf32_families else {}
        is_backward = place.stage != "forward"
        if self.alternative_fp16 == "always" or (is_backward and self.alternative_fp16 == "backward"):
            for instead in framework.backward.values():
                if device.name in instead.chips and operand == instead.operand:
                    return {"format": instead.format}
        return {}


def refuse_switches(arguments: Mapping[str, Any]) -> None:
    """Raises InputError where an argument, also of a pass or a pattern of modules, is a switch of PyTorch's."""
    for name, value in arguments.items():
        if name in NO_ARGUMENTS:
            raise InputError(f"{name} is a switch of PyTorch's and no argument; {NO_ARGUMENTS[name]}")
        if isinstance(value, Mapping) and name != "device":
            refuse_switches(value)


def current() -> Switches:
    """The switches as they stand now. Raises InputError for an environment that PyTorch would not take."""
    matmul = torch.backends.cuda.matmul
    narrow = {
        "fp16": matmul.allow_fp16_reduced_precision_reduction,
        "bf16": matmul.allow_bf16_reduced_precision_reduction,
    }
    slices = {fmt: getattr(matmul, f"allow_{fmt}_reduced_precision_reduction_split_k", True) for fmt in narrow}
    size = _workspace(os.environ.get("CUBLAS_WORKSPACE_CONFIG"))
    lt_size = _kib("CUBLASLT_WORKSPACE_SIZE", os.environ.get("CUBLASLT_WORKSPACE_SIZE"))
    sizes = {"workspace_bytes": size, "lt_workspace_bytes": lt_size}
    alternative = {"0": "never", "1": "always"}.get(os.environ.get("ROCBLAS_INTERNAL_FP16_ALT_IMPL", ""), "backward")
    return Switches(
        reductions={fmt: "any" if is_on else "compute" if slices[fmt] else "none" for fmt, is_on in narrow.items()},
        products=_precision_of("matmul"),
        convolutions=_precision_of("conv"),
        workspace_bytes={name: value for name, value in sizes.items() if value is not None},
        alternative_fp16=alternative,
        fp64=_emulation(os.environ),
        narrow_sums=bool(getattr(matmul, "allow_fp16_accumulation", False)),
    )


def _emulation(environment: Mapping[str, str]) -> Mapping[str, Any]:
    """How cuBLAS 13 emulates fp64 products by its switches in the environment; empty where it does not.

    Without the strategy "eager" cuBLAS emulates where that is faster. On an H100 it never is: 109 captured products are
    native. Raises InputError for a number of bits that is none.
    """
    if environment.get("CUBLAS_EMULATE_DOUBLE_PRECISION") != "1":
        return {}
    if environment.get("CUBLAS_EMULATION_STRATEGY", "").lower() != "eager":
        return {}
    bits = environment.get(FP64_BITS)
    if bits and not bits.isdecimal():
        raise InputError(f"{FP64_BITS} = {bits!r}; allowed: a number of bits, as 55")
    return {"scheme": "fixedpoint-fp64", "bits": int(bits) if bits else "dynamic"}


def _precision_of(operation: str) -> str:
    """PyTorch's precision of fp32 operands of CUDA's "matmul" or "conv"."""
    if not hasattr(torch._C, "_get_fp32_precision_getter"):  # versions before such switches
        switch = torch.backends.cuda.matmul if operation == "matmul" else torch.backends.cudnn
        return "tf32" if switch.allow_tf32 else "ieee"
    precision = str(torch._C._get_fp32_precision_getter("cuda", operation))
    return "ieee" if precision == "none" else precision


def _workspace(config: str | None) -> int | None:
    """Bytes that CUBLAS_WORKSPACE_CONFIG=:KIB:COUNT[:KIB:COUNT...] asks for; None: it is not set."""
    if not config:
        return None
    sizes = config.removeprefix(":").split(":")
    if not config.startswith(":") or len(sizes) % 2 or not all(size.isdecimal() for size in sizes):
        raise InputError(f"CUBLAS_WORKSPACE_CONFIG = {config!r}; allowed: :KIB:COUNT, as :4096:8 or :16:8")
    numbers = [int(size) for size in sizes]
    return KIB * sum(size * count for size, count in zip(numbers[::2], numbers[1::2], strict=True))


def _kib(name: str, text: str | None) -> int | None:
    """Bytes of a number of KiB in the environment; None: it is not set."""
    if not text:
        return None
    if not text.isdecimal():
        raise InputError(f"{name} = {text!r}; allowed: a number of KiB, as 1024")
    return int(text) * KIB
