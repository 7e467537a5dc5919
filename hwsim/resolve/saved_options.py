"""Whether the scheme options of a saved record are those that its scheme declares, each with an allowed value."""

from __future__ import annotations

from collections.abc import Iterator

from hwsim.errors import InputError, nearest
from hwsim.gemm.record import Gemm
from hwsim.resolve.choice.cost import NATIVE
from hwsim.schemes import Scheme, schemes

HYBRID = "hybrid"  # the option of schemes that may take native fp32 instead, and then record their own options


#: Options that records of older versions lack: their defaults compute as these records say.
LATER = frozenset({"scale", "accumulation", "interleave"})


def check_scheme_options(gemm: Gemm, scheme: Scheme) -> None:
    """Raise InputError, which names the option, for one that is unknown, missing or of a value that is not allowed.

    scheme: the one that the record names. A record of native fp32 may hold the options of a scheme with `hybrid`.
    """
    names = [setting.name for setting in gemm.scheme_options]
    owner = next(
        (candidate for candidate in _owners(scheme, names) if [option.name for option in candidate.options] == names),
        scheme,
    )
    declared = {option.name: option for option in owner.options}
    where = f"gemm record: scheme {gemm.scheme}"
    for setting in gemm.scheme_options:
        if setting.name not in declared:
            has = ", ".join(declared) or "none"
            raise InputError(
                f"{where} has no option {setting.name!r}; it has {has}{nearest(setting.name, list(declared))}"
            )
        declared[setting.name].check(setting.value, where)
    missing = [name for name in declared if name not in names and name not in LATER]
    if missing:
        raise InputError(f"{where}: scheme_options lack {', '.join(missing)}; a record holds all of them")


def _owners(scheme: Scheme, names: list[str]) -> Iterator[Scheme]:
    yield scheme
    if scheme.name == NATIVE and HYBRID in names:
        yield from schemes().values()
