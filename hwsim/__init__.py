"""hwsim: bit-exact and cycle-level simulation of matrix engines.

import hwsim
r = hwsim.run(a, b, device="ascend910a", scheme="sgemm-cube")          # a Result: bits, errors, cycles, where time went
r.c, r.cycles, r.error
c = hwsim.matmul(a, b, device="h200", scheme="tf32x3")                 # the bits alone
d = hwsim.device("h200").mma("wgmma.m64n8k16.f32.f16.f16", x, y, z)    # one instruction
q = hwsim.quantize(x, "nvfp4")                                         # elements, scales and a factor
y = hwsim.conv2d(x, w, device="h200")                                  # a convolution as implicit GEMM, bits;
                                                                       # its time: run(conv={...}, exact=False)
with hwsim.emulate(device="b200", scheme="bf16x9"): ...                # NumPy's products go there; `Array`: those of @

Errors that a user can mend are HwsimErrors. hwsim.run's docstring has all arguments, docs/ everything else.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hwsim._version import __version__
from hwsim.host import renderers

if TYPE_CHECKING:
    from hwsim.api import device, matmul, run
    from hwsim.arithmetic.mufu import mufu
    from hwsim.attending.array_attention import attention
    from hwsim.devices.which import which
    from hwsim.errors import ConfigError, HwsimError, InputError, MismatchError, ProgramError, UnsupportedError
    from hwsim.frameworks.numpy.convolution import conv2d
    from hwsim.frameworks.numpy.emulation import Array, emulate
    from hwsim.operands.quantization import dequantize, quantize
    from hwsim.operands.sparse import prune
    from hwsim.resolve.library_on_device import library
    from hwsim.result import Result
    from hwsim.studies.invariance import invariance
    from hwsim.studies.questions import Variant, diff, explain, tune
    from hwsim.studies.sweep import sweep
    from hwsim.studies.workload import workload

__all__ = [
    "Array",
    "ConfigError",
    "HwsimError",
    "InputError",
    "MismatchError",
    "ProgramError",
    "Result",
    "UnsupportedError",
    "Variant",
    "__version__",
    "attention",
    "conv2d",
    "dequantize",
    "device",
    "diff",
    "emulate",
    "explain",
    "invariance",
    "library",
    "matmul",
    "mufu",
    "prune",
    "quantize",
    "run",
    "sweep",
    "tune",
    "which",
    "workload",
]

# What is imported when first asked for (PEP 562): `import hwsim` and `hwsim --help` need no NumPy.
_NAMES = {
    "api": ("device", "matmul", "run"),
    "arithmetic.mufu": ("mufu",),
    "attending.array_attention": ("attention",),
    "frameworks.numpy.convolution": ("conv2d",),
    "frameworks.numpy.emulation": ("Array", "emulate"),
    "operands.quantization": ("dequantize", "quantize"),
    "operands.sparse": ("prune",),
    "resolve.library_on_device": ("library",),
    "studies.invariance": ("invariance",),
    "studies.sweep": ("sweep",),
    "devices.which": ("which",),
    "studies.workload": ("workload",),
    "errors": ("ConfigError", "HwsimError", "InputError", "MismatchError", "ProgramError", "UnsupportedError"),
    "studies.questions": ("Variant", "diff", "explain", "tune"),
    "result": ("Result",),
}
_MODULES = (
    *_NAMES,
    *("_kernels", "analysis", "arithmetic", "backend", "compute", "dataflows", "devices", "evaluate", "formats"),
    *("frameworks", "gemm", "host", "libraries", "machines", "numerics", "operands", "program", "report", "request"),
    *("resolve", "schemes", "studies"),
    *("format_arrays", "jax", "plots", "torch", "trace", "triton"),
)


#: What shows a result: hwsim.report, loaded when a result is first shown.
_RENDERERS = {
    "card of a run": "hwsim.report.result_card:result_card",
    "page of a run": "hwsim.report.page.run_page:run_page",
    "text of a change": "hwsim.report.text.whatif_text:changed_text",
    "text of a search": "hwsim.report.text.tune_text:tune_text",
    "text of a sweep": "hwsim.report.text.sweep_text:sweep_text",
}


def _loader(place: str) -> Callable[[], Any]:
    module, _, name = place.partition(":")
    return lambda: getattr(import_module(module), name)


for _name, _place in _RENDERERS.items():
    renderers.register(_name, _loader(_place))


def __getattr__(name: str) -> Any:
    """Import a public name, or a submodule, on first access (PEP 562)."""
    module = next((module for module, names in _NAMES.items() if name in names), None)
    if module is not None:
        globals()[name] = value = getattr(import_module(f"hwsim.{module}"), name)
        return value
    if name in _MODULES:
        return import_module(f"hwsim.{name}")
    raise AttributeError(f"module 'hwsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names and the submodules: nothing that this module imports for itself."""
    modules = [name for name in _MODULES if "." not in name and not name.startswith("_")]
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, *modules})
