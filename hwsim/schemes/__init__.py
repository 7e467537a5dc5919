"""Registry of GEMM schemes: hwsim's own, and those that installed packages register.

A package registers a scheme through the entry point group `hwsim.schemes` (a `Scheme` object). A file of the user's
needs none: FILE.py:NAME is the name of a scheme too.
"""

from __future__ import annotations

from hwsim.errors import InputError, nearest
from hwsim.gemm.option_types import Option
from hwsim.host.plugins import entry_points, loaded, object_of
from hwsim.schemes import (
    ape,
    bf16,
    fixedpoint,
    four_products,
    le_gemm,
    multiword,
    native,
    ootomo,
    ozaki,
    ozaki2,
    quantensor,
    quantized,
    sgemm_cube,
)
from hwsim.schemes.scheme import Notice, Scheme
from hwsim.schemes.scheme_file import is_scheme_file, scheme_file_digest, scheme_in_file

OWN = (
    native.SCHEME,
    sgemm_cube.SCHEME,
    le_gemm.SCHEME,
    *bf16.SCHEMES,
    *ape.SCHEMES,
    *multiword.SCHEMES,
    *four_products.SCHEMES,
    *ootomo.SCHEMES,
    quantensor.SCHEME,
    *ozaki.SCHEMES,
    *ozaki2.SCHEMES,
    *quantized.SCHEMES,
    fixedpoint.SCHEME,
)


def schemes() -> dict[str, Scheme]:
    """All schemes by name; a broken plug-in causes a warning and is left out."""
    by_name = {scheme.name: scheme for scheme in OWN}
    for scheme in loaded(entry_points(group="hwsim.schemes"), object_of(Scheme), "scheme plug-in").values():
        by_name.setdefault(scheme.name, scheme)
    return by_name


def scheme_of(name: str | Scheme) -> Scheme:
    """The scheme called `name`, or NAME in the file of FILE.py:NAME; a Scheme as it is.

    Raises InputError with a list of all schemes for an unknown name.
    """
    if isinstance(name, Scheme):
        return name
    built_in = next((scheme for scheme in OWN if scheme.name == name), None)
    if built_in is not None:  # without a look for plug-ins
        return built_in
    if is_scheme_file(name):
        return scheme_in_file(name)
    by_name = schemes()
    if name not in by_name:
        raise InputError(f"no scheme {name!r}; there are {', '.join(sorted(by_name))}{nearest(name, list(by_name))}")
    return by_name[name]


def shown_name(scheme: str | Scheme) -> str:
    """What tables and legends call a scheme: the label of an object and of a scheme in a file, else the name."""
    return scheme if isinstance(scheme, str) and not is_scheme_file(scheme) else scheme_of(scheme).label


__all__ = ["Notice", "Option", "Scheme", "is_scheme_file", "scheme_file_digest", "scheme_of", "schemes", "shown_name"]
