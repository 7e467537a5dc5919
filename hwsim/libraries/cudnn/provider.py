"""cuDNN by name: the version whose kernels are known, and the chips it was asked on.

It knows the file of kernels, chips and cuBLAS as the library of products; no kernel.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hwsim.devices import load
from hwsim.errors import UnsupportedError
from hwsim.libraries.convolution_call import ConvolutionCall
from hwsim.libraries.cublas.provider import CUBLAS
from hwsim.libraries.cudnn.convolution_rules import CudnnRules
from hwsim.libraries.model.facts import convolution_kernels
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.libraries.protocol import AnyDevice, LibraryProvider, LibraryRequest, LibraryRules

if TYPE_CHECKING:
    from hwsim.libraries.model.convolution_model import KOrder

FILE = "cudnn-9.19.kernels.yaml"
NAMES = ("cudnn", "pytorch")  # of libraries whose convolutions are cuDNN's


class Cudnn(LibraryProvider):
    """cuDNN, one of hwsim.libraries.providers."""

    name = "cudnn"

    def on(self, request: LibraryRequest) -> CudnnRules:
        """The version that hwsim knows, on a device. Raises UnsupportedError for another, and for other chips."""
        kernels, chip = convolution_kernels(FILE), load(request.device)
        if request.version not in (None, kernels.version):
            raise UnsupportedError(f"{self.name}: no version {request.version!r}; there is {kernels.version!r}")
        is_asked = chip.name in kernels.devices
        if not is_asked and chip.family not in kernels.families:
            raise UnsupportedError(
                f"{self.name} {kernels.version}: its choices on {chip.name} are not known; they are on "
                f"{', '.join(kernels.devices)}, and assumed to be the same on chips of {', '.join(kernels.families)}; "
                "leave library out"
            )
        products: LibraryRules | None = None
        with suppress(UnsupportedError):
            products = CUBLAS.on(LibraryRequest(device=request.device))
        return CudnnRules(chip.name, chip.cores, kernels, is_asked, products)

    def from_file(self, path: Path, request: LibraryRequest) -> LibraryRules:
        """Raises UnsupportedError: answers in files are of GEMMs."""
        raise UnsupportedError(f"{path}: {self.name} reads no file of answers")


class ConvolutionLibrary(NamedTuple):
    """The library for the GEMM of one convolution, how its K runs, and whether its order of summation is known.
    backwards: of a gradient of images, over the filter's elements from the last to the first.
    """

    library: LibraryOnDevice
    k_order: KOrder
    is_known: bool
    backwards: bool


def convolution_library(name: object, device: AnyDevice, call: ConvolutionCall) -> ConvolutionLibrary:
    """The library for the GEMM of one convolution. name: of the library that was asked for.

    Raises UnsupportedError for a library without convolutions, and where cuDNN's choice is not known.
    """
    text = name.id.name if isinstance(name, LibraryOnDevice) else str(name)
    if text not in NAMES:
        raise UnsupportedError(
            f"library = {text!r} has no convolutions: PyTorch calls cuDNN for them; give library='cudnn' or 'pytorch', "
            "or leave it out"
        )
    rules = CUDNN.on(LibraryRequest(device=device))
    choice = rules.choose(call)
    is_known = rules.order(call, choice).known
    return ConvolutionLibrary(LibraryOnDevice(rules.bound(call)), choice.k_order, is_known, choice.backwards)


CUDNN = Cudnn()
