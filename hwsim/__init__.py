"""hwsim: bit-exact and cycle-level simulation of matrix engines.

import hwsim
r = hwsim.run(a, b, device="ascend910a", scheme="sgemm-cube")
r.c, r.cycles, r.error
"""

from hwsim._version import __version__
from hwsim.api import device, matmul, run
from hwsim.convolution import conv2d
from hwsim.emulation import Array, emulate
from hwsim.errors import ConfigError, HwsimError, InputError, MismatchError, ProgramError, UnsupportedError
from hwsim.result import Result

__all__ = [
    "Array",
    "ConfigError",
    "HwsimError",
    "InputError",
    "MismatchError",
    "ProgramError",
    "Result",
    "UnsupportedError",
    "__version__",
    "conv2d",
    "device",
    "emulate",
    "matmul",
    "run",
]
