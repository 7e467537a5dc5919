"""Which calls take operands that lie on a GPU. It knows options and schemes; it knows no array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsim.errors import UnsupportedError
from hwsim.request.declarations import AUTO
from hwsim.schemes import Scheme, scheme_of

#: Options whose work reads elements or places of operands on the host.
OF_HOST = ("scale_a", "scale_b", "tensor_scales", "sparsity", "conv", "library", "functional", "values")


def check_on_gpu(scheme: str | Scheme, options: Mapping[str, Any]) -> None:
    """Raise UnsupportedError where a call needs operands on the host: it, or its scheme, looks at them."""
    names = [name for name in OF_HOST if options.get(name) is not None and options[name] is not False]
    if scheme == AUTO:
        names.append(f"scheme={AUTO!r}")
    else:
        chosen = scheme_of(scheme) if isinstance(scheme, str) else scheme
        if chosen.quantizes is not None:
            names.append(f"scheme {chosen.name}")
    if names:
        raise UnsupportedError(
            f"{', '.join(names)}: looks at operands on the host, and these lie on a GPU; give NumPy's arrays (x.get())"
        )
