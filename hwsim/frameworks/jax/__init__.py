"""JAX on a simulated device: matrix products of jitted and differentiated functions with the bits of a chip.

dot = hwsim.jax.dot_general(device="b200", scheme="bf16x9")       # takes jax.lax.dot_general's place, as in Flax
step = hwsim.jax.emulated(loss, device="h200", format="bf16")     # every product of a function; jax.grad(step), jax.jit
hwsim.jax.emulated(loss, device="b200", scheme="precision")       # what the precision of each call names

Needs the extra `jax` (CPU suffices).
"""

from hwsim.errors import UnsupportedError

try:
    import jax as _jax
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise UnsupportedError("hwsim.jax needs JAX: pip install 'hwsim[jax]'") from None

from hwsim.frameworks.jax.products import dot_general
from hwsim.frameworks.jax.transform import Emulated, emulated

del _jax

__all__ = ["Emulated", "dot_general", "emulated"]
