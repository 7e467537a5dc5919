"""The options that take a name, for words on the command line that are such names and lack their option.

It knows the names of devices, schemes and libraries; it is imported only to word an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hwsim.devices import names as device_names
from hwsim.libraries.providers import known_libraries
from hwsim.schemes import schemes

#: {option: the names that it takes}
NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "--device": lambda: (name for name, _ in device_names()),
    "--scheme": schemes,
    "--library": known_libraries,
}


def without_option(words: Sequence[str], flags: Sequence[str]) -> str:
    """What to say where one of the words is a name that an option takes; "" elsewhere. flags: of the verb."""
    for flag, names in NAMES.items():
        for word in words if flag in flags else ():
            if word in names():
                return f"; say {flag} {word}"
    return ""
