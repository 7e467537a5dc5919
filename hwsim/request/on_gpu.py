"""What of a call with operands on a GPU is done on the host. It knows options and schemes; it knows no array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwsim.request.declarations import AUTO
from hwsim.schemes import Scheme, scheme_of

#: Options whose work reads elements of operands on the host.
OF_HOST = ("conv", "values")


def work_of_host(scheme: str | Scheme, options: Mapping[str, Any]) -> str:
    """What of a call reads its operands on the host, in words: the call copies them there; "": nothing."""
    names = [name for name in OF_HOST if options.get(name) is not None]
    if scheme == AUTO:
        names.append(f"scheme={AUTO!r}")
    else:
        chosen = scheme_of(scheme) if isinstance(scheme, str) else scheme
        if chosen.quantizes is not None:
            names.append(f"scheme {chosen.name}")
    return ", ".join(names)


def copied(what: str) -> str:
    """The warning of such a call. what: as of `work_of_host`."""
    return f"engine cuda: {what}: reads operands on the host; operands and result are copied from and to the GPU"
